"""Read the logs and results that cases have written, and check them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
from training.environments import MXNET, needs
from training.launching import PATIENCE_SECONDS, launch

from stallscope.analysis import analyse
from stallscope.analysis.steps.alignment import align
from stallscope.parsers import read
from stallscope.run import Log, Run
from stallscope.words import STEP_CAUSES

TIMESTAMPS = ("data", "ready", "reduced")
#: Timestamps are in microseconds, and two clocks are read one after the other.
RESOLUTION_NS = 100_000
#: So many steps may be over before a thread that looks at them has a core.
FEW = 4
#: A switch of threads on busy cores.
MOMENT_NS = 1_000_000


@dataclass(frozen=True)
class Fit:
    """A log: one rank's recording of one ``fit``."""

    log: Log
    steps: pd.DataFrame
    #: Between steps, and within them.
    intervals: pd.DataFrame
    interruptions: pd.DataFrame

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self.log.facts)

    @property
    def numbers(self) -> list[int]:
        return [int(step) for step in self.steps["step"]]

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of intervals, in the order in which they were written."""
        return list(self.intervals["kind"])

    def of_kind(self, kind: str) -> pd.DataFrame:
        return self.intervals[self.intervals["kind"] == kind]

    def median_ms(self, start: str, end: str) -> float:
        """Return the median time between two timestamps, without the first steps, which trace."""
        late = self.steps.iloc[3:]
        return float((late[end] - late[start]).median() / 1e6)


def check_figures(figures: Mapping[str, Any], workers: list[int], asked: int) -> None:
    """Check the figures of a DataLoader over two epochs.

    Args:
        figures: the fact ``loader``.
        workers: the batches of each worker.
        asked: batches that training has asked for, without the first of each epoch.
    """
    assert figures["reason"] is None
    assert (figures["worker_batches"], figures["batches"]) == (workers, sum(workers))
    assert (figures["asked"], figures["iterations"]) == (asked, 2)
    assert figures["empty"] <= asked
    assert figures["waited_us"] >= figures["passed_us"] >= 0


def fits_of(run: Run) -> list[Fit]:
    fits = []
    for index, log in enumerate(run.logs):
        steps, intervals = (
            table.filter(pc.equal(table["log"], index)).to_pandas()
            for table in (run.steps, run.intervals)
        )
        within = intervals["kind"].isin(STEP_CAUSES)
        fits.append(Fit(log, steps, intervals[~within], intervals[within]))
    return sorted(fits, key=lambda fit: (fit.log.rank, fit.log.generation, fit.log.part))


@dataclass(frozen=True)
class Recorded:
    """The folder of a launch of cases."""

    out: Path
    #: The launch's output, for messages.
    output: str

    def result(self, case: str, rank: int = 0) -> dict[str, Any]:
        """Return the result of a case, which must not have raised."""
        error = self.out / case / f"error-{rank}.txt"
        assert not error.exists(), f"{case} raised on rank {rank}:\n{error.read_text()}"
        result = self.out / case / f"result-{rank}.json"
        assert result.exists(), f"{case} left no result on rank {rank}; the launch:\n{self.output}"
        content: dict[str, Any] = json.loads(result.read_text())
        return content

    def logs(self, case: str, name: str = "logs") -> Path:
        return self.out / case / name

    def run(self, case: str) -> Run:
        """Return the one run of a case, read without any problem."""
        self.result(case)
        runs = read(str(self.logs(case)))
        assert len(runs) == 1, f"{case} left {len(runs)} runs"
        assert runs[0].problems == ()
        return runs[0]

    def fits(self, case: str, ranks: int = 2) -> list[Fit]:
        """Return all logs of a case by rank; each must have been closed."""
        fits = fits_of(self.run(case))
        assert sorted({fit.log.rank for fit in fits}) == list(range(ranks))
        assert all(fit.log.ended for fit in fits)
        return fits

    def fit(self, case: str) -> Fit:
        """Return the only log of a clean case of one process."""
        self.clean(case, ranks=1)
        [fit] = self.fits(case, ranks=1)
        return fit

    def clean(self, case: str, ranks: int = 2) -> None:
        """Check that the recorder printed nothing, and left nothing in the model."""
        for rank in range(ranks):
            result = self.result(case, rank)
            assert result["logged"] == []
            assert result["ours"] == []

    def warning(self, case: str, rank: int = 0) -> str:
        """Return the only message of the recorder, a warning."""
        [[level, message]] = self.result(case, rank)["logged"]
        assert level == "WARNING"
        return str(message)

    def same_weights(self, case: str) -> bool:
        """Return whether both ranks have the same weights."""
        return len({self.result(case, rank)["weights"] for rank in range(2)}) == 1

    def unchanged_by_recording(self, case: str, rank: int = 0) -> bool:
        """Return whether a training without the recorder has led to the same weights."""
        result = self.result(case, rank)
        return bool(result["weights"] == result["silent"])


def record_cases(
    folder: Path,
    program: str,
    *options: str,
    cases: tuple[str, ...] = (),
    seconds: float = PATIENCE_SECONDS,
    **settings: Any,
) -> Recorded:
    """Run a program of cases to its end.

    Args:
        folder: the cases write below its ``cases``.
        program: a program of this folder.
        options: its arguments before the folder.
        cases: those that run; all of them if none is named.
        seconds: how long it may take.
        settings: more arguments of ``launch``.
    """
    words = (*options, str(folder / "cases"), *cases)
    launched = launch(folder / "printed.txt", program, *words, **settings)
    launched.succeed(seconds)
    return Recorded(folder / "cases", launched.output)


def record_mxnet_cases(
    folder: Path, ranks: int = 0, cases: tuple[str, ...] = (), left_out: str = ""
) -> Recorded:
    """Run cases of MXNet, all of them but those left out if none is named."""
    needs(MXNET)
    return record_cases(
        folder,
        "mxnet_cases.py",
        cases=cases,
        ranks=ranks,
        environment=MXNET,
        LEFT_OUT=left_out,
        OMP_NUM_THREADS="1",
    )


def check_steps(fit: Fit, first: int, count: int, timestamps: tuple[str, ...] = TIMESTAMPS) -> None:
    """Check that each step has one row, in order, with these timestamps and no others."""
    assert fit.numbers == list(range(first, first + count))
    # If another program has the core, a step may be done before the recorder knows that it has begun.
    may_miss = max(count // 4, FEW) if fit.log.times_host_work else 0
    for name in TIMESTAMPS:
        missing = int(fit.steps[name].isna().sum())
        expected = 0 if name in timestamps else count
        most = expected + (may_miss if name in ("ready", "reduced") else 0)
        assert expected <= missing <= most, f"{name}: {missing} of {count} missing"
    times = fit.steps[["begin", *timestamps, "end"]].dropna().to_numpy()
    assert (times[:, 1:] >= times[:, :-1]).all()
    longer = fit.steps["end"] > fit.steps["begin"]
    # On JAX a thread sees results: several that are ready when it wakes take less than a microsecond.
    assert longer.mean() > 0.5 if fit.facts["framework"] == "jax" else longer.all()
    assert (fit.steps["begin"].to_numpy()[1:] >= fit.steps["end"].to_numpy()[:-1]).all()


def check_padding(
    recorded: Recorded, case: str, ranks: int, steps: Sequence[int] = (0, 8, 12, 20)
) -> None:
    """Check the tokens and the padding of one in eight batches of two epochs of 12 steps.

    The results of the ranks have those of all batches, as the training has counted them.

    Args:
        recorded: the launch.
        case: its name.
        ranks: its number of ranks.
        steps: whose batches are counted.
    """
    recorded.clean(case, ranks)
    for rank, fit in enumerate(recorded.fits(case, ranks)):
        rows = fit.interruptions[fit.interruptions["kind"] == "padding"]
        assert list(rows["step"]) == list(steps)
        seen = [recorded.result(case, rank)["counted"][step] for step in rows["step"]]
        assert [list(row) for row in zip(rows["samples"], rows["steps"], strict=True)] == seen


def check_copies(recorded: Recorded, case: str, in_input: bool = True) -> None:
    """Check that one of 24 copies was timed, on a pretended device (see fake_cuda.py).

    Args:
        recorded: the launch.
        case: its name.
        in_input: whether the loader copies, so that training waits for it with its batch.
    """
    assert recorded.result(case)["restored"]
    copies = recorded.fit(case).facts["device_copies"]
    assert copies["timed"] == 1
    assert copies["us"] >= 5000
    assert copies["in_input"] is in_input
    # 16 samples of 8 numbers, and as many labels.
    assert copies["bytes"] == 16 * (8 * 4 + 8)


def share_of_padding(recorded: Recorded, case: str) -> float:
    """Return the share of padding in all batches of a case's first rank, as the training has counted."""
    batches = recorded.result(case)["counted"]
    tokens, padding = (sum(counts) for counts in zip(*batches, strict=True))
    return float(padding / (tokens + padding))


