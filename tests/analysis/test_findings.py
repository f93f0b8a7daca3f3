"""Findings report faults with numbers and ranks, and nothing about healthy runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.findings import (
    CLEAN,
    TWO_HOSTS,
    codes,
    finding_of,
    threads,
    with_facts,
    with_intervals,
    with_steps,
)
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis.findings import find
from stallscope.analysis.gains.what_if import in_words
from stallscope.parsers import read
from stallscope.run import Run

SAMPLES = Path(__file__).parents[2] / "sample_logs"


# -- nothing of a run that is fine ---------------------------------------------------------------


@pytest.mark.parametrize(
    "job",
    [
        CLEAN,
        replace(CLEAN, ranks=1),
        replace(CLEAN, noise=0.4, slow={(2, "compute"): 60.0}),
        replace(CLEAN, slow={(0, "other"): 30.0, (3, "input"): 200.0}),
        replace(CLEAN, stamps=False, facts={"stamps": {"placed": [], "reason": None}}),
        replace(CLEAN, validation_ms=20.0),
        replace(CLEAN, **TWO_HOSTS),
        replace(CLEAN, first_step=5000, epochs=1),
        replace(CLEAN, facts={"batch_size": 32, "devices": ["CPU"], "cpu_count": 8}),
    ],
)
def test_a_healthy_run_has_no_findings(tmp_path: Path, job: Job) -> None:
    single = run_of_job(tmp_path / "single", replace(CLEAN, ranks=1, steps=800))
    assert find(run_of_job(tmp_path / "run", job), True, single=single) == ()


def test_a_restart_with_fewer_ranks_is_not_a_fault(tmp_path: Path) -> None:
    write_job(tmp_path, CLEAN)
    assert codes(run_of_job(tmp_path, replace(CLEAN, generation=1, ranks=3))) == []


def test_unrecorded_steps_do_not_shorten_an_epoch(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    lossy = with_steps(run, lambda row: None if row["rank"] == 1 and row["step"] % 7 == 3 else row)
    assert codes(lossy) == []


def _without(first: float, last: float) -> Callable[[list[str]], list[str]]:
    """Return a damage that takes away these shares of a log's lines below its header."""

    def damage(lines: list[str]) -> list[str]:
        begin, end = (2 + round(share * (len(lines) - 2)) for share in (first, last))
        return lines[:begin] + lines[end:]

    return damage


def _at_random(lines: list[str]) -> list[str]:
    chance = random.Random(len(lines))
    return [line for number, line in enumerate(lines) if number < 2 or chance.random() > 0.1]


def _torn(lines: list[str]) -> list[str]:
    return [*lines[:70], lines[70][:9] + lines[71][5:], *lines[72:]]


