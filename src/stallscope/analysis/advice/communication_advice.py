"""Advise on exposed allreduce: reduce fewer bytes, less often, or in larger pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stallscope.collector.netcheck.sizes import bus_bytes
from stallscope.formatting.numbers import faster_between, faster_in_words

from ..gains.what_if import Advice, WhatIf
from ..ledger.ledger import Ledger
from ..network.communication import Communication, with_bandwidth
from ..network.network_check import NetworkUse
from ..setup import Setup

# Gradients with fewer bytes per parameter are 16-bit already.
_FULL_BYTES = 3.0
# If the network explains less of the exposed time than this, fewer bytes do not help.
_MOSTLY = 0.5
# GB/s: gigabit Ethernet is the slowest network for training, and memory within a host is several times
# faster than this.
_SLOWEST_NETWORK, _SLOWEST_MEMORY = 0.125, 1.0
_MB = 1e6
# DistributedDataParallel's default bucket, and one that reduces several of those at once.
_BUCKET, _LARGE_BUCKET = 25 << 20, 100 << 20
# Settings that Horovod's autotuner measures.
_TUNED = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME")
# Horovod's default cache capacity in tensors, and a larger one that costs almost nothing.
_DEFAULT_CAPACITY, _LARGE_CAPACITY = 1024, 4096
# The bytes that 10 Gbit/s Ethernet moves in 0.1 ms, the latency of a small reduction between hosts.
_MOSTLY_LATENCY = 100e3
# Horovod's default since 0.21, and the longest cycle to recommend as a share of a step.
_CYCLE_MS, _LONGEST_CYCLE = 1.0, 0.05
# The share of forward and backward during which gradients become ready.
_BACKWARD = 2 / 3
_ONE_EACH = "Not if several ranks share an accelerator: NCCL needs one for each rank."


def for_allreduce(
    setup: Setup,
    ledger: Ledger,
    communication: Communication | None,
    network: NetworkUse | None = None,
) -> Iterator[Advice]:
    """Return advice that shortens exposed allreduce, the most certain first.

    Args:
        setup: the run's setup.
        ledger: steady steps, on which gains are replayed.
        communication: the run's communication, if known.
        network: the speed of the network without training, if measured.
    """
    unexplained = network is not None and network.excess_share > _MOSTLY
    if unexplained:
        yield _not_the_network()
    half = _gain_sentence(with_bandwidth(ledger, 2))
    if setup.sharded or setup.shares_model:
        yield from _of_shards(setup, half)
        return
    if setup.library == "ddp":
        yield from _buckets(setup)
    elif setup.library == "horovod":
        yield from _autotuner(setup)
        yield from _cycle_by_sizes(setup, ledger)
    if not unexplained:
        yield from _compression(setup, communication, half)
    yield _less_often(setup, half)
    yield from _hierarchy(setup)
    yield from _transport(setup)
    if network is None:
        yield from _network(setup, communication)


def _not_the_network() -> Advice:
    return Advice(
        "Look for what delays the allreduce while training, as more bandwidth would not help",
        detail=": leave a CPU core per rank to the threads that reduce (fewer threads for compute, "
        "fewer loader workers), and look for other traffic on the network",
    )


def _gain_sentence(gain: WhatIf) -> str:
    shorter = faster_in_words(gain.speedup, gain.ci95)
    interval = "" if gain.ci95 is None else f" (95%: {faster_between(gain.speedup, gain.ci95)})"
    return f"Replayed with half of the exposed time, steps are {shorter}{interval}."


def larger_cache(setup: Setup, *, evicts: bool) -> Advice:
    """Advise a capacity of Horovod's response cache that fits all tensors.

    Args:
        setup: the run's setup.
        evicts: whether the cache was too small although all gradients fit into it.
    """
    enough = max(_DEFAULT_CAPACITY, 2 * (setup.gradient_tensors or 0))
    if evicts:
        capacity = setup.settings.get("HOROVOD_CACHE_CAPACITY", "")
        enough = max(enough, _LARGE_CAPACITY, 2 * int(capacity) if capacity.isdecimal() else 0)
    return Advice(
        "Cache all tensors",
        f"HOROVOD_CACHE_CAPACITY={1 << (enough - 1).bit_length()}",
        unless="Not while you record a Timeline to see which rank was late.",
    )


def _buckets(setup: Setup) -> Iterator[Advice]:
    bucket = setup.bucket_bytes or _BUCKET
    if (setup.gradient_bytes or 0) >= 2 * bucket and bucket < _LARGE_BUCKET:
        yield Advice(
            f"Try larger buckets than the {bucket >> 20} MiB that DistributedDataParallel has",
            f"model = DistributedDataParallel(model, bucket_cap_mb={_LARGE_BUCKET >> 20})",
            unless="Not if backward hides most of the allreduce: then the last bucket is exposed, and "
            "it grows.",
        )


def _autotuner(setup: Setup) -> Iterator[Advice]:
    if setup.is_on("HOROVOD_AUTOTUNE"):
        yield Advice(
            "Pin the settings that Horovod's autotuner found, so that jobs do not search again",
            "stallscope tune RUN autotune.csv",
        )
    elif not all(setup.settings.get(name) for name in _TUNED):
        gradients = ""
        if setup.gradient_tensors and setup.gradient_bytes:
            size = f"{setup.gradient_bytes / _MB:,.1f} MB"
            gradients = f" for {setup.gradient_tensors:,} gradients of {size} together"
        yield Advice(
            f"Let Horovod's autotuner measure fusion threshold and cycle time{gradients} once, and pin "
            "the settings that stallscope tune recommends",
            "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv",
            unless="Not in a short job: it tries each setting for about fifty steps, including slow "
            "ones.",
        )


def _cycle_by_sizes(setup: Setup, ledger: Ledger) -> Iterator[Advice]:
    """Advise a longer cycle if each cycle reduces so few bytes that it is mostly latency."""
    tensors, size = setup.gradient_tensors, setup.gradient_bytes
    if not tensors or not size:
        return
    if setup.is_on("HOROVOD_AUTOTUNE") or setup.is_on("HOROVOD_CYCLE_TIME"):
        return
    backward_ms = _BACKWARD * ledger.mean_ms("compute").value
    per_cycle = size / max(1.0, min(tensors, backward_ms / _CYCLE_MS))
    longest = _LONGEST_CYCLE * float(ledger.total.mean()) / 1e6
    enough = backward_ms * _MOSTLY_LATENCY / size
    cycle = min(math.floor(longest), round(max(enough, 2 * _CYCLE_MS)))
    if per_cycle >= _MOSTLY_LATENCY or cycle < 2 * _CYCLE_MS:
        return
    yield Advice(
        "Try a longer one",
        f"HOROVOD_CYCLE_TIME={cycle}",
        reason=f"Or choose by the gradients' sizes: {tensors:,} gradients, {size / _MB:,.2g} MB "
        f"together, become ready over about {backward_ms:.0f} ms of backward. A cycle of {_CYCLE_MS:g} "
        f"ms reduces about {per_cycle / 1e3:,.2g} kB, which is mostly latency.",
        unless="The last gradient waits for the end of a cycle: keep the longer cycle only if steps "
        "become shorter.",
    )


def _compression(setup: Setup, communication: Communication | None, half: str) -> Iterator[Advice]:
    if communication is not None:
        exposed_ms = communication.exposed_ms.value
        if _longest_ms(setup, communication) < _MOSTLY * exposed_ms:
            return
    halves = setup.gradient_bytes and setup.gradient_bytes < _FULL_BYTES * (setup.parameters or 0)
    line = (
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks; "
        "model.register_comm_hook(None, default_hooks.fp16_compress_hook)"
    )
    if setup.library == "horovod":
        line = setup.optimizer_line("compression=hvd.Compression.fp16")
    if halves or setup.compresses or setup.framework is None or setup.library is None:
        return
    yield Advice(
        "Reduce gradients as 16-bit floats",
        line,
        half,
        "The gain is smaller if latency dominates. Not if gradients leave the range of 16-bit floats: "
        "compare the loss with a run without.",
        detail=": half of the bytes",
    )


def _longest_ms(setup: Setup, communication: Communication) -> float:
    """Return the longest time that moving the bytes may take."""
    if communication.whole_ms is not None:
        return communication.whole_ms
    slowest = _SLOWEST_NETWORK if len(setup.hosts) > 1 else _SLOWEST_MEMORY
    return bus_bytes(setup.ranks, communication.gradient_bytes) / slowest / 1e6


def _of_shards(setup: Setup, half: str) -> Iterator[Advice]:
    """Advise on models that ranks share, as FSDP's: parameters are gathered, and gradients reduced."""
    if setup.sharded and not setup.compresses:
        yield Advice(
            "Gather parameters and reduce gradients as 16-bit floats",
            "fully_shard(module, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))",
            half,
            "The gain is smaller if latency dominates. Compare the loss with a run without.",
            detail=": half of the bytes",
        )
    if setup.gathers_for_backward:
        yield Advice(
            "Keep the parameters after forward, so that backward gathers none",
            "fully_shard(module, reshard_after_forward=False)",
            detail=": two thirds of the bytes",
            unless="Not if memory is short: each rank then holds all parameters until backward is "
            "over.",
        )
    yield Advice(
        "Use a larger batch per rank, as far as memory allows",
        gain="Each gather and reduction then serves more samples.",
        unless="Not without checking accuracy: a larger batch needs a higher learning rate and a "
        "warm-up, and may cost accuracy.",
    )


