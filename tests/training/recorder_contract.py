"""The contract of every recorder; pages.py prints it in the docs.

The file of each framework has a class for each way to launch it, with the cases of its program:

    class TestLightning(RecorderContract):
        framework, launch = "Lightning and Lightning Fabric, DDP or one process", "DDP"
        ranks = 2
        cases = (Case("plain", weights=True), Case("accumulation", steps=8, micro=3))

Each case shows some promises, and a class has the reason for each promise that no case shows. No module
that declares cases imports a framework.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from training.case_runner import REPEATED, collects
from training.recorded import (
    FEW,
    RESOLUTION_NS,
    TIMESTAMPS,
    Fit,
    Recorded,
    check_ranks_together,
    check_steps,
    fits_of,
)

from stallscope.parsers import read

#: Shorter collections have no row.
LEAST_NS = 1_000_000
#: Where a case's slow stage is in a step.
_SLOW = {"input": ("begin", "data"), "compute": ("data", "ready")}


def pauses_at(*steps: int, kinds: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return intervals of these kinds after each of these steps."""
    return tuple((kind, step) for step in steps for kind in kinds)


#: Validation and a checkpoint after each 6 of 24 steps, which are two epochs.
PAUSES_IN_EPOCHS = (
    *pauses_at(6, 12, kinds=("validation", "checkpoint")),
    ("epoch", 12),
    *pauses_at(18, 24, kinds=("validation", "checkpoint")),
    ("epoch", 24),
)


#: Of two epochs of batches with 16 samples of 8 numbers, which the cases ``repeats`` repeat.
ELEMENTS = tuple(16 * 8 * times for times in 2 * REPEATED)

#: The fixture ``left_out_of``: it names the cases that only deselected variants of a contract read.
LeftOut = Callable[..., str]

#: The exception of the cases ``raises`` of all programs.
RAISED = "OSError('the disk is gone')"


@dataclass(frozen=True)
class Case:
    """A case of a training program: what its logs must contain."""

    name: str
    #: How many steps each recording has, and the first one's number.
    steps: int | tuple[int, ...] = 24
    first: int = 0
    #: Iterations of each step.
    micro: int | tuple[int, ...] = 1
    #: The samples of each iteration, or of each step; None where the recorder cannot count them.
    samples: int | tuple[int, ...] | None = 16
    #: The numbers in the batch of each step, where they vary.
    elements: tuple[int, ...] = ()
    #: Those that each step has, and why it lacks the others.
    timestamps: tuple[str, ...] = TIMESTAMPS
    reason: str | None = None
    #: More facts that each log has.
    facts: Mapping[str, Any] = field(default_factory=dict)
    run_name: str | None = None
    #: Kinds and steps of all intervals of each log before its end.
    intervals: tuple[tuple[str, int], ...] = ()
    #: Whether the result has the weights of the same training without a recorder, as ``silent``.
    weights: bool = False
    #: When the training reads the time in a step: while it ``computes``, or ``fetches`` its batch.
    stopwatch: str = ""
    #: The stage that is slow on the last rank, and a lower bound of its time.
    slow: str = ""
    milliseconds: float = 0.0
    #: The exception with which the training ends.
    raised: str = ""
    #: The message with which the recording ends, while the training goes on.
    fault: str = ""
    #: The first step of each input probe, and the first step after it.
    probed: tuple[tuple[int, int], ...] = ()
    #: Whether only ``make test-all`` runs it, as another contract shows the same.
    variant: bool = False

    @property
    def recordings(self) -> tuple[int, ...]:
        return self.steps if isinstance(self.steps, tuple) else (self.steps,)

    def micro_of(self, steps: int) -> list[int]:
        return [self.micro] * steps if isinstance(self.micro, int) else list(self.micro)

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.intervals}


