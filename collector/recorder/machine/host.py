"""Read figures of the host, the process and its cgroup: cores, pressure, throttling, network."""

from __future__ import annotations

import ctypes
import os
import re
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

_PRESSURES = ("cpu", "memory", "io")
_TOTAL = re.compile(rb"some .*total=(\d+)")
# Interfaces of bridges and containers count the same bytes again.
_VIRTUAL = (
    "veth",
    "docker",
    "br-",
    "virbr",
    "cni",
    "flannel",
    "cali",
    "tap",
    "tun",
    "ifb",
    "dummy",
)
_MOST_INTERFACES = 4
# Columns of /proc/net/dev: received bytes, errors and drops, and the same for what was sent.
_RECEIVED_BYTES, _SENT_BYTES, _ERRORS = 0, 8, (2, 3, 10, 11)
_CGROUPS, _OWN_GROUPS = "/sys/fs/cgroup", Path("/proc/self/cgroup")
# adjtimex: the clock is not synchronised.
_UNSYNCHRONISED = 0x40
# Files that are read here are shorter, except for counts per core, which are not needed.
_MOST_BYTES = 16384

_THREADS = Path("/proc/self/task")


def sources_of_host() -> Iterator[FigureSource]:
    """Yield the figures of the host that this system has; one rank per host writes them."""
    for resource in _PRESSURES:
        path, name = "/proc/pressure/" + resource, resource + "_pressure_ms"
        yield from _offered(partial(_pressure, path, name))
    for make in (_cores, _retransmissions, _network, _clock_error):
        yield from _offered(make)


def sources_of_cgroup() -> Iterator[FigureSource]:
    """Yield the figures of the process's cgroup that this system has."""
    folders = cgroup_folders()
    for folder in folders.values():
        yield from _offered(partial(_throttling, folder))
    for resource in _PRESSURES if "" in folders else ():
        path = "%s/%s.pressure" % (folders[""], resource)
        name = "cgroup_%s_pressure_ms" % resource
        yield from _offered(partial(_pressure, path, name))


def cgroup_folders() -> Dict[str, str]:
    """Return the folders of the process's cgroups: of version 2 as ``""``, of version 1's ``cpu``."""
    folders: Dict[str, str] = {}
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            bases = [_CGROUPS, _CGROUPS + "/unified"]
        elif "cpu" in names:
            bases = ["%s/%s" % (_CGROUPS, controllers), _CGROUPS + "/cpu"]
        else:
            continue
        # In a container the cgroup's own folder is the root.
        for folder in [base + path for base in bases] + bases:
            if Path(folder, "cpu.stat").exists():
                folders["" if controllers == "" else "cpu"] = folder.rstrip("/")
                break
    return folders


def _offered(make: Callable[[], FigureSource]) -> Iterator[FigureSource]:
    try:
        source = make()
        values = source.read()
    except (OSError, ValueError, IndexError, AttributeError):
        return
    if any(value is not None for value in values):
        yield source


def _pressure(path: str, name: str) -> FigureSource:
    """Measure the time in which some process waited for a resource."""
    file = KernelFile(path)

    def read() -> List[Optional[int]]:
        match = _TOTAL.match(file.read())
        return [None if match is None else int(match.group(1))]

    return FigureSource((FigureColumn(name, divisor=1000),), read)


def _throttling(folder: str) -> FigureSource:
    file = KernelFile(folder + "/cpu.stat")

    def read() -> List[Optional[int]]:
        numbers = numbers_by_name(file.read())
        # Version 2 has microseconds, version 1 nanoseconds; a group without a limit may have neither.
        throttled = numbers.get(b"throttled_usec")
        if throttled is None and b"throttled_time" in numbers:
            throttled = numbers[b"throttled_time"] // 1000
        return [throttled, numbers.get(b"nr_periods"), numbers.get(b"nr_throttled")]

    figures = (
        FigureColumn("throttled_ms", divisor=1000),
        FigureColumn("periods"),
        FigureColumn("throttled_periods"),
    )
    return FigureSource(figures, read)


