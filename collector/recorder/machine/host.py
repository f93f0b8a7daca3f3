"""Read the figures of the host and of the process's cgroup: cores, pressure, throttling, network."""

from __future__ import annotations

import ctypes
import os
import re
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

from .figures import FigureColumn, FigureSource, KernelFile, numbers_by_name

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
