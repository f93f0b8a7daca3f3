"""Exposed allreduce: reduce less, less often, or in better pieces."""

from __future__ import annotations

import math

from ..gains.what_if import WhatIf
from ..ledger.ledger import Ledger
from ..network.communication import Communication, bus_bytes, faster
from ..settings.setup import Setup
from .piece import Advice, undone

# Bytes for each parameter from which on gradients are no halves.
_FULL_BYTES = 3.0
# Where the network explains less of the exposed time than this, fewer bytes do not help.
_MOSTLY = 0.5
# GB/s: gigabit Ethernet is the slowest network to train over, and memory within a host gives
# several times this.
_SLOWEST_NETWORK, _SLOWEST_MEMORY = 0.125, 1.0
_MB = 1e6
# DistributedDataParallel's own, and one that reduces several of those at once.
_BUCKET, _LARGE_BUCKET = 25 << 20, 100 << 20
# Settings that Horovod's autotuner measures.
_TUNED = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME")
# Tensors that Horovod remembers by default, and a number that costs next to nothing.
_OWN_CAPACITY, _LARGE_CAPACITY = 1024, 4096
# What 10 Gbit/s Ethernet moves in 0.1 ms, which a small reduction between hosts takes anyway.
_MOSTLY_LATENCY = 100e3
# Horovod's own since 0.21; more than this share of a step is a long one.
_CYCLE_MS, _LONGEST_CYCLE = 1.0, 0.05
# Of forward and backward, the part in which gradients come.
_BACKWARD = 2 / 3


def for_allreduce(setup: Setup, ledger: Ledger, found: Communication | None) -> tuple[Advice, ...]:
    """What makes exposed allreduce shorter, the surest first.

    Args:
        setup: the run's.
        ledger: steady steps, of which gains are replayed.
        found: what is known of the communication.
    """
    half = _at_most(faster(ledger, 2))
    pieces = [
        *_settings(setup),
        *_by_sizes(setup, ledger),
        *_compression(setup, found, half),
        *_less_often(setup, half),
    ]
    pieces += [*_hierarchy(setup), *_transport(setup), *_network(setup, found)]
    return undone(*pieces)


def _at_most(gain: WhatIf) -> str:
    sure = "" if gain.ci95 is None else f" (95%: {_ends(*gain.ci95)}×)"
    return f"Replayed with half of the exposed time, steps are {gain.speedup:.2f}× as fast{sure}."


def _ends(low: float, high: float) -> str:
    """With one more digit where they are alike without it."""
    short = f"{low:.2f}–{high:.2f}"
    return short if f"{low:.2f}" != f"{high:.2f}" else f"{low:.3f}–{high:.3f}"


def larger_cache(setup: Setup, *, evicts: bool) -> Advice:
    """Return the capacity of Horovod's response cache in which all tensors stay.

    Args:
        setup: the run's.
        evicts: whether the cache was too small although all gradients fit into it.
    """
    enough = max(_OWN_CAPACITY, 2 * (setup.gradient_tensors or 0))
    if evicts:
        own = setup.settings.get("HOROVOD_CACHE_CAPACITY", "")
        enough = max(enough, _LARGE_CAPACITY, 2 * int(own) if own.isdecimal() else 0)
    return Advice(
        "Remember all tensors",
        f"HOROVOD_CACHE_CAPACITY={1 << (enough - 1).bit_length()}",
        unless="Not while you record a Timeline to see which rank was late.",
    )


def _settings(setup: Setup) -> tuple[Advice, ...]:
    """Horovod's own settings: measured, not guessed."""
    if setup.library == "ddp":
        if (setup.gradient_bytes or 0) < 2 * (setup.bucket_bytes or _BUCKET):
            return ()
        return (
            Advice(
                f"Try larger buckets than the {(setup.bucket_bytes or _BUCKET) >> 20} MiB that "
                "DistributedDataParallel has",
                f"model = DistributedDataParallel(model, bucket_cap_mb={_LARGE_BUCKET >> 20})",
                unless="Not where backward hides most of the allreduce: the last bucket is what is "
                "exposed, and it grows.",
                done=(setup.bucket_bytes or 0) >= _LARGE_BUCKET,
            ),
        )
    if setup.library != "horovod":
        return ()
    if setup.settings.get("HOROVOD_AUTOTUNE", "0") not in ("", "0"):
        return (
            Advice(
                "Fix the settings that Horovod's autotuner found, rather than let every job look for "
                "them again",
                "stallscope tune RUN autotune.csv",
            ),
        )
    moved = ""
    if setup.gradient_tensors and setup.gradient_bytes:
        size = f"{setup.gradient_bytes / _MB:,.1f} MB"
        moved = f" for {setup.gradient_tensors:,} gradients of {size} together"
    return (
        Advice(
            f"Have Horovod's autotuner measure fusion threshold and cycle time{moved} once, and pin "
            "the settings that stallscope tune recommends",
            "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv",
            unless="Not in a short job: it tries each setting for some fifty steps, slow ones too.",
            done=all(setup.settings.get(name) for name in _TUNED),
        ),
    )