def _cores() -> FigureSource:
    """Measure the time that all cores spent on processes, and that a hypervisor took."""
    file, ticks = KernelFile("/proc/stat"), os.sysconf("SC_CLK_TCK")

    def read() -> List[Optional[int]]:
        ticks_of = [int(word) for word in file.read().split(b"\n", 1)[0].split()[1:9]]
        user, nice, system, _, _, irq, softirq, steal = ticks_of
        busy = user + nice + system + irq + softirq
        return [busy * 1000 // ticks, steal * 1000 // ticks]

    return FigureSource((FigureColumn("host_cpu_ms"), FigureColumn("stolen_ms")), read)


def _retransmissions() -> FigureSource:
    file = KernelFile("/proc/net/snmp")

    def read() -> List[Optional[int]]:
        names, values = [
            line.split() for line in file.read().splitlines() if line.startswith(b"Tcp:")
        ]
        return [int(values[names.index(b"RetransSegs")])]

    return FigureSource((FigureColumn("retransmitted"),), read)


def _network() -> FigureSource:
    """Count bytes and errors of the four busiest interfaces that carry the host's traffic."""
    file = KernelFile("/proc/net/dev")

    def counts() -> Dict[str, List[int]]:
        lines = file.read().decode("ascii", "replace").splitlines()[2:]
        parts = [line.partition(":") for line in lines]
        return {name.strip(): [int(count) for count in rest.split()] for name, _, rest in parts}

    interfaces = counts()
    names = [name for name in interfaces if name != "lo" and not name.startswith(_VIRTUAL)]
    names = sorted(names, key=lambda name: -interfaces[name][_SENT_BYTES])[:_MOST_INTERFACES]

    def read() -> List[Optional[int]]:
        now = counts()
        values: List[Optional[int]] = []
        for name in names:
            interface = now.get(name)
            if interface is None:
                values += [None] * 3
            else:
                values += [
                    interface[_RECEIVED_BYTES],
                    interface[_SENT_BYTES],
                    sum(interface[at] for at in _ERRORS),
                ]
        return values

    figures = []
    for name in names:
        figures += [
            FigureColumn(name + "_received_kb", divisor=1000),
            FigureColumn(name + "_sent_kb", divisor=1000),
            FigureColumn(name + "_errors"),
        ]
    return FigureSource(tuple(figures), read)


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("greatest_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        # The kernel's structure is shorter than this.
        ("more", ctypes.c_char * 256),
    ]


def _clock_error() -> FigureSource:
    """Read the kernel's bound on the error of a wall clock that is synchronised."""
    ask, timex = ctypes.CDLL(None).adjtimex, _Timex()

    def read() -> List[Optional[int]]:
        timex.modes = 0
        state = ask(ctypes.byref(timex))
        if state < 0 or timex.status & _UNSYNCHRONISED:
            return [None]
        return [timex.greatest_error]

    return FigureSource((FigureColumn("clock_error_us", grows=False),), read)


# -- Define the kernel's figures and their sources ------------------------------------------------


class FigureColumn(NamedTuple):
    """One column of the log's lines of figures."""

    #: Its name, which ends with the unit.
    name: str
    #: Whether it only grows; then the log has its growth since the line before.
    grows: bool = True
    #: The number of the source's units in one of the log's.
    divisor: int = 1


class FigureSource(NamedTuple):
    """Some figures that are read together."""

    figures: Tuple[FigureColumn, ...]
    #: Return a value per figure, None for those that are missing.
    read: Callable[[], List[Optional[int]]]
    #: Whether reading is slow; then its cost decides how often it is read.
    is_slow: bool = False
    #: Stop its work in the background.
    close: Optional[Callable[[], None]] = None


class KernelFile:
    """A file that the kernel writes anew whenever it is read; it stays open.

    Raises:
        OSError: if it does not exist, or this process may not read it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def read(self) -> bytes:
        return os.pread(self._descriptor, _MOST_BYTES, 0)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def numbers_by_name(text: bytes) -> Dict[bytes, int]:
    """Parse lines of a name and a number: ``read_bytes: 4096``."""
    numbers = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            numbers[words[0].rstrip(b":")] = int(words[1])
    return numbers


# -- Read the figures of this process: time on cores, memory, faults, reads and writes ------------


def sources() -> Iterator[FigureSource]:
    """Yield the figures that this system has."""
    for make in (_usage, _memory, _disk, _run_delay):
        try:
            yield make()
        except (ImportError, OSError, ValueError, IndexError):
            continue


def _usage() -> FigureSource:
    import resource

    def read() -> List[Optional[int]]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_us = int((used.ru_utime + used.ru_stime) * 1e6)
        return [cpu_us, used.ru_nvcsw, used.ru_nivcsw, used.ru_minflt, used.ru_majflt]

    figures = (
        FigureColumn("cpu_ms", divisor=1000),
        FigureColumn("voluntary_switches"),
        FigureColumn("involuntary_switches"),
        FigureColumn("minor_faults"),
        FigureColumn("major_faults"),
    )
    return FigureSource(figures, read)


def _memory() -> FigureSource:
    statm, page = KernelFile("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")

    def read() -> List[Optional[int]]:
        return [int(statm.read().split()[1]) * page]

    return _checked(FigureSource((FigureColumn("resident_mb", grows=False, divisor=10**6),), read))


def _disk() -> FigureSource:
    """Count bytes that really come from a disk or a network file system, or go there."""
    file = KernelFile("/proc/self/io")

    def read() -> List[Optional[int]]:
        numbers = numbers_by_name(file.read())
        return [numbers.get(b"read_bytes"), numbers.get(b"write_bytes")]

    return _checked(
        FigureSource(
            (FigureColumn("read_kb", divisor=1000), FigureColumn("written_kb", divisor=1000)), read
        )
    )


def _run_delay() -> FigureSource:
    """Measure how long all threads were ready to run and had no core."""
    # Threads that have ended must not make the sum smaller.
    ended = 0
    known: Dict[str, int] = {}

    def read() -> List[Optional[int]]:
        nonlocal ended, known
        now = {}
        for thread in _THREADS.iterdir():
            try:
                now[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
        for name, delay in known.items():
            # A reused thread id starts at 0.
            if now.get(name, -1) < delay:
                ended += delay
        known = now
        return [ended + sum(now.values())]

    return _checked(
        FigureSource((FigureColumn("run_delay_ms", divisor=10**6),), read, is_slow=True)
    )


def _checked(source: FigureSource) -> FigureSource:
    """Return a source after a first reading, which raises if it does not work."""
    source.read()
    return source
