"""Read measurements of loaders alone, which ``measure_input`` writes (docs/input.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from stallscope.run import InputStage, LoaderTrial, MeasuredInput

from ...base import Contents, Format
from .files import finite, has_suffix, parse_measurement, text_or_none

SUFFIX = ".input.json"

_MOST_STAGES = _MOST_BATCHES = 1000


class InputTimesFormat(Format):
    name: ClassVar[str] = "input-times"
    title: ClassVar[str] = "a loader's times, as measure_input wrote them"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return has_suffix(file_name, SUFFIX)

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
