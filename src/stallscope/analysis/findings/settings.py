"""Find debugging settings that were left on and cost time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stallscope.formatting.lists import clipped, ranks_in_words

from .finding import Finding
from .records import Records


def _above_zero(value: str) -> bool:
    digits = re.match(r"\s*\d+", value)
    return digits is not None and int(digits[0]) > 0


def one_of(*words: str) -> Callable[[str], bool]:
    """Return a check whether a value is one of these words, ignoring case."""
    return lambda value: value.strip().upper() in words


def _any_module_above_zero(value: str) -> bool:
    return any(_above_zero(part.rpartition("=")[2]) for part in value.split(","))


# Settings that log in every step or in every cycle of the background thread.
_LOGS_STEPS: dict[str, Callable[[str], bool]] = {
    "HOROVOD_LOG_LEVEL": one_of("TRACE", "DEBUG"),
    "NCCL_DEBUG": one_of("TRACE"),
    "TF_CPP_MAX_VLOG_LEVEL": _above_zero,
    "TF_CPP_MIN_VLOG_LEVEL": _above_zero,
    "TF_CPP_VMODULE": _any_module_above_zero,
    "TORCH_DISTRIBUTED_DEBUG": one_of("DETAIL"),
}
# Settings that log at the start and occasionally later.
_LOGS_SOMETIMES: dict[str, Callable[[str], bool]] = {
    "NCCL_DEBUG": one_of("INFO"),
    "TORCH_DISTRIBUTED_DEBUG": one_of("INFO"),
    "TORCH_CPP_LOG_LEVEL": one_of("INFO"),
}


def timeline_on(records: Records) -> Iterator[Finding]:
    """Find runs that recorded a Horovod Timeline."""
    if records.run.fact("timeline"):
        yield Finding(
            "timeline_on",
            "warning",
            "The Horovod Timeline was left on",
            "HOROVOD_TIMELINE was set: rank 0 logs every tensor of every step, about 100 KB a step with "
            "160 gradients, and on a GPU waits for every device event.",
            "Leave it off except for the minutes when you need it: `unset HOROVOD_TIMELINE`.",
        )


def debug_logging_on(records: Records) -> Iterator[Finding]:
    """Find debug logging, worst if it writes in every step."""
    often, sometimes = (
        settings_found(records, _LOGS_STEPS),
        settings_found(records, _LOGS_SOMETIMES),
    )
    if often:
        yield Finding(
            "debug_logging_on",
            "warning",
            "Debug logging was left on",
            f"{'; '.join(often + sometimes)}: every step writes lines or checks collectives.",
            "Unset it except while you debug.",
        )
    elif sometimes:
        yield Finding(
            "debug_logging_on",
            "info",
            "Debug logging was left on",
            f"{'; '.join(sometimes)}: mostly lines at the start, but from every rank.",
            "Unset it, or set it to WARN, except while you debug.",
        )


def cuda_launch_blocking(records: Records) -> Iterator[Finding]:
    """Find blocking launches of CUDA kernels."""
    devices = records.run.fact("devices")
    if isinstance(devices, list) and devices and set(map(str, devices)) == {"CPU"}:
        return
    found = settings_found(records, {"CUDA_LAUNCH_BLOCKING": _above_zero})
    if found:
        yield Finding(
            "cuda_launch_blocking",
            "warning",
            "The host waits for every CUDA kernel",
            f"{found[0]}: kernels do not overlap with Python, nor backward with allreduce.",
            "Unset it: it is for finding a kernel that fails.",
        )


def stall_check_off(records: Records) -> Iterator[Finding]:
    """Find runs with Horovod's stall check off."""
    found = settings_found(records, {"HOROVOD_STALL_CHECK_DISABLE": _above_zero})
    if found:
        yield Finding(
            "stall_check_off",
            "info",
            "Horovod's stall check is off",
            f"{found[0]}: if ranks wait for a missing one, Horovod does not report which.",
            "Leave the check on: it costs nothing between stalls.",
        )


def settings_found(records: Records, checks: dict[str, Callable[[str], bool]]) -> list[str]:
    """Return the settings for which a check holds, each with its value and its ranks."""
    ranks: dict[tuple[str, str], set[int]] = {}
    for log in records.logs.values():
        settings = log.facts.get("settings")
        for name, holds in checks.items():
            value = settings.get(name) if isinstance(settings, dict) else None
            if isinstance(value, str) and holds(value):
                ranks.setdefault((name, value), set()).add(log.rank)
    return [
        f"{name}={clipped(value)} on "
        + ("all ranks" if len(own) == len(records.ranks) > 1 else ranks_in_words(sorted(own)))
        for (name, value), own in ranks.items()
    ]