def _less_often(setup: Setup, half: str) -> Advice:
    twice = "a larger batch needs a higher learning rate and a warm-up, and may cost accuracy."
    unknown = setup.framework is None and setup.library == "horovod"
    if (setup.passes or 1) > 1 or setup.library is None or unknown:
        return Advice(
            "Use a larger batch per rank, as far as memory allows",
            gain=f"Each reduction then serves more samples. {half}"
            if setup.library is None
            else "",
            unless=f"Not without checking accuracy: {twice}",
        )
    action, detail = "Reduce only after every second batch", ": a step then has twice the batch"
    unless = f"Or a larger batch per rank, as far as memory allows; {twice}"
    if setup.library == "ddp":
        return Advice(
            "Do not reduce in every second backward pass",
            "with model.no_sync(): loss.backward()",
            half,
            unless,
            reason=f"{action}{detail}.",
        )
    averaged = ", average_aggregated_gradients=True" if setup.framework == "keras" else ""
    line = setup.optimizer_line(f"backward_passes_per_step=2{averaged}")
    return Advice(action, line, half, unless, detail=detail)


def _hierarchy(setup: Setup) -> Iterator[Advice]:
    """Advise allreduce in two levels; Horovod supports NCCL within hosts with MPI between them."""
    per_host = set(setup.hosts.values())
    known = sum(setup.hosts.values()) == setup.ranks
    two_levels = known and len(setup.hosts) > 1 and len(per_host) == 1 and min(per_host) > 1
    if setup.library != "horovod" or not setup.gpu or not two_levels:
        return
    if "HOROVOD_HIERARCHICAL_ALLREDUCE" not in setup.settings:
        yield Advice(
            f"Try to reduce within each host first, and then between the {len(setup.hosts)} hosts",
            "HOROVOD_HIERARCHICAL_ALLREDUCE=1",
            unless="It has no effect unless Horovod was built with NCCL and MPI. Compare two runs.",
        )


