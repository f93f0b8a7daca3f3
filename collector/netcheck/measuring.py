"""Measure allreduces and exchanges between pairs of hosts, in a limited time.

Every rank measures with its own monotonic clock. The first rank alone decides what is measured and how
often, and broadcasts it: ranks that decided by their own clocks would wait for each other for ever.
"""

from __future__ import annotations

from statistics import median
from time import monotonic_ns
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .ranks import FLOAT_BYTES, Ranks, Run
from .sizes import SWEEP, Gradients

_WARM_UP = 2
# Fewer values than six give a median without an interval.
_FEWEST_ROUNDS, _MOST_ROUNDS = 6, 50
_MESSAGES = (1, 8)
# Larger tensors have more numbers than the libraries count.
_MOST_BYTES_AT_ONCE = 4 << 30
# The wanted time of an exchange: much longer than its start, and short enough for many pairs.
_EXCHANGE_US = 20_000.0
_WANTED_US = 30_000.0
_FIRST_EXCHANGE_BYTES = 256 << 10
_MOST_EXCHANGE_BYTES = 64 << 20
_FASTEST_GROWTH = 16.0
_MOST_PAIR_ROUNDS = 20
_SMALL_ROUNDS = 10
# The share of the remaining time that each measurement may take.
_TINY_SHARE = 0.05
_SMALL_SHARE = 0.06
_GRADIENTS_SHARE = 0.3
_PAIRS_SHARE = 0.6
_LARGE_SHARE = 0.7
# From this size on, the time is proportional to the bytes.
_LEAST_IN_PROPORTION = 64 << 10
# The sweep up to here comes before the gradients, and predicts their time.
_SMALL_BYTES = 1 << 20
#: Microseconds of each round.
Times = List[float]

Pair = Tuple[int, int]
# With more hosts, pairs without a common host exchange data at the same time.
_MOST_HOSTS_ALONE = 16


class Sized(NamedTuple):
    bytes: int
    us: Times


class Tiny(NamedTuple):
    messages: int
    us: Times


class MeasuredPair(NamedTuple):
    hosts: Tuple[str, str]
    bytes: int
    us: Times
    #: The times of exchanges of 4 bytes.
    small_us: Times


class Measured(NamedTuple):
    """All times; a list is empty where there was no time for it."""

    tiny: List[Tiny]
    sweep: List[Sized]
    as_run_us: Times
    together_us: Times
    pairs: List[MeasuredPair]
    #: Sentences on measurements that were left out.
    left_out: List[str]


def measure(
    ranks: Ranks,
    hosts: Sequence[str],
    gradients: Optional[Gradients],
    bucket_bytes: Optional[int],
    seconds: float,
    clock: Callable[[], int] = monotonic_ns,
) -> Measured:
    """Measure as much as fits into the time.

    Args:
        ranks: all ranks.
        hosts: the host of each rank.
        gradients: the run's gradients; None without a run.
        bucket_bytes: the run's size of DistributedDataParallel's buckets.
        seconds: the time for everything.
        clock: monotonic nanoseconds.
    """
    timing = _Timing(ranks, seconds, clock)
    tiny = [
        Tiny(count, times) for count in _MESSAGES if (times := _tiny(timing, count)) is not None
    ]
    small = [size for size in SWEEP if size <= _SMALL_BYTES]
    sweep = [point for size in small for point in _sized(timing, size, _SMALL_SHARE)]
    as_run, together = _gradients(timing, gradients, bucket_bytes)
    pairs = _Pairs(timing, hosts).measure()
    for size in SWEEP[len(small) :]:
        sweep += _sized(timing, size, _LARGE_SHARE)
    return Measured(tiny, sweep, as_run, together, pairs, timing.left_out)


