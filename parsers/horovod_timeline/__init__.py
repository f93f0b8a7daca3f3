"""Horovod Timelines, which Horovod 0.15 to 0.28 writes on rank 0 under HOROVOD_TIMELINE.

A timeline is meant as one JSON array, and often is none: it ends where the job was killed, tensor
names are not escaped, up to 0.20.0 the array was never closed, and where a job was started again into
the same file a second array follows. It can have gigabytes: 162 gradients were 96 KB a step. So it is
not parsed as JSON. Every event is written by the same few lines of C++, byte for byte alike in all
these versions, so the reader searches blocks of bytes for them:

    {"ph": "B", "name": "ALLREDUCE", "ts": 11200, "pid": 1}          an activity begins
    {"ph": "E", "ts": 11300, "pid": 1}                               the tensor's latest one ends
    {"ph": "E", "ts": 15100, "pid": 1, "args": {"dtype": "float32", "shape": "[64]"}}
    {"ph": "X", "name": "0", "ts": 10101, "pid": 1, "dur": 0}        rank 0 has the tensor ready
    {"ph": "i", "name": "CYCLE_START", "ts": 10012, "s": "g"}        a cycle of Horovod's thread

``pid`` is a tensor, in the order of first appearance, and a line of its own gives its name. ``ts`` is
microseconds of the steady clock since Horovod started; since 0.20.1 a line at the top gives the time
of that was on the wall clock. Damaged events are left out and counted.

Two traps: tensors that were fused repeat the same activity, so unions of intervals mean something and
sums do not; and once the response cache knows a tensor no rank is ticked any more, so who was late
is known for the first negotiation of each tensor only.
"""

from .reader import (
    HEAD_BYTES,
    HorovodTimelineFormat,
    TimelineReader,
    is_timeline,
    open_timeline,
    timeline_reader,
)
from .rows import Activities, BlockRows, Ticks

__all__ = [
    "HEAD_BYTES",
    "Activities",
    "BlockRows",
    "HorovodTimelineFormat",
    "Ticks",
    "TimelineReader",
    "is_timeline",
    "open_timeline",
    "timeline_reader",
]
