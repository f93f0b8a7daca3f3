"""Settings that are fine while something is looked for, and cost something when they are left on."""

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
    """A check for values that are one of these words, whatever their case."""
    return lambda value: value.strip().upper() in words


def _any_module_above_zero(value: str) -> bool:
    return any(_above_zero(part.rpartition("=")[2]) for part in value.split(","))


# Logs something in every step, or in every cycle of the background thread.
_LOGS_STEPS: dict[str, Callable[[str], bool]] = {
    "HOROVOD_LOG_LEVEL": one_of("TRACE", "DEBUG"),
    "NCCL_DEBUG": one_of("TRACE"),
    "TF_CPP_MAX_VLOG_LEVEL": _above_zero,
    "TF_CPP_MIN_VLOG_LEVEL": _above_zero,
    "TF_CPP_VMODULE": _any_module_above_zero,
    "TORCH_DISTRIBUTED_DEBUG": one_of("DETAIL"),
}
# Logs at the start, and at times.
_LOGS_SOMETIMES: dict[str, Callable[[str], bool]] = {
    "NCCL_DEBUG": one_of("INFO"),
    "TORCH_DISTRIBUTED_DEBUG": one_of("INFO"),
    "TORCH_CPP_LOG_LEVEL": one_of("INFO"),
}


def timeline_on(records: Records) -> Iterator[Finding]:
    if records.run.fact("timeline"):
        yield Finding(
            "timeline_on",
            "warning",
            "The Horovod Timeline was left on",
            "HOROVOD_TIMELINE was set: rank 0 logs every tensor of every step, about 100 KB a step with "
            "160 gradients, and on a GPU waits for every device event.",
            "Leave it off except for the minutes in which you need it: `unset HOROVOD_TIMELINE`.",
        )


def debug_logging_on(records: Records) -> Iterator[Finding]:
    often, sometimes = (
        settings_found(records, _LOGS_STEPS),
        settings_found(records, _LOGS_SOMETIMES),
    )
    if often:
        yield Finding(
            "debug_logging_on",
            "warning",
            "Debug logging was left on",
            f"{'; '.join(often + sometimes)}: lines are written, or collectives checked, in every "
            "step.",
            "Unset it except while you look for an error.",
        )
    elif sometimes:
        yield Finding(
            "debug_logging_on",
            "info",
            "Debug logging was left on",
            f"{'; '.join(sometimes)}: mostly lines at the start, but from every rank.",
            "Unset it, or set it to WARN, except while you look for an error.",
        )


def cuda_launch_blocking(records: Records) -> Iterator[Finding]:
    devices = records.run.fact("devices")
    if isinstance(devices, list) and devices and set(map(str, devices)) == {"CPU"}:
        return
    found = settings_found(records, {"CUDA_LAUNCH_BLOCKING": _above_zero})
    if found:
        yield Finding(
            "cuda_launch_blocking",
            "warning",
            "Every CUDA kernel is waited for",
            f"{found[0]}: the host waits for every kernel, so that neither kernels and Python nor "
            "backward and allreduce overlap.",
            "Unset it: it is for finding the kernel that fails.",
        )


def stall_check_off(records: Records) -> Iterator[Finding]:
    found = settings_found(records, {"HOROVOD_STALL_CHECK_DISABLE": _above_zero})
    if found:
        yield Finding(
            "stall_check_off",
            "info",
            "Horovod's stall check is off",
            f"{found[0]}: where ranks wait for one that is missing, Horovod does not report which.",
            "Leave the check on: it costs nothing between stalls.",
        )


def settings_found(records: Records, checks: dict[str, Callable[[str], bool]]) -> list[str]:
    """The settings that a check holds for, each with its value and the ranks that have it."""
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
