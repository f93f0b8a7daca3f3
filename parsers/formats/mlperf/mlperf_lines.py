"""Read the events in lines of MLPerf's loggers, in the forms of all versions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...launcher_output import LineFilter, rank_lines
from ...lines.timestamps import Timestamp, read_moment

#: The start of all lines of MLPerf's loggers.
START = b":::ML"
#: Numbers of ranks: as a key, or in the metadata of any event.
RANKS = ("number_of_ranks", "world_size", "num_ranks")
#: Numbers of steps so far, in the metadata of any event.
STEPS = ("step_num", "current_iter_num")
_KEYS = (
    *("run_start", "run_stop", "run_final", "epoch_start", "epoch_stop", "train_epoch"),
    *("block_start", "block_stop", "eval_start", "eval_stop"),
    *("global_batch_size", "train_samples", "train_dataset_size", "preproc_num_train_examples"),
    *("submission_benchmark", "number_of_nodes", "accelerators_per_node"),
    *("samples_count", "throughput"),
    *RANKS,
    *STEPS,
)
_SECONDS = rb"(?P<seconds>\d{9,10}(?:\.\d{1,12})?)"
_FORMS = (
    re.compile(rb":::MLLOG (?P<event>\{)"),
    re.compile(rb":::MLL " + _SECONDS + rb" (?P<key>\w{1,80}): (?P<json>\{)"),
    re.compile(
        rb":::MLPv0\.\d\.\d (?P<benchmark>[\w.-]{1,40}) " + _SECONDS + rb" \([^()]{0,400}\) "
        rb"(?P<key>\w{1,80})(?::[ \t]?(?P<value>\S.{0,4000})?)?"
    ),
)
# Events that every node of a training logs before those.
_BEFORE = ("submission_org", "cache_clear", "seed", "init_start", "init_stop")
#: A line of a training. Other tools log readings of power in the same form.
LINE = re.compile(
    rb":::ML(?:L|LOG|Pv0\.\d\.\d) [^\n]{0,200}?\b(?:%s)\b" % "|".join((*_KEYS, *_BEFORE)).encode()
)
_WANTED = re.compile(rb"\b(?:%s)\b" % "|".join(_KEYS).encode())
_FILTER = LineFilter((START,), _WANTED.search)
_DECODER = json.JSONDecoder()


class MlperfEvent(NamedTuple):
    """One event of a rank."""

    #: None if no launcher labels its line.
    rank: int | None
    timestamp: Timestamp
    key: str
    value: Any
    metadata: Mapping[str, Any]

    @property
    def ns(self) -> int:
        """Return its time, nanoseconds since 1970."""
        return self.timestamp.ns

    def whole(self, *names: str) -> int | None:
        """Return the first of these values in its metadata; None if it is missing or not whole."""
        value = next((self.metadata[name] for name in names if name in self.metadata), None)
        return as_whole(value)


def events(data: bytes) -> Iterator[MlperfEvent]:
    """Yield the events in a launcher's output, each rank's in their order.

    Events without times are skipped: submissions add settings afterwards, at the time 0.
    """
    for line in rank_lines(data, only=_FILTER):
        match = next(filter(None, (form.search(line.text) for form in _FORMS)), None)
        event = None if match is None else _event(line.rank, line.text, match)
        if event is not None:
            yield event


def as_whole(value: object) -> int | None:
    """Return a whole number of at least 0, also one that is printed as a float; None for others."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        return None
    return value


def _event(rank: int | None, text: bytes, match: re.Match[bytes]) -> MlperfEvent | None:
    parts = match.groupdict()
    if "event" in parts:
        return _mllog(rank, _json_at(text, match.start("event")))
    timestamp = read_moment(parts["seconds"])
    if timestamp is None:
        return None
    key = parts["key"].decode()
    if "json" in parts:
        content = _json_at(text, match.start("json"))
        if not content:
            return None
        return MlperfEvent(
            rank, timestamp, key, content.get("value"), _mapping(content.get("metadata"))
        )
    metadata = {"benchmark": parts["benchmark"].decode()}
    return MlperfEvent(rank, timestamp, key, _plain(parts["value"] or b""), metadata)


def _mllog(rank: int | None, content: Mapping[str, Any]) -> MlperfEvent | None:
    timestamp, key = _time_of(content), content.get("key")
    if timestamp is None or not isinstance(key, str):
        return None
    return MlperfEvent(
        rank, timestamp, key, content.get("value"), _mapping(content.get("metadata"))
    )


def _time_of(content: Mapping[str, Any]) -> Timestamp | None:
    """Read an event's time: milliseconds, or seconds as written by loggers other than MLPerf's own."""
    ms, seconds = as_whole(content.get("time_ms")), content.get("time_s")
    if ms is not None:
        return read_moment(b"%d.%03d" % divmod(ms, 1000))
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        # Shorter fractions only lack trailing zeros.
        return read_moment(b"%.3f" % seconds)
    return None


def _json_at(text: bytes, start: int) -> Mapping[str, Any]:
    """Read the JSON object at a place; empty if there is none."""
    try:
        return _mapping(_DECODER.raw_decode(text[start:].decode("utf-8", "replace"))[0])
    except (ValueError, RecursionError):
        return {}


def _plain(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace").strip()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
