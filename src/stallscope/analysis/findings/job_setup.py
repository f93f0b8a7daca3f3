"""Find settings that cost time: debugging left on, slow reductions, ranks in the wrong place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from stallscope.arrays.blocks import NULL
from stallscope.formatting.lists import clipped, counted, listed, ranks_in_words

from ..advice.advise import for_crowded_cores
from ..advice.communication_advice import larger_cache
from ..gains.what_if import Advice
from ..setup import cpu_loads, machines
from .finding import Finding, Records

# A cycle longer than this share of a step delays gradients. Advice recommends at most half of it, so
# that a run that follows the advice does not get the opposite advice once its steps are shorter.
_LONG_CYCLE = 0.1
# Horovod's default since 0.21, milliseconds.
_USUAL_CYCLE_MS = 1.0

_DATABRICKS = "databricks:"
# Slightly more threads than cores fill gaps in which others wait.
_TOO_MANY = 1.5


def _above_zero(value: str) -> bool:
    digits = re.match(r"\s*\d+", value)
    return digits is not None and int(digits[0]) > 0


def _one_of(*words: str) -> Callable[[str], bool]:
    """Return a check whether a value is one of these words, ignoring case."""
    return lambda value: value.strip().upper() in words


def _any_module_above_zero(value: str) -> bool:
    return any(_above_zero(part.rpartition("=")[2]) for part in value.split(","))


_Checks = Mapping[str, Callable[[str], bool]]


# Settings that log in every step or in every cycle of the background thread.
_LOGS_STEPS: _Checks = {
    "HOROVOD_LOG_LEVEL": _one_of("TRACE", "DEBUG"),
    "NCCL_DEBUG": _one_of("TRACE"),
    "TF_CPP_MAX_VLOG_LEVEL": _above_zero,
    "TF_CPP_MIN_VLOG_LEVEL": _above_zero,
    "TF_CPP_VMODULE": _any_module_above_zero,
    "TORCH_DISTRIBUTED_DEBUG": _one_of("DETAIL"),
}


# Settings that log at the start and occasionally later.
_LOGS_SOMETIMES: _Checks = {
    "NCCL_DEBUG": _one_of("INFO"),
    "TORCH_DISTRIBUTED_DEBUG": _one_of("INFO"),
    "TORCH_CPP_LOG_LEVEL": _one_of("INFO"),
}


_ON = _one_of("1", "TRUE", "YES")


# Settings that disable transports between accelerators, within a host and between hosts.
_SHUT_WITHIN: _Checks = {"NCCL_P2P_DISABLE": _ON, "NCCL_SHM_DISABLE": _ON}


_SHUT_BETWEEN: _Checks = {"NCCL_IB_DISABLE": _ON}


def timeline_on(records: Records) -> Iterator[Finding]:
    """Find runs that recorded a Horovod Timeline."""
    if records.run.fact("timeline"):
        yield Finding(
            "timeline_on",
            "warning",
            "The Horovod Timeline was left on",
            "HOROVOD_TIMELINE was set: rank 0 logs every tensor of every step, about 100 KB a step with "
            "160 gradients, and on a GPU waits for every device event.",
            (
                Advice(
                    "Leave it off except for the minutes when you need it", "unset HOROVOD_TIMELINE"
                ),
            ),
        )


def debug_logging_on(records: Records) -> Iterator[Finding]:
    """Find debug logging, worst if it writes in every step."""
    often = _settings_found(records, _LOGS_STEPS)
    settings = "; ".join(often + _settings_found(records, _LOGS_SOMETIMES))
    if settings:
        yield Finding(
            "debug_logging_on",
            "warning" if often else "info",
            "Debug logging was left on",
            f"{settings}: every step writes lines or checks collectives."
            if often
            else f"{settings}: mostly lines at the start, but from every rank.",
            (Advice(f"Unset it{'' if often else ', or set it to WARN,'} except while you debug"),),
        )


def cuda_launch_blocking(records: Records) -> Iterator[Finding]:
    """Find blocking launches of CUDA kernels."""
    devices = records.run.fact("devices")
    if isinstance(devices, list) and devices and set(map(str, devices)) == {"CPU"}:
        return
    settings = _settings_found(records, {"CUDA_LAUNCH_BLOCKING": _above_zero})
    if settings:
        yield Finding(
            "cuda_launch_blocking",
            "warning",
            "The host waits for every CUDA kernel",
            f"{settings[0]}: kernels do not overlap with Python, nor backward with allreduce.",
            (Advice("Unset it", detail=": it is for finding a kernel that fails"),),
        )


def stall_check_off(records: Records) -> Iterator[Finding]:
    """Find runs with Horovod's stall check off."""
    settings = _settings_found(records, {"HOROVOD_STALL_CHECK_DISABLE": _above_zero})
    if settings:
        yield Finding(
            "stall_check_off",
            "info",
            "Horovod's stall check is off",
            f"{settings[0]}: if ranks wait for a missing one, Horovod does not report which.",
            (Advice("Leave the check on", detail=": it costs nothing between stalls"),),
        )


