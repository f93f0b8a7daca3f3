"""Every StepLogger has the same options in its signature and its help."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from stallscope.collector.recorder.options import LogDir, OptionArguments, Options, with_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

OPTIONS = [
    "run_name",
    "synthetic",
    "batch_size",
    "mlflow_run_id",
    "sink",
    "sample_after",
    "sample_one_in",
    "max_file_mb",
    "flush_seconds",
    "stages",
    "stacks",
    "machine",
    "summary",
    "scalars",
    "probe_input",
    "probe_every",
]


class StepLogger:
    """A StepLogger with an argument of its framework."""

    @with_options
    def __init__(
        self, log_dir: LogDir, *, trainer: Any = None, **options: Unpack[OptionArguments]
    ) -> None:
        self.trainer = trainer
        self.options = Options(log_dir, **options)


def test_the_signature_has_the_frameworks_arguments_and_then_the_options() -> None:
    parameters = inspect.signature(StepLogger).parameters
    assert list(parameters) == ["log_dir", "trainer", *OPTIONS]
    assert parameters["log_dir"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {parameters[name].kind for name in OPTIONS} == {inspect.Parameter.KEYWORD_ONLY}
    assert {name: parameters[name].default for name in OPTIONS} == {
        "run_name": None,
        "synthetic": False,
        "batch_size": None,
        "mlflow_run_id": None,
        "sink": "file",
        "sample_after": None,
        "sample_one_in": 20,
        "max_file_mb": None,
        "flush_seconds": 1.0,
        "stages": True,
        "stacks": True,
        "machine": True,
        "summary": None,
        "scalars": None,
        "probe_input": None,
        "probe_every": None,
    }


def test_the_help_describes_every_option() -> None:
    text = inspect.getdoc(StepLogger.__init__) or ""
    assert [name for name in ("log_dir", *OPTIONS) if f"    {name}: " not in text] == []


def test_type_checkers_see_the_same_options_with_the_same_types() -> None:
    parameters = inspect.signature(Options).parameters
    typed = {name: parameters[name].annotation for name in OPTIONS}
    written = {
        name: annotation.__forward_arg__
        for name, annotation in OptionArguments.__annotations__.items()
    }
    assert written == typed


def test_arguments_reach_the_logger_and_its_options() -> None:
    logger = StepLogger(log_dir="logs", trainer=1, batch_size=8, stages=False)
    assert (logger.trainer, logger.options.batch_size, logger.options.stages) == (1, 8, False)
    assert logger.options.log_dir.is_absolute()


@pytest.mark.parametrize(
    ("positional", "keywords"), [((), {}), (("logs", 1), {}), (("logs",), {"batches": 1})]
)
def test_other_arguments_are_refused(positional: Any, keywords: Any) -> None:
    with pytest.raises(TypeError):
        StepLogger(*positional, **keywords)
