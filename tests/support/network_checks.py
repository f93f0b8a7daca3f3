"""Write measurements of a network as ``stallscope netcheck`` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def network_check(**changes: Any) -> dict[str, Any]:
    """Return two ranks of one host: 12 ms of gradients, of which 8 ms are bandwidth.

    One message takes 1.5 ms of negotiation and 0.5 ms of latency, and its bytes 8 ms; as the run
    reduces its gradients they take 2 ms more.
    """
    content = {
        "stallscope_netcheck": 1,
        "stallscope": "0.1.0",
        "run_id": None,
        "launch": None,
        "began_wall_ns": 1_700_000_000_000_000_000,
        "seconds": 31.5,
        "framework": "torch",
        "reduced_by": "horovod",
        "reduces_with": ["gloo"],
        "device": "cpu",
        "size": 2,
        "hosts": ["alpha", "alpha"],
        "settings": {},
        "versions": {"horovod": "0.28.1"},
        "gradients": {
            "from": "sizes",
            "sizes": [[4_000, 10], [960_000, 10]],
            "as_run_us": around(12_000),
            "together_us": around(10_000),
        },
        "sweep": [{"bytes": 4096, "us": around(2_000)}, {"bytes": 8 << 20, "us": around(9_000)}],
        "tiny": [
            {"messages": 1, "us": around(2_000)},
            {"messages": 8, "us": around(1_500 + 8 * 500)},
        ],
        "pairs": [],
        "left_out": [],
    }
    return {**content, **changes}


def around(us: float, count: int = 11) -> Sequence[float]:
    """Return times around a median, 1 % apart, in an order without a trend."""
    order = [5 * number % count for number in range(count)]
    return [us * (1 + (number - count // 2) / 100) for number in order]


def pair(first: str, second: str, mbit_s: float) -> dict[str, Any]:
    """Return the exchanges of 1 MB between two hosts at a rate."""
    small_us = around(800)
    us = around(min(small_us) + 8e6 / mbit_s)
    return {"hosts": [first, second], "bytes": 1_000_000, "us": us, "small_us": small_us}


def write_network_check(folder: Path, **changes: Any) -> Path:
    """Write a file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"20231114T221320Z.{len(list(folder.glob('*.netcheck.json')))}.netcheck.json"
    path.write_text(json.dumps(network_check(**changes)) + "\n")
    return path
