"""Settings of Horovod and NCCL that make reductions slower than they need to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stallscope.arrays.blocks import NULL

from ..advice import Advice, larger_cache
from .finding import Finding
from .records import Records
from .settings import one_of, settings_found

# A cycle that is longer than this share of a step keeps gradients waiting for long. Advice asks for half
# of it at most, so that a run that follows it does not get the opposite advice when its steps
# become shorter.
_LONG_CYCLE = 0.1
# Horovod's own since 0.21, milliseconds.
_USUAL_CYCLE_MS = 1.0
_ON = one_of("1", "TRUE", "YES")
# Disabled transports between accelerators; what shuts the first two matters within a host.
_SHUT_WITHIN = {"NCCL_P2P_DISABLE": _ON, "NCCL_SHM_DISABLE": _ON}
_SHUT_BETWEEN = {"NCCL_IB_DISABLE": _ON}


def fusion_off(records: Records) -> Iterator[Finding]:
    """The threshold is 0, or too small for two gradients of average size."""
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
                unless="Not where reductions must be bitwise equal in every run.",
            )
        ),
    )


def long_cycle_time(records: Records) -> Iterator[Finding]:
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
                unless="Not where you measured on this job that larger reductions are faster.",
            )
        ),
    )


def response_cache_too_small(records: Records) -> Iterator[Finding]:
    capacity = _setting(records, "HOROVOD_CACHE_CAPACITY")
    tensors = records.setup.gradient_tensors
    if capacity is None or not tensors or capacity >= tensors:
        return
    yield Finding(
        "response_cache_too_small",
        "warning",
        "Horovod negotiates every step anew",
        f"HOROVOD_CACHE_CAPACITY={capacity:.0f} and {tensors:,} gradients: what is not remembered is "
        f"negotiated in full by {records.run.size:,} ranks, through rank 0.",
        str(larger_cache(records.setup, evicts=False)),
    )


def autotune_on(records: Records) -> Iterator[Finding]:
    tried = _setting(records, "HOROVOD_AUTOTUNE")
    if not tried or records.setup.library != "horovod":
        return
    yield Finding(
        "autotune_on",
        "info",
        "Horovod's autotuner was on",
        "HOROVOD_AUTOTUNE is set: it tries settings for some fifty steps each, slow ones too, and "
        "figures of those steps are not what the job can do.",
        str(
            Advice(
                "Fix what it found, and leave it off in later runs",
                "stallscope tune RUN autotune.csv",
            )
        ),
    )


def transports_shut(records: Records) -> Iterator[Finding]:
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
        "NCCL may not use the fastest way between accelerators",
        f"{'; '.join(shut)}: these are for finding errors, and leave the slower ways.",
        str(
            Advice(
                "Unset it",
                f"unset {names}",
                unless="Not where the job fails or hangs without it, or there is no such hardware.",
            )
        ),
    )


def traffic_encrypted(records: Records) -> Iterator[Finding]:
    """Gloo with TLS: the one kind of encryption that a rank's own settings show."""
    if records.setup.ranks < 2 or records.setup.reduces_with != ("gloo",):
        return
    found = settings_found(records, {"GLOO_DEVICE_TRANSPORT": one_of("TCP_TLS")})
    if not found:
        return
    yield Finding(
        "traffic_encrypted",
        "info",
        "Gradients are encrypted on their way",
        f"{found[0]}: every byte of a reduction is encrypted and decrypted by the ranks' CPU cores.",
        str(
            Advice(
                "Leave it out where the network between the hosts is closed",
                "unset GLOO_DEVICE_TRANSPORT",
                unless="Not where others can listen: gradients reveal the data.",
            )
        ),
    )


def _setting(records: Records, name: str) -> float | None:
    """A setting that is a number; None where it is not set, or is none."""
    value = records.setup.settings.get(name)
    try:
        number = float(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return number if number is not None and np.isfinite(number) and number >= 0 else None


def _typical_step_ms(records: Records) -> float | None:
    """The median time from one step's end to the next one's on the lowest rank."""
    at = records.reduced_by(0) if records.reductions.ranks else np.zeros(0, np.int64)
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
