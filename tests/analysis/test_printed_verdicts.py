"""Verdicts on printed logs: what takes the largest share of the job's time is the headline, by sums."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.verdict import fault_as_baseline
from stallscope.analysis.scaling.series import fault_of
from stallscope.cli.main import main
from stallscope.conditions.quantities import unmeasured
from stallscope.parsers import read
from stallscope.text.gain_words import loss_gain, main_gain
from stallscope.text.straggler_words import waiting
from stallscope.text.verdicts import headline
from stallscope.words import Cause, Verdict

START = datetime(2026, 9, 6, 2, 52, 5)
STEP_S = 0.4


@dataclass(frozen=True)
class Job:
    """A job that prints each step with a timestamp, and what its time is lost to."""

    steps: int = 400
    epochs: int = 1
    #: Whether lines have the wait for data.
    waits: bool = False
    #: Seconds that every step waits for data, and that the first one of an epoch waits.
    wait_s: float = 0.0
    first_s: float = 0.0
    #: Work of these lines, and its seconds, after every so many steps.
    work: Sequence[str] = ()
    work_s: float = 0.0
    every: int = 50
    #: Factors on the times of steps by their numbers.
    slow: dict[int, float] = field(default_factory=dict)
    #: Steps after which the job starts again, with the steps that it repeats.
    restarts: tuple[tuple[int, int], ...] = ()

    def text(self) -> str:
        """Print the log."""
        lines, now, rng = [""], START, np.random.default_rng(self.steps)
        numbers, length = [*range(self.steps)], self.steps // self.epochs
        for after, again in self.restarts:
            numbers[after:] = [*range(after - again, after), *numbers[after:]]
        for step, before in zip(numbers, [-1, *numbers], strict=False):
            wait = self.wait_s + (self.first_s if step % length == 0 else 0.0)
            took = STEP_S * rng.uniform(0.97, 1.03) * self.slow.get(step, 1.0) + wait
            now += timedelta(seconds=took + (120 if step < before else 0))
            stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
            data = f" data_time: {wait:.4f}s" if self.waits else ""
            lines.append(
                f"{stamp} epoch: {step // length} step: {step} loss: 2.{step:04} "
                f"step_time: {took:.4f}s{data}"
            )
            if self.work_s and step % self.every == self.every - 1:
                now += timedelta(seconds=self.work_s)
                lines += self.work
        return "\n".join(lines)


def analysis_of(folder: Path, job: Job) -> Analysis:
    log = folder / "train.log"
    log.write_text(job.text())
    (run,) = read(str(log))
    return analyse(run)


EVERY_4TH = dict.fromkeys(range(3, 400, 4), 6.0)
BURSTS = dict.fromkeys((71, 72, 155, 230, 311, 390), 30.0)
SLOWER = dict.fromkeys(range(200, 400), 2.0)
EVALUATES, SAVES = ["Evaluating: val loss 2.2"], ["saving checkpoint to out"]
CASES: dict[str, tuple[Job, Verdict, Cause | None, str]] = {
    "evaluations": (
        Job(work=EVALUATES, work_s=15.0),
        "other",
        "validation",
        r"Evaluations take 39\.\d% of this job",
    ),
    "checkpoints": (
        Job(work=SAVES, work_s=15.0),
        "other",
        "checkpoint",
        r"Checkpoints take 39\.\d% of this job",
    ),
    "both": (
        Job(work=[*EVALUATES, *SAVES], work_s=15.0),
        "other",
        "validation_and_checkpoint",
        r"Evaluations and checkpoints take 39\.\d% of this job",
    ),
    "without a name": (
        Job(work_s=15.0),
        "other",
        "unnamed",
        r"Pauses between lines take 39\.\d% of this job",
    ),
    "restarts": (
        Job(restarts=((300, 60),)),
        "other",
        "repeated",
        r"Restarts and repeated steps take 4\d\.\d% of this job",
    ),
    "every 4th step": (
        Job(slow=EVERY_4TH),
        "other",
        "period",
        r"Periodic slow steps cost 5\d\.\d% of all steps' time",
    ),
    "bursts": (
        Job(slow=BURSTS),
        "other",
        "bursts",
        r"Bursts of slow steps cost 30\.\d% of all steps' time",
    ),
    "slower steps": (
        Job(slow=SLOWER),
        "other",
        "changes",
        r"Steps that became slower cost 3\d\.\d% of all steps' time",
    ),
    "starts of epochs": (
        Job(epochs=8, first_s=30.0),
        "other",
        "epoch_starts",
        r"Slow starts of epochs cost 6\d\.\d% of all steps' time",
    ),
    "waits in first batches": (
        Job(epochs=8, first_s=900.0, waits=True),
        "input",
        None,
        "Input holds this run back: batches come late",
    ),
    "waits in every batch": (
        Job(wait_s=0.2, waits=True),
        "input",
        None,
        "Input holds this run back: batches come late",
    ),
    "slow starts that are no waits": (
        Job(epochs=8, slow=dict.fromkeys(range(0, 400, 50), 60.0), waits=True),
        "other",
        "epoch_starts",
        r"Slow starts of epochs cost 5\d\.\d% of all steps' time",
    ),
    "few evaluations": (
        Job(work=EVALUATES, work_s=0.9),
        "insufficient_data",
        None,
        "These logs cannot",
    ),
    "nothing": (Job(), "insufficient_data", None, "These logs cannot show"),
    "few steps": (
        Job(steps=18, work=EVALUATES, work_s=15.0, every=6),
        "insufficient_data",
        None,
        "These logs cannot show",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_largest_share_of_the_job_is_the_headline(tmp_path: Path, name: str) -> None:
    job, kind, cause, text = CASES[name]
    analysis = analysis_of(tmp_path, job)
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause) == (kind, cause)
    assert verdict.fault is (kind != "insufficient_data")
    sentence = headline(verdict, analysis.stragglers)
    assert re.match(text, sentence), sentence
    assert (verdict.loss is not None) == (cause is not None)
    # Pages show the verdict's finding once.
    stated = [finding for finding in analysis.findings if finding not in analysis.further_findings]
    assert len(stated) == (1 if cause or name == "waits in first batches" else 0)


def test_the_gain_of_evaluations_is_of_half_as_many(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, Job(work=EVALUATES, work_s=15.0))
    loss = analysis.bottleneck.loss
    assert loss is not None
    assert loss.saved_share == pytest.approx(loss.share / 2)
    assert loss.saved_s == pytest.approx(loss.seconds / 2)
    assert (
        loss_gain(analysis) == f"Half as many would make this job {loss.saved_share:.1%} shorter."
    )
    assert "Evaluate less often" in str(analysis.bottleneck.advice[0])
    assert fault_of(analysis) == "evaluations"
    # The steps of a run that evaluates for long are as good a baseline as others.
    assert fault_as_baseline(analysis.bottleneck, (), analysis.step_ms, synthetic=False) is None
    slow = analysis_of(tmp_path, Job(slow=EVERY_4TH))
    assert fault_as_baseline(slow.bottleneck, (), slow.step_ms, synthetic=False) is not None
    assert loss_gain(slow).startswith("Without the delay, steps would be 5")


@pytest.mark.parametrize(("work_s", "kind"), [(30.0, "other"), (3.0, "input")])
def test_a_smaller_fault_of_all_steps_is_stated_too(
    tmp_path: Path, work_s: float, kind: Verdict
) -> None:
    analysis = analysis_of(tmp_path, Job(wait_s=0.2, waits=True, work=EVALUATES, work_s=work_s))
    verdict = analysis.bottleneck
    assert verdict.kind == kind
    assert re.search(r"Steps wait 200\.00 ± 0\.05 ms of 599 ms for their data", verdict.evidence)
    assert ("evaluations took" in verdict.evidence) == (kind == "other")
    assert [gain.fix.kind for gain in analysis.what_if] == ["input"]
    assert (main_gain(analysis) is None) == (kind == "other")
    assert "pauses_between_steps" in [finding.code for finding in analysis.findings]


def test_an_evaluation_with_the_start_of_the_job_counts_as_the_others(tmp_path: Path) -> None:
    lines = []
    for step in range(0, 1010, 10):
        took = 0.2 + (0.001 * (step % 7)) + (step % 250 == 0) * 9
        lines += ["step: train loss 2.2, val loss 2.3"] if step % 250 == 0 else []
        took += 600 * (step == 0)
        lines.append(f"iter {step}: loss 2.{step:04}, time {1e3 * took:.2f}ms, mfu 31.40%")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    analysis = analyse(run)
    loss = analysis.bottleneck.loss
    assert loss is not None
    assert loss.with_start
    assert loss.seconds == pytest.approx(645, rel=0.01)
    assert loss.saved_s == pytest.approx(5 * 9 / 2, rel=0.01)
    sentence = headline(analysis.bottleneck, ())
    assert sentence == f"Evaluations and the start of the job take {loss.share:.1%} of this job"


@pytest.mark.parametrize(("allreduce", "is_fault"), [(250, True), (60, False)])
def test_communication_by_timers_is_a_fault_from_a_third_of_the_step(
    tmp_path: Path, allreduce: int, is_fault: bool
) -> None:
    timers = {"forward-compute": 150, "backward-compute": 200, "grads-all-reduce": allreduce}
    table = "".join(f"    {name} ....: ({ms}.0, {ms}.0)\n" for name, ms in timers.items())
    lines = [
        f" iteration {10 * n}/ 600 | consumed samples: {n * 2560} | elapsed time per iteration (ms): "
        f"{sum(timers.values()) + n % 3}.2 | learning rate: 2.9E-04 | lm loss: 8.9{n:02}E+00 |\n"
        f"(min, max) time across ranks (ms):\n{table}"
        for n in range(1, 61)
    ]
    (tmp_path / "train.log").write_text("".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    analysis = analyse(run)
    kind = "allreduce" if is_fault else "insufficient_data"
    assert analysis.bottleneck.kind == kind
    gains = [(gain.fix.kind, gain.bound) for gain in analysis.what_if]
    assert gains == ([("allreduce", True)] if is_fault else [])
    if is_fault:
        assert "Communication takes 250 ms of 601 ms, 41.6%" in analysis.bottleneck.evidence


@pytest.mark.parametrize("job", [Job(work=EVALUATES, work_s=15.0), Job(wait_s=0.2, waits=True)])
def test_missing_stages_have_a_reason_that_is_not_the_verdict(tmp_path: Path, job: Job) -> None:
    analysis = analysis_of(tmp_path, job)
    why = analysis.why_no_stages
    assert why.startswith("These logs record how long steps took, but not the stages")
    assert waiting(analysis)[1] == why
    assert unmeasured(analysis).why == why[0].lower() + why[1:-1]


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_every_report_has_the_verdict_once(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(Job(work=EVALUATES, work_s=15.0).text())
    assert main(["report", str(log), "--format", form, "--out", str(tmp_path / "out")]) == 0
    (page,) = [path for path in (tmp_path / "out").glob(f"*.{form}") if path.stem != "index"]
    capsys.readouterr()
    text = page.read_text()
    if form == "json":
        content = json.loads(text)
        assert content["bottleneck"]["cause"] == "validation"
        assert content["bottleneck"]["loss"]["share"] == pytest.approx(0.4, abs=0.01)
        assert [finding["code"] for finding in content["findings"]] == ["pauses_between_steps"]
        assert content["run"]["steps"] == 400
        return
    assert "Evaluations take 39." in text
    assert text.count("Before the last line, 7 evaluations took 105 s: 39.") == 1
    assert "Half as many would make this job 1" in text


def test_the_terminal_shows_the_verdict_and_compare_the_pauses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for log, job in zip(logs, (Job(), Job(work=EVALUATES, work_s=15.0)), strict=True):
        log.write_text(job.text())
    assert main(["report", str(logs[1])]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Evaluations take 39." in text
    assert "warning: Evaluations take time" not in text
    assert main(["compare", *map(str, logs)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Not in B's steps: evaluations 105 s (39." in text
    assert "Insufficient data" in text
