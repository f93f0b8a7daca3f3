"""Read the JSON files of ``measure_input`` and ``netcheck``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from stallscope.collector.recorder.job.job_settings import masked
from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import InputStage, LoaderTrial, MeasuredInput, NetworkCheck, PairRounds, Rounds

from ..base import Contents, Format
from ..files.unpacking import ENDING

T = TypeVar("T")
_KNOWN_VERSION = 1
_PACKED = re.compile(f"{ENDING}$")
_INPUT_SUFFIX = ".input.json"
_MOST_STAGES = _MOST_BATCHES = 1000

_NETWORK_SUFFIX = ".netcheck.json"
_MOST_ROUNDS = 10_000
_MOST_PAIRS = 100_000
_REDUCERS = ("horovod", "torch.distributed")
_GRADIENTS_FROM = ("sizes", "totals")


def has_suffix(file_name: str, suffix: str) -> bool:
    """Whether a file, compressed or not, has this suffix."""
    return _PACKED.sub("", file_name).endswith(suffix)


def parse_measurement(
    path: str, data: bytes, kind: str, of: str, parse: Callable[[str, Mapping[str, Any]], T]
) -> T:
    """Parse a file.

    Args:
        path: the file.
        data: its content.
        kind: the key of the version.
        of: the measured thing, for messages.
        parse: makes the result of the path and the content.

    Raises:
        UnreadableError: if it is not such a file, or incomplete.
        UnknownVersionError: if it was written by a newer Stallscope.
    """
    try:
        content = json.loads(data)
        version = content[kind]
        if version > _KNOWN_VERSION:
            raise UnknownVersionError(
                f"{path}: measured by a newer Stallscope (format {version}, this one knows "
                f"{_KNOWN_VERSION}): upgrade it with pip install --upgrade stallscope"
            )
        return parse(path, content)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise UnreadableError(
            f"{path}: not a measurement of {of}, or incomplete; measure it again"
        ) from error


def finite(value: Any) -> float:
    """Convert a number.

    Raises:
        ValueError: if it is infinite or not a number.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("no number")
    return number


def text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


# -- Read measurements of loaders alone, which ``measure_input`` writes (docs/input.md) -----------


class InputTimesFormat(Format):
    name: ClassVar[str] = "input-times"
    title: ClassVar[str] = "a loader's times, as measure_input wrote them"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return has_suffix(file_name, _INPUT_SUFFIX)

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(measured_input=parse_input_times(path, data))


def parse_input_times(path: str, data: bytes) -> MeasuredInput:
    """Read one file.

    Raises:
        UnreadableError: if it is not such a file, or incomplete.
        UnknownVersionError: if it was written by a newer Stallscope.
    """
    return parse_measurement(path, data, "stallscope_input", "a loader", _measured)


def _measured(path: str, content: Mapping[str, Any]) -> MeasuredInput:
    times = [float(us) for us in content["batch_us"]]
    began = int(content["began_wall_ns"])
    warm_up = int(content["warm_up"])
    return MeasuredInput(
        path=path,
        rank=int(content["rank"]),
        size=int(content["size"]),
        host=str(content["host"]),
        run_id=text_or_none(content.get("run_id")),
        launch=text_or_none(content.get("launch")),
        began=began,
        ended=began + round(sum(times) * 1e3),
        kind=str(content["kind"]),
        batches=max(0, len(times) - warm_up),
        warm_up=warm_up,
        first_batch_ms=times[0] / 1e3 if times else None,
        ms=_positive(content.get("ms")),
        ci95_ms=_interval(content.get("ci95_ms")),
        samples_per_batch=_positive(content.get("samples_per_batch")),
        data_ended=bool(content.get("ended")),
        error=text_or_none(content.get("error")),
        stages=tuple(map(_stage, content["stages"][:_MOST_STAGES])),
        no_stages=text_or_none(content.get("no_stages")),
        trials=tuple(map(_trial, content.get("trials", ())[:_MOST_STAGES])),
    )


def _stage(stage: Mapping[str, Any]) -> InputStage:
    ms = finite(stage["ms"])
    return InputStage(str(stage["kind"]), str(stage["name"]), ms, _interval(stage.get("ci95_ms")))


def _trial(trial: Mapping[str, Any]) -> LoaderTrial:
    workers, prefetch, ms = int(trial["workers"]), int(trial["prefetch"]), finite(trial["ms"])
    if min(workers, prefetch, ms) <= 0:
        raise ValueError("no setting")
    batches_ms = tuple(finite(us) / 1e3 for us in trial.get("batches_us", ())[:_MOST_BATCHES])
    if min(batches_ms, default=0.0) < 0:
        raise ValueError("no time")
    return LoaderTrial(workers, prefetch, ms, _interval(trial.get("ci95_ms")), batches_ms)


def _positive(value: Any) -> float | None:
    return None if value is None or finite(value) <= 0 else finite(value)


def _interval(value: Any) -> tuple[float, float] | None:
    return None if value is None else (finite(value[0]), finite(value[1]))


# -- Read measurements of networks, which ``stallscope netcheck`` writes (docs/netcheck.md) -------


class NetworkCheckFormat(Format):
    name: ClassVar[str] = "netcheck"
    title: ClassVar[str] = "what a network gives, as stallscope netcheck measured it"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return has_suffix(file_name, _NETWORK_SUFFIX)

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
        sweep=_measured_rounds(
            _rounds(_count(entry["bytes"]), 1, entry["us"]) for entry in content["sweep"]
        ),
        tiny=_measured_rounds(
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


def _measured_rounds(rounds: Iterable[Rounds | None]) -> tuple[Rounds, ...]:
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