class _Timing:
    """Times rounds, and shares the time among the measurements."""

    def __init__(self, ranks: Ranks, seconds: float, clock: Callable[[], int]) -> None:
        self.ranks = ranks
        self.left_out: List[str] = []
        self._clock = clock
        self._end = clock() + int(seconds * 1e9)
        #: The largest allreduce so far: its bytes and µs.
        self._largest = (0, 0.0)

    @property
    def left_us(self) -> float:
        """Return the time that is left, by this rank's clock."""
        return (self._end - self._clock()) / 1e3

    def allreduce(
        self, name: str, what: str, sizes: Sequence[int], share: float, apart: bool = False
    ) -> Optional[Times]:
        """Return the times of allreduces that start together; None if there is no time for them.

        Args:
            name: the tensors' name.
            what: names the measurement in the sentence that it was left out.
            sizes: bytes of the tensors.
            share: the share of the remaining time that it may take.
            apart: keep each tensor in a separate message.
        """
        expected = self._expected_us(sum(sizes))
        enough = self.left_us > expected * (_WARM_UP + _FEWEST_ROUNDS)
        if not self.ranks.broadcast(enough):
            self._leave_out(what, expected)
            return None
        run = self.ranks.allreduce(name, sizes, apart)
        warm_up = self.times(run, _WARM_UP)
        # The first round also connects ranks and fills caches.
        count = self.ranks.broadcast(self._rounds(min(warm_up), share))
        if not count:
            self._leave_out(what, min(warm_up))
            return None
        means = self.means(self.times(run, count))
        if sum(sizes) > self._largest[0]:
            self._largest = (sum(sizes), median(means))
        return means

    def times(self, run: Run, count: int) -> Times:
        """Return the intervals between completions on this rank, in µs."""
        self.ranks.barrier()
        intervals, last = [], self._clock()
        for _ in range(count):
            run()
            now = self._clock()
            intervals.append((now - last) / 1e3)
            last = now
        return intervals

    def times_apart(self, run: Run, count: int) -> Times:
        """Return the times of rounds that each begin after a barrier, in µs."""
        return [self.times(run, 1)[0] for _ in range(count)]

    def means(self, times: Times) -> Times:
        """Return the mean over ranks of each round, the same on all ranks."""
        every = self.ranks.collect([round(time, 1) for time in times])
        return [round(sum(round_times) / len(round_times), 1) for round_times in zip(*every)]

    def _expected_us(self, size: int) -> float:
        known, us = self._largest
        # Smaller tensors take hardly less: most of their time is latency.
        return us * max(size / max(known, _LEAST_IN_PROPORTION), 1.0)

    def _rounds(self, us: float, share: float) -> int:
        """Return how often to run a round that takes ``us``; 0 if too few rounds fit."""
        if us * _FEWEST_ROUNDS > self.left_us:
            return 0
        return max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(self.left_us * share / us)))

    def _leave_out(self, what: str, us: float) -> None:
        self.left_out.append("%s: no time was left; a round takes about %.3g s" % (what, us / 1e6))


def _tiny(timing: _Timing, count: int) -> Optional[Times]:
    what = "allreduces of %d numbers that are messages of their own" % count
    return timing.allreduce("tiny.%d" % count, what, [FLOAT_BYTES] * count, _TINY_SHARE, apart=True)


def _sized(timing: _Timing, size: int, share: float) -> List[Sized]:
    times = timing.allreduce("sweep.%d" % size, "an allreduce of %d bytes" % size, [size], share)
    return [] if times is None else [Sized(size, times)]


def _gradients(
    timing: _Timing, gradients: Optional[Gradients], bucket_bytes: Optional[int]
) -> Tuple[Times, Times]:
    """Return the times of the gradients as the run reduces them, and of one tensor of all bytes."""
    if gradients is None:
        return [], []
    sizes = timing.ranks.messages(gradients.mixed(), bucket_bytes)
    as_run = timing.allreduce("gradients", "the run's gradients", sizes, _GRADIENTS_SHARE)
    if gradients.bytes > _MOST_BYTES_AT_ONCE:
        timing.left_out.append(
            "the run's gradients as one tensor: %d bytes are too many for one tensor"
            % gradients.bytes
        )
        return as_run or [], []
    what = "the run's gradients as one tensor"
    together = timing.allreduce("together", what, [gradients.bytes], _GRADIENTS_SHARE)
    return as_run or [], together or []


