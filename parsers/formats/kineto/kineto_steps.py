"""Compute the timestamps of each step for the ledger.

The timestamps are sums: *data* is the start plus all waiting in DataLoaders, *ready* is *reduced* minus
all exposed communication, anywhere in the step. With one loader at the start and one reduction at the
end, they are the moments themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL
from stallscope.arrays.types import Ints

from .kineto_events import DisjointSpans
from .kineto_reader import Collectives, TraceSpans

NO_COLLECTIVES = (
    "the trace has no collective that torch.distributed runs over Gloo, MPI, UCC or NCCL, and Horovod's "
    "are not in traces"
)

# Work before the first batch belongs to the step if operators fill more than this share of it.
_MOSTLY = 0.5
# A wait is in the middle of a step if at least this share of the step is work after it.
_MUCH = 0.1


@dataclass(frozen=True)
class TracedSteps:
    """The steps of a trace, in order: nanoseconds on its clock, NULL where not measured."""

    number: Ints
    #: From one ``prof.step()`` to the next, on the host.
    host_begin: Ints
    host_end: Ints
    begin: Ints
    data: Ints
    ready: Ints
    reduced: Ints
    end: Ints
    #: The number of calls of ``prof.step()`` in the step: micro-batches.
    micro: int
    #: The time in DataLoaders, and in collectives, within the step on the host.
    loading: Ints
    communicating: Ints
    #: The time of collectives that nothing overlapped, and of waiting for them in the middle of the
    #: step.
    exposed: Ints
    exposed_early: Ints
    has_collectives: bool
    #: Why timestamps are missing; None if none is.
    reason: str | None

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True)
class _Marks:
    """The starts and ends of steps, on the host and where their kernels run."""

    number: Ints
    host_begin: Ints
    host_end: Ints
    begin: Ints
    end: Ints

    def grouped(self, last: Ints, count: int) -> _Marks:
        """Join groups of ``count`` steps with these last ones."""
        first = last - count + 1
        return _Marks(
            self.number[last] // count,
            self.host_begin[first],
            self.host_end[last],
            self.begin[first],
            self.end[last],
        )


def steps_of(trace: TraceSpans) -> TracedSteps:
    """Compute the steps of a trace."""
    marks = _marks_of(trace)
    collectives = trace.device_collectives
    if not len(collectives):
        collectives = trace.host_collectives
    if trace.kernels is None:
        collectives = _ended(collectives, marks, trace)
    alone = trace.size == 1 or (trace.size is None and not trace.launches)
    reduced, micro = _last_ends(marks, collectives), 1
    if len(collectives):
        marks, reduced, micro = _without_accumulation(marks, reduced)
    elif alone:
        reduced = _updates(marks, trace)
    loading = trace.loaders
    busy: tuple[DisjointSpans, ...]
    if trace.kernels is None:
        busy = _work(trace, collectives)
    else:
        busy = (trace.kernels,)
        # Loading costs nothing while the device works.
        loading = loading - trace.kernels - collectives.spans
    steps = _traced_steps(marks, reduced, loading, busy, collectives)
    steps = replace(
        steps, micro=micro, loading=trace.loaders.within(steps.host_begin, steps.host_end)
    )
    reason = _why_not_measured(trace, collectives, steps)
    if not len(trace.loaders):
        steps = replace(steps, data=np.full(len(steps), NULL))
    return replace(steps, reason=reason)


def _marks_of(trace: TraceSpans) -> _Marks:
    """Return the starts and ends of steps. On a device they begin with their first kernel."""
    rows = sorted((*span, number) for number, span in trace.steps.items())
    begin, end, number = np.array(rows, np.int64).reshape(-1, 3).T
    # Only damaged traces have steps that overlap.
    end[:-1] = np.minimum(end[:-1], begin[1:])
    if trace.kernels is None:
        return _Marks(number, begin, end, begin, end)
    device_steps = [trace.device_steps.get(step, trace.steps[step]) for step in number.tolist()]
    device_begin, device_end = np.array(device_steps, np.int64).reshape(-1, 2).T
    device_begin = np.maximum.accumulate(device_begin)
    device_end = np.maximum(device_end, _last_kernels(trace.kernels, device_begin))
    device_end[:-1] = np.minimum(device_end[:-1], device_begin[1:])
    return _Marks(number, begin, end, device_begin, np.maximum(device_end, device_begin))


def _last_kernels(kernels: DisjointSpans, begin: Ints) -> Ints:
    """Return when the last kernel before the next step ended.

    On the device, the span of a step ends too early: it lacks the kernels of spans within it, and those
    of backward, which another thread launches.
    """
    if not len(kernels):
        return begin
    before = np.searchsorted(kernels.begin, np.append(begin[1:], LATEST), "left") - 1
    return np.where(before >= 0, kernels.end[np.maximum(before, 0)], begin)


def _ended(collectives: Collectives, marks: _Marks, trace: TraceSpans) -> Collectives:
    """Limit a host's collectives to the time until the next update or the end of the step.

    By then the training has waited for them, while the thread that runs a collective may lose its core
    before it records the end.
    """
    limits = np.sort(np.concatenate([_updates(marks, trace), marks.end]))
    after = np.searchsorted(limits, collectives.begin, "right")
    limit = np.append(limits, LATEST)[after]
    return replace(collectives, end=np.minimum(collectives.end, limit))


def _last_ends(marks: _Marks, collectives: Collectives) -> Ints:
    """Return when the last collective of each step ended on all ranks; NULL without one."""
    joint = collectives.joint > 0
    begin, end = collectives.begin[joint], collectives.end[joint]
    step = np.searchsorted(marks.begin, begin, "right") - 1
    reduced = np.full(len(marks.number), NULL)
    inside = (step >= 0) & (begin < marks.end[-1])
    np.maximum.at(reduced, step[inside], end[inside])
    return reduced


def _without_accumulation(marks: _Marks, reduced: Ints) -> tuple[_Marks, Ints, int]:
    """Join steps that only accumulate gradients with the step that reduces them.

    If steps do not alternate regularly, those without a collective stay separate.
    """
    reduces = np.flatnonzero(reduced != NULL)
    apart = np.diff(reduces)
    count = int(apart[0]) if len(apart) else 1
    if count == 1 or (apart != count).any():
        return marks, reduced, 1
    whole = reduces[reduces >= count - 1]
    return marks.grouped(whole, count), reduced[whole], count


def _updates(marks: _Marks, trace: TraceSpans) -> Ints:
    """Return when a single process had its gradients: at its optimizer's start, or the step's end."""
    updates = trace.optimizers if trace.kernels is None else trace.device_optimizers
    at = np.searchsorted(updates, marks.end) - 1
    update = np.append(updates, 0)[at]
    return np.where((at >= 0) & (update > marks.begin), update, marks.end)


def _work(trace: TraceSpans, collectives: Collectives) -> tuple[DisjointSpans, DisjointSpans]:
    """Return when the training thread worked: in operators that do not wait for a collective.

    An operator around the start of a collective, such as SyncBatchNorm, waits if a collective ends while
    nothing else runs within it.
    """
    rest = trace.starting - trace.operators
    ends = np.sort(collectives.end)
    works = np.searchsorted(ends, rest.begin) == np.searchsorted(ends, rest.end, "right")
    return trace.operators, DisjointSpans(rest.begin[works], rest.end[works])


def _traced_steps(
    marks: _Marks,
    reduced: Ints,
    loading: DisjointSpans,
    busy: tuple[DisjointSpans, ...],
    collectives: Collectives,
) -> TracedSteps:
    """Compute timestamps; a step's input begins after the reduction of the step before."""
    low = np.minimum(marks.host_begin, marks.begin)
    if len(low) > 1:
        low[1:] = np.where(reduced[:-1] == NULL, marks.end[:-1], reduced[:-1])
    low = np.maximum.accumulate(low)
    high = np.maximum(np.where(reduced == NULL, marks.end, reduced), low)
    begin = np.clip(_begins(marks, low, high, loading, busy), low, high)
    waited = loading.within(begin, high)
    alone, work = collectives.spans, (*busy, loading)
    for spans in work:
        alone -= spans
    exposed = alone.within(begin, high)
    early = _waited_early(begin, high, alone, np.sort(collectives.end), work)
    end = np.maximum(marks.end, high)
    end[:-1] = np.maximum(high[:-1], np.minimum(end[:-1], begin[1:]))
    measured = reduced != NULL
    return TracedSteps(
        number=marks.number,
        host_begin=marks.host_begin,
        host_end=marks.host_end,
        begin=begin,
        data=begin + waited,
        ready=np.where(measured, high - exposed, NULL),
        reduced=np.where(measured, high, NULL),
        end=end,
        micro=1,
        loading=waited,
        communicating=collectives.spans.within(marks.begin, marks.end),
        exposed=np.where(measured, exposed, NULL),
        exposed_early=np.where(measured, early, NULL),
        has_collectives=len(collectives) > 0,
        reason=None,
    )


