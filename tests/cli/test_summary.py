"""Six lines on a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import simulator
from support.simulated import analysis_of_job
from support.step_logs import Job, write_job

from stallscope.cli import summary
from stallscope.cli.main import main
from stallscope.text.summary_words import six_lines

SLOW = Job(ranks=2, steps=200, slow={(1, "input"): 9.0})


def lines(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    assert main(["summary", *map(str, words)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 6
    return printed


def test_six_lines_name_the_slow_rank_and_the_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path / "my logs", SLOW)
    verdict, step, stragglers, gain, logs, more = lines(capsys, tmp_path / "my logs")
    assert verdict == "stallscope: Rank 1 holds this run back: its input is slow"
    assert step.startswith("  step time: 3")
    assert "ms: input 1" in step
    assert step.endswith(" ms of it waiting for slow ranks")
    assert stragglers.startswith("  stragglers: rank 1, input 9.")
    assert gain.startswith("  potential gain: With rank 1 as fast as the others: steps 1.")
    assert logs.startswith(f"  logs: {tmp_path / 'my logs'} (run-a, ")
    assert more == f"  more: stallscope report '{tmp_path / 'my logs'}'"


def test_one_rank_of_many_is_no_verdict_on_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second_log = write_job(tmp_path, SLOW)
    second_log.unlink()
    verdict, step, stragglers, gain, logs, _ = lines(capsys, tmp_path)
    assert verdict.startswith("stallscope: Only rank 0's log is here; 2 ranks trained.")
    assert "waiting and allreduce" in step
    assert "of it waiting" not in step
    assert stragglers == "  stragglers: These logs cannot show which rank is slow"
    assert gain == "  potential gain: these logs cannot show it"
    assert "of 1 of 2 ranks" in logs


def test_steps_without_stages_have_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path, Job(ranks=2, steps=50, stamps=False))
    assert lines(capsys, tmp_path)[1].endswith("ms; its stages were not measured")


def test_epochs_alone_have_the_step_time_of_the_report_and_an_unknown_number_of_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = (f"Epoch {epoch}/3\n78/78 - 16s - 205ms/step - loss: 1.9\n" for epoch in (1, 2, 3))
    (tmp_path / "train.log").write_text("".join(epochs))
    _, step, stragglers, *_ = lines(capsys, tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    mean = capsys.readouterr().out.partition("Mean step:")[2].splitlines()[0].strip()
    assert step == f"  step time: {mean}, by whole epochs; its stages were not measured"
    assert stragglers == "  stragglers: These logs cannot show which rank is slow"


def test_facts_that_epochs_lack_are_not_recorded_in_a_warning_and_in_what_collecting_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "train.log").write_text("Epoch 1/1\n78/78 - 16s - 205ms/step\n")
    base = Job(ranks=1, facts={"model": "net", "versions": {"keras": "2.15", "torch": None}})
    write_job(tmp_path / "base", base)
    assert main(["report", str(tmp_path / "epochs"), "--baseline", str(tmp_path / "base")]) == 0
    warning = " ".join(capsys.readouterr().out.split())
    assert "model: not recorded here, net in the baseline" in warning
    assert "versions: not recorded here, keras 2.15 in the baseline" in warning
    assert "None" not in warning
    assert main(["collect", str(tmp_path / "epochs"), "--to", str(tmp_path / "store")]) == 0
    assert ": collected, 1 of an unknown number of ranks, 0 rows" in capsys.readouterr().out


def test_several_stragglers_are_counted() -> None:
    faults = tuple(simulator.Fault("compute", 20, ranks=(rank,)) for rank in range(3))
    noise = simulator.Noise(cv=0.05)
    job = simulator.Job(ranks=16, steps=500, noise=noise, faults=faults)
    stragglers = six_lines(analysis_of_job(job), "logs")[2]
    assert stragglers.count("; ") == 2
    assert stragglers.endswith("; 1 more")


def test_ranks_that_are_still_writing_are_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = write_job(tmp_path, SLOW)[1]
    whole = late.read_bytes()
    late.write_bytes(whole.rpartition(b"\nend,")[0] + b"\n")
    assert "rank 1 still open" in lines(capsys, tmp_path)[4]

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            late.write_bytes(whole)

    monkeypatch.setattr(summary.time, "sleep", pause)
    assert "still open" not in lines(capsys, tmp_path, "--wait", 600)[4]
    assert len(pauses) == 2


@pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "inf"])
def test_a_wait_that_is_no_time_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    assert main(["summary", str(tmp_path), f"--wait={seconds}"]) == 2
    error = capsys.readouterr().err
    assert error == f"stallscope: --wait {seconds}: give a number of seconds, for example 5\n"