class _Pairs:
    """Exchanges between the first ranks of any two hosts."""

    def __init__(self, timing: _Timing, hosts: Sequence[str]) -> None:
        self._timing, self._ranks = timing, timing.ranks
        self._hosts = hosts
        self._turns = turns_of(list(first_ranks(hosts).values()))
        #: The longest time so far of a turn with the fewest rounds.
        self._least_us = 0.0

    def measure(self) -> List[MeasuredPair]:
        """Measure pair after pair, or turn after turn of pairs, until no time is left.

        Further rounds only fill the pairs' share of the time.
        """
        pairs: List[MeasuredPair] = []
        until_us = self._timing.left_us * (1 - _PAIRS_SHARE)
        for done, turn in enumerate(self._turns):
            left_us = self._timing.left_us
            if not self._ranks.broadcast(left_us > self._least_us):
                self._leave_out(done)
                break
            part_us = (left_us - until_us) / (len(self._turns) - done)
            pairs += self._turn(turn, left_us - part_us)
        return pairs

    def _leave_out(self, done: int) -> None:
        every = sum(map(len, self._turns))
        missing = every - sum(map(len, self._turns[:done]))
        self._timing.left_out.append("%d of %d pairs of hosts: no time was left" % (missing, every))

    def _turn(self, turn: Sequence[Pair], until_us: float) -> List[MeasuredPair]:
        """Measure pairs that exchange data at the same time, until ``until_us`` are left."""
        begin_us = self._timing.left_us
        # The first exchange connects the two ranks.
        self._exchange(turn, dict.fromkeys(turn, FLOAT_BYTES), 1)
        small = self._exchange(turn, dict.fromkeys(turn, FLOAT_BYTES), _SMALL_ROUNDS)
        least = {pair: min(small[pair]) for pair in turn}
        sizes, us = self._sizes(turn, least)
        left_us = self._timing.left_us
        self._least_us = max(self._least_us, begin_us - left_us + us * _FEWEST_ROUNDS)
        count = int((left_us - until_us) / max(us, 1.0))
        count = max(_FEWEST_ROUNDS, min(_MOST_PAIR_ROUNDS, count))
        large = self._exchange(turn, sizes, self._ranks.broadcast(count))
        return [
            MeasuredPair(self._names(pair), sizes[pair], large[pair], small[pair]) for pair in turn
        ]

    def _sizes(
        self, turn: Sequence[Pair], least: Dict[Pair, float]
    ) -> Tuple[Dict[Pair, int], float]:
        """Return bytes that take long enough to exchange, by pair, and the µs of the slowest pair."""
        sizes = dict.fromkeys(turn, _FIRST_EXCHANGE_BYTES)
        while True:
            # The second of two: the first one fills queues and grows windows.
            times = {pair: us[-1] for pair, us in self._exchange(turn, sizes, 2).items()}
            wanted = {pair: _grown(sizes[pair], times[pair] - least[pair]) for pair in turn}
            if wanted == sizes:
                return sizes, max(times.values())
            sizes = wanted

    def _exchange(
        self, turn: Sequence[Pair], sizes: Dict[Pair, int], count: int
    ) -> Dict[Pair, Times]:
        """Return the times of exchanges by pair, the mean of its two ranks, the same on all ranks."""
        run = self._ranks.exchange([(*pair, sizes[pair]) for pair in turn])
        # With a barrier before each, a pair does not wait for a slower one.
        times = [round(time, 1) for time in self._timing.times_apart(run, count)]
        every = self._ranks.collect(times)
        return {
            pair: [
                round(sum(pair_times) / 2, 1) for pair_times in zip(every[pair[0]], every[pair[1]])
            ]
            for pair in turn
        }

    def _names(self, pair: Pair) -> Tuple[str, str]:
        return self._hosts[pair[0]], self._hosts[pair[1]]


def _grown(size: int, us: float) -> int:
    """Return the bytes to try next; the same bytes if their exchange takes long enough."""
    if us >= _EXCHANGE_US or size >= _MOST_EXCHANGE_BYTES:
        return size
    growth = min(max(_WANTED_US / max(us, 1.0), 1.5), _FASTEST_GROWTH)
    # Multiples of four: whole floats.
    return min(int(size * growth) // 4 * 4, _MOST_EXCHANGE_BYTES)


# -- Decide in which order pairs of hosts exchange data -------------------------------------------


def first_ranks(hosts: Sequence[str]) -> Dict[str, int]:
    """Return the lowest rank of each host, in the order of ranks."""
    lowest: Dict[str, int] = {}
    for rank, host in enumerate(hosts):
        lowest.setdefault(host, rank)
    return lowest


def turns_of(members: Sequence[int]) -> List[List[Pair]]:
    """Return all pairs of the members in turns; the pairs of a turn exchange data at the same time.

    Every member comes early, so that the first turns cover all of them.
    """
    rounds = _round_robin(members)
    if len(members) > _MOST_HOSTS_ALONE:
        return rounds
    return [[pair] for pairs in rounds for pair in pairs]


def _round_robin(members: Sequence[int]) -> List[List[Pair]]:
    """Return rounds in which every member is in one pair; all rounds together have every pair once."""
    circle: List[Optional[int]] = list(members)
    if len(circle) % 2:
        circle.append(None)
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        opposite = zip(circle[:half], reversed(circle[half:]))
        rounds.append(
            [(min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None]
        )
        # The first one stays, the others move on by one.
        circle[1:] = [circle[-1], *circle[1:-1]]
    return rounds
