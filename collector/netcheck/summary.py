"""Summarise a measurement as a few lines of text."""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, List

from .parts import bus_bytes, mbit_s, parts_of

_MOST_PAIRS = 3
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def lines_of(content: Dict[str, Any]) -> List[str]:
    """Return lines that show a file's content: medians of all rounds."""
    return [
        _title(content),
        *_gradients(content),
        *_sweep(content),
        *_pairs(content),
        *("left out: %s" % what for what in content["left_out"][:1]),
    ]


def _title(content: Dict[str, Any]) -> str:
    hosts = len(set(content["hosts"]))
    return "%d ranks on %d host%s, %s with %s (%s), on %s" % (
        content["size"],
        hosts,
        "" if hosts == 1 else "s",
        content["reduced_by"],
        content["framework"],
        ", ".join(content["reduces_with"]) or "unknown",
        content["device"].upper(),
    )


def _gradients(content: Dict[str, Any]) -> List[str]:
    gradients = content["gradients"]
    if gradients is None or not gradients["as_run_us"]:
        return []
    as_run = median(gradients["as_run_us"])
    tensors = sum(count for _, count in gradients["sizes"])
    total = sum(size * count for size, count in gradients["sizes"])
    equal = ", taken as equally large" if gradients["from"] == "totals" else ""
    lines = [
        "gradients of the run: %.2f ms for %s in %d tensor%s%s"
        % (as_run / 1e3, _size(total), tensors, "" if tensors == 1 else "s", equal)
    ]
    tiny = {point["messages"]: median(point["us"]) for point in content["tiny"]}
    if len(tiny) > 1 and gradients["together_us"]:
        count = max(tiny)
        together, negotiates = median(gradients["together_us"]), content["reduced_by"] == "horovod"
        parts = parts_of(as_run, together, tiny[1], tiny[count], count, negotiates)
        named = [(name, us) for name, us in parts._asdict().items() if us is not None]
        lines.append("  of which %s ms" % ", ".join("%s %.2f" % (n, us / 1e3) for n, us in named))
    return lines


def _sweep(content: Dict[str, Any]) -> List[str]:
    lines = []
    for point in sorted(content["sweep"], key=lambda point: int(point["bytes"])):
        us = median(point["us"])
        rate = bus_bytes(content["size"], point["bytes"]) / us / 1e3
        lines.append(
            "allreduce of %8s: %8.2f ms, %6.3f GB/s" % (_size(point["bytes"]), us / 1e3, rate)
        )
    return lines


def _pairs(content: Dict[str, Any]) -> List[str]:
    rates = sorted((rate_of(pair), " and ".join(pair["hosts"])) for pair in content["pairs"])
    shown = ["%s %s" % (name, _rate(rate)) for rate, name in rates[:_MOST_PAIRS]]
    return ["slowest pairs of hosts: %s" % ", ".join(shown)] if shown else []


def rate_of(pair: Dict[str, Any]) -> float:
    """Return the Mbit/s of a pair of hosts, each way."""
    return mbit_s(int(pair["bytes"]), median(pair["us"]), pair["small_us"])


def _rate(value: float) -> str:
    return "%.1f Gbit/s" % (value / 1e3) if value >= 1e3 else "%.1f Mbit/s" % value


def _size(count: int) -> str:
    unit, name = next((unit, name) for unit, name in _UNITS if count >= unit or unit == 1)
    return "%.4g %s" % (count / unit, name)
