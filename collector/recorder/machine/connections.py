"""Read the kernel's counts of this process's TCP connections to other hosts, to find slow links.

The acknowledged bytes, and the time in which a connection had bytes to deliver, give the rate of the
link between two hosts, without sending anything. Sockets of Gloo, NCCL and MPI belong to the process;
InfiniBand has none.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Iterable, List, NamedTuple, Optional, Tuple

_DESCRIPTORS = Path("/proc/self/fd")
# From linux/tcp.h: struct tcp_info, which newer kernels only make longer.
_TCP_INFO = 11
_ROUND_TRIP_AT, _RETRANSMITTED_AT, _LEAST_ROUND_TRIP_AT = 68, 100, 148
_ACKED_AT, _BUSY_AT = 120, 168
_NEEDED = 192
# Hosts of a ring have two peers. In a mesh of hundreds, more peers add no information.
_MOST_PEERS = 8
# Handshakes and heartbeats do not show a link's rate.
_FEWEST_BYTES = 100_000
# The kernel counts in milliseconds.
_LEAST_BUSY_US = 10_000
_FEWEST_LOOKS = 5
_MOST_LOOKS = 240


# A descriptor, and the addresses and ports of both ends.
_Key = Tuple[int, str, str]
# The addresses of both ends.
_Ends = Tuple[str, str]


class _Counts(NamedTuple):
    """Counts of one connection since it was opened."""

    sent: int
    busy_us: int
    limited_us: int
    retransmitted: int


class _Connection(NamedTuple):
    local: str
    peer: str
    counts: _Counts
    round_trip_us: int
    least_round_trip_us: int

    @property
    def ends(self) -> _Ends:
        return self.local, self.peer

    def after(self, earlier: "Optional[_Connection]") -> "_Connection":
        """Add the counts of earlier connections between the two hosts."""
        if earlier is None:
            return self
        return self._replace(counts=_Counts(*map(sum, zip(self.counts, earlier.counts))))

    def since(self, earlier: "Optional[_Connection]") -> "_Connection":
        """Return what has been counted since an earlier look, or since it was opened."""
        if earlier is None:
            return self
        grown = (now - before for now, before in zip(self.counts, earlier.counts))
        return self._replace(counts=_Counts(*grown))

    @property
    def rate(self) -> Optional[float]:
        """Return the rate of the link, kB/s; None if too little was sent.

        A fast link delivers in less time than the kernel counts: then the rate is at least this.
        """
        counts = self.counts
        if counts.sent < _FEWEST_BYTES:
            return None
        return counts.sent * 1e3 / max(counts.busy_us - counts.limited_us, _LEAST_BUSY_US)

    def row(self) -> Dict[str, Any]:
        return {
            "local": self.local,
            "peer": self.peer,
            "sent_kb": self.counts.sent // 1000,
            "busy_ms": self.counts.busy_us // 1000,
            "limited_ms": self.counts.limited_us // 1000,
            "least_round_trip_us": self.least_round_trip_us,
            "retransmitted": self.counts.retransmitted,
        }


class Connections:
    """Adds up the process's connections by peer.

    Raises:
        OSError, AttributeError: if this system has no such counts.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        # The descriptors belong to training: read them in place, because a Python socket made from a
        # copy may change whether the original blocks.
        self._option = library.getsockopt
        self._name, self._peer = library.getsockname, library.getpeername
        #: By descriptor and ends: the latest counts of connections that are open.
        self._open: Dict[_Key, _Connection] = {}
        #: By local and peer address: the sums of closed connections.
        self._closed: Dict[_Ends, _Connection] = {}
        self._totals: Dict[_Ends, _Connection] = {}
        #: By ends, kilobytes per second and round trips at the last looks.
        self._seen: Dict[_Ends, Deque[Tuple[float, int]]] = {}
        self._look()
        self._totals = self._sums()

    def look(self) -> None:
        """Read the counts; called about once a second."""
        before = self._open
        self._look()
        self._totals = self._sums()
        # The connection that sends most now may have sent little before: jobs open new groups of ranks.
        since = (connection.since(before.get(key)) for key, connection in self._open.items())
        for ends, connection in _by_ends(since).items():
            rate = connection.rate
            if rate is not None:
                seen = self._seen.setdefault(ends, deque(maxlen=_MOST_LOOKS))
                seen.append((rate, connection.round_trip_us))

    def totals(self) -> List[Dict[str, Any]]:
        """Return the totals per peer since the process started, those with the most bytes first.

        Each has the addresses of both ends; ``sent_kb``, acknowledged by the peer; ``busy_ms``, in which
        the connection that sent most had something to deliver; ``limited_ms``, the part of that in which
        the peer's buffer was full; ``retransmitted`` segments; ``least_round_trip_us``; and quartiles
        over the last readings: of ``rate_kb_s``, the bytes per time in which only the link was the
        limit, and of ``round_trip_us``.
        """
        rows = []
        for ends, total in self._totals.items():
            seen = self._seen.get(ends, ())
            if len(seen) >= _FEWEST_LOOKS:
                rates, trips = (_quartiles(values) for values in zip(*seen))
                rows.append({**total.row(), "rate_kb_s": rates, "round_trip_us": trips})
        rows.sort(key=lambda row: -row["sent_kb"])
        return rows[:_MOST_PEERS]

    def _sums(self) -> Dict[_Ends, _Connection]:
        """Return the totals of all connections by ends."""
        sums = dict(self._closed)
        for ends, connection in _by_ends(self._open.values()).items():
            sums[ends] = connection.after(self._closed.get(ends))
        return sums

    def _look(self) -> None:
        connections = map(self._connection, _DESCRIPTORS.iterdir())
        now = dict(entry for entry in connections if entry is not None)
        gone = _by_ends(connection for key, connection in self._open.items() if key not in now)
        for ends, connection in gone.items():
            self._closed[ends] = connection.after(self._closed.get(ends))
        self._open = now

    def _connection(self, path: Path) -> Optional[Tuple[_Key, _Connection]]:
        try:
            if not os.readlink(str(path)).startswith("socket:"):
                return None
        except OSError:  # it has just been closed
            return None
        number = int(path.name)
        info = self._info(number)
        if info is None:
            return None
        local, peer = self._end(self._name, number), self._end(self._peer, number)
        # Skip connections within this host.
        if local is None or peer is None or local[0] == peer[0] or peer[0].startswith("127."):
            return None
        value = _Connection(
            local[0],
            peer[0],
            _Counts(
                *struct.unpack_from("=Q", info, _ACKED_AT),
                *struct.unpack_from("=QQ", info, _BUSY_AT),
                *struct.unpack_from("=I", info, _RETRANSMITTED_AT),
            ),
            *struct.unpack_from("=I", info, _ROUND_TRIP_AT),
            *struct.unpack_from("=I", info, _LEAST_ROUND_TRIP_AT),
        )
        return (number, "%s:%d" % local, "%s:%d" % peer), value

    def _info(self, descriptor: int) -> Optional[bytes]:
        """Return the kernel's ``tcp_info`` of a socket; None if it is not a TCP socket."""
        buffer, size = ctypes.create_string_buffer(_NEEDED), ctypes.c_uint(_NEEDED)
        failed = self._option(descriptor, socket.IPPROTO_TCP, _TCP_INFO, buffer, ctypes.byref(size))
        return None if failed or size.value < _NEEDED else buffer.raw

    def _end(self, ask: "ctypes._FuncPointer", descriptor: int) -> Optional[Tuple[str, int]]:
        """Return the address and the port of one end of a connection."""
        buffer, size = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        if ask(descriptor, buffer, ctypes.byref(size)):
            return None
        raw = buffer.raw
        (family,) = struct.unpack_from("=H", raw)
        (port,) = struct.unpack_from("!H", raw, 2)
        if family == socket.AF_INET:
            return socket.inet_ntop(socket.AF_INET, raw[4:8]), port
        if family == socket.AF_INET6:
            text = socket.inet_ntop(socket.AF_INET6, raw[8:24])
            # An IPv4 address written as IPv6 is the same address.
            return text[7:] if text.startswith("::ffff:") else text, port
        return None


def _by_ends(connections: Iterable[_Connection]) -> Dict[_Ends, _Connection]:
    """Return the connections between the same two hosts as one.

    They work at the same time, so the busy time is that of the connection that sent most. Others may
    only carry small messages, one after another.
    """
    groups: Dict[_Ends, List[_Connection]] = {}
    for connection in connections:
        groups.setdefault(connection.ends, []).append(connection)
    sums = {}
    for ends, group in groups.items():
        most = max(group, key=lambda connection: connection.counts.sent)
        sent = sum(connection.counts.sent for connection in group)
        lost = sum(connection.counts.retransmitted for connection in group)
        sums[ends] = most._replace(counts=most.counts._replace(sent=sent, retransmitted=lost))
    return sums


def _quartiles(values: Iterable[float]) -> List[int]:
    ordered = sorted(values)
    return [round(ordered[len(ordered) * part // 4]) for part in (1, 2, 3)]
