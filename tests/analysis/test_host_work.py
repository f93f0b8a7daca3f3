"""Logs with the hosts' work only, as of JAX in several processes: slow hosts are named."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.what_if_queries import ask, parse
from stallscope.parsers import read

MEANING = "own work of the host"
STAMPS = {"placed": ["data", "ready", "reduced"], "reason": None, "ready": MEANING}
#: The simulator's compute is the host's, and its allreduce all that devices do.
JOB = Job(
    ranks=3,
    steps=300,
    input_ms=1.0,
    compute_ms=2.0,
    allreduce_ms=30.0,
    facts={"framework": "jax", "stamps": {**STAMPS, "input_exposed": True}},
)


def analysed(folder: Path, job: Job, without: int | None = None) -> Analysis:
    paths = write_job(folder, job)
    if without is not None:
        paths[without].unlink()
    (run,) = read(str(folder))
    return analyse(run)


@pytest.mark.parametrize(("stage", "ms"), [("input", 8.0), ("compute", 8.0), ("other", 8.0)])
def test_a_slow_host_is_named_with_its_stage(tmp_path: Path, stage: str, ms: float) -> None:
    analysis = analysed(tmp_path, replace(JOB, slow={(1, stage): ms}))
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", stage, (1,))
    (straggler,) = analysis.stragglers
    assert straggler.excess_ms.value == pytest.approx(ms, rel=0.05)
    # Devices of other ranks may take longer, which would hide a part of it.
    assert "saves at most" in verdict.evidence
    assert ("host code" in verdict.evidence) == (stage == "compute")
    advised = any("between the batch and the call of" in advice.action for advice in verdict.advice)
    assert advised == (stage == "compute")


def test_what_devices_do_is_compute_of_all_ranks(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, slow={(1, "compute"): 8.0}))
    computes = [rank.compute_ms for rank in analysis.ranks]
    assert computes == [pytest.approx(ms, rel=0.03) for ms in (32, 40, 32)]
    entries = {entry.name: entry.ms for entry in analysis.entries}
    assert entries["allreduce"] == pytest.approx(0, abs=0.01)
    assert sum(entries.values()) == pytest.approx(1 + 2 + 1 + 8 + 30, rel=0.03)
    assert analysis.bottleneck.kind != "allreduce"
    assert any("compute contains what devices do" in text for text in analysis.warnings)
    # Nothing shows what a faster network would gain.
    assert ask(parse("bandwidth:2"), analysis) is None
    assert ask(parse("ranks:64"), analysis) is None


def test_equal_hosts_do_not_tell_whose_devices_are_slow(tmp_path: Path) -> None:
    verdict = analysed(tmp_path, JOB).bottleneck
    assert (verdict.kind, verdict.ranks, verdict.fault) == ("insufficient_data", (), False)
    assert "Whose devices compute longest is not known" in verdict.evidence


def test_hosts_on_other_clocks_are_aligned_by_their_results(tmp_path: Path) -> None:
    job = replace(JOB, ranks=4, hosts=("alpha", "beta"), clock_offset_ms=(0.0, 250.0))
    analysis = analysed(tmp_path, replace(job, slow={(3, "input"): 8.0}))
    assert analysis.bottleneck.ranks == (3,)


def test_one_log_shows_its_input_only(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, ranks=2, input_ms=0.1), without=1)
    verdict = analysis.bottleneck
    assert verdict.kind == "insufficient_data"
    assert "only the logs of the other ranks tell" in verdict.evidence
    assert [rank.compute_ms for rank in analysis.ranks] == [None]


def test_a_rank_without_dispatches_leaves_steps_out_of_the_ledger(tmp_path: Path) -> None:
    paths = write_job(tmp_path, replace(JOB, ranks=2, input_ms=0.1))
    reason = "log.results was called once the results were there"
    cells_of = [line.split(",") for line in paths[1].read_text().splitlines()]
    lines = [
        ",".join([*cells[:5], "", "", *cells[7:]] if cells[0] == "step" else cells)
        for cells in cells_of
    ]
    paths[1].write_text("\n".join(lines).replace('"reason": null', f'"reason": "{reason}"') + "\n")
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    assert (analysis.bottleneck.kind, analysis.coverage.complete) == ("insufficient_data", 0)
    assert analysis.stragglers == ()


def test_a_late_host_for_which_no_step_ends_later_is_not_named(tmp_path: Path) -> None:
    """Dispatch later on rank 0, within the time that another rank's devices take longer anyway."""
    late = random.Random(3)
    path, *_ = write_job(tmp_path, JOB)
    lines = []
    for line in path.read_text().splitlines():
        cells = line.split(",")
        if cells[0] == "step":
            cells[5] = str(int(cells[5]) + late.randrange(8_000))
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.ranks) == ("insufficient_data", ())
    assert "Steps do not end later if rank 0 is late" in verdict.evidence
    assert [gain for gain in analysis.what_if if gain.fix.kind in ("rank", "imbalance")] == []
