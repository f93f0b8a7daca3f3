"""Find settings of Horovod and NCCL that make reductions slower than necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stallscope.arrays.blocks import NULL

from ..advice import Advice, larger_cache
from .finding import Finding
from .records import Records
from .settings import one_of, settings_found

# A cycle longer than this share of a step delays gradients. Advice recommends at most half of it, so
# that a run that follows the advice does not get the opposite advice once its steps are shorter.
_LONG_CYCLE = 0.1
# Horovod's default since 0.21, milliseconds.
_USUAL_CYCLE_MS = 1.0
_ON = one_of("1", "TRUE", "YES")
# Settings that disable transports between accelerators, within a host and between hosts.
_SHUT_WITHIN = {"NCCL_P2P_DISABLE": _ON, "NCCL_SHM_DISABLE": _ON}
_SHUT_BETWEEN = {"NCCL_IB_DISABLE": _ON}


def fusion_off(records: Records) -> Iterator[Finding]:
    """Find a fusion threshold of 0, or one too small for two gradients of average size."""
    threshold = _setting(records, "HOROVOD_FUSION_THRESHOLD")
    tensors, size = records.setup.gradient_tensors, records.setup.gradient_bytes
    if threshold is None or not tensors or not size or tensors < 2:
        return
    if threshold >= 2 * size / tensors:
        return
    yield Finding(
        "fusion_off",
        "warning",
        "Gradients are not fused",
        f"HOROVOD_FUSION_THRESHOLD={threshold:.0f}: {tensors:,} gradients of "
        f"{size / tensors / 1e3:,.1f} kB on average are reduced one by one, each with its own latency.",
        str(
            Advice(
                "Leave it at Horovod's default (128 MiB since 0.21), or pin the settings that "
                "stallscope tune recommends",
                "unset HOROVOD_FUSION_THRESHOLD",
                unless="Not if reductions must be bitwise equal in every run.",
            )
        ),
    )


def long_cycle_time(records: Records) -> Iterator[Finding]:
    """Find a cycle time that is long compared with a step."""
    cycle = _setting(records, "HOROVOD_CYCLE_TIME")
    step = _typical_step_ms(records)
    if cycle is None or step is None or cycle <= max(_USUAL_CYCLE_MS, _LONG_CYCLE * step):
        return
    yield Finding(
        "long_cycle_time",
        "warning",
        "Gradients wait for Horovod's next cycle",
        f"HOROVOD_CYCLE_TIME={cycle:g}: a gradient that is ready waits up to {cycle:g} ms before "
        f"the next cycle; a step takes {step:.1f} ms, and the last gradient always delays it.",
        str(
            Advice(
                "Leave it at Horovod's default (1 ms since 0.21), or pin the settings that "
                "stallscope tune recommends",
                "unset HOROVOD_CYCLE_TIME",
                unless="Not if you measured on this job that larger reductions are faster.",
            )
        ),
    )


def response_cache_too_small(records: Records) -> Iterator[Finding]:
    """Find a response cache with room for fewer tensors than the model has."""
    capacity = _setting(records, "HOROVOD_CACHE_CAPACITY")
    tensors = records.setup.gradient_tensors
    if capacity is None or not tensors or capacity >= tensors:
        return
    yield Finding(
        "response_cache_too_small",
        "warning",
        "Horovod negotiates in every step",
        f"HOROVOD_CACHE_CAPACITY={capacity:.0f} and {tensors:,} gradients: tensors that are not cached "
        f"are negotiated in full by {records.run.size:,} ranks, through rank 0.",
        str(larger_cache(records.setup, evicts=False)),
    )


def autotune_on(records: Records) -> Iterator[Finding]:
    """Find runs with Horovod's autotuner on."""
    enabled = _setting(records, "HOROVOD_AUTOTUNE")
    if not enabled or records.setup.library != "horovod":
        return
    yield Finding(
        "autotune_on",
        "info",
        "Horovod's autotuner was on",
        "HOROVOD_AUTOTUNE is set: it tries each setting for about fifty steps, including slow ones, so "
        "these steps do not show how fast the job can be.",
        str(
            Advice(
                "Pin the settings that it found, and leave it off in later runs",
                "stallscope tune RUN autotune.csv",
            )
        ),
    )


def transports_shut(records: Records) -> Iterator[Finding]:
    """Find settings that disable fast transports between accelerators."""
    setup = records.setup
    if not setup.gpu or setup.ranks < 2:
        return
    shut = settings_found(records, _SHUT_WITHIN) if max(setup.hosts.values()) > 1 else []
    shut += settings_found(records, _SHUT_BETWEEN) if len(setup.hosts) > 1 else []
    if not shut:
        return
    names = " ".join(dict.fromkeys(text.partition("=")[0] for text in shut))
    yield Finding(
        "transports_shut",
        "warning",
        "NCCL may not use the fastest transport between accelerators",
        f"{'; '.join(shut)}: these settings are for debugging, and leave only slower transports.",
        str(
            Advice(
                "Unset it",
                f"unset {names}",
                unless="Not if the job fails or hangs without it, or there is no such hardware.",
            )
        ),
    )


def traffic_encrypted(records: Records) -> Iterator[Finding]:
    """Find Gloo with TLS, the only encryption that a rank's own settings show."""
    if records.setup.ranks < 2 or records.setup.reduces_with != ("gloo",):
        return
    found = settings_found(records, {"GLOO_DEVICE_TRANSPORT": one_of("TCP_TLS")})
    if not found:
        return
    yield Finding(
        "traffic_encrypted",
        "info",
        "Gradients are encrypted in transit",
        f"{found[0]}: every byte of a reduction is encrypted and decrypted by the ranks' CPU cores.",
        str(
            Advice(
                "Turn it off if the network between the hosts is private",
                "unset GLOO_DEVICE_TRANSPORT",
                unless="Not if others can read the traffic: gradients reveal the data.",
            )
        ),
    )


def _setting(records: Records, name: str) -> float | None:
    """Return a setting that is a number of at least 0; None if it is unset or anything else."""
    value = records.setup.settings.get(name)
    try:
        number = float(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return number if number is not None and np.isfinite(number) and number >= 0 else None


def _typical_step_ms(records: Records) -> float | None:
    """Return the median time between the ends of two steps on the lowest rank."""
    at = records.completions_of(0) if records.reductions.ranks else np.zeros(0, np.int64)
    known = at[at != NULL]
    return float(np.median(np.diff(known))) / 1e6 if len(known) > 1 else None


Check = Callable[[Records], Iterator[Finding]]
#: In the order in which they are reported.
REDUCTION_CHECKS: tuple[Check, ...] = (
    fusion_off,
    long_cycle_time,
    response_cache_too_small,
    transports_shut,
    traffic_encrypted,
    autotune_on,
)