def _by_sizes(setup: Setup, ledger: Ledger) -> tuple[Advice, ...]:
    """Lacking a tuner's log, the gradients' sizes: cycles that reduce little each are mostly latency."""
    tensors, size = setup.gradient_tensors, setup.gradient_bytes
    tuned = ("HOROVOD_AUTOTUNE", "HOROVOD_CYCLE_TIME")
    if setup.library != "horovod" or not tensors or not size:
        return ()
    if any(setup.settings.get(name, "0") not in ("", "0") for name in tuned):
        return ()
    backward_ms = _BACKWARD * ledger.mean_ms("compute").value
    at_once = size / max(1.0, min(tensors, backward_ms / _CYCLE_MS))
    if at_once >= _MOSTLY_LATENCY:
        return ()
    longest = _LONGEST_CYCLE * float(ledger.total.mean()) / 1e6
    enough = backward_ms * _MOSTLY_LATENCY / size
    cycle = min(math.floor(longest), round(max(enough, 2 * _CYCLE_MS)))
    if cycle < 2 * _CYCLE_MS:
        return ()
    return (
        Advice(
            f"Or go by the gradients' sizes: {tensors:,} of them, {size / _MB:,.2g} MB together, come "
            f"over some {backward_ms:.0f} ms of backward, so that a cycle of {_CYCLE_MS:g} ms reduces "
            f"about {at_once / 1e3:,.2g} kB at once, which is mostly latency. Try a longer one",
            f"HOROVOD_CYCLE_TIME={cycle}",
            unless="The last gradient waits for a cycle's end: keep it where steps become shorter, and "
            "drop it where they do not.",
        ),
    )


def _compression(setup: Setup, found: Communication | None, half: str) -> tuple[Advice, ...]:
    if found is not None and _longest_ms(setup, found) < _MOSTLY * found.exposed_ms.value:
        return ()
    if setup.gradient_bytes and setup.gradient_bytes < _FULL_BYTES * (setup.parameters or 0):
        return ()
    line = {
        (
            "keras",
            "horovod",
        ): "optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)",
        ("torch", "horovod"): (
            "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters="
            "model.named_parameters(), compression=hvd.Compression.fp16)"
        ),
        ("torch", "ddp"): (
            "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks; "
            "model.register_comm_hook(None, default_hooks.fp16_compress_hook)"
        ),
    }.get((str(setup.framework), str(setup.library)))
    if line is None:
        return ()
    return (
        Advice(
            "Reduce gradients as 16-bit floats: half of the bytes",
            line,
            half,
            "Less where the time is latency. Not where gradients leave the range of 16-bit floats: "
            "hold the loss against a run without.",
            done=setup.compresses,
        ),
    )


def _longest_ms(setup: Setup, found: Communication) -> float:
    """How long moving the bytes alone takes, at most."""
    if found.whole_ms is not None:
        return found.whole_ms
    slowest = _SLOWEST_NETWORK if len(setup.hosts) > 1 else _SLOWEST_MEMORY
    return bus_bytes(setup.ranks, found.gradient_bytes) / slowest / 1e6


def _less_often(setup: Setup, half: str) -> tuple[Advice, ...]:
    twice = "a larger batch wants a higher rate and a warm-up, and may cost accuracy."
    larger = Advice(
        "Take a larger batch per rank, as far as memory allows",
        gain=f"As many gradients then serve more samples. {half}" if setup.library is None else "",
        unless=f"Not without a look at accuracy: {twice}",
    )
    if (setup.passes or 1) > 1 or setup.library is None:
        return (larger,)
    what = "Reduce after every second batch only: a step then has twice the batch"
    if setup.library == "ddp":
        what += ". Leave every second backward pass unreduced"
        line = "with model.no_sync(): loss.backward()"
    elif setup.framework == "keras":
        line = (
            "optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, "
            "average_aggregated_gradients=True)"
        )
    elif setup.framework == "torch":
        line = (
            "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters="
            "model.named_parameters(), backward_passes_per_step=2)"
        )
    else:
        return (larger,)
    return (
        Advice(what, line, half, f"Or a larger batch per rank, as far as memory allows; {twice}"),
    )