def check_ranks_together(run: Run) -> None:
    """Check that no rank has reduced gradients before the last rank's were ready, on one clock.

    On busy cores a timestamp may be late in some steps, and the analysis bounds it. A timestamp at the
    wrong place is late in all steps. Where *ready* is the start of a wait, Gloo's thread may have sent
    the rank's part before, and kept the core for a moment, in most steps if other programs run.
    """
    steps = run.steps.to_pandas().set_index(["generation", "step", "rank"])
    by_step = steps.groupby(["generation", "step"])
    assert (by_step.size() == run.size).all()
    waits = all(log.times_own_work for log in run.logs)
    usual = 0.05 if waits else 0.5
    early = (by_step["ready"].max() - by_step["reduced"].min()).quantile(usual)
    assert early <= RESOLUTION_NS + waits * MOMENT_NS, (
        f"reduced {early / 1e6:.3f} ms before all were ready"
    )
    for generation in steps.index.unique("generation"):
        aligned = align(run, int(generation))
        # A step may lack timestamps on a rank only where ``check_steps`` allows it.
        whole = aligned.measured.all(axis=1)
        assert (aligned.ready.max(axis=1) <= aligned.reduced.min(axis=1))[whole].all()


def check_gathered(recorded: Recorded) -> None:
    """Check that rank 0 has the logs of both ranks, once, and that they are one run."""
    assert recorded.result("gathered", 0)["files"] == [1, 0]
    assert recorded.result("gathered", 1)["files"] == [0, 0]
    (run,) = read(str(recorded.out / "gathered" / "logs-0"))
    assert run.ranks == [0, 1]
    assert run.problems == ()
    (run_of_rank_1,) = read(str(recorded.out / "gathered" / "logs-1"))
    gathered = run.steps.filter(pc.equal(run.steps["rank"], 1))
    assert gathered.drop_columns("log").equals(run_of_rank_1.steps.drop_columns("log"))


