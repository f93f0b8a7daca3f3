"""``python -m stallscope.record`` records scripts that are not edited, and leaves them as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from training.environments import KERAS3, MXNET, needs
from training.launching import ENVIRONMENT, launch_words
from training.recorded import TIMESTAMPS, Fit, check_steps, fits_of
from training.unedited_cases import BATCH, BATCHES, EPOCHS

from stallscope.parsers import read

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

STEPS = EPOCHS * BATCHES


def variant(*values: object) -> Any:
    """Return parameters that only ``make test-all`` tests."""
    return pytest.param(*values, marks=pytest.mark.variant)


#: Lines that are the same without a recording, as horovodrun labels them.
KEPT = re.compile(r"(\[\d+\]<\w+>:)?(weights|Traceback|  File)")
RECORD = ["-m", "stallscope.record"]


class Ran(NamedTuple):
    """A script that has ended."""

    status: int
    #: What it printed, without Stallscope's lines, and those.
    printed: list[str]
    said: list[str]


def run(folder: Path, case: str, words: Sequence[str], environment: Path, **settings: str) -> Ran:
    folder.mkdir()
    launched = launch_words(
        folder / "printed.txt",
        list(words),
        "unedited_cases.py",
        case,
        environment=environment,
        CASE_DIR=str(folder),
        STALLSCOPE_TO=str(folder / "logs"),
        OMP_NUM_THREADS="1",
        **settings,
    )
    status = launched.wait()
    lines = launched.output.splitlines()
    said = [line for line in lines if "stallscope: " in line]
    return Ran(status, [line for line in lines if line not in said], said)


def kept_of(ran: Ran) -> list[str]:
    """Return the lines that a recording must not change, in the order of each rank."""
    kept = [(match.group(1) or "", line) for line in ran.printed if (match := KEPT.match(line))]
    return [line for _, line in sorted(kept, key=lambda labelled: labelled[0])]


def recorded(
    folder: Path,
    case: str,
    environment: Path,
    launcher: Sequence[str] = ("python",),
    options: Sequence[str] = (),
    **settings: str,
) -> tuple[Ran, list[Fit]]:
    """Run a case with and without a recording; check that its output is the same; return the logs."""
    plain = run(folder / "plain", case, launcher, environment, **settings)
    words = [*launcher, *RECORD, *options]
    ran = run(folder / "recorded", case, words, environment, **settings)
    assert ran.status == plain.status, ran.printed
    kept = kept_of(ran)
    assert kept == kept_of(plain)
    assert any("weights " in line for line in kept), ran.printed
    (logs,) = read(str(folder / "recorded" / "logs"))
    assert logs.problems == ()
    return ran, fits_of(logs)


class Alone(NamedTuple):
    """A case that has run in one process with a recording."""

    folder: Path
    ran: Ran
    fit: Fit


@pytest.fixture(scope="module")
def alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Alone]:
    """Return a function that runs a case in one process, once for all tests."""

    @cache
    def run_once(case: str) -> Alone:
        folder = tmp_path_factory.mktemp(case)
        ran, (fit,) = recorded(folder, case, ENVIRONMENT)
        return Alone(folder, ran, fit)

    return run_once


class Loop(NamedTuple):
    """A case, what is said of it, and its steps."""

    case: str
    said: str
    steps: int = STEPS - 1
    timestamps: tuple[str, ...] = TIMESTAMPS
    #: What is said of it later.
    remarks: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "loop",
    [
        # The first step shows which loop trains.
        Loop("loop", "a loop of PyTorch (Adam)"),
        variant(Loop("loop_that_exits", "a loop of PyTorch (Adam)")),
        Loop("loop_that_raises", "a loop of PyTorch (Adam)"),
        variant(Loop("new_loaders", "a loop of PyTorch (Adam)")),
        variant(Loop("loader_that_takes_a_batch_ahead", "a loop of PyTorch (Adam)")),
        variant(
            Loop(
                "two_optimizers",
                "a loop of PyTorch (SGD)",
                remarks=("another optimizer trains, too; steps are those of the first one",),
            )
        ),
        Loop(
            "no_loader",
            "a loop of PyTorch (SGD; its batches come from no DataLoader)",
            STEPS - 3,
            ("ready", "reduced"),
        ),
        Loop("keras", "Keras' fit", STEPS),
    ],
    ids=lambda loop: loop.case,
)
def test_one_process_is_recorded(alone: Callable[[str], Alone], loop: Loop) -> None:
    folder, ran, fit = alone(loop.case)
    first = f"records {loop.said} in {folder / 'recorded' / 'logs'}"
    assert ran.said == [f"stallscope: {said}" for said in (first, *loop.remarks)]
    check_steps(fit, STEPS - loop.steps, loop.steps, loop.timestamps)
    assert fit.log.ended


def test_a_logger_of_the_script_itself_stays(alone: Callable[[str], Alone]) -> None:
    _, ran, fit = alone("with_its_own_logger")
    assert ran.said == []
    check_steps(fit, 0, STEPS)


def test_validation_and_the_last_batch_are_known(alone: Callable[[str], Alone]) -> None:
    fit = alone("loop").fit
    assert fit.kinds.count("validation") == EPOCHS
    assert fit.kinds.count("epoch") == EPOCHS
    samples = fit.steps["samples"].tolist()
    assert samples == [*[BATCH] * (BATCHES - 2), BATCH - 3, *[BATCH] * (BATCHES - 1), BATCH - 3]


@pytest.mark.parametrize(
    ("case", "validations"), [("loop_in_eval", EPOCHS), variant("loop_that_trains_in_eval", 0)]
)
def test_evaluations_with_gradients_are_validation_by_the_models_mode(
    alone: Callable[[str], Alone], case: str, validations: int
) -> None:
    """A model that also trains in ``eval()`` tells nothing, and its steps stay."""
    fit = alone(case).fit
    check_steps(fit, 1, STEPS - 1)
    assert fit.kinds.count("validation") == validations
    assert fit.kinds.count("epoch") == EPOCHS


@pytest.mark.parametrize(
    ("case", "workers"),
    [("loop", 0), variant("new_loaders", 1), variant("loader_that_takes_a_batch_ahead", 0)],
)
def test_the_loaders_figures_begin_with_the_second_epoch(
    alone: Callable[[str], Alone], case: str, workers: int
) -> None:
    figures = alone(case).fit.log.facts["loader"]
    assert (figures["workers"], figures["iterations"], figures["reason"]) == (workers, 1, None)
    assert figures["batches"] == BATCHES
    assert figures["unmatched"] == 0


@pytest.mark.parametrize(
    ("case", "launcher", "model"),
    [
        (
            "ddp",
            ("torchrun", "--standalone", "--nproc-per-node=2"),
            "SGD, DistributedDataParallel",
        ),
        variant("spawned", ("python",), "SGD, DistributedDataParallel"),
        (
            "horovod",
            ("horovodrun", "--disable-cache", "-np", "2", "python"),
            "SGD",
        ),
    ],
)
def test_ranks_are_recorded(
    training_side: None, tmp_path: Path, case: str, launcher: tuple[str, ...], model: str
) -> None:
    ran, fits = recorded(tmp_path, case, ENVIRONMENT, launcher)
    assert [fit.log.rank for fit in fits] == [0, 1]
    for fit in fits:
        check_steps(fit, 1, STEPS - 1)
        assert fit.log.ended
    (said,) = ran.said
    assert f"records a loop of PyTorch ({model}) in " in said


@pytest.mark.parametrize(
    ("case", "kind"), [("fsdp_2", "fully_shard"), variant("fsdp_1", "FullyShardedDataParallel")]
)
def test_ranks_that_share_a_model_are_recorded(tmp_path: Path, case: str, kind: str) -> None:
    needs(KERAS3)
    launcher = ("torchrun", "--standalone", "--nproc-per-node=2")
    ran, fits = recorded(tmp_path, case, KERAS3, launcher)
    assert [fit.log.rank for fit in fits] == [0, 1]
    for fit in fits:
        check_steps(fit, 1, STEPS - 1)
        assert fit.log.facts["sharding"]["kind"] == kind
    assert "records a loop of PyTorch (SGD, " in "".join(ran.said)


@pytest.mark.parametrize(
    ("case", "said", "steps"),
    [
        ("trainer", "the training of transformers' Trainer", STEPS),
        ("lightning", "the fit of Lightning's Trainer", STEPS),
        variant("accelerate", "a loop of PyTorch (SGD)", STEPS - 1),
        ("keras", "Keras' fit", STEPS),
    ],
)
def test_trainers_of_libraries_are_recorded(
    tmp_path: Path, case: str, said: str, steps: int
) -> None:
    needs(KERAS3)
    backend = {"KERAS_BACKEND": "torch"} if case == "keras" else {}
    ran, (fit,) = recorded(tmp_path, case, KERAS3, **backend)
    assert ran.said == [f"stallscope: records {said} in {tmp_path / 'recorded' / 'logs'}"]
    check_steps(fit, STEPS - steps, steps)


def test_ranks_that_lightning_starts_are_recorded(tmp_path: Path) -> None:
    needs(KERAS3)
    ran, fits = recorded(tmp_path, "lightning_that_launches", KERAS3)
    assert [fit.log.rank for fit in fits] == [0, 1]
    for fit in fits:
        # The ranks share the batches.
        check_steps(fit, 0, STEPS // 2)
    (said,) = ran.said
    assert "records the fit of Lightning's Trainer in " in said


@pytest.mark.parametrize("ranks", [variant(1), 2])
def test_a_loop_of_gluon_is_recorded(tmp_path: Path, ranks: int) -> None:
    needs(MXNET)
    launcher = ("horovodrun", "--disable-cache", "-np", "2", "python")
    case, start = ("gluon", ("python",)) if ranks == 1 else ("gluon_with_horovod", launcher)
    ran, fits = recorded(tmp_path, case, MXNET, start)
    assert [fit.log.rank for fit in fits] == list(range(ranks))
    for fit in fits:
        # The first step shows which loop trains.
        check_steps(fit, 1, STEPS - 1)
        assert fit.kinds.count("epoch") == EPOCHS
        assert fit.steps["samples"].tolist()[-2:] == [BATCH, BATCH - 3]
        assert fit.log.ended
    (said,) = ran.said
    assert ("a loop of MXNet (SGD)" if ranks == 1 else "(SGD, DistributedTrainer)") in said


@pytest.mark.variant
def test_a_loop_over_an_iterator_of_mxnet_is_recorded(tmp_path: Path) -> None:
    needs(MXNET)
    ran, (fit,) = recorded(tmp_path, "gluon_with_iterators", MXNET)
    assert "records a loop of MXNet (SGD) in " in "".join(ran.said)
    check_steps(fit, 1, STEPS - 1)
    assert fit.kinds.count("epoch") == EPOCHS


PROBED: tuple[list[str], dict[str, str]] = (["--probe-input", "4"], {})
BY_VARIABLE: tuple[list[str], dict[str, str]] = ([], {"STALLSCOPE_PROBE_INPUT": "4"})


@pytest.mark.parametrize(
    ("case", "environment", "settings"),
    [
        ("loop", ENVIRONMENT, PROBED),
        variant("lightning", KERAS3, BY_VARIABLE),
        variant("keras", ENVIRONMENT, PROBED),
    ],
)
def test_input_is_probed(
    training_side: None,
    tmp_path: Path,
    case: str,
    environment: Path,
    settings: tuple[list[str], dict[str, str]],
) -> None:
    """The output, and with it the weights, are those without a recording.

    Accelerate's loop is one of PyTorch, whose loaders test_hugging_face.py probes.
    """
    needs(environment)
    options, variables = settings
    # A probe comes after 100 batches, here in the loop that was found while it ran.
    variables = {**variables, "CASE_BATCHES": "120", "CASE_EPOCHS": "1"}
    _, (fit,) = recorded(tmp_path, case, environment, options=options, **variables)
    (probe,) = fit.log.input_probes
    assert probe.end_step - probe.first_step == len(probe.fetched_us) == 4
    assert probe.first_step >= 100


def test_too_short_a_probe_is_refused(training_side: None, tmp_path: Path) -> None:
    words = ["python", *RECORD, "--probe-input", "3"]
    launched = launch_words(tmp_path / "printed.txt", words, "unedited_cases.py", "loop")
    assert launched.wait() == 2
    assert "probe_input is a number of batches, at least 4, not 3" in launched.output


def test_a_script_without_training_is_told_so(training_side: None, tmp_path: Path) -> None:
    ran = run(tmp_path / "nothing", "nothing", ["python", *RECORD], ENVIRONMENT)
    assert (ran.status, ran.printed) == (0, ["['nothing'] __main__"])
    assert ran.said == [
        "stallscope: found no training in this script: it has imported no framework that can be "
        "recorded without an edit"
    ]
    assert not (tmp_path / "nothing" / "logs").exists()


def test_a_module_is_run_with_its_arguments(training_side: None, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "ours.py").write_text("import sys; print(sys.argv[1:], __name__)\n")
    launched = launch_words(
        tmp_path / "printed.txt",
        ["python", *RECORD, "-m", "ours", "--to"],
        "x",
        PYTHONPATH=str(folder),
    )
    launched.succeed()
    assert "['--to', " in launched.output
    assert "__main__" in launched.output


def test_a_missing_script_is_one_sentence(training_side: None, tmp_path: Path) -> None:
    launched = launch_words(tmp_path / "printed.txt", ["python", *RECORD], "missing.py")
    assert launched.wait() == 2
    (line,) = launched.output.splitlines()
    assert line.startswith("stallscope: cannot open ")
    assert line.endswith("missing.py: No such file or directory")
