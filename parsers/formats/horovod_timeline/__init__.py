"""Read Horovod Timelines, which Horovod 0.15 to 0.28 writes on rank 0 under HOROVOD_TIMELINE.

A timeline should be one JSON array, and often is not: it ends where the job was killed, tensor names are
not escaped, up to 0.20.0 the array was never closed, and a job that was restarted into the same file
adds a second array. It can have gigabytes: 162 gradients were 96 KB a step. So it is not parsed as JSON.
All these versions write events in the same form, byte for byte, so the reader searches blocks of bytes
for
them:

    {"ph": "B", "name": "ALLREDUCE", "ts": 11200, "pid": 1}          an activity begins
    {"ph": "E", "ts": 11300, "pid": 1}                               the tensor's latest one ends
    {"ph": "E", "ts": 15100, "pid": 1, "args": {"dtype": "float32", "shape": "[64]"}}
    {"ph": "X", "name": "0", "ts": 10101, "pid": 1, "dur": 0}        rank 0 has the tensor ready
    {"ph": "i", "name": "CYCLE_START", "ts": 10012, "s": "g"}        a cycle of Horovod's thread

``pid`` is a tensor, in the order of first appearance; a separate line gives its name. ``ts`` is
microseconds of the steady clock since Horovod started; since 0.20.1 a line at the top gives the wall
time of that start. Damaged events are skipped and counted.

Two traps: fused tensors repeat the same activity, so only unions of intervals have a meaning, not sums;
and ranks are not ticked for tensors in the response cache, so the late rank is only known for the first
negotiation of each tensor.
"""

from .timeline_events import Activities, BlockRows, Ticks
from .timeline_reader import (
    HEAD_BYTES,
    HorovodTimelineFormat,
    TimelineReader,
    is_timeline,
    open_timeline,
    timeline_reader,
)

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