@pytest.mark.parametrize("ranks", [(1,), (0,), (1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize(
    "damage",
    [_without(0, 0.5), _without(0, 0.3), _without(0.2, 0.6), _without(0.6, 1), _at_random, _torn],
    ids=["headless", "headless in an epoch", "gapped", "without an end", "at random", "torn"],
)
@pytest.mark.parametrize(
    "job",
    [
        replace(CLEAN, validation_ms=400, checkpoint_ms=50, epochs=4),
        replace(CLEAN, stamps=False, validation_ms=400, facts=dict.fromkeys(["first_step"])),
        replace(CLEAN, facts={"learning_rates": [[0, 0.1], [1, 0.01]]}),
    ],
    ids=["with pauses", "without a first step", "with learning rates"],
)
def test_lost_lines_are_no_faults_of_the_training(
    tmp_path: Path, job: Job, damage: Callable[[list[str]], list[str]], ranks: tuple[int, ...]
) -> None:
    paths = write_job(tmp_path, job)
    of_whole = set(codes(read(str(tmp_path))[0]))
    for rank in ranks:
        lines = paths[rank].read_text().splitlines(keepends=True)
        paths[rank].write_text("".join(damage(lines)))
    (run,) = read(str(tmp_path))
    assert set(codes(run)) <= {*of_whole, "not_ended"}


def test_a_lost_log_of_a_fit_is_no_rank_that_made_fewer_steps(tmp_path: Path) -> None:
    write_job(tmp_path, CLEAN)
    for path in write_job(tmp_path / "second", replace(CLEAN, first_step=CLEAN.steps))[:3]:
        text = path.read_text().replace('"part":0', '"part":1')
        (tmp_path / path.name.replace(".0.0.", ".0.1.")).write_text(text)
        path.unlink()
    (tmp_path / "second" / path.name.replace("2", "3")).unlink()
    (run,) = read(str(tmp_path))
    assert [log.part for log in run.logs if log.rank > 1] == [0, 1, 0]
    assert codes(run) == []


def test_epochs_of_other_lengths_are_found_in_logs_that_lost_rows(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    short = with_intervals(
        run, lambda row: row | {"step": row["step"] - 40} if row["rank"] == 2 else row
    )
    headless = with_steps(short, lambda row: None if row["step"] < 30 else row)
    assert "epochs_of_different_lengths" in codes(headless)


def test_lost_rows_do_not_hide_batches_of_other_sizes_nor_invent_them(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)

    def with_samples(samples: Callable[[int, int], int]) -> Run:
        changed = with_steps(run, lambda row: row | {"samples": samples(row["rank"], row["step"])})
        return with_steps(
            changed, lambda row: None if row["rank"] == 1 and row["step"] % 9 < 3 else row
        )

    # Every ninth batches are small, and these are the ones that rank 1 still has.
    assert codes(with_samples(lambda _, step: 8 if step % 9 > 6 else 32)) == []
    assert "uneven_batches" in codes(with_samples(lambda rank, _: 48 if rank == 1 else 32))


def test_invalid_facts_are_ignored(tmp_path: Path) -> None:
    odd = {"settings": "x", "threads": [1], "cpu_count": "many", "cpus_allowed": -1, "devices": 7}
    assert codes(run_of_job(tmp_path, replace(CLEAN, facts=odd))) == []


def test_an_input_probe_that_was_refused_is_told_with_the_reason(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    refused = {"input_probe": {"refused": "the data is <synthetic>", "probes": []}}
    (finding,) = find(with_facts(run, refused), True)
    assert finding.code == "input_probe_refused"
    assert finding.evidence.endswith(": the data is <synthetic>.")
    fetched = [{"first_step": 10, "end_step": 20, "fetched_us": [5] * 10}]
    for fact in ({"refused": None, "probes": []}, {"refused": "late", "probes": fetched}, 7):
        assert codes(with_facts(run, {"input_probe": fact})) == []


def test_a_run_without_any_step_has_findings_of_its_logs(tmp_path: Path) -> None:
    run = with_steps(run_of_job(tmp_path, CLEAN), lambda row: None)
    assert codes(with_facts(run, {"timeline": True})) == ["timeline_on"]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SAMPLES.glob("*/run.json")))
def test_the_sample_runs_get_no_false_findings(name: str) -> None:
    (run,) = read(str(SAMPLES / name))
    # Four ranks on two cores are too many, and slow loaders are slow in validation as well.
    assert set(codes(run)) <= {"threads_oversubscribed", "validation_on_all_ranks"}
    assert ("threads_oversubscribed" in codes(run)) == (name == "ranks-4")


def test_the_most_severe_come_first(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, facts={"timeline": True, "gradients_reduced": False}))
    severities = [finding.severity for finding in find(run, False)]
    assert severities == ["error", "warning", "info"]


# -- the logs ------------------------------------------------------------------------------------


def test_a_missing_baseline_is_reported_once(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    assert [finding.code for finding in find(run, False)] == ["no_baseline"]
    assert find(with_facts(run, {"synthetic": True}), False) == ()


def test_ranks_without_a_log_are_named(tmp_path: Path) -> None:
    paths = write_job(tmp_path, CLEAN)
    paths[1].unlink()
    paths[3].unlink()
    (run,) = read(str(tmp_path))
    assert (
        finding_of(run, "missing_ranks").evidence == "2 of 4 ranks left no log here: ranks 1 and 3."
    )
    paths[2].unlink()
    (run,) = read(str(tmp_path))
    assert "4 ranks trained" in finding_of(run, "one_rank_only").evidence
    assert "missing_ranks" not in codes(run)


def test_missing_stages_are_reported_with_the_reason(tmp_path: Path) -> None:
    facts = {"stamps": {"placed": [], "reason": "jit_compile=True: XLA has no clock"}}
    run = run_of_job(tmp_path, replace(CLEAN, stamps=False, facts=facts))
    assert "jit_compile=True" in finding_of(run, "host_stamps_only").evidence


def test_logs_without_an_end_are_counted(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    logs = tuple(replace(log, ended=log.rank != 2) for log in run.logs)
    finding = finding_of(replace(run, logs=logs), "not_ended")
    assert finding.evidence.startswith("1 log of 4, rank 2:")


# -- gradients -----------------------------------------------------------------------------------


def test_gradients_that_are_not_reduced_are_an_error(tmp_path: Path) -> None:
    finding = finding_of(
        run_of_job(tmp_path, replace(CLEAN, facts={"gradients_reduced": False})),
        "gradients_not_reduced",
    )
    assert finding.severity == "error"
    assert finding.evidence.startswith("4 ranks trained")


def test_an_unscaled_rate_is_reported_with_the_rate(tmp_path: Path) -> None:
    facts = {"learning_rate": 0.001, "learning_rate_scaled": False}
    finding = finding_of(
        run_of_job(tmp_path, replace(CLEAN, facts=facts)), "learning_rate_not_scaled"
    )
    assert finding.evidence == "0.001 on 4 ranks, the same as on one."


# -- in the user's framework ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "horovod", "lines"),
    [
        ("tensorflow", "0.28.1", ("ModelCheckpoint", "0.001 * hvd.size()", "parallelism_threads(")),
        ("pytorch", "0.28.1", ("hvd.rank() == 0: torch.save", "hvd.size()", "set_num_threads(")),
        ("pytorch", None, ("distributed.get_rank() == 0", "get_world_size()", "set_num_threads(")),
    ],
)
def test_findings_advise_in_the_framework_of_the_run(
    tmp_path: Path, framework: str, horovod: str | None, lines: tuple[str, str, str]
) -> None:
    facts = {"framework": framework, "versions": {"horovod": horovod}, **threads(8, 8)}
    facts |= {"learning_rate": 0.001, "learning_rate_scaled": False}
    run = run_of_job(tmp_path, replace(CLEAN, checkpoint_ms=30, facts=facts))
    kinds = ("checkpoint_on_all_ranks", "learning_rate_not_scaled", "threads_oversubscribed")
    for code, line in zip(kinds, lines, strict=True):
        assert line in in_words(finding_of(run, code).advice)
    assert "(2)" in in_words(finding_of(run, "threads_oversubscribed").advice)