def fusion_off(records: Records) -> Iterator[Finding]:
    """Find a fusion threshold of 0, or one too small for two gradients of average size."""
    threshold = _number(records, "HOROVOD_FUSION_THRESHOLD")
    tensors, size = records.setup.gradient_tensors, records.setup.gradient_bytes
    if threshold is None or not tensors or not size or tensors < 2:
        return
    if threshold < 2 * size / tensors:
        yield Finding(
            "fusion_off",
            "warning",
            "Gradients are not fused",
            f"HOROVOD_FUSION_THRESHOLD={threshold:.0f}: {tensors:,} gradients of "
            f"{size / tensors / 1e3:,.1f} kB on average are reduced one by one, each with its own "
            "latency.",
            (
                Advice(
                    "Leave it at Horovod's default (128 MiB since 0.21), or pin the settings that "
                    "stallscope tune recommends",
                    "unset HOROVOD_FUSION_THRESHOLD",
                    unless="Not if reductions must be bitwise equal in every run.",
                ),
            ),
        )


def long_cycle_time(records: Records) -> Iterator[Finding]:
    """Find a cycle time that is long compared with a step."""
    cycle, step = _number(records, "HOROVOD_CYCLE_TIME"), _typical_step_ms(records)
    if cycle is None or step is None or cycle <= max(_USUAL_CYCLE_MS, _LONG_CYCLE * step):
        return
    yield Finding(
        "long_cycle_time",
        "warning",
        "Gradients wait for Horovod's next cycle",
        f"HOROVOD_CYCLE_TIME={cycle:g}: a gradient that is ready waits up to {cycle:g} ms before "
        f"the next cycle; a step takes {step:.1f} ms, and the last gradient always delays it.",
        (
            Advice(
                "Leave it at Horovod's default (1 ms since 0.21), or pin the settings that stallscope "
                "tune recommends",
                "unset HOROVOD_CYCLE_TIME",
                unless="Not if you measured on this job that larger reductions are faster.",
            ),
        ),
    )


def response_cache_too_small(records: Records) -> Iterator[Finding]:
    """Find a response cache with room for fewer tensors than the model has."""
    capacity = _number(records, "HOROVOD_CACHE_CAPACITY")
    tensors = records.setup.gradient_tensors
    if capacity is not None and tensors and capacity < tensors:
        yield Finding(
            "response_cache_too_small",
            "warning",
            "Horovod negotiates in every step",
            f"HOROVOD_CACHE_CAPACITY={capacity:.0f} and {tensors:,} gradients: tensors that are not "
            f"cached are negotiated in full by {records.run.size:,} ranks, through rank 0.",
            (larger_cache(records.setup, evicts=False),),
        )


def autotune_on(records: Records) -> Iterator[Finding]:
    """Find runs with Horovod's autotuner on."""
    if _number(records, "HOROVOD_AUTOTUNE") and records.setup.library == "horovod":
        yield Finding(
            "autotune_on",
            "info",
            "Horovod's autotuner was on",
            "HOROVOD_AUTOTUNE is set: it tries each setting for about fifty steps, including slow ones, "
            "so these steps do not show how fast the job can be.",
            (
                Advice(
                    "Pin the settings that it found, and leave it off in later runs",
                    "stallscope tune RUN autotune.csv",
                ),
            ),
        )


def transports_shut(records: Records) -> Iterator[Finding]:
    """Find settings that disable fast transports between accelerators."""
    setup = records.setup
    if not setup.gpu or setup.ranks < 2:
        return
    shut = _settings_found(records, _SHUT_WITHIN) if max(setup.hosts.values()) > 1 else []
    shut += _settings_found(records, _SHUT_BETWEEN) if len(setup.hosts) > 1 else []
    if shut:
        names = " ".join(dict.fromkeys(text.partition("=")[0] for text in shut))
        yield Finding(
            "transports_shut",
            "warning",
            "NCCL may not use the fastest transport between accelerators",
            f"{'; '.join(shut)}: these settings are for debugging, and leave only slower transports.",
            (
                Advice(
                    "Unset it",
                    f"unset {names}",
                    unless="Not if the job fails or hangs without it, or there is no such hardware.",
                ),
            ),
        )


def traffic_encrypted(records: Records) -> Iterator[Finding]:
    """Find Gloo with TLS, the only encryption that a rank's own settings show."""
    if records.setup.ranks < 2 or records.setup.reduces_with != ("gloo",):
        return
    settings = _settings_found(records, {"GLOO_DEVICE_TRANSPORT": _one_of("TCP_TLS")})
    if settings:
        yield Finding(
            "traffic_encrypted",
            "info",
            "Gradients are encrypted in transit",
            f"{settings[0]}: every byte of a reduction is encrypted and decrypted by the ranks' CPU "
            "cores.",
            (
                Advice(
                    "Turn it off if the network between the hosts is private",
                    "unset GLOO_DEVICE_TRANSPORT",
                    unless="Not if others can read the traffic: gradients reveal the data.",
                ),
            ),
        )


