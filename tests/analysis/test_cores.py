"""Shared CPU cores: when they are too few, the verdict on them, and the advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.advice.advise import for_crowded_cores
from stallscope.analysis.gains.what_if import in_words
from stallscope.analysis.setup import CoreUse, CpuLoad, Setup, crowded_cores
from stallscope.parsers import read
from stallscope.run import Run

FOLDER = Path(__file__).parents[2] / "sample_logs"


def run_on_cores(folder: Path, threads: int | None, cores: int, **facts: object) -> Run:
    """Make the run of four ranks that have so many threads and CPU cores."""
    known = {"threads": {"intra_op": threads}, "cpu_count": cores, "cpus_allowed": cores, **facts}
    job = replace(Job(ranks=4, steps=200), facts={"devices": ["CPU"], **known})
    return run_of_job(folder, job)


@pytest.mark.parametrize(
    ("threads", "cores", "crowded", "shared"),
    [(1, 2, True, True), (1, 4, False, True), (1, 8, False, False), (2, 8, False, True)],
)
def test_threads_are_compared_with_cores(
    tmp_path: Path, threads: int, cores: int, crowded: bool, shared: bool
) -> None:
    run = run_on_cores(tmp_path, threads, cores)
    assert (crowded_cores(run) is not None, CoreUse.of(run).shared) == (crowded, shared)


def test_ranks_on_gpus_do_not_share_cores(tmp_path: Path) -> None:
    run = run_on_cores(tmp_path, 1, 2, devices=["CPU", "GPU"])
    assert (crowded_cores(run), CoreUse.of(run).shared) == (None, False)


def test_unrecorded_facts_are_not_assumed(tmp_path: Path) -> None:
    assert crowded_cores(run_on_cores(tmp_path, None, 2)) is None


@pytest.mark.parametrize(
    ("framework", "versions", "busy"),
    [
        ("pytorch", {"torch": "2.13.0", "horovod": "0.28.1"}, True),
        ("pytorch", {"torch": "2.13.0"}, False),
        ("tensorflow", {"tensorflow": "2.15.0", "horovod": "0.28.1"}, False),
    ],
)
def test_only_horovods_pytorch_keeps_a_core_busy_while_it_waits(
    tmp_path: Path, framework: str, versions: dict[str, str], busy: bool
) -> None:
    run = run_on_cores(tmp_path, 1, 2, framework=framework, versions=versions)
    assert CoreUse.of(run).waiting_is_busy == busy
    assert ("Horovod polls while it waits" in analyse(run).bottleneck.evidence) == busy


@pytest.mark.parametrize(
    ("cores", "facts", "taken"),
    [
        (4, {}, 0.0),
        (4, {"loader_workers": 1}, 0.5),
        (4, {"pipeline": ["Range", "Map", "Prefetch"]}, 0.5),
        (4, {"pipeline": ["Range", "Map"]}, 0.0),
        # Four ranks and their workers have a core each; these may be hyperthreads of fewer cores.
        (8, {"loader_workers": 1}, 0.3),
        (16, {"loader_workers": 1}, 0.0),
    ],
)
def test_prefetching_loaders_take_cores(
    tmp_path: Path, cores: int, facts: dict[str, object], taken: float
) -> None:
    assert CoreUse.of(run_on_cores(tmp_path, 1, cores, **facts)).taken_by_loaders == taken


def ranks_4(single: str | None = None) -> Analysis:
    alone = None if single is None else read(str(FOLDER / single))[0]
    return analyse(read(str(FOLDER / "ranks-4"))[0], None, alone)


def test_four_ranks_on_two_cores_are_bound_by_cores() -> None:
    for analysis in (ranks_4(), ranks_4("ranks-1")):
        verdict = analysis.bottleneck
        assert (verdict.kind, verdict.cause, verdict.fault) == ("compute", "cores", True)
        assert "share the 2 CPU cores" in verdict.evidence
    assert "on one rank" in verdict.evidence


def test_followed_advice_is_not_repeated() -> None:
    verdict = ranks_4().bottleneck
    (advice,) = verdict.advice
    assert "Start no more than 2 ranks" in advice.action
    findings = [
        finding for finding in ranks_4().findings if finding.code == "threads_oversubscribed"
    ]
    assert all(
        "set_intra_op_parallelism_threads" not in in_words(finding.advice) for finding in findings
    )


@pytest.mark.parametrize(("threads", "line"), [(8, "threads(2)"), (16, "threads(2)")])
def test_ranks_with_more_than_their_share_get_fewer_threads(
    tmp_path: Path, threads: int, line: str
) -> None:
    setup = Setup.of(run_on_cores(tmp_path, threads, 8))
    load = CpuLoad(("alpha",), (0, 1, 2, 3), 4 * threads, 8)
    advice = for_crowded_cores(setup, load)
    assert line in advice.line
    followed = replace(load, threads=4 * load.share)
    assert followed.over <= 1
