"""Write Horovod Timelines of any generation, as timeline.cc does, for jobs with known steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Name and shape.
Tensor = tuple[str, tuple[int, ...]]

#: Gradients of a small network, in the order of backward.
GRADIENTS: tuple[Tensor, ...] = (
    ("allreduce.4.bias", (10,)),
    ("allreduce.4.weight", (10, 128)),
    ("allreduce.2.bias", (128,)),
    ("allreduce.2.weight", (128, 256)),
    ("allreduce.0.bias", (256,)),
    ("allreduce.0.weight", (256, 64)),
)
METRIC = ("HorovodAllreduce", ())


class Writer:
    """Writes like timeline.cc; up to 0.20.0 (``old``) without start time and closing bracket."""

    def __init__(self, old: bool = False, start_us: int = 1_600_000_000_000_000) -> None:
        self._old = old
        self._numbers: dict[str, int] = {}
        self._texts = ["[\n"]
        if not old:
            self._texts.append(
                '{"name": "process_name", "ph": "M", "pid": 0, '
                f'"args": {{"start_time_since_epoch_in_micros":{start_us}}}}},\n'
                '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
            )
        self._first = True

    def event(self, kind: str, at: int, tensor: str, name: str = "", args: str = "") -> None:
        self._separate()
        if tensor not in self._numbers:
            number = self._numbers[tensor] = len(self._numbers) + 1
            self._texts.append(
                f'{{"name": "process_name", "ph": "M", "pid": {number}, '
                f'"args": {{"name": "{tensor}"}}}},\n'
                f'{{"name": "process_sort_index", "ph": "M", "pid": {number}, '
                f'"args": {{"sort_index": {number}}}}},\n'
            )
        text = f'{{"ph": "{kind}"' + (f', "name": "{name}"' if kind != "E" else "")
        text += f', "ts": {at}, "pid": {self._numbers[tensor]}'
        text += ', "dur": 0' if kind == "X" else ""
        text += f', "args": {{{args}}}' if args else ""
        self._texts.append(text)
        self._close()

    def cycle(self, at: int) -> None:
        self._separate()
        self._texts.append(f'{{"ph": "i", "name": "CYCLE_START", "ts": {at}, "s": "g"')
        self._close()

    def _separate(self) -> None:
        if not self._old and not self._first:
            self._texts[-1] = "},"
        self._first = False

    def _close(self) -> None:
        self._texts.append("},\n" if self._old else "}]")

    @property
    def data(self) -> bytes:
        return "".join(self._texts).encode()


@dataclass(frozen=True)
class Generation:
    """The differences between versions of Horovod and the libraries that it was built with."""

    #: Without start time and closing bracket: up to 0.20.0.
    old: bool
    #: Whether only the first negotiation of a tensor has ticks of ranks: from 0.16 on.
    cache: bool
    #: Parts of an operation; fused operations copy as well.
    before: tuple[str, ...]
    transfer: str


GENERATIONS = {
    "0.15, MPI": Generation(True, False, (), "MPI"),
    "0.16, NCCL": Generation(True, False, ("WAIT_FOR_DATA", "QUEUE"), "NCCL"),
    "0.18, MPI on GPUs": Generation(
        True, True, ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA", "QUEUE"), "MPI"
    ),
    "0.19, Gloo": Generation(True, True, (), "GLOO"),
    "0.21, NCCL": Generation(False, True, ("WAIT_FOR_DATA", "QUEUE"), "NCCL"),
    "0.28, Gloo": Generation(False, True, (), "GLOO"),
    "0.28, MPI, no cache": Generation(False, False, (), "MPI"),
}


class Job:
    """Writes the timeline of a job, and knows its steps."""

    def __init__(self, generation: Generation, ranks: int, marks: bool = False) -> None:
        self.generation = generation
        self._ranks = ranks
        self._marks = marks
        self._random = np.random.default_rng(ranks)
        self._before: list[bytes] = []
        self._writer = Writer(generation.old)
        self._cached: set[str] = set()
        self._next_is_first = False
        self._begun_us, self._now = 0, 1000
        #: When each step's first tensor is negotiated.
        self.starts_us: list[int] = []

    @property
    def data(self) -> bytes:
        return b"".join([*self._before, self._writer.data])

    def start_again(self, lost: int = 0) -> None:
        """Restart the job with the same file; a kill has lost its last bytes."""
        data = self._writer.data
        self._before.append(data[: len(data) - lost])
        # Before 0.20.1 times continue at the last event of the first job.
        self._begun_us = 0 if self.generation.old else self._begun_us + self._now + 5_000_000
        self._writer = Writer(self.generation.old, 1_600_000_000_000_000 + self._begun_us)
        self._cached, self._now = set(), 1000

    def step(self, *rounds: Sequence[Tensor], kind: str = "ALLREDUCE") -> None:
        """Compute, and reduce tensors in several rounds of negotiation."""
        self._wait(20_000)
        self._next_is_first = True
        for tensors in rounds:
            self.reduce(tensors, kind)

    def reduce(self, tensors: Sequence[Tensor], kind: str = "ALLREDUCE") -> None:
        """Negotiate tensors, and reduce them together."""
        self._wait(2_000)
        if self._marks:
            self._writer.cycle(self._now)
        for name, _ in tensors:
            self._event("B", name, f"NEGOTIATE_{kind}")
            if self._next_is_first:
                self.starts_us.append(self._begun_us + self._now)
                self._next_is_first = False
        for rank in self._random.permutation(self._ranks).tolist():
            self._wait(300)
            for name, _ in tensors:
                if name not in self._cached:
                    self._event("X", name, str(rank))
        for name, _ in tensors:
            self._event("E", name)
        if self.generation.cache:
            self._cached |= {name for name, _ in tensors}
        self._operate(tensors, kind)

    def _operate(self, tensors: Sequence[Tensor], kind: str) -> None:
        transfer = {"BROADCAST": "BCAST", "ADASUM": "ADASUM_ALLREDUCE"}.get(kind, kind)
        copies = len(tensors) > 1
        parts = [
            *self.generation.before,
            *(["MEMCPY_IN_FUSION_BUFFER"] if copies else []),
            f"{self.generation.transfer}_{transfer}",
            *(["MEMCPY_OUT_FUSION_BUFFER"] if copies else []),
        ]
        for name, _ in tensors:
            self._event("B", name, kind)
        for part in parts:
            for name, _ in tensors:
                self._event("B", name, part)
            self._wait(400)
            for name, _ in tensors:
                self._event("E", name)
        for name, shape in tensors:
            text = ", ".join(map(str, shape))
            self._event("E", name, args=f'"dtype": "float32", "shape": "[{text}]"')

    def _wait(self, usual_us: int) -> None:
        self._now += int(usual_us * self._random.lognormal(sigma=0.3))

    def _event(self, kind: str, tensor: str, name: str = "", args: str = "") -> None:
        self._now += 1
        self._writer.event(kind, self._now, tensor, name, args)


def in_rounds(tensors: Sequence[Tensor], step: int) -> list[Sequence[Tensor]]:
    """Split a step's tensors into rounds of negotiation, differently from step to step."""
    ends = [1 + step % 2, 3 + step % 3]
    return [tensors[: ends[0]], tensors[ends[0] : ends[1]], tensors[ends[1] :]]


def train(
    job: Job, steps: int, tensors: Sequence[Tensor] = GRADIENTS, kind: str = "ALLREDUCE"
) -> None:
    for step in range(steps):
        job.step(*filter(None, in_rounds(tensors, step)), kind=kind)


def start(job: Job) -> None:
    """Broadcast all parameters."""
    for name, shape in GRADIENTS:
        job.reduce([(name.replace("allreduce", "broadcast"), shape)], "BROADCAST")


Case = Callable[[Job], None]
