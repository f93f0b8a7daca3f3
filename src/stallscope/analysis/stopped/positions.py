"""Read the position of a rank within an overdue step from its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stallscope.collector.recorder.hangs.stacks import Frame, is_users
from stallscope.run import Log

from ..steps.alignment import PAUSES
from .collectives import OF_STEP, Collective, Place, collective_of

# The timestamps of a step in order, and the stage that follows each of them.
_REACHED = ("end", "begin", "data", "ready", "reduced")
_STAGES = ("other", "input", "compute", "allreduce", "other")
_READY = _REACHED.index("ready")


@dataclass(frozen=True)
class OverduePosition:
    """The position of one rank with an overdue step."""

    log: Log
    step: int
    #: The index of the last timestamp that it has reached.
    reached: int
    #: Wall time of the last progress, nanoseconds.
    since_ns: int
    #: The seconds from then until the rank was last seen.
    seconds: float
    #: For how long all samples of the stack have been equal; None if no stack is recorded.
    still_seconds: float | None
    #: The usual time of a step; None if not yet known.
    usual_ns: float | None
    #: ``validation`` or ``checkpoint`` if the rank runs one.
    pause: str | None
    #: The training thread's stack, the innermost frame first.
    stack: tuple[Frame, ...]
    other_threads: tuple[tuple[Frame, ...], ...]

    @classmethod
    def of(cls, log: Log) -> OverduePosition | None:
        """Read the position; None if no step is overdue, or if the log's facts are damaged."""
        fact = log.facts.get("in_flight")
        if log.ended or not isinstance(fact, Mapping):
            return None
        try:
            since, seen = int(fact["since_us"]), int(fact["seen_us"])
            still_since = fact.get("stack_since_us")
            return cls(
                log=log,
                step=int(fact["step"]),
                reached=_REACHED.index(fact["reached"]),
                since_ns=log.anchor + log.wall_minus_monotonic + since * 1000,
                seconds=max(0.0, (seen - since) / 1e6),
                still_seconds=None if still_since is None else (seen - int(still_since)) / 1e6,
                usual_ns=None if fact.get("usual_us") is None else fact["usual_us"] * 1000.0,
                pause=fact.get("pause") if fact.get("pause") in PAUSES else None,
                stack=_frames(fact.get("stack")),
                other_threads=tuple(map(_frames, fact.get("other_threads") or ())),
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def arrived(self) -> tuple[int, int]:
        """Return a key that orders ranks by their progress."""
        # A rank with reduced gradients is as far as it can be before the next step.
        return (self.step + 1, 0) if self.reached > _READY else (self.step, self.reached)

    @property
    def stage(self) -> str:
        """Return ``input``, ``compute``, ``allreduce`` or ``other``."""
        return _STAGES[self.reached]

    @property
    def is_between_steps(self) -> bool:
        return self.stage == "other"

    @cached_property
    def collective(self) -> Collective | None:
        """Return the collective in which the rank waits; None if its stack shows none.

        Validation and checkpoints may call many collectives, so they have none here.
        """
        return None if self.pause else collective_of(self.stack)

    @property
    def waits_in_reduction(self) -> bool:
        """Whether the rank waits for its step's gradients to be reduced."""
        collective = self.collective
        return collective.of_step if collective is not None else self.reached == _READY

    @property
    def waits_in(self) -> Place | None:
        """Return the place of the collective in which the rank waits; None if it is in none."""
        if self.waits_in_reduction:
            return OF_STEP
        return None if self.collective is None else self.collective.place

    @property
    def users_frame(self) -> Frame | None:
        """Return the user's frame that is innermost, over all stacks.

        TensorFlow runs the generator of a loader in another thread, while the training thread is
        deep inside the library.
        """
        depths = [
            (depth, frame)
            for stack in (self.stack, *self.other_threads)
            for depth, frame in enumerate(stack)
            if is_users(frame)
        ]
        return min(depths, key=lambda pair: pair[0])[1] if depths else None


def missing_and_waiting(
    seen: Sequence[OverduePosition],
) -> tuple[list[OverduePosition], list[OverduePosition]]:
    """Return the ranks that have not arrived, and those that wait for them.

    A collective needs all ranks. The ranks in the collective with most of them wait for the ranks that
    are further behind, and for those that wait in another collective. If no rank waits, ranks without
    their batch are missing, because loaders need no other rank; about other ranks nothing is known.
    """
    waiting = [rank for rank in seen if rank.waits_in is not None]
    if not waiting:
        return [rank for rank in seen if rank.stage == "input"], []
    others = [rank for rank in seen if rank.waits_in is None]
    at_reduction = [rank.arrived for rank in waiting if rank.waits_in_reduction]
    behind = [rank for rank in others if not at_reduction or rank.arrived < max(at_reduction)]
    main = _largest_group(waiting)
    elsewhere = [rank for rank in waiting if rank.waits_in != main]
    return [*behind, *elsewhere], [rank for rank in waiting if rank.waits_in == main]


def _largest_group(waiting: Sequence[OverduePosition]) -> Place | None:
    """Return the place where most ranks wait; in a tie the reduction, which comes later."""
    groups = Counter(rank.waits_in for rank in waiting)
    return max(groups, key=lambda place: (groups[place], place == OF_STEP))


def _frames(recorded: Any) -> tuple[Frame, ...]:
    return tuple((str(path), int(line), str(name)) for path, line, name in recorded or ())
