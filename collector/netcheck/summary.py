"""What was measured, as a few lines of text."""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, List

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
    found = content["gradients"]
    if found is None or not found["as_run_us"]:
        return []
    as_run = median(found["as_run_us"])
    tensors = sum(count for _, count in found["sizes"])
    total = sum(size * count for size, count in found["sizes"])
    equal = ", taken as equally large" if found["from"] == "totals" else ""
    lines = [
        "gradients of the run: %.2f ms for %s in %d tensor%s%s"
        % (as_run / 1e3, _size(total), tensors, "" if tensors == 1 else "s", equal)
    ]
    tiny = {one["messages"]: median(one["us"]) for one in content["tiny"]}
    if len(tiny) > 1 and found["together_us"]:
        lines.append("  of which %s" % _split(as_run, median(found["together_us"]), tiny))
    return lines


def _split(as_run: float, together: float, tiny: Dict[int, float]) -> str:
    """Split the gradients' time, all in µs.

    More messages at once add their latencies. The rest of one small message is negotiation. One large
    tensor adds its bandwidth, and many tensors add fusion.
    """
    fewest, most = min(tiny), max(tiny)
    latency = max(0.0, (tiny[most] - tiny[fewest]) / (most - fewest))
    latency = min(latency, tiny[fewest])
    parts = {
        "bandwidth": together - tiny[fewest],
        "latency": latency,
        "negotiation": tiny[fewest] - latency,
        "fusion": as_run - together,
    }
    return ", ".join("%s %.2f" % (name, max(0.0, us) / 1e3) for name, us in parts.items()) + " ms"


def _sweep(content: Dict[str, Any]) -> List[str]:
    # The bytes that each rank sends in a ring.
    factor = 2 * (content["size"] - 1) / content["size"]
    lines = []
    for one in sorted(content["sweep"], key=lambda one: int(one["bytes"])):
        us = median(one["us"])
        rate = factor * one["bytes"] / us / 1e3
        lines.append(
            "allreduce of %8s: %8.2f ms, %6.3f GB/s" % (_size(one["bytes"]), us / 1e3, rate)
        )
    return lines


def _pairs(content: Dict[str, Any]) -> List[str]:
    rates = sorted((mbit_s(one), " and ".join(one["hosts"])) for one in content["pairs"])
    shown = ["%s %s" % (name, _rate(rate)) for rate, name in rates[:_MOST_PAIRS]]
    return ["slowest pairs of hosts: %s" % ", ".join(shown)] if shown else []


def mbit_s(pair: Dict[str, Any]) -> float:
    """Return the rate of a pair in one direction, without what starting an exchange takes."""
    us = float(median(pair["us"]))
    sending = us - float(median(pair["small_us"]))
    return 8.0 * int(pair["bytes"]) / (sending if sending > 0 else us)


def _rate(value: float) -> str:
    return "%.1f Gbit/s" % (value / 1e3) if value >= 1e3 else "%.1f Mbit/s" % value


def _size(count: int) -> str:
    unit, name = next((unit, name) for unit, name in _UNITS if count >= unit or unit == 1)
    return "%.4g %s" % (count / unit, name)
