"""Batches in place of the loader's own: one batch again and again, and the next ones fetched ahead."""

from __future__ import annotations

import random
import sys
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set

from ..job.job_facts import batches_in, known


class RepeatedBatch:
    """Repeats one batch as often as a real loader has batches; without end where that has no length."""

    def __init__(self, real: Iterable[Any], batch: Any) -> None:
        self._real = real
        self._batch = batch

    def __len__(self) -> int:
        return len(self._real)  # type: ignore[arg-type]  # raises the real loader's error

    def __iter__(self) -> Iterator[Any]:
        try:
            batches = len(self)
        except TypeError:
            while True:
                yield self._batch
        for _ in range(batches):
            yield self._batch


def each_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches of an iterator without a call of ``iter``, with which some begin again."""
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        yield batch
        # Free it before the next batch arrives.
        batch = None


class RestOfLoader:
    """The rest of a loader whose first batch was not recorded: no batch is known to be full."""

    #: Batches of the loop that came before the recording.
    batches_before = 1

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


#: Why batches of an iterator are not fetched ahead; its type is to be put in.
LOST = "%s is an iterator: batches fetched ahead would be lost if the loop ends early"
#: Why batches of another type are not fetched ahead, unless the user wants it.
UNKNOWN_KIND = "%s is no DataLoader; log.watch(loader, probe_input=20) names it"

# -- The input probe: fetch the next batches ahead, then train on them without waiting ------------
#
# Fetching alone shows the loader's own pace, and the steps on these batches show a step without input
# stalls. The batches and their order stay the same. All ranks fetch ahead in the same iteration, because
# they count alike; nothing is communicated.

# The first iterations of a training trace, allocate and fill caches.
_FIRST = 100
# Iterations before the first probe in which the loader is observed.
_OBSERVED = 8
# A loader starts its workers at the start of an epoch.
_EPOCH_START = 4
_MOST_BYTES = 256 * 2**20
_MOST_NS = 60 * 10**9
#: Fewer batches show nothing: the first steps of a probe do not count.
FEWEST_BATCHES = 4
# Each probe is written to the log with all earlier ones.
_MOST_PROBES = 32


class Memory(NamedTuple):
    """The size of a batch in bytes, and the addresses of its arrays."""

    size: int
    addresses: Set[int]


def _unknown(_loader: Any) -> Optional[int]:
    return None


def _zero(_loader: Any) -> int:
    return 0


def _no_states() -> Any:
    return None


def _never(_loader: Any) -> bool:
    return False


class BatchReader(NamedTuple):
    """What a framework knows about loaders and batches."""

    #: Returns why batches of a loader cannot be fetched ahead, None if they can; the second argument is
    #: whether the user has named this loader.
    why_not: Callable[[Any, bool], Optional[str]]
    #: Raises ``RefusedError`` for batches that cannot be kept.
    memory: Callable[[Any], Memory]
    #: Returns the number of batches that a loader itself keeps ready; None if unknown.
    ready: Callable[[Any], Optional[int]] = _unknown
    #: Returns the number of batches at the end of an epoch that must not be fetched ahead.
    kept_back: Callable[[Any], int] = _zero
    #: Returns the states of the framework's random generators, which can be compared.
    random_states: Callable[[], Any] = _no_states
    #: Returns whether threads of this process make batches: their draws have no fixed order anyway.
    in_background: Callable[[Any], bool] = _never


class RefusedError(Exception):
    """Batches cannot be fetched ahead; the message is the reason."""


class Loop:
    """One loop over a loader: its length, the batches given so far, and how it ended."""

    def __init__(
        self, loader: Any, length: Optional[int], batches: int, reader: BatchReader
    ) -> None:
        self.length = None if length is None else length - reader.kept_back(loader)
        self.batches = batches
        self.ready = reader.ready(loader)
        self.in_background = reader.in_background(loader)
        self.position = 0
        self.error: Optional[Exception] = None
        self.exhausted = False

    def is_too_short(self) -> bool:
        return self.length is not None and self.length < FEWEST_BATCHES + _EPOCH_START

    def has_room(self) -> bool:
        """Whether the loader has started, and enough batches of the epoch are left."""
        if self.length is None:
            return self.position >= _EPOCH_START // 2
        left = self.length - self.position
        return self.position >= _EPOCH_START // 2 and left >= min(
            self.batches, self.length - _EPOCH_START
        )


class InputProbe:
    """Fetches the next batches of a training's loaders ahead, once or in regular intervals.

    Args:
        batches: how many are fetched ahead; 0 for none, unless ``watch`` gets a number.
        every: iterations from one probe to the next; None for one probe.
        reader: reads loaders and batches.
        next_step: returns the number of the current step.
        record: records facts.
        expect: receives the moment until which ranks may fetch, in monotonic nanoseconds.
        ahead: receives True when training goes on with batches that were fetched ahead, and False when
            the loader's own follow.
    """

    def __init__(
        self,
        batches: int,
        every: Optional[int],
        reader: BatchReader,
        next_step: Callable[[], Optional[int]],
        record: Callable[[Dict[str, Any]], None],
        expect: Callable[[int], None],
        ahead: Callable[[bool], None],
    ) -> None:
        self._batches = batches
        self._every = every
        self._reader = reader
        self._next_step = next_step
        self._record = record
        self._expect = expect
        self._ahead = ahead
        #: The iterations so far, and in which the next probe is due; None for no more.
        self._count = 0
        self._due: Optional[int] = every or _FIRST
        self._refused: Optional[str] = None
        self._probes: List[Dict[str, Any]] = []
        self._observed = 0
        # The random states before and after the last fetch, and whether fetching and training draw.
        self._before: Any = None
        self._after: Any = None
        self._fetch_draws = self._training_draws = False
        # Batches that are still alive, so that no new one may have their memory.
        self._alive: Deque[Any] = deque()
        self._largest = 0

    def watch(
        self, loader: Any, batches: Iterator[Any], explicit: Optional[int] = None
    ) -> Iterator[Any]:
        """Return the batches of a loop, in their order.

        Args:
            loader: the loop's loader.
            batches: an iterator over it.
            explicit: how many batches of this loader the user wants to be fetched ahead.
        """
        loop = self.loop_over(loader, batches_in(loader), explicit)
        return batches if loop is None else self.batches_of(loop, batches)

    def loop_over(
        self, loader: Any, length: Optional[int], explicit: Optional[int] = None
    ) -> Optional[Loop]:
        """Return a loop in which batches may be fetched ahead; None if there is nothing to do.

        Args:
            loader, explicit: as in ``watch``.
            length: its batches; None if unknown.
        """
        number = self._batches if explicit is None else explicit
        if not number or self.is_over:
            return None
        try:
            reason = self._reader.why_not(loader, explicit is not None)
            if reason is not None:
                raise RefusedError(reason)
            loop = Loop(loader, length, number, self._reader)
            if loop.is_too_short():
                raise RefusedError("an epoch has only %r batches" % loop.length)
            return loop
        except Exception as error:  # no error may reach training
            self.refuse(error)
            return None

    @property
    def is_over(self) -> bool:
        """Return whether no more batches will be fetched ahead."""
        return self._due is None

    def batches_of(self, loop: Loop, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of a loop."""
        while self._due is not None:
            if self.is_due(loop):
                ahead = self.fetch(loop, batches)
                try:
                    while ahead:
                        self.count(loop)
                        yield ahead.popleft()
                finally:
                    self.end()
                if loop.error is not None:
                    raise loop.error
                if loop.exhausted:
                    return
                continue
            try:
                batch = self.next_observed(loop, batches) if self.observes() else next(batches)
            except StopIteration:
                return
            self.count(loop)
            yield batch
            # Free it before the next batch arrives.
            batch = None
        yield from each_of(batches)

    def count(self, loop: Loop) -> None:
        """Count a batch that training takes."""
        self._count += 1
        loop.position += 1

    def is_due(self, loop: Loop) -> bool:
        """Return whether the next batches are to be fetched ahead now."""
        due = self._due is not None and self._count >= self._due
        return due and self._observed >= _OBSERVED and loop.has_room()

    def fetch(self, loop: Loop, batches: Iterator[Any]) -> Deque[Any]:
        """Fetch the next batches and return them; they are the probe's until ``end``."""
        self._go_on_after(self._count)
        probe: Dict[str, Any] = {"first_step": self._step(), "end_step": None}
        # Other ranks may fetch as long as this one may, and this one waits for them.
        known(lambda: self._expect(monotonic_ns() + _MOST_NS))
        ahead = self._fetch(loop, batches, probe)
        if not ahead and loop.exhausted:
            # The next epoch has batches.
            self._due = self._count
        else:
            self._probes.append(probe)
            self._write()
            known(lambda: self._ahead(True))
        return ahead

    def end(self) -> None:
        """End the probe: the training asks for the next batch, or leaves the loop."""
        if self._probes and self._probes[-1]["end_step"] is None:
            self._probes[-1]["end_step"] = self._step()
            self._write()
            known(lambda: self._ahead(False))

    def _go_on_after(self, count: int) -> None:
        """Set when the next probe is due; how many batches this one fetches may differ among ranks."""
        every = self._every
        more = every is not None and len(self._probes) + 1 < _MOST_PROBES
        self._due = count + every if every is not None and more else None

    def _step(self) -> Optional[int]:
        """Return the number of the current step; None where that fails."""
        return known(self._next_step)

    def _fetch(self, loop: Loop, batches: Iterator[Any], probe: Dict[str, Any]) -> Deque[Any]:
        """Fetch batches until a limit is reached; describe the probe."""
        ahead: Deque[Any] = deque()
        addresses: Set[int] = set()
        number, size, ended = loop.batches, 0, None
        if loop.length is not None and loop.length - loop.position < number:
            number, ended = loop.length - loop.position, "epoch"
        fetched_us: List[int] = []
        start = begin = monotonic_ns()
        while len(ahead) < number:
            if size + self._largest > _MOST_BYTES:
                ended = "memory"
                break
            if begin - start > _MOST_NS:
                ended = "time"
                break
            try:
                before = self._states() if self._training_draws else None
                begin = monotonic_ns()
                ahead.append(next(batches))
            except StopIteration:
                loop.exhausted, ended = True, "epoch"
                break
            except Exception as error:  # raised after the batches before it
                loop.error, ended = error, "error"
                break
            fetched_us.append((monotonic_ns() - begin) // 1000)
            try:
                memory = self._reader.memory(ahead[-1])
                size += memory.size
                self._largest = max(self._largest, memory.size)
                if addresses & memory.addresses:
                    raise RefusedError(_SHARED)
                addresses |= memory.addresses
                if self._training_draws and self._states() != before:
                    raise RefusedError(_DRAWS)
            except Exception as error:  # no error may reach training
                self.refuse(error)
                break
        probe.update(fetched_us=fetched_us, bytes=size, ready=loop.ready, ended=ended)
        return ahead

    def _write(self) -> None:
        probes = [dict(probe) for probe in self._probes]
        # The log may be closed.
        known(lambda: self._record({"input_probe": {"refused": self._refused, "probes": probes}}))

    def refuse(self, error: Exception) -> None:
        """Fetch no more batches ahead, and record why."""
        self._due = None
        self._refused = str(error) if isinstance(error, RefusedError) else repr(error)
        self._alive.clear()
        self._write()

    # -- Observe the loader before the first probe: is it safe to fetch ahead? ---------------------

    def observes(self) -> bool:
        """Return whether the next batch is to be fetched by ``next_observed``."""
        soon = self._due is not None and self._count >= self._due - _OBSERVED
        return soon and self._observed < _OBSERVED

    def next_observed(self, loop: Loop, batches: Iterator[Any]) -> Any:
        """Fetch a batch, and find out whether others can be fetched ahead."""
        if not loop.in_background:
            self._note_states()
        batch = next(batches)
        self._observe(loop, batch)
        return batch

    def _states(self) -> Any:
        numpy = sys.modules.get("numpy")
        drawn = None if numpy is None else numpy.random.get_state(legacy=True)
        # Its first and last members are names and small numbers.
        of_numpy = None if drawn is None else (drawn[1].tobytes(), drawn[2:])
        return random.getstate(), of_numpy, self._reader.random_states()

    def _note_states(self) -> None:
        try:
            self._before = self._states()
            if self._after is not None and self._before != self._after:
                self._training_draws = True
        except Exception as error:  # no error may reach training
            self.refuse(error)

    def _observe(self, loop: Loop, batch: Any) -> None:
        """Check whether a batch shares memory with earlier ones, and whether it drew random numbers."""
        if self._due is None:
            return
        try:
            self._observed += 1
            if not loop.in_background:
                self._after = self._states()
                self._fetch_draws = self._fetch_draws or self._after != self._before
            memory = self._reader.memory(batch)
            self._largest = max(self._largest, memory.size)
            if any(memory.addresses & addresses for _, addresses in self._alive):
                raise RefusedError(_SHARED)
            self._alive.append((batch, memory.addresses))
            while len(self._alive) * self._largest > _MOST_BYTES:
                self._alive.popleft()
            if self._observed == _OBSERVED:
                self._decide()
        except Exception as error:  # no error may reach training
            self.refuse(error)

    def _decide(self) -> None:
        self._alive.clear()
        self._before = self._after = None
        if self._fetch_draws and self._training_draws:
            raise RefusedError(_DRAWS)
        if not self._largest:
            raise RefusedError("the size of its batches is unknown")
        if self._largest * FEWEST_BATCHES > _MOST_BYTES:
            what = "a batch takes %d MB, and %d MB hold too few of them"
            raise RefusedError(what % (self._largest >> 20, _MOST_BYTES >> 20))


_SHARED = "its batches share memory, so only one can be kept at a time"
_DRAWS = (
    "the loader draws random numbers in the training's process, and so does the training: fetched ahead,"
    " both would get others; a loader with workers draws them there"
)
