"""Measurements of loaders alone, which ``measure_input`` writes beside step logs (docs/input.md)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import InputStage, LoaderTrial, MeasuredInput

from .base import Contents, Format
from .unpacking import ENDING

SUFFIX = ".input.json"

_KNOWN_VERSION = 1
_PACKED = re.compile(f"{ENDING}$")
_MOST_STAGES = 1000


class InputTimesFormat(Format):
    name: ClassVar[str] = "input-times"
    title: ClassVar[str] = "a loader's times, as measure_input wrote them"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return _PACKED.sub("", file_name).endswith(SUFFIX)

    def read(self, path: str, data: bytes) -> Contents:
        return Contents(measured_input=parse_input_times(path, data))


def parse_input_times(path: str, data: bytes) -> MeasuredInput:
    """Read one file.

    Raises:
        UnreadableError: if it is none, or not whole.
        UnknownVersionError: if it was written by a newer Stallscope.
    """
    try:
        content = json.loads(data)
        version = content["stallscope_input"]
        if version > _KNOWN_VERSION:
            raise UnknownVersionError(
                f"{path}: measured by a newer Stallscope (format {version}, this one knows "
                f"{_KNOWN_VERSION}): upgrade it with pip install --upgrade stallscope"
            )
        return _measured(path, content)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise UnreadableError(
            f"{path}: no measurement of a loader, or not whole; measure it again"
        ) from error


def _measured(path: str, content: Mapping[str, Any]) -> MeasuredInput:
    times = [float(one) for one in content["batch_us"]]
    began = int(content["began_wall_ns"])
    warm_up = int(content["warm_up"])
    return MeasuredInput(
        path=path,
        rank=int(content["rank"]),
        size=int(content["size"]),
        host=str(content["host"]),
        run_id=_text(content.get("run_id")),
        launch=_text(content.get("launch")),
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
        error=_text(content.get("error")),
        stages=tuple(map(_stage, content["stages"][:_MOST_STAGES])),
        no_stages=_text(content.get("no_stages")),
        trials=tuple(map(_trial, content.get("trials", ())[:_MOST_STAGES])),
    )


def _stage(stage: Mapping[str, Any]) -> InputStage:
    ms = _number(stage["ms"])
    return InputStage(str(stage["kind"]), str(stage["name"]), ms, _interval(stage.get("ci95_ms")))


def _trial(trial: Mapping[str, Any]) -> LoaderTrial:
    workers, prefetch, ms = int(trial["workers"]), int(trial["prefetch"]), _number(trial["ms"])
    if min(workers, prefetch, ms) <= 0:
        raise ValueError("no setting")
    return LoaderTrial(workers, prefetch, ms, _interval(trial.get("ci95_ms")))


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("no number")
    return number


def _positive(value: Any) -> float | None:
    return None if value is None or _number(value) <= 0 else _number(value)


def _interval(value: Any) -> tuple[float, float] | None:
    return None if value is None else (_number(value[0]), _number(value[1]))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