def _transport(setup: Setup) -> Iterator[Advice]:
    """Advise on the transport: NCCL between accelerators, MPI or Gloo between CPUs."""
    built = setup.reduces_with
    if setup.library == "ddp" and setup.gpu and built == ("gloo",):
        yield Advice(
            "Reduce with NCCL",
            'torch.distributed.init_process_group("nccl")',
            detail=": this run's process group uses Gloo, which copies gradients through the host",
            unless=_ONE_EACH,
        )
    if setup.library != "horovod" or setup.framework is None:
        return
    if setup.gpu and built is None:
        module = "tensorflow" if setup.framework == "keras" else "torch"
        yield Advice(
            "Make sure that Horovod reduces with NCCL on these accelerators",
            detail=": this prints 0 if it does not",
            line=f'python -c "import horovod.{module} as hvd; print(hvd.nccl_built())"',
        )
    elif setup.gpu and built is not None and "nccl" not in built:
        yield Advice(
            "Build Horovod with NCCL",
            "HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall horovod",
            detail=f": this one uses {' and '.join(built) or 'no known transport'}, and copies "
            "gradients through the host",
            unless=_ONE_EACH,
        )
    elif not setup.gpu and built == ("gloo",) and len(setup.hosts) > 1:
        yield Advice(
            "Try MPI instead of Gloo, which this Horovod uses",
            "HOROVOD_WITH_MPI=1 pip install --no-cache-dir --force-reinstall horovod",
            unless="It gains nothing if both use TCP: MPI also supports InfiniBand and other fabrics. "
            "Compare two runs.",
        )


def _network(setup: Setup, communication: Communication | None) -> Iterator[Advice]:
    """Advise measuring the network if its bandwidth is unknown, or checking for encryption if slow."""
    if communication is None or communication.bus_bandwidth is None or len(setup.hosts) < 2:
        return
    bus, network = communication.bus_bandwidth, communication.network_bandwidth
    if network is None:
        launcher = "torchrun … -m" if setup.library == "ddp" else "horovodrun …"
        yield Advice(
            "Measure how fast the network reduces these gradients, launched like the training",
            f"{launcher} stallscope netcheck RUN",
            unless="Or give the network's known bus bandwidth: --network-bandwidth 12.5.",
        )
    elif bus < _MOSTLY * network:
        yield Advice(
            "On a host, this counts IPsec's associations",
            "sudo ip xfrm state count",
            reason="Check whether traffic between hosts is encrypted: "
            f"{bus:.2g} GB/s during the exposed time are less than half of the network's {network:.3g}, "
            "and encryption takes CPU time.",
            unless="It does not show WireGuard and service meshes. Many small tensors are as slow: they "
            "need larger fusion.",
        )