def check_sampled(recorded: Recorded, steps: int) -> None:
    """Check that both ranks have the same steps in full and count the others, in several files."""
    (run,) = read(str(recorded.out / "sampled" / "logs"))
    steps_of_ranks = [
        run.steps.filter(pc.equal(run.steps["rank"], rank))["step"].to_pylist() for rank in (0, 1)
    ]
    assert steps_of_ranks[0] == steps_of_ranks[1]
    assert steps_of_ranks[0][:64] == list(range(64))
    assert 64 < len(steps_of_ranks[0]) < steps - 64
    assert len(run.logs) > 2
    assert run.status == "completed"
    analysis = analyse(run)
    assert analysis.steps == steps
    assert analysis.coverage.complete + analysis.coverage.sampled_out == steps


def figures_of(recorded: Recorded, case: str) -> dict[str, Any]:
    """Return what the only log of a case says of its loader."""
    [fit] = recorded.fits(case, ranks=1)
    figures = fit.facts["loader"]
    assert isinstance(figures, dict)
    return figures


def reasons_of(recorded: Recorded, case: str) -> dict[str, str]:
    """Return the reasons of a case's verdict by their codes."""
    verdict = analyse(recorded.run(case)).bottleneck
    return {reason.code: reason.text for reason in verdict.why}