def _settings_found(records: Records, checks: _Checks) -> list[str]:
    """Return the settings for which a check holds, each with its value and its ranks."""
    ranks: dict[tuple[str, str], set[int]] = {}
    for log in records.logs.values():
        settings = log.facts.get("settings")
        if not isinstance(settings, dict):
            continue
        for name in [name for name in checks if name in settings]:
            value = settings[name]
            if isinstance(value, str) and checks[name](value):
                ranks.setdefault((name, value), set()).add(log.rank)
    return [
        f"{name}={clipped(value)} on "
        + (
            "all ranks"
            if len(affected) == len(records.ranks) > 1
            else ranks_in_words(sorted(affected))
        )
        for (name, value), affected in ranks.items()
    ]


def _number(records: Records, name: str) -> float | None:
    """Return a setting that is a number of at least 0; None if it is unset or anything else."""
    try:
        number = float(records.setup.settings.get(name, ""))
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) and number >= 0 else None


def _typical_step_ms(records: Records) -> float | None:
    """Return the median time between the ends of two steps on the lowest rank."""
    at = records.completions_of(0) if records.reductions.ranks else np.zeros(0, np.int64)
    known = at[at != NULL]
    return float(np.median(np.diff(known))) / 1e6 if len(known) > 1 else None


# -- Check the cores, the accelerators and the platform on which ranks run ------------------------


def threads_oversubscribed(records: Records) -> Iterator[Finding]:
    """Find the host with the most compute threads per core."""
    over = [load for load in cpu_loads(records.last_log.values()) if load.over > _TOO_MANY]
    if not over:
        return
    worst = max(over, key=lambda load: load.over)
    also = f" This applies to {len(over)} hosts." if len(over) > 1 else ""
    yield Finding(
        "threads_oversubscribed",
        "warning",
        "More threads than CPU cores",
        f"On {listed('host', worst.hosts)}, {ranks_in_words(worst.ranks)} compute with "
        f"{counted(worst.threads, 'intra-op thread')} together on "
        f"{counted(worst.cores, 'CPU core')}, and compete for them.{also}",
        (for_crowded_cores(records.setup, worst),),
    )


def accelerators_not_pinned(records: Records) -> Iterator[Finding]:
    """Find ranks that share accelerators; only TensorFlow lists each accelerator of a rank."""
    if records.setup.framework != "keras":
        return
    for logs in machines(records.last_log.values()).values():
        several = [log.rank for log in logs if _accelerators(log.facts.get("devices")) > 1]
        if len(logs) < 2 or len(several) < 2:
            continue
        count = _accelerators(records.last_log[several[0]].facts.get("devices"))
        devices = 'tf.config.list_physical_devices("GPU")'
        line = f'tf.config.set_visible_devices({devices}[hvd.local_rank()], "GPU")'
        yield Finding(
            "accelerators_not_pinned",
            "warning",
            "Ranks share accelerators",
            f"On {listed('host', [logs[0].host])}, {ranks_in_words(sorted(several))} each see {count} "
            "accelerators: every rank allocates memory on all of them, and all ranks compute on the "
            "first.",
            (Advice("Give every rank its own accelerator, before anything computes", line),),
        )
        return


def horovod_leaves_databricks(records: Records) -> Iterator[Finding]:
    """Find Horovod jobs on Databricks: its later runtimes have no Horovod."""
    setup = records.setup
    if not records.run.source.startswith(_DATABRICKS) or setup.library != "horovod":
        return
    if setup.framework == "torch":
        advice = Advice(
            "Before you upgrade, let TorchDistributor start the ranks, with DistributedDataParallel in "
            "place of hvd.DistributedOptimizer",
            "from pyspark.ml.torch.distributor import TorchDistributor; TorchDistributor("
            f"num_processes={setup.ranks}, local_mode=False, use_gpu={bool(setup.gpu)}).run(train)",
        )
    else:
        advice = Advice(
            "Before you upgrade, plan for tf.distribute, which Databricks names for TensorFlow, or "
            "install Horovod in the job's own environment"
        )
    yield Finding(
        "horovod_leaves_databricks",
        "info",
        "Databricks' later runtimes come without Horovod",
        "This job trained with Horovod, and its logs are on Databricks. HorovodRunner and Horovod are "
        "deprecated there; runtimes after 15.4 LTS ML have neither.",
        (advice,),
    )


def _accelerators(devices: object) -> int:
    return devices.count("GPU") if isinstance(devices, list) else 0
