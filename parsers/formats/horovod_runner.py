"""Read the times of epochs and batches that HorovodRunner's LogCallback sends to the driver.

    1574985600.123456: begin epoch: 3 begin, logs: None
    1574985600.523456: epoch: 3, batch: 17, logs: {'loss': 1.9, …}        with per_batch_log
    1574985617.123456: end epoch: 3, logs: {…}

Epochs and batches count from 0. Lines have no rank: with ``log_callback_only`` the lines of all ranks
with the callback are mixed, with ``all`` mpirun labels them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import Epoch, clock_facts, epochs_log, in_one_file
from ..launcher_output import LineFilter, rank_lines
from ..lines.timestamps import read_moment
from ..rank_names import rank_in

KNOWN_FROM = "what HorovodRunner's LogCallback logged"

_LINE = re.compile(
    rb"(\d{9,10}\.\d{1,9}): (begin epoch|end epoch|epoch): (\d{1,9})"
    rb"(?: begin|, batch: (\d{1,9}))?, logs: "
)
_FILTER = LineFilter((b"epoch: ",), _LINE.search)
# Python prints times with microseconds, some of them with fewer digits.
_HALF_MS = 0.0005


@dataclass
class _Rank:
    #: The starts of running epochs by their numbers.
    running: dict[int, int] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    #: The numbers and ends of batches by epoch.
    batches: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    #: The number of epochs that started again before their end.
    mixed: int = 0


class HorovodRunnerParser(Parser):
    name: ClassVar[str] = "horovod-runner"
    title: ClassVar[str] = "what HorovodRunner's LogCallback logs"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return b", logs: " in head and _LINE.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        ranks: dict[int | None, _Rank] = {}
        for line in rank_lines(data, only=_FILTER):
            match = _LINE.search(line.text)
            if match is not None:
                _add(ranks.setdefault(line.rank, _Rank()), match)
        first = min(
            (begin for state in ranks.values() for begin in _begins(state)),
            default=None,
        )
        if first is None:
            raise UnreadableError(f"{path}: LogCallback's lines contain no start of an epoch")
        logs: list[Parsed] = []
        of_the_file = rank_in(path)[0] or 0
        for rank, state in sorted(ranks.items(), key=lambda item: item[0] or 0):
            problems = [Problem(path, _MIXED)] if state.mixed else []
            logs.append(
                epochs_log(
                    path,
                    rank=of_the_file if rank is None else rank,
                    facts=_facts(state, first),
                    epochs=[
                        Epoch(number, begin - first, end - first)
                        for number, begin, end in state.epochs
                    ],
                    ended=not state.running,
                    problems=problems,
                )
            )
        return in_one_file(logs, len(data))


_MIXED = "epochs start again before they have ended: the lines of several ranks are mixed"


def _add(state: _Rank, match: re.Match[bytes]) -> None:
    timestamp = read_moment(match[1])
    if timestamp is None:
        return
    number = int(match[3])
    if match[2] == b"begin epoch":
        state.mixed += number in state.running
        state.running[number] = timestamp.ns
    elif match[2] == b"epoch":
        if match[4] is not None:
            state.batches.setdefault(number, []).append((int(match[4]), timestamp.ns))
    elif number in state.running:
        begin = state.running.pop(number)
        if timestamp.ns >= begin:
            state.epochs.append(Epoch(number, begin, timestamp.ns))


def _begins(state: _Rank) -> Iterable[int]:
    return [*state.running.values(), *(epoch.begin for epoch in state.epochs)]


def _facts(state: _Rank, first: int) -> dict[str, Any]:
    timestamp = read_moment(b"%d.%09d" % divmod(first, 10**9))
    facts: dict[str, Any] = {
        "framework": "keras",
        "known_from": KNOWN_FROM,
        "precision": "epochs, to the millisecond",
        "epoch_precision_ms": _HALF_MS,
        **clock_facts(timestamp, first),
    }
    if state.epochs:
        facts["first_epoch"] = state.epochs[0].number
    time = steps = 0
    for batches in state.batches.values():
        (before, begin), (after, end) = batches[0], batches[-1]
        if after > before and end > begin and not state.mixed:
            time, steps = time + end - begin, steps + after - before
    if steps:
        facts |= {"step_ms": time / steps / 1e6, "step_precision_ms": _HALF_MS / steps}
    return facts
