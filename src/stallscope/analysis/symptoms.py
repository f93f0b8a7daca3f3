"""Define symptoms of slow ranks in the kernel's counters, and average these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.run import Run, Series

from .ledger.ledger import Ledger
from .steps.alignment import AlignedSteps

# Pieces are as long as the time between two values; there are at most this many.
_MOST_PIECES = 600
_SECOND = 1_000_000_000
_SOME = 64
# Every recorder that counts anything counts this.
_ALWAYS_COUNTED = "process_cpu"
# Quantities that show why a rank is slow.
_QUANTITIES = frozenset(
    {
        "process_cpu",
        "process_waiting_for_cores",
        "process_major_faults",
        "cgroup_periods",
        "cgroup_throttled_periods",
        "cgroup_memory_pressure",
        "cgroup_io_pressure",
        "host_cpu",
        "host_stolen",
        "host_memory_pressure",
        "host_io_pressure",
        "gpu_clock",
        "gpu_power_capped",
        "gpu_too_hot",
    }
)


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

# -- Average the machines' counters over the steady steps, per rank and piece of time -------------


def was_counted(run: Run) -> bool:
    """Whether a run's logs have its machines' counters."""
    return any(series.name == _ALWAYS_COUNTED for series in run.series)


@dataclass(frozen=True)
class Counted:
    """Means over equal pieces of the steady steps."""

    ranks: tuple[int, ...]
    #: Of each rank.
    hosts: tuple[str, ...]
    #: By name of the quantity: R × P, NaN where nothing was counted. A host's counters stand for all of
    #: its ranks.
    of: Mapping[str, Floats]
    #: The mean step, seconds.
    step_s: float
    #: The number of pieces, and the pieces in which each steady step began and ended.
    pieces: int
    began: Ints
    ended: Ints

    def on(self, host: str) -> list[int]:
        """Return the ranks on a host."""
        return [rank for rank, name in zip(self.ranks, self.hosts, strict=True) if name == host]


def count(run: Run, aligned: AlignedSteps, steady: Ledger) -> Counted | None:
    """Average the kernel's counters, as recorders read them, over pieces of the steady steps.

    Returns:
        None if nothing was counted, or there are no steady steps.
    """
    logs = {log.path: log for log in run.logs if log.generation == aligned.generation}
    counters = [
        series for series in run.series if series.where in logs and series.name in _QUANTITIES
    ]
    if not counters or not len(steady):
        return None
    span = int(steady.reduced[0] - steady.total[0]), int(steady.reduced[-1])
    pieces = _Pieces(*span, max(_SECOND, _usual_interval(counters)))
    row = {rank: at for at, rank in enumerate(aligned.ranks)}
    offsets = aligned.clocks.mean_offset.astype(np.int64)
    of_host: dict[str, list[int]] = {}
    for at, host in enumerate(aligned.hosts):
        of_host.setdefault(host, []).append(at)
    totals: dict[str, _Sums] = {}
    for series in counters:
        log = logs[series.where]
        if log.rank not in row:
            continue
        at = row[log.rank]
        rows = [at] if series.rank is not None else of_host[log.host]
        sums = totals.setdefault(series.name, _Sums(len(aligned.ranks), pieces.count))
        inside, piece = pieces.of(series, log.wall_minus_monotonic + int(offsets[at]))
        sums.add(rows, piece, series.value[inside])
    means = {name: sums.means() for name, sums in totals.items()}
    step_s = float(steady.total.mean()) / _SECOND
    began, ended = (pieces.at(at) for at in (steady.reduced - steady.total, steady.reduced))
    return Counted(aligned.ranks, aligned.hosts, means, step_s, pieces.count, began, ended)


def _usual_interval(series: Sequence[Series]) -> int:
    """Return the usual time between two values, nanoseconds, from some of the series."""
    some = series[:: max(1, len(series) // _SOME)]
    return int(np.median([_interval(counter.wall_ns) for counter in some]))


def _interval(walls: Ints) -> float:
    return float(np.median(np.diff(walls))) if len(walls) > 1 else 0.0


class _Pieces:
    """Equal pieces of a period on the clock of the reference rank, nanoseconds."""

    def __init__(self, begin: int, end: int, length: int) -> None:
        self._begin, self._end = begin, max(end, begin + 1)
        self.count = int(np.clip((end - begin) // length, 1, _MOST_PIECES))
        # Series of one log share their times.
        self._last: tuple[Ints, int, Bools, Ints] | None = None

    def of(self, series: Series, ahead: int) -> tuple[Bools, Ints]:
        """Mark the values within the period, and return their pieces.

        The middle of the time that a value covers decides.

        Args:
            series: values with wall times.
            ahead: how far these are ahead of the reference rank's clock.
        """
        last = self._last
        if last is not None and last[0] is series.wall_ns and last[1] == ahead:
            return last[2], last[3]
        at = series.wall_ns - ahead
        middle = at - np.diff(at, prepend=at[:1] - int(_interval(at))) / 2
        inside = (middle >= self._begin) & (middle < self._end)
        piece = self.at(middle[inside])
        self._last = series.wall_ns, ahead, inside, piece
        return inside, piece

    def at(self, times: Ints | Floats) -> Ints:
        """Return the pieces of times within the period."""
        share = (times - self._begin) / (self._end - self._begin)
        return np.minimum((share * self.count).astype(np.int64), self.count - 1)


class _Sums:
    """Sums and numbers of values per rank and piece."""

    def __init__(self, ranks: int, pieces: int) -> None:
        self._total = np.zeros((ranks, pieces))
        self._values = np.zeros((ranks, pieces))

    def add(self, rows: Sequence[int], piece: Ints, value: Floats) -> None:
        pieces = self._total.shape[1]
        self._total[rows] += np.bincount(piece, value, pieces)
        self._values[rows] += np.bincount(piece, minlength=pieces)

    def means(self) -> Floats:
        means = np.full(self._total.shape, np.nan)
        np.divide(self._total, self._values, out=means, where=self._values > 0)
        return means
