"""What the cases left behind, as the tests look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
from training.environments import MXNET, needs
from training.launching import launch

from stallscope.analysis import analyse
from stallscope.analysis.steps.alignment import align
from stallscope.parsers import read
from stallscope.run import Log, Run

TIMESTAMPS = ("data", "ready", "reduced")
#: Timestamps have microseconds, and two clocks are read one after the other.
RESOLUTION_NS = 100_000


@dataclass(frozen=True)
class Fit:
    """One log: what one rank recorded of one ``fit``."""

    log: Log
    steps: pd.DataFrame
    intervals: pd.DataFrame

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self.log.facts)

    @property
    def numbers(self) -> list[int]:
        return [int(step) for step in self.steps["step"]]

    @property
    def kinds(self) -> list[str]:
        """Kinds of intervals, in the order in which they were written."""
        return list(self.intervals["kind"])

    def of_kind(self, kind: str) -> pd.DataFrame:
        return self.intervals[self.intervals["kind"] == kind]

    def median_ms(self, start: str, end: str) -> float:
        """Median of the time between two timestamps; without the first steps, which trace and settle."""
        late = self.steps.iloc[3:]
        return float((late[end] - late[start]).median() / 1e6)


def fits_of(run: Run) -> list[Fit]:
    fits = []
    for index, log in enumerate(run.logs):
        steps, intervals = (
            table.filter(pc.equal(table["log"], index)).to_pandas()
            for table in (run.steps, run.intervals)
        )
        fits.append(Fit(log, steps, intervals))
    return sorted(fits, key=lambda fit: (fit.log.rank, fit.log.generation, fit.log.part))


@dataclass(frozen=True)
class Recorded:
    """The folder in which the cases have written."""

    out: Path
    #: What the launch printed, for messages.
    output: str

    def result(self, case: str, rank: int = 0) -> dict[str, Any]:
        """What the training itself saw; the case must have gone through without raising."""
        error = self.out / case / f"error-{rank}.txt"
        assert not error.exists(), f"{case} raised on rank {rank}:\n{error.read_text()}"
        result = self.out / case / f"result-{rank}.json"
        assert result.exists(), f"{case} left no result on rank {rank}; the launch:\n{self.output}"
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def logs(self, case: str, name: str = "logs") -> Path:
        return self.out / case / name

    def run(self, case: str) -> Run:
        """The one run that a case recorded, read without any problem."""
        self.result(case)
        runs = read(str(self.logs(case)))
        assert len(runs) == 1, f"{case} left {len(runs)} runs"
        assert runs[0].problems == ()
        return runs[0]

    def fits(self, case: str, ranks: int = 2) -> list[Fit]:
        """All logs of a case, by rank; every one of them was closed."""
        fits = fits_of(self.run(case))
        assert sorted({fit.log.rank for fit in fits}) == list(range(ranks))
        assert all(fit.log.ended for fit in fits)
        return fits

    def fit(self, case: str) -> Fit:
        """The only log of a case of one process, which went through cleanly."""
        self.clean(case, ranks=1)
        [fit] = self.fits(case, ranks=1)
        return fit

    def fit_of_one_process(self, case: str) -> Fit:
        """The same; its log says that one process had nothing to reduce."""
        fit = self.fit(case)
        assert fit.facts["size"] == 1
        assert fit.facts["gradients_reduced"] is True
        return fit

    def clean(self, case: str, ranks: int = 2) -> None:
        """Nothing was said, and nothing of the recorder is left in the model."""
        for rank in range(ranks):
            result = self.result(case, rank)
            assert result["logged"] == []
            assert result["ours"] == []

    def same_weights(self, case: str) -> bool:
        return len({self.result(case, rank)["weights"] for rank in range(2)}) == 1


def record_cases(
    folder: Path,
    program: str,
    *options: str,
    cases: tuple[str, ...] = (),
    seconds: float,
    **launched_with: Any,
) -> Recorded:
    """Run a program of cases to its end, and return what they recorded.

    Args:
        folder: where the cases write, below ``cases``.
        program: a program of this folder.
        options: what it is told before the folder.
        cases: those that run; all of them where none is named.
        seconds: how long it may take.
        launched_with: as ``launch`` takes it.
    """
    words = (*options, str(folder / "cases"), *cases)
    started = launch(folder / "printed.txt", program, *words, **launched_with)
    started.succeed(seconds)
    return Recorded(folder / "cases", started.output)


def record_mxnet_cases(folder: Path, ranks: int = 0, cases: tuple[str, ...] = ()) -> Recorded:
    """Record cases of MXNet, all of them where none is named."""
    needs(MXNET, "make mxnet-env, with a Python 3.8")
    return record_cases(
        folder,
        "mxnet_cases.py",
        cases=cases,
        ranks=ranks,
        seconds=240.0,
        environment=MXNET,
        OMP_NUM_THREADS="1",
    )


def check_steps(fit: Fit, first: int, count: int, stamps: tuple[str, ...] = TIMESTAMPS) -> None:
    """Every step has its row, in order, with the timestamps that must be there and no others."""
    assert fit.numbers == list(range(first, first + count))
    for stamp in TIMESTAMPS:
        missing = int(fit.steps[stamp].isna().sum())
        assert missing == (0 if stamp in stamps else count), (
            f"{stamp}: {missing} of {count} missing"
        )
    times = fit.steps[["begin", *stamps, "end"]].to_numpy()
    assert (times[:, 1:] >= times[:, :-1]).all()
    assert (fit.steps["end"] > fit.steps["begin"]).all()
    assert (fit.steps["begin"].to_numpy()[1:] >= fit.steps["end"].to_numpy()[:-1]).all()


def check_ranks_together(run: Run) -> None:
    """No rank has reduced gradients before the last rank's were ready: their clock is the same.

    On busy cores a timestamp may come late in some steps, and the analysis bounds it. One that is taken
    in the wrong place is late in most steps.
    """
    steps = run.steps.to_pandas().set_index(["generation", "step", "rank"])
    by_step = steps.groupby(["generation", "step"])
    assert (by_step.size() == run.size).all()
    early = (by_step["ready"].max() - by_step["reduced"].min()).median()
    assert early <= RESOLUTION_NS, f"reduced {early / 1e6:.3f} ms before all were ready"
    for generation in steps.index.unique("generation"):
        aligned = align(run, int(generation))
        assert (aligned.ready.max(axis=1) <= aligned.reduced.min(axis=1)).all()


def check_gathered(recorded: Recorded) -> None:
    """Rank 0 has the logs of both ranks, once, and they are one run."""
    assert recorded.result("gathered", 0)["files"] == [1, 0]
    assert recorded.result("gathered", 1)["files"] == [0, 0]
    (run,) = read(str(recorded.out / "gathered" / "logs-0"))
    assert run.ranks == [0, 1]
    assert run.problems == ()
    (own,) = read(str(recorded.out / "gathered" / "logs-1"))
    gathered = run.steps.filter(pc.equal(run.steps["rank"], 1))
    assert gathered.drop_columns("log").equals(own.steps.drop_columns("log"))


def check_sampled(recorded: Recorded, steps: int) -> None:
    """Both ranks have the same steps in full, all others are counted, and several files are one log."""
    (run,) = read(str(recorded.out / "sampled" / "logs"))
    own = [
        run.steps.filter(pc.equal(run.steps["rank"], rank))["step"].to_pylist() for rank in (0, 1)
    ]
    assert own[0] == own[1]
    assert own[0][:64] == list(range(64))
    assert 64 < len(own[0]) < steps - 64
    assert len(run.logs) > 2
    assert run.status == "completed"
    analysis = analyse(run)
    assert analysis.steps == steps
    assert analysis.coverage.complete + analysis.coverage.sampled_out == steps
