"""Read logs of HorovodRunner: what its LogCallback sends to the driver, and its eHealth benchmarks.

    1574985600.123456: begin epoch: 3 begin, logs: None
    1574985600.523456: epoch: 3, batch: 17, logs: {'loss': 1.9, …}        with per_batch_log
    1574985617.123456: end epoch: 3, logs: {…}

Epochs and batches count from 0. Lines have no rank: with ``log_callback_only`` the lines of all ranks
with the callback are mixed, with ``all`` mpirun labels them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import Epoch, clock_facts, epochs_log, in_one_file, with_end
from ..launcher_output import LineFilter, rank_lines
from ..lines.timestamps import Timestamp, read_moment, read_timestamp
from ..rank_names import rank_in
from .keras_output import KNOWN_FROM as KNOWN_FROM_KERAS
from .keras_output import KerasOutputParser
from .line_pattern import LinePatternParser

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


# -- The eHealth benchmarks -----------------------------------------------------------------------

_MOMENT = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_STAMP = _MOMENT + rb" - STD(?:OUT|ERR) - INFO - "
_STAMPED = re.compile(rb"^(" + _MOMENT + rb") - STD", re.MULTILINE)
_REPEAT = re.compile(rb"^" + _STAMP + rb"(?:\w{1,40} - )?REPEAT (\d{1,6})\s*?$", re.MULTILINE)
_NAME = re.compile(r"(?:^|/)benchmark((?:\|[^|/]*){14})\.log(?:\.\w+)?$")
# In the order of the name; unreadable values are left out.
_FACTS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("environment", str),
    ("dataset", str),
    ("model", str),
    ("training_samples", int),
    ("validation_samples", int),
    ("cluster", str),
    ("driver_instance", str),
    ("worker_instance", str),
    ("workers", int),
    # Negative numbers are processes on the driver.
    ("size", lambda text: abs(int(text)) or None),
    ("repeats", int),
    ("epochs", int),
    ("learning_rate", float),
    ("batch_size", int),
)
_NP = 1 + [name for name, _ in _FACTS].index("size")
# Other clusters run the program without a launcher.
_LAUNCHED = "HOROVOD"
_ANNOUNCED = LinePatternParser("Epoch {epoch}/")


class EhealthParser(Parser):
    """Reads logs of the eHealth benchmarks: ranks' output with the driver's timestamps.

        2019-11-06 00:00:01 - STDOUT - INFO - HOROVOD_CLUSTER - REPEAT 1
        2019-11-06 00:06:52 - STDOUT - INFO - [1,0]<stdout>:Epoch 3/5
        2019-11-06 00:07:09 - STDOUT - INFO - [1,0]<stdout>: - 17s - loss: 1.0160

    A file repeats the same training, and each repeat is a run. The file's name describes it:

        benchmark|PROD|CALTECH101|VGG16|6982|1695|HOROVOD_CLUSTER|p2.xlarge|p2.xlarge|2|16|1|40|0.001|32.log

    Timestamps are whole seconds of an unknown zone. Keras's own seconds are as coarse; without them an
    epoch lasts from one line ``Epoch 3/5`` to the next, and may be wrong by a second either way.
    """

    name: ClassVar[str] = "ehealth"
    title: ClassVar[str] = "logs of the eHealth benchmarks"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        repeats = b"REPEAT " in head and _REPEAT.search(head) is not None
        return repeats or _NAME.search(file_name) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        named = _facts_in_name(path)
        logs: list[Parsed] = []
        problems: list[Problem] = []
        for repeat, began, part in _repeats(data):
            try:
                first = _epochs(path, part)
            except UnreadableError:
                problems.append(Problem(path, f"repeat {repeat}: no epoch has ended in it"))
                continue
            facts = {**named, "run_name": _title(named, repeat), "repeat": repeat}
            for parsed in (first, *first.more):
                log = replace(parsed.log, facts={**parsed.log.facts, **facts}, size=0)
                logs.append(_whole_job(replace(parsed, log=log, more=()), began, part))
        if not logs:
            raise UnreadableError(f"{path}: a log of benchmarks without a completed epoch")
        whole = in_one_file(logs, len(data))
        return replace(whole, problems=(*problems, *whole.problems))


def _repeats(data: bytes) -> Iterator[tuple[int, Timestamp | None, bytes]]:
    """Yield the number, start and output of each repeat; a file without repeats is one."""
    matches = list(_REPEAT.finditer(data))
    if not matches:
        yield 1, None, data
        return
    ends = [match.start() for match in matches[1:]] + [len(data)]
    for match, end in zip(matches, ends, strict=True):
        yield int(match[1]), read_timestamp(match[0]), data[match.end() : end]


def _whole_job(log: Parsed, began: Timestamp | None, data: bytes) -> Parsed:
    """Add the start of a repeat to its log, and its end if the last epoch has ended."""
    first = read_timestamp(str(log.log.facts.get("began_local", "")).encode())
    if began is None or first is None or first.ns < began.ns:
        return log
    facts = {**log.log.facts, "process_start_us": (began.ns - first.ns) // 1000, "whole_job": True}
    log = replace(log, log=replace(log.log, facts=facts))
    if facts.get("known_from") != KNOWN_FROM_KERAS or not log.log.ended:
        return log
    stamps = _STAMPED.findall(data)
    timestamp = read_timestamp(stamps[-1]) if stamps else None
    return log if timestamp is None else with_end(log, max(0, timestamp.ns - first.ns))


def _epochs(path: str, data: bytes) -> Parsed:
    try:
        return KerasOutputParser().parse(path, data)
    except UnreadableError:
        parsed = _ANNOUNCED.parse(path, data)
        if not any(log.intervals.num_rows for log in (parsed, *parsed.more)):
            raise
        return parsed


def _facts_in_name(path: str) -> dict[str, Any]:
    """Return the values in the file's name."""
    match = _NAME.search(path)
    if match is None:
        return {}
    facts: dict[str, Any] = {}
    for (name, kind), text in zip(_FACTS, match[1].split("|")[1:], strict=True):
        try:
            value = kind(text) if text else None
        except ValueError:
            continue
        if value is not None:
            facts[name] = value
    if "cluster" in facts:
        facts["launcher"] = "HorovodRunner" if facts["cluster"].startswith(_LAUNCHED) else "none"
    if facts.get("launcher") == "none":
        facts.setdefault("size", 1)
    if match[1].split("|")[_NP].startswith("-"):
        facts["placement"] = "driver"
    return facts


def _title(named: dict[str, Any], repeat: int) -> str:
    """Name a repeat: ``VGG16 on CALTECH101, np 16, repeat 1``."""
    what = f"{named.get('model', 'benchmark')}"
    if "dataset" in named:
        what += f" on {named['dataset']}"
    if "size" in named:
        what += f", np {named['size']}"
    return f"{what}, repeat {repeat}"