def loop_cases(
    name: str, micro: tuple[int, ...] = (3,) * 4, width: int = 8, **facts: Any
) -> tuple[Case, ...]:
    """Return the cases of ``add_loops`` in torch_loops.py, of which the first has more facts.

    Args:
        name: begins the names of the cases.
        micro: the passes of each step of an epoch that accumulates gradients.
        width: the numbers in a sample.
        facts: of the first case.
    """
    facts = {"framework": "pytorch", "batches_per_epoch": 12, "batch_size": 16, **facts}
    pauses = pauses_at(112, 124, kinds=("epoch", "validation", "checkpoint"))
    return (
        Case(
            f"{name}_plain",
            first=100,
            weights=True,
            stopwatch="computes",
            run_name="plain run",
            facts=facts,
            intervals=pauses,
        ),
        Case(
            f"{name}_accumulates",
            steps=2 * len(micro),
            micro=2 * micro,
            weights=True,
            facts={"backward_passes_per_step": micro[0]},
        ),
        # The second epoch has a probe of six batches, once its loader has started.
        Case(f"{name}_probed", weights=True, probed=((14, 20),)),
        Case(f"{name}_slow_input", steps=12, slow="input", milliseconds=40),
        Case(
            f"{name}_repeats_with_slow_backward",
            steps=12,
            elements=tuple(each * width // 8 for each in ELEMENTS[:12]),
            slow="compute",
            milliseconds=40,
        ),
        Case(f"{name}_raises", steps=5, raised=RAISED),
        Case(f"{name}_recorder_breaks", fault="broken on purpose"),
    )


def variants(cases: tuple[Case, ...], *kept: str) -> tuple[Case, ...]:
    """Return cases of the same code as another contract's as variants.

    Args:
        cases: all cases; the first one stays as it is.
        kept: ends of the names of others that stay.
    """
    first, *others = cases
    return (first, *(replace(case, variant=not case.name.endswith(kept)) for case in others))


def parameters(case: Case, *values: object, name: str) -> Any:
    """Return parameters of a test that reads a case."""
    marks = [pytest.mark.variant(case.name)] if case.variant else []
    return pytest.param(*values, id=name, marks=marks)


class RecorderContract:
    """The tests of a recorder in one way to launch it.

    A subclass has a fixture ``recorded``: the launch of its program.
    """

    #: The row of README.md.
    framework: ClassVar[str]
    #: The row of docs/recorders/README.md.
    recorder: ClassVar[str]
    launch: ClassVar[str] = "one process"
    ranks: ClassVar[int] = 1
    #: In docs/scorecard/real.json or frameworks.json.
    scored: ClassVar[str | None] = None
    #: Facts of all logs, and the packages of which all have the version.
    facts: ClassVar[Mapping[str, Any]] = {}
    versions: ClassVar[tuple[str, ...]] = ()
    gradients_reduced: ClassVar[bool | None] = True
    #: Whether ranks end a step one after the other, as in a pipeline.
    staggered: ClassVar[bool] = False
    cases: ClassVar[tuple[Case, ...]]
    #: By test that is a variant of the one in another contract: the cases that only it reads.
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: By promise: why no case shows it.
    cannot: ClassVar[Mapping[str, str]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "promise" in metafunc.fixturenames:
            kept = [
                parameters(case, promise, case, name=f"{promise.name}-{case.name}")
                for promise, case in self.kept()
            ]
            metafunc.parametrize(("promise", "case"), kept)
        elif "each" in metafunc.fixturenames:
            cases = [parameters(case, case, name=case.name) for case in self.cases]
            metafunc.parametrize("each", cases)

    @classmethod
    def kept(cls) -> Iterator[tuple[Promise, Case]]:
        """Yield each promise with each case that shows it."""
        for promise in PROMISES.values():
            for case in cls.cases:
                if promise.shown_by(case):
                    yield promise, case

    @classmethod
    def shows(cls, promise: str) -> bool:
        return any(shown.name == promise for shown, _ in cls.kept())

    def test_promise(self, recorded: Recorded, promise: Promise, case: Case) -> None:
        promise.check(self, recorded, case)


@dataclass(frozen=True)
class Promise:
    """What a recorder promises, by which cases it is shown, and how it is checked."""

    name: str
    #: For the docs.
    text: str
    shown_by: Callable[[Case], bool]
    check: Callable[[RecorderContract, Recorded, Case], None]


#: In the order of the docs' columns.
PROMISES: dict[str, Promise] = {}

Check = Callable[[RecorderContract, Recorded, Case], None]


def promised(name: str, text: str, shown_by: Callable[[Case], bool]) -> Callable[[Check], Check]:
    """Add a promise with its check."""

    def add(check: Check) -> Check:
        PROMISES[name] = Promise(name, text, shown_by, check)
        return check

    return add


def fits_of_case(launch: RecorderContract, recorded: Recorded, case: Case) -> list[Fit]:
    return recorded.fits(case.name, launch.ranks)


@promised(
    "steps",
    "each step of each rank is a row with its timestamps in order, its samples and iterations; no rank "
    "reduces before all are ready; the recorder prints nothing and leaves nothing in the model",
    lambda case: not case.fault,
)
def check_rows(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    fits = fits_of_case(launch, recorded, case)
    assert len(fits) == launch.ranks * len(case.recordings)
    firsts = [case.first + sum(case.recordings[:part]) for part in range(len(case.recordings))]
    for index, fit in enumerate(fits):
        part = index % len(firsts)
        steps = case.recordings[part]
        check_steps(fit, firsts[part], steps, case.timestamps)
        micro = case.micro_of(steps)
        assert list(fit.steps["micro"]) == micro
        if case.samples is None:
            assert fit.steps["samples"].isna().all()
        else:
            samples = case.samples
            each = list(samples) if isinstance(samples, tuple) else [samples * n for n in micro]
            assert list(fit.steps["samples"]) == each
        check_stamps(launch, fit, case)
        spans = [(probe.first_step, probe.end_step) for probe in fit.log.input_probes]
        assert spans == list(case.probed)
    if case.intervals:
        check_intervals(launch, recorded, case)
    if launch.ranks == 1 and "reduced" in case.timestamps:
        for fit in fits:
            assert list(fit.steps["reduced"]) == list(fit.steps["ready"])
    if launch.ranks > 1 and case.timestamps == TIMESTAMPS and not launch.staggered:
        check_ranks_together(recorded.run(case.name))
    recorded.clean(case.name, launch.ranks)
    if launch.ranks > 1 and launch.shows("weights"):
        assert recorded.same_weights(case.name)


@promised(
    "work",
    "the numbers in the batches of a step are recorded where they vary, and take no bytes where not",
    lambda case: bool(case.elements),
)
def check_work(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for fit in fits_of_case(launch, recorded, case):
        assert list(fit.steps["elements"]) == list(case.elements)
        usually = fit.steps["samples"] * fit.facts["sample_elements"]
        rows = (recorded.logs(case.name) / fit.log.path).read_text().splitlines()
        written = [row.rpartition(",")[2] for row in rows if row.startswith("step,")]
        assert [not text for text in written] == list(fit.steps["elements"] == usually)


def check_stamps(launch: RecorderContract, fit: Fit, case: Case) -> None:
    """Check which timestamps the recorder has placed, and its reason for the others."""
    stamps = fit.facts["stamps"]
    # One process of TensorFlow or JAX places no such timestamp, as nothing is reduced.
    assert set(stamps["placed"]) | {"reduced"} == {*case.timestamps, "reduced"}
    if case.reason is None:
        assert stamps["reason"] is None
    else:
        assert case.reason in stamps["reason"]
    reduced = case.facts.get("gradients_reduced", launch.gradients_reduced)
    assert fit.facts["gradients_reduced"] is reduced


@promised(
    "stopwatch",
    "a stopwatch in the training is read in each step, between its timestamps",
    lambda case: bool(case.stopwatch),
)
def check_stopwatch(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for rank, fit in enumerate(fits_of_case(launch, recorded, case)):
        read_at = np.array(recorded.result(case.name, rank)["stopwatch"])
        assert len(read_at) == len(fit.steps)
        steps = fit.steps
        if case.stopwatch == "computes":
            after, before = steps["data"], steps["end"]
        else:
            after, before = steps["end"].shift(fill_value=0), steps["data"]
        late = read_at + RESOLUTION_NS >= after.to_numpy()
        inside = late & (read_at <= before.to_numpy() + RESOLUTION_NS)
        # On JAX a thread sees that results are ready, after the training has seen it. A library's own
        # loop takes a batch just before the timestamp, and may lose the core in between.
        if fit.facts["framework"] == "jax":
            assert inside.mean() > 0.5
        else:
            assert (~inside).sum() <= (FEW if fit.facts.get("pipeline_schedule") else 0)


@promised(
    "weights",
    "the weights are those of a training without the recorder, bit by bit",
    lambda case: case.weights,
)
def check_weights(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for rank in range(launch.ranks):
        assert recorded.unchanged_by_recording(case.name, rank)


@promised(
    "facts",
    "each log has the framework, its versions, rank and ranks, and the settings of the training",
    lambda case: bool(case.facts),
)
def check_facts(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for fit in fits_of_case(launch, recorded, case):
        facts = fit.facts
        expected = {"size": launch.ranks, "rank": fit.log.rank, **launch.facts, **case.facts}
        assert {name: facts[name] for name in expected} == expected
        assert [name for name in launch.versions if not facts["versions"][name]] == []
    assert case.run_name in (None, recorded.run(case.name).name)


@promised("checkpoint", "so is saving", lambda case: "checkpoint" in case.kinds())
@promised(
    "validation",
    "validation is an interval between steps",
    lambda case: "validation" in case.kinds(),
)
def check_intervals(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for fit in fits_of_case(launch, recorded, case):
        steps, expected = fit.steps, [*case.intervals, ("end", case.first + sum(case.recordings))]
        assert [*zip(fit.kinds, fit.intervals["step"], strict=True)] == expected
        for pause in fit.intervals.itertuples():
            assert pause.end >= pause.begin
            if pause.kind in ("validation", "checkpoint"):
                assert not ((steps["begin"] < pause.end) & (steps["end"] > pause.begin)).any()
        ends = [step for kind, step in case.intervals if kind == "epoch"]
        if ends:
            assert list(steps["epoch"]) == [bisect_right(ends, step) for step in fit.numbers]


@promised(
    "collections",
    "pauses of Python's garbage collector are rows with their times, whichever thread collects",
    lambda case: collects(case.name),
)
def check_collections(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for rank, fit in enumerate(fits_of_case(launch, recorded, case)):
        assert "garbage_collection" in fit.facts["interruptions"]
        rows = fit.interruptions[fit.interruptions["kind"] == "garbage_collection"]
        first, last = fit.steps["begin"].iloc[0], fit.steps["end"].iloc[-1]
        timed = [
            (began, ended)
            for began, ended in recorded.result(case.name, rank)["collections"]
            # While another thread collects, a call returns at once.
            if first < began and ended < last and ended - began > 2 * LEAST_NS
        ]
        # Each of those that the training's own thread has timed is a row.
        assert timed
        for began, ended in timed:
            inside = rows[
                (rows["begin"] + RESOLUTION_NS >= began) & (rows["end"] <= ended + RESOLUTION_NS)
            ]
            assert len(inside) == 1
            assert (inside["steps"] == 0).all()


def accumulates(case: Case) -> bool:
    return case.micro != 1


promised(
    "accumulation",
    "iterations that only accumulate gradients are summed into the step that reduces",
    accumulates,
)(check_rows)


def check_slow_stage(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    start, end = _SLOW[case.slow]
    *patient, slow = fits_of_case(launch, recorded, case)
    slow_ms = slow.median_ms(start, end)
    assert slow_ms > case.milliseconds
    for fit in patient:
        waiting = ("ready", "reduced") if "reduced" in case.timestamps else ("data", "end")
        # Every rank of four takes longer on two cores than on its own.
        assert slow_ms - fit.median_ms(start, end) > case.milliseconds / 2
        assert fit.median_ms(*waiting) > case.milliseconds / 2


promised(
    "slow input",
    "slow input is between begin and data, and the other rank waits in its reduction",
    lambda case: case.slow == "input",
)(check_slow_stage)
promised(
    "slow compute",
    "slow compute is between data and ready, and the other rank waits in its reduction",
    lambda case: case.slow == "compute",
)(check_slow_stage)


@promised(
    "exception",
    "an exception in the training comes out unchanged, and the log is closed",
    lambda case: bool(case.raised),
)
def check_exception(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for fit in fits_of_case(launch, recorded, case):
        assert recorded.result(case.name, fit.log.rank)["raised"] == case.raised
        assert fit.kinds[-1] == "end"


@promised(
    "resume",
    "a training that goes on, or a second one, continues the numbers of steps",
    lambda case: case.first > 0 or len(case.recordings) > 1,
)
def check_numbers(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for fit in fits_of_case(launch, recorded, case):
        assert fit.facts["first_step"] == fit.numbers[0]


@promised(
    "fault",
    "an error in the recorder ends the recording with one warning, and the training goes on",
    lambda case: bool(case.fault),
)
def check_fault(launch: RecorderContract, recorded: Recorded, case: Case) -> None:
    for rank in range(launch.ranks):
        message = recorded.warning(case.name, rank)
        assert case.fault in message
        assert f"rank {rank} is no longer recorded, training goes on" in message
        assert recorded.result(case.name, rank)["ours"] == []
        assert recorded.unchanged_by_recording(case.name, rank)
    [run] = read(str(recorded.logs(case.name)))
    assert (run.ranks, run.status) == (list(range(launch.ranks)), "open")
    for fit in fits_of(run):
        if len(fit.steps):
            check_steps(fit, 0, len(fit.steps), case.timestamps)
        assert len(fit.steps) < case.recordings[0]