def _begins(
    marks: _Marks, low: Ints, high: Ints, loading: DisjointSpans, busy: tuple[DisjointSpans, ...]
) -> Ints:
    """Return the starts of the steps: with the wait for the batch, or with much work before it.

    Loops that load ahead compute first.
    """
    usual = np.clip(marks.begin, low, high)
    if not len(loading):
        return usual
    at = np.minimum(np.searchsorted(loading.end, low, "right"), len(loading) - 1)
    first = np.maximum(loading.begin[at], low)
    loads = (loading.end[at] > low) & (first < high)
    computed = sum((spans.within(usual, first) for spans in busy), np.zeros_like(usual))
    computes_first = computed > _MOSTLY * (first - usual)
    return np.where(loads & ((first < usual) | ~computes_first), first, usual)


def _waited_early(
    begin: Ints, reduced: Ints, exposed: DisjointSpans, ends: Ints, work: tuple[DisjointSpans, ...]
) -> Ints:
    """Return how long each step waited for collectives in its middle, with much work afterwards.

    A span in which no collective ends is not a wait: the thread lacked a core, or ran something other
    than operators.

    Args:
        exposed: when only collectives ran.
        ends: the ends of collectives, ascending.
        work: all other work.
    """
    step = np.searchsorted(begin, exposed.begin, "right") - 1
    until = reduced[np.maximum(step, 0)]
    after = np.minimum(exposed.end, until)
    follows = sum((spans.within(after, until) for spans in work), np.zeros_like(after))
    waits = np.searchsorted(ends, exposed.begin, "right") < np.searchsorted(
        ends, exposed.end, "right"
    )
    waits &= (step >= 0) & (follows > _MUCH * (until - begin[np.maximum(step, 0)]))
    return DisjointSpans(exposed.begin[waits], exposed.end[waits]).within(begin, reduced)


def _why_not_measured(
    trace: TraceSpans, collectives: Collectives, steps: TracedSteps
) -> str | None:
    if not len(trace.loaders):
        return "the trace has no DataLoader, so the wait for batches is not known"
    if len(collectives) or (steps.reduced != NULL).any():
        return None
    if trace.launches:
        return (
            "the trace shows only that collectives were started, not how long they took: with NCCL, "
            "profile ProfilerActivity.CUDA as well"
        )
    return NO_COLLECTIVES
