"""Write the file with the measurement, next to the logs of the run, and its summary in the terminal."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Mapping, Optional, Sequence

from stallscope import __version__
from stallscope.errors import UnwritableError

from ..recorder.job.job_settings import settings
from ..recorder.job.world import launch_name
from ..recorder.step_log.run_identity import write_new
from .measuring import Measured
from .ranks import Ranks
from .sizes import Gradients, bus_bytes, mbit_s, parts_of

VERSION = 1
SUFFIX = ".netcheck.json"

_MOST_PAIRS = 3
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def document(
    ranks: Ranks,
    hosts: Sequence[str],
    run_id: Optional[str],
    gradients: Optional[Gradients],
    measured: Measured,
    began_wall_ns: int,
    seconds: float,
    env: Mapping[str, str],
) -> Dict[str, Any]:
    """Return the file's content."""
    return {
        "stallscope_netcheck": VERSION,
        "stallscope": __version__,
        "run_id": run_id,
        "launch": launch_name(env, ranks.size),
        "began_wall_ns": began_wall_ns,
        "seconds": round(seconds, 3),
        "framework": ranks.framework,
        "reduced_by": ranks.reduced_by,
        "reduces_with": ranks.reduces_with,
        "device": ranks.device,
        "size": ranks.size,
        "hosts": list(hosts),
        "settings": settings(env),
        "versions": ranks.versions,
        "gradients": _gradients(gradients, measured),
        "sweep": [point._asdict() for point in measured.sweep],
        "tiny": [tiny._asdict() for tiny in measured.tiny],
        "pairs": [pair._asdict() for pair in measured.pairs],
        "left_out": measured.left_out,
    }


def _gradients(gradients: Optional[Gradients], measured: Measured) -> Optional[Dict[str, Any]]:
    if gradients is None:
        return None
    return {
        "from": gradients.source,
        "sizes": gradients.sizes,
        "as_run_us": measured.as_run_us,
        "together_us": measured.together_us,
    }


def check_writable(folder: Path) -> None:
    """Make the folder, and check that files can be written there.

    Raises:
        UnwritableError: if not. An error now is better than after measuring.
    """
    probe = folder / (".netcheck.%d.unfinished" % os.getpid())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UnwritableError(
            "cannot write to %s (%s): pass --out FOLDER for another place"
            % (folder, error.strerror)
        ) from None


def save(content: Dict[str, Any], folder: Path) -> Path:
    """Write a file as a whole; an existing one is never overwritten.

    Raises:
        UnwritableError: if writing fails.
    """
    began = time.gmtime(content["began_wall_ns"] / 1e9)
    text = json.dumps(content, separators=(",", ":")) + "\n"
    try:
        return write_new(folder, time.strftime("%Y%m%dT%H%M%SZ", began), SUFFIX, text)
    except OSError as error:
        raise UnwritableError(
            "cannot write the result to %s (%s): pass --out FOLDER for another place"
            % (folder, error.strerror)
        ) from None


# -- Summarise a measurement as a few lines of text -----------------------------------------------


def lines_of(content: Dict[str, Any]) -> List[str]:
    """Return lines that show a file's content: medians of all rounds."""
    return [
        _title(content),
        *_gradients_in_words(content),
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


def _gradients_in_words(content: Dict[str, Any]) -> List[str]:
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
