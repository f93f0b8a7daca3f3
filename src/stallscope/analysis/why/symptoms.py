"""Define symptoms of slow ranks in the kernel's counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats

from .counted import Counted


@dataclass(frozen=True)
class Symptom:
    """A quantity that shows why ranks are slow.

    ``least`` is the smallest difference from the peers that matters. ``most`` is the largest value that
    is normal without peers to compare with; None if the value alone says nothing.
    """

    code: str
    quantity: str
    #: The series that shows it over time.
    series: str
    unit: str
    least: float
    most: float | None
    #: Returns it per rank and piece; None if it was not counted.
    of: Callable[[Counted], Floats | None]
    #: Whether it is counted per host: then hosts are compared.
    of_host: bool = False


def _named(name: str) -> Callable[[Counted], Floats | None]:
    return lambda counted: counted.of.get(name)


def _pressure(what: str) -> Callable[[Counted], Floats | None]:
    """Return the pressure in each rank's cgroup, or on its host if that is unknown."""

    def of(counted: Counted) -> Floats | None:
        cgroup, whole = (counted.of.get(f"{place}_{what}_pressure") for place in ("cgroup", "host"))
        if cgroup is None or whole is None:
            return whole if cgroup is None else cgroup
        return np.where(np.isnan(cgroup), whole, cgroup)

    return of


def _throttled_share(counted: Counted) -> Floats | None:
    throttled, periods = (
        counted.of.get(f"cgroup_{name}") for name in ("throttled_periods", "periods")
    )
    if throttled is None or periods is None:
        return None
    share = np.zeros(periods.shape)
    np.divide(100.0 * throttled, periods, out=share, where=periods > 0)
    return np.where(np.isnan(throttled) | np.isnan(periods), np.nan, share)


def _other_processes(counted: Counted) -> Floats | None:
    """Return the cores of each rank's host that processes other than the ranks keep busy."""
    whole, processes = counted.of.get("host_cpu"), counted.of.get("process_cpu")
    if whole is None or processes is None:
        return None
    rest = whole.copy()
    for host in set(counted.hosts):
        on_host = np.array([name == host for name in counted.hosts])
        rest[on_host] -= processes[on_host].sum(axis=0)
    # The two are read at slightly different times.
    return np.maximum(rest, 0.0)


def _slower_clock(counted: Counted) -> Floats | None:
    """Return by how many per cent each rank's GPU clock is below the fastest one."""
    clocks = counted.of.get("gpu_clock")
    if clocks is None:
        return None
    fastest = np.fmax.reduce(clocks, axis=0)
    return np.asarray(100.0 * (1.0 - clocks / np.maximum(fastest, 1.0)))


def _cpu_time_per_step(counted: Counted) -> Floats | None:
    cores = counted.of.get("process_cpu")
    return None if cores is None else 1000.0 * cores * counted.step_s


#: In the order in which they are reported.
SYMPTOMS = (
    Symptom(
        "throttled",
        "share of throttled periods",
        "cgroup_throttled_periods",
        "%",
        5.0,
        10.0,
        _throttled_share,
    ),
    Symptom(
        "gpu_power_cap",
        "power cap",
        "gpu_power_capped",
        "%",
        20.0,
        None,
        _named("gpu_power_capped"),
    ),
    Symptom("gpu_heat", "slowdown by heat", "gpu_too_hot", "%", 5.0, 20.0, _named("gpu_too_hot")),
    Symptom(
        "gpu_clock",
        "GPU clock below the fastest rank's",
        "gpu_clock",
        "%",
        5.0,
        None,
        _slower_clock,
    ),
    Symptom(
        "other_processes",
        "cores busy with other processes",
        "host_cpu",
        "cores",
        0.2,
        None,
        _other_processes,
        of_host=True,
    ),
    Symptom(
        "stolen_cores",
        "cores taken by the hypervisor",
        "host_stolen",
        "cores",
        0.1,
        0.2,
        _named("host_stolen"),
        of_host=True,
    ),
    Symptom(
        "major_faults",
        "major page faults",
        "process_major_faults",
        "1/s",
        20.0,
        100.0,
        _named("process_major_faults"),
    ),
    Symptom(
        "memory_pressure",
        "memory pressure",
        "cgroup_memory_pressure",
        "%",
        5.0,
        10.0,
        _pressure("memory"),
    ),
    Symptom(
        "disk",
        "io pressure",
        "cgroup_io_pressure",
        "%",
        10.0,
        25.0,
        _pressure("io"),
    ),
    Symptom(
        "waits_for_cores",
        "threads that wait for a core",
        "process_waiting_for_cores",
        "threads",
        0.15,
        None,
        _named("process_waiting_for_cores"),
    ),
)
#: If a rank needs more of it, it has more work, or slower cores.
CPU_TIME = Symptom(
    "more_cpu_time", "CPU time per step", "process_cpu", "ms", 0.0, None, _cpu_time_per_step
)
