"""Read measurements of networks, which ``stallscope netcheck`` writes (docs/netcheck.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from stallscope.collector.recorder.job.settings import masked
from stallscope.run import NetworkCheck, PairRounds, Rounds

from ...base import Contents, Format
from .files import finite, has_suffix, parse_measurement, text_or_none

SUFFIX = ".netcheck.json"

_MOST_ROUNDS = 10_000
_MOST_PAIRS = 100_000
_REDUCERS = ("horovod", "torch.distributed")
_GRADIENTS_FROM = ("sizes", "totals")


class NetworkCheckFormat(Format):
    name: ClassVar[str] = "netcheck"
    title: ClassVar[str] = "what a network gives, as stallscope netcheck measured it"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return has_suffix(file_name, SUFFIX)

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(network_check=parse_network_check(path, data))


def parse_network_check(path: str, data: bytes) -> NetworkCheck:
    """Read one file.

    Raises:
        UnreadableError: if it is not such a file, or incomplete.
        UnknownVersionError: if it was written by a newer Stallscope.
    """
    return parse_measurement(path, data, "stallscope_netcheck", "a network", _check)


def _check(path: str, content: Mapping[str, Any]) -> NetworkCheck:
    gradients = content["gradients"] or {}
    sizes = [(_count(size), _count(tensors)) for size, tensors in gradients.get("sizes", ())]
    total = sum(size * tensors for size, tensors in sizes)
    messages = sum(tensors for _, tensors in sizes)
    return NetworkCheck(
        path=path,
        run_id=text_or_none(content.get("run_id")),
        began=_wall(content["began_wall_ns"]),
        seconds=_time(content["seconds"]),
        framework=str(content["framework"]),
        reduced_by=_one_of(_REDUCERS, content["reduced_by"]),
        reduces_with=_texts(content["reduces_with"] or ()),
        device=str(content["device"]),
        size=_count(content["size"]),
        hosts=_texts(content["hosts"]),
        settings=masked({name: str(value) for name, value in content["settings"].items()}),
        gradients_from=_one_of(_GRADIENTS_FROM, gradients["from"]) if gradients else None,
        as_run=_rounds(total, messages, gradients["as_run_us"]) if gradients else None,
        together=_rounds(total, 1, gradients["together_us"]) if gradients else None,
        sweep=_measured(
            _rounds(_count(entry["bytes"]), 1, entry["us"]) for entry in content["sweep"]
        ),
        tiny=_measured(
            _rounds(0, _count(entry["messages"]), entry["us"]) for entry in content["tiny"]
        ),
        pairs=tuple(map(_pair, content["pairs"][:_MOST_PAIRS])),
        left_out=_texts(content["left_out"]),
    )


def _pair(pair: Mapping[str, Any]) -> PairRounds:
    first, second = pair["hosts"]
    return PairRounds(
        (str(first), str(second)),
        _count(pair["bytes"]),
        _times(pair["us"]),
        _times(pair["small_us"]),
    )


def _rounds(size: int, messages: int, us: Any) -> Rounds | None:
    """Return the repetitions; None where time ran out before the first one."""
    times = _times(us)
    return Rounds(size, messages, times) if times else None


def _measured(rounds: Iterable[Rounds | None]) -> tuple[Rounds, ...]:
    return tuple(measurement for measurement in rounds if measurement is not None)


def _times(us: Any) -> tuple[float, ...]:
    return tuple(map(_time, us[:_MOST_ROUNDS]))


def _time(value: Any) -> float:
    number = finite(value)
    if number < 0:
        raise ValueError("no time")
    return number


def _count(value: Any) -> int:
    number = int(value)
    if number <= 0:
        raise ValueError("no count")
    return number


def _wall(value: Any) -> int:
    """Return nanoseconds since 1970, if they fit 64 bits."""
    if not 0 <= int(value) <= np.iinfo(np.int64).max:
        raise ValueError("no time")
    return int(value)


def _one_of(known: tuple[str, ...], value: Any) -> str:
    if value not in known:
        raise ValueError("not one of the known words")
    return str(value)


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))
