"""Describe machines: their metrics, why they make a rank slow, and their network."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.network.network_check import NetworkUse, measured_at
from stallscope.analysis.symptoms import was_counted
from stallscope.analysis.views.machine_series import Figures, MachineQuantity, between, quantities
from stallscope.analysis.views.rank_maps import steady_wall
from stallscope.formatting.lists import capitalised, counted, joined
from stallscope.formatting.numbers import Scale, significant
from stallscope.formatting.plain import plain

from .figure_words import bytes_in_words

_TITLES = {
    "process_cpu": "Cores that a rank gets",
    "process_waiting_for_cores": "Threads of a rank that wait for a core",
    "process_voluntary_switches": "Voluntary context switches of a rank",
    "process_involuntary_switches": "Involuntary context switches of a rank",
    "process_minor_faults": "Minor page faults of a rank",
    "process_major_faults": "Major page faults of a rank",
    "process_memory": "Memory of a rank",
    "process_read": "Read by a rank",
    "process_written": "Written by a rank",
    "cgroup_throttled": "Cores throttled by the cgroup",
    "cgroup_periods": "Periods of the cgroup",
    "cgroup_throttled_periods": "Throttled periods of the cgroup",
    "cgroup_cpu_pressure": "CPU pressure in the cgroup",
    "cgroup_memory_pressure": "Memory pressure in the cgroup",
    "cgroup_io_pressure": "IO pressure in the cgroup",
    "gpu_busy": "Use of a rank's GPU",
    "gpu_memory": "Memory of a rank's GPU",
    "gpu_clock": "Clock of a rank's GPU",
    "gpu_power_capped": "A rank's GPU held down by its power cap",
    "gpu_too_hot": "A rank's GPU held down by heat",
    "host_cpu": "Busy cores of a host",
    "host_stolen": "Cores taken by the hypervisor",
    "host_cpu_pressure": "CPU pressure on a host",
    "host_memory_pressure": "Memory pressure on a host",
    "host_io_pressure": "IO pressure on a host",
    "host_tcp_retransmissions": "TCP segments sent again by a host",
    "host_clock_error": "Error of a host's clock, at most",
    "network_receive": "Network, received",
    "network_transmit": "Network, sent",
}
_SHORT = {"gpu": "GPU", "cpu": "CPU"}
_BYTES = {"MB": 1e6, "GB": 1e9}
_SIZES = (("MB", 1e6), ("GB", 1e9), ("TB", 1e12))
TITLE = "Why"
_NOTHING = (
    "Nothing that the kernel counts (throttling, cores, memory, disk) differs enough from the peers: "
    "the cause is in the program, or in a device."
)

#: Explanations of the parts.
PARTS = {
    "bandwidth": "all bytes in one message, without what a message of a few bytes takes",
    "latency": "one message of a few bytes on its way",
    "negotiation": "waiting for Horovod's next cycle, and agreeing on what every rank has ready",
    "fusion": "many tensors instead of one message: copies, and more messages",
}


def title(quantity: MachineQuantity) -> str:
    """Name a quantity: ``GPU utilization``, with its place if there are several."""
    known = _TITLES.get(quantity.name)
    words = [_SHORT.get(word, word) for word in plain(quantity.name).split("_") if word]
    text = known or " ".join(words) or "?"
    return capitalised(text)


def of_whom(quantity: MachineQuantity) -> str:
    """Name its machines: ``8 GPUs on 2 nodes``; empty if unknown."""
    if not quantity.whole:
        series = quantity.series[0]
        rank = "" if series.rank is None else f"rank {series.rank}"
        node = "" if series.node is None else plain(series.node)
        return " on ".join(part for part in (rank, node) if part)
    if quantity.ranks > 1:
        return counted(quantity.ranks, "rank")
    nodes = counted(quantity.nodes, "node") if quantity.nodes > 1 else ""
    if not quantity.devices:
        return nodes
    return " on ".join(part for part in (counted(quantity.devices, "GPU"), nodes) if part)


def label(quantity: MachineQuantity) -> str:
    """Name a quantity and its machines in one line."""
    of = of_whom(quantity)
    unit = f", {quantity.unit}" if quantity.unit else ""
    return f"{title(quantity)}{unit}{f' ({of})' if of else ''}"


def scale(quantity: MachineQuantity) -> Scale:
    """Choose a readable unit for its values."""
    size, _, second = quantity.unit.partition("/")
    length = _BYTES.get(size)
    if length is None:
        return Scale(quantity.unit, 1.0)
    most = quantity.top * length
    name, unit_length = next((size for size in reversed(_SIZES) if most >= size[1]), _SIZES[0])
    return Scale(f"{name}/{second}" if second else name, length / unit_length)


def reading(value: float, unit: Scale) -> str:
    """Write a value with its unit: ``41.3%``, ``12.5 GB``."""
    number = significant(value * unit.factor)
    return f"{number}%" if unit.unit == "%" else f"{number} {unit.unit}".strip()


def evidence(analysis: Analysis) -> str:
    """Say how busy machines were over the steady steps; empty if it was not measured."""
    busy = _busy(analysis)
    if busy is None:
        return ""
    quantity, figures, meanwhile = busy
    of, unit = of_whom(quantity), scale(quantity)
    return (
        f"{title(quantity)}{f' of {of}' if of else ''} was {reading(figures.mean, unit)} on average "
        f"{meanwhile}: {counted(figures.values, 'value')} from {reading(figures.low, unit)} to "
        f"{reading(figures.high, unit)}. The verdict does not rest on it."
    )


def _busy(analysis: Analysis) -> tuple[MachineQuantity, Figures, str] | None:
    known = next((quantity for quantity in quantities(analysis.run) if quantity.unit == "%"), None)
    if known is None or not known.name.endswith("utilization"):
        return None
    span, meanwhile = steady_wall(analysis), "over the steady steps"
    if span is None:
        meanwhile = "while the run was under way"
        span = (
            min(int(series.wall_ns[0]) for series in known.series),
            max(int(series.wall_ns[-1]) for series in known.series),
        )
    figures = between(known.series, *span)
    return None if figures is None else (known, figures, meanwhile)


# -- Explain slow ranks with the machines' counters -----------------------------------------------


def why(analysis: Analysis) -> tuple[str, ...]:
    """Return the reasons for the verdict, a sentence each; empty if nothing was counted."""
    bottleneck = analysis.bottleneck
    if bottleneck.why:
        return tuple(reason.text for reason in bottleneck.why)
    return (
        (_NOTHING,) if was_counted(analysis.run) and bottleneck.ranks and bottleneck.fault else ()
    )


# -- Describe how a network was measured, and the parts of its times ------------------------------


def measured(use: NetworkUse) -> str:
    """Describe what was measured, when, and what was left out."""
    check = use.check
    with_what = joined([check.reduced_by, check.framework, *check.reduces_with])
    size = (
        ""
        if check.as_run is None
        else f", {counted(check.as_run.messages, 'gradient')} of {bytes_in_words(check.as_run.bytes)}"
    )
    equal = " in equal parts, as the log has only their sum" * (check.gradients_from == "totals")
    on = f"on {check.size:,} ranks with {with_what}{size}{equal}"
    left_out = "".join(f" Left out: {reason.rstrip('.')}." for reason in check.left_out)
    return f"Measured {measured_at(use)} {on}.{left_out}"