def _hierarchy(setup: Setup) -> tuple[Advice, ...]:
    """Two levels of allreduce, where there are two: Horovod has it for NCCL with MPI between hosts."""
    per_host = set(setup.hosts.values())
    known = sum(setup.hosts.values()) == setup.ranks
    two_levels = known and len(setup.hosts) > 1 and len(per_host) == 1 and min(per_host) > 1
    if setup.library != "horovod" or not setup.gpu or not two_levels:
        return ()
    if "HOROVOD_HIERARCHICAL_ALLREDUCE" in setup.settings:
        return ()
    return (
        Advice(
            f"Try to reduce within each host first, and then between the {len(setup.hosts)} hosts",
            "HOROVOD_HIERARCHICAL_ALLREDUCE=1",
            unless="It does nothing unless Horovod was built with NCCL and MPI; compare two runs.",
        ),
    )


def _transport(setup: Setup) -> tuple[Advice, ...]:
    """What the bytes are moved with: NCCL between accelerators; between CPU cores there is a choice."""
    built = setup.reduces_with
    if setup.library == "ddp":
        return (_NCCL_FOR_DDP,) if setup.gpu and built == ("gloo",) else ()
    if setup.library != "horovod" or setup.framework is None:
        return ()
    if setup.gpu:
        return _nccl(setup)
    if built != ("gloo",) or len(setup.hosts) < 2:
        return ()
    return (
        Advice(
            "Try MPI in place of Gloo, with which this Horovod reduces",
            "HOROVOD_WITH_MPI=1 pip install --no-cache-dir --force-reinstall horovod",
            unless="It gains nothing where both go over the same TCP: what MPI has more is InfiniBand "
            "and other fabrics. Compare two runs.",
        ),
    )


_NCCL_FOR_DDP = Advice(
    "Reduce with NCCL: this run's process group is Gloo's, which copies through the host",
    'torch.distributed.init_process_group("nccl")',
    unless="Not where several ranks share an accelerator: NCCL wants one for each.",
)


def _nccl(setup: Setup) -> tuple[Advice, ...]:
    built = setup.reduces_with
    if built is None:
        module = "tensorflow" if setup.framework == "keras" else "torch"
        return (
            Advice(
                "Make sure that Horovod reduces with NCCL on these accelerators: this prints 0 where it "
                "does not",
                f'python -c "import horovod.{module} as hvd; print(hvd.nccl_built())"',
            ),
        )
    if "nccl" in built:
        return ()
    return (
        Advice(
            f"Build Horovod with NCCL: this one has {' and '.join(built) or 'neither that nor another'} "
            "only, and copies gradients through the host",
            "HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall horovod",
            unless="Not where several ranks share an accelerator: NCCL wants one for each.",
        ),
    )


def _network(setup: Setup, found: Communication | None) -> tuple[Advice, ...]:
    """How to tell a slow network from latency where it is not known, and what slows it where it is."""
    if found is None or found.bus_bandwidth is None or len(setup.hosts) < 2:
        return ()
    if found.network_bandwidth is None:
        return (
            Advice(
                f"Hold the {found.bus_bandwidth:.2g} GB/s of bus bandwidth that the exposed time comes "
                "to against what the network gives, as nccl-tests reports it",
                "stallscope report RUN --network-bandwidth 12.5",
                unless="Where it gives many times more, latency and not bandwidth is what costs: larger "
                "fusion, fewer tensors.",
            ),
        )
    if found.bus_bandwidth >= _MOSTLY * found.network_bandwidth:
        return ()
    return (
        Advice(
            f"Look whether traffic between hosts is encrypted: the {found.bus_bandwidth:.2g} GB/s that "
            "the exposed time comes to are less than half of the network's "
            f"{found.network_bandwidth:.3g}, and encryption takes processors. On a host, this counts "
            "IPsec's associations",
            "sudo ip xfrm state count",
            unless="WireGuard and service meshes do not show in it. Many small tensors are as slow: "
            "those want larger fusion.",
        ),
    )
