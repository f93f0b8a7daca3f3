"""Findings report faults with numbers and ranks, and nothing about healthy runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.step_logs import MS, Job, run_of_job, write_job

from stallscope.analysis.findings import find
from stallscope.analysis.findings.finding import Finding
from stallscope.parsers import read
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Run

SAMPLES = Path(__file__).parents[2] / "sample_logs"
TWO_HOSTS: dict[str, Any] = {"hosts": ("alpha", "beta"), "clock_offset_ms": (0.0, 9000.0)}
#: Four ranks on one host; an epoch is 100 steps.
CLEAN = Job(ranks=4, steps=200, epochs=2)

Row = dict[str, Any]


def found(run: Run, code: str, **options: Any) -> Finding:
    (finding,) = [one for one in find(run, True, **options) if one.code == code]
    assert finding.advice
    return finding


def codes(run: Run, **options: Any) -> list[str]:
    return [finding.code for finding in find(run, True, **options)]


def with_facts(run: Run, facts: Mapping[str, Any], ranks: Sequence[int] | None = None) -> Run:
    """Return the run in which these ranks (default: all) recorded these facts."""
    logs = tuple(
        replace(log, facts={**log.facts, **facts}) if ranks is None or log.rank in ranks else log
        for log in run.logs
    )
    return replace(run, logs=logs)


def with_steps(run: Run, change: Callable[[Row], Row | None]) -> Run:
    """Return the run with its steps changed, row by row; None leaves one out."""
    rows = [changed for row in run.steps.to_pylist() if (changed := change(row)) is not None]
    return replace(run, steps=pa.Table.from_pylist(rows, STEPS_SCHEMA))


def with_intervals(run: Run, change: Callable[[Row], Row | None]) -> Run:
    rows = [changed for row in run.intervals.to_pylist() if (changed := change(row)) is not None]
    return replace(run, intervals=pa.Table.from_pylist(rows, INTERVALS_SCHEMA))


def stretched(run: Run, ranks: Sequence[int], factor: float) -> Run:
    """Return the run in which these ranks did not wait for the others: they take ``factor`` times
    as long.
    """
    origin = min(row["begin"] for row in run.steps.to_pylist())

    def change(row: Row) -> Row:
        if row["rank"] not in ranks:
            return row
        times = {
            name: None if row[name] is None else int((row[name] - origin) * factor) + origin
            for name in ("begin", "data", "ready", "reduced", "end")
        }
        return {**row, **times}

    return with_steps(run, change)


def shortened(run: Run, rank: int, steps: int) -> Run:
    """Return the run in which one rank had so many fewer steps in every epoch of 100.

    Its steps are reduced together with those of the same number, and end before the others' do.
    """
    length = 100 - steps

    def step(row: Row) -> Row | None:
        if row["rank"] != rank:
            return row
        return {**row, "epoch": row["step"] // length} if row["step"] < 2 * length else None

    def interval(row: Row) -> Row:
        return {**row, "step": row["step"] // 100 * length} if row["rank"] == rank else row

    return with_intervals(with_steps(run, step), interval)


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


def test_invalid_facts_are_ignored(tmp_path: Path) -> None:
    odd = {"settings": "x", "threads": [1], "cpu_count": "many", "cpus_allowed": -1, "devices": 7}
    assert codes(run_of_job(tmp_path, replace(CLEAN, facts=odd))) == []


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
    assert found(run, "missing_ranks").evidence == "2 of 4 ranks left no log here: ranks 1 and 3."
    paths[2].unlink()
    (run,) = read(str(tmp_path))
    assert "4 ranks trained" in found(run, "one_rank_only").evidence
    assert "missing_ranks" not in codes(run)


def test_missing_stages_are_reported_with_the_reason(tmp_path: Path) -> None:
    facts = {"stamps": {"placed": [], "reason": "jit_compile=True: XLA has no clock"}}
    run = run_of_job(tmp_path, replace(CLEAN, stamps=False, facts=facts))
    assert "jit_compile=True" in found(run, "host_stamps_only").evidence


def test_logs_without_an_end_are_counted(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    logs = tuple(replace(log, ended=log.rank != 2) for log in run.logs)
    finding = found(replace(run, logs=logs), "not_ended")
    assert finding.evidence.startswith("1 log of 4, rank 2:")


# -- gradients -----------------------------------------------------------------------------------


def test_gradients_that_are_not_reduced_are_an_error(tmp_path: Path) -> None:
    finding = found(
        run_of_job(tmp_path, replace(CLEAN, facts={"gradients_reduced": False})),
        "gradients_not_reduced",
    )
    assert finding.severity == "error"
    assert finding.evidence.startswith("4 ranks trained")


def test_an_unscaled_rate_is_reported_with_the_rate(tmp_path: Path) -> None:
    facts = {"learning_rate": 0.001, "learning_rate_scaled": False}
    finding = found(run_of_job(tmp_path, replace(CLEAN, facts=facts)), "learning_rate_not_scaled")
    assert finding.evidence == "0.001 on 4 ranks, the same as on one."


# -- ranks apart ---------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["reduced", "end"])
def test_ranks_that_do_not_wait_for_each_other_are_apart(tmp_path: Path, column: str) -> None:
    job = replace(CLEAN, steps=1000, epochs=50, stamps=column == "reduced")
    run = stretched(run_of_job(tmp_path, job), [2], 1.25)
    moments = np.array(
        [
            [row[column] for row in run.steps.to_pylist() if row["rank"] == rank]
            for rank in range(job.ranks)
        ]
    )
    # How many steps ahead the first rank was when the last one had completed a step.
    apart = [
        int((moments.min(axis=0) < moments[:, step].max()).sum()) - 1 - step for step in range(1000)
    ]
    most, share = max(apart), np.mean(np.array(apart) >= (3 if column == "reduced" else 21))
    finding = found(run, "ranks_apart")
    assert finding.severity == "error"
    assert finding.evidence.startswith("When rank 2 ")
    assert f"they are {most} steps and {most // 20} epochs apart" in finding.evidence
    assert "ranks 0–3 are at least" in finding.evidence
    assert finding.evidence.endswith(f"apart in {share:.0%} of steps.")


def test_a_whole_epoch_apart_is_apart_even_without_timestamps(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=200, epochs=20, stamps=False)
    assert "ranks_apart" in codes(stretched(run_of_job(tmp_path / "far", job), [1], 1.3))
    # Hosts launch steps on their devices ahead of time: a few steps mean nothing then.
    near = stretched(run_of_job(tmp_path / "near", job), [1], 1.02)
    assert "ranks_apart" not in codes(near)


def test_hosts_that_move_apart_are_apart_with_any_clocks(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=1000, epochs=1, **TWO_HOSTS)
    together = run_of_job(tmp_path, job)
    assert codes(together) == []
    finding = found(stretched(together, [2, 3], 1.5), "ranks_apart")
    assert "ranks 2 and 3 had fallen" in finding.evidence
    assert "behind ranks 0 and 1 on another host" in finding.evidence
    # Half as long again: at step 999 about 500 steps of the faster host.
    steps = float(finding.evidence.partition("about ")[2].split()[0].replace(",", ""))
    assert steps == pytest.approx(500, rel=0.15)


def test_clocks_that_jump_or_drift_are_not_a_fault(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=1000, epochs=1, **TWO_HOSTS)
    run = run_of_job(tmp_path, job)
    assert codes(stretched(run, [2, 3], 1.0005)) == []

    def jumped(row: Row) -> Row:
        late = 30_000 * MS * (row["step"] // 400) if row["rank"] > 1 else 0
        return {**row, **{name: row[name] + late for name in ("begin", "ready", "reduced", "end")}}

    assert codes(with_steps(run, jumped)) == []


# -- epochs and steps ----------------------------------------------------------------------------


def test_epochs_of_different_lengths_are_reported_with_both(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    epochs = found(run, "epochs_of_different_lengths")
    assert "In epoch 0 rank 2 made 90 steps and rank 3 100" in epochs.evidence
    assert "in 2 of 2 epochs" in epochs.evidence
    steps = found(run, "unequal_steps")
    assert steps.evidence.startswith("At its end rank 2 had made 180 steps and rank 0 200")
    assert "hvd.join()" in steps.advice


def test_an_epoch_that_is_not_over_has_no_length_yet(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    logs = tuple(replace(log, ended=log.rank != 2) for log in run.logs)
    running = with_intervals(
        replace(run, logs=logs), lambda row: None if row["kind"] in ("epoch", "end") else row
    )
    assert codes(running) == ["not_ended"]


def test_as_many_steps_as_one_rank_makes_are_not_divided(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "run", CLEAN)
    single = run_of_job(tmp_path / "single", replace(CLEAN, ranks=1))
    finding = found(run, "steps_not_divided", single=single)
    assert finding.evidence.startswith("4 ranks make 100 steps in an epoch, and one rank 100 ")
    assert "batch size of 32" in finding.evidence
    assert "seen 4 times" in finding.evidence
    assert codes(run) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(CLEAN, ranks=1, steps=800),
        replace(CLEAN, ranks=1, batch_size=64),
        replace(CLEAN, ranks=1, facts={"model": "another"}),
        replace(CLEAN, ranks=1, facts={"synthetic": True}),
        replace(CLEAN, ranks=2),
    ],
)
def test_another_job_is_no_evidence_on_how_steps_are_divided(tmp_path: Path, other: Job) -> None:
    single = run_of_job(tmp_path / "single", other)
    assert codes(run_of_job(tmp_path / "run", CLEAN), single=single) == []


# -- shares of the work --------------------------------------------------------------------------


def with_samples(run: Run, rank: int, samples: int) -> Run:
    return with_steps(run, lambda row: {**row, "samples": samples} if row["rank"] == rank else row)


def test_uneven_batches_and_shards_are_reported_with_both_sizes(tmp_path: Path) -> None:
    run = with_samples(run_of_job(tmp_path, CLEAN), rank=1, samples=40)
    batches = found(run, "uneven_batches")
    assert "Rank 1 processes 40.0 samples per step and rank 0 32.0" in batches.evidence
    assert "rank 1 has 25.0% more to compute" in batches.evidence
    shards = found(run, "uneven_shards")
    assert "Rank 1 processes 4,000 samples in an epoch and rank 0 3,200" in shards.evidence
    assert [finding.severity for finding in (batches, shards)] == ["warning", "warning"]


def test_slightly_different_last_batches_are_not_a_finding(tmp_path: Path) -> None:
    def last_is_smaller(row: Row) -> Row:
        return {**row, "samples": 10} if row["rank"] == 1 and row["step"] % 100 == 99 else row

    assert codes(with_steps(run_of_job(tmp_path, CLEAN), last_is_smaller)) == []


def test_batch_sizes_count_if_samples_were_not_counted(tmp_path: Path) -> None:
    run = with_steps(run_of_job(tmp_path, CLEAN), lambda row: {**row, "samples": None})
    assert codes(run) == []
    finding = found(with_facts(run, {"batch_size": 64}, [3]), "uneven_batches")
    assert "Rank 3 processes 64.0 samples per step and rank 0 32.0" in finding.evidence
    assert "uneven_shards" not in codes(with_facts(run, {"batch_size": 64}, [3]))


def test_shards_are_uneven_if_epochs_have_different_lengths(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    finding = found(run, "uneven_shards")
    assert "processes 3,200 samples in an epoch and rank 2 2,880" in finding.evidence
    assert "uneven_batches" not in codes(run)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "code", "severity"),
    [
        ("HOROVOD_LOG_LEVEL", "trace", "debug_logging_on", "warning"),
        ("HOROVOD_LOG_LEVEL", "DEBUG", "debug_logging_on", "warning"),
        ("NCCL_DEBUG", "INFO", "debug_logging_on", "info"),
        ("NCCL_DEBUG", "TRACE", "debug_logging_on", "warning"),
        ("TF_CPP_MAX_VLOG_LEVEL", "2", "debug_logging_on", "warning"),
        ("TF_CPP_VMODULE", "executor=0,direct_session=1", "debug_logging_on", "warning"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "debug_logging_on", "warning"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO", "debug_logging_on", "info"),
        ("TORCH_CPP_LOG_LEVEL", "INFO", "debug_logging_on", "info"),
        ("CUDA_LAUNCH_BLOCKING", "1", "cuda_launch_blocking", "warning"),
        ("HOROVOD_STALL_CHECK_DISABLE", "1", "stall_check_off", "info"),
    ],
)
def test_settings_that_were_left_on(
    tmp_path: Path, name: str, value: str, code: str, severity: str
) -> None:
    run = run_of_job(tmp_path, CLEAN)
    everywhere = found(with_facts(run, {"settings": {name: value}}), code)
    assert everywhere.severity == severity
    assert f"{name}={value} on all ranks" in everywhere.evidence
    somewhere = with_facts(run, {"settings": {name: value}}, [1, 3])
    assert f"{name}={value} on ranks 1 and 3" in found(somewhere, code).evidence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOROVOD_LOG_LEVEL", "warning"),
        ("NCCL_DEBUG", "WARN"),
        ("TF_CPP_MAX_VLOG_LEVEL", "0"),
        ("TF_CPP_MIN_LOG_LEVEL", "2"),
        ("TF_CPP_VMODULE", "executor=0"),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF"),
        ("TORCH_CPP_LOG_LEVEL", "ERROR"),
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("HOROVOD_STALL_CHECK_DISABLE", "0"),
    ],
)
def test_settings_as_they_should_be(tmp_path: Path, name: str, value: str) -> None:
    assert codes(run_of_job(tmp_path, replace(CLEAN, facts={"settings": {name: value}}))) == []


def test_waiting_for_kernels_does_not_affect_a_run_without_a_gpu(tmp_path: Path) -> None:
    settings = {"settings": {"CUDA_LAUNCH_BLOCKING": "1"}}
    run = run_of_job(tmp_path, replace(CLEAN, facts=settings))
    assert codes(with_facts(run, {"devices": ["CPU"]})) == []
    assert codes(with_facts(run, {"devices": ["CPU", "GPU"]})) == ["cuda_launch_blocking"]


def test_several_debug_settings_are_one_finding(tmp_path: Path) -> None:
    settings = {"NCCL_DEBUG": "INFO", "HOROVOD_LOG_LEVEL": "debug", "TF_CPP_VMODULE": "a=1," * 99}
    finding = found(
        run_of_job(tmp_path, replace(CLEAN, facts={"settings": settings})), "debug_logging_on"
    )
    assert all(name in finding.evidence for name in settings)
    assert len(finding.evidence) < 300


def test_the_timeline_that_was_left_on(tmp_path: Path) -> None:
    finding = found(run_of_job(tmp_path, replace(CLEAN, facts={"timeline": True})), "timeline_on")
    assert "left on" in finding.title


# -- settings of reductions ----------------------------------------------------------------------


def reducing(folder: Path, settings: dict[str, str], **facts: Any) -> Run:
    """Return a run of 160 gradients of 100 MB with these settings in its environment."""
    own = {"settings": settings, "gradient_tensors": 160, "gradient_bytes": 100_000_000}
    own["versions"] = {"horovod": "0.28.1"}
    return run_of_job(folder, replace(CLEAN, facts={**own, **facts}))


@pytest.mark.parametrize(
    ("settings", "code", "line"),
    [
        ({"HOROVOD_FUSION_THRESHOLD": "0"}, "fusion_off", "unset HOROVOD_FUSION_THRESHOLD"),
        ({"HOROVOD_FUSION_THRESHOLD": "1000000"}, "fusion_off", "one by one"),
        ({"HOROVOD_CYCLE_TIME": "10"}, "long_cycle_time", "unset HOROVOD_CYCLE_TIME"),
        ({"HOROVOD_CACHE_CAPACITY": "0"}, "response_cache_too_small", "CAPACITY=1024"),
        ({"HOROVOD_CACHE_CAPACITY": "100"}, "response_cache_too_small", "160 gradients"),
        ({"HOROVOD_AUTOTUNE": "1"}, "autotune_on", "stallscope tune RUN"),
    ],
)
def test_settings_that_make_reductions_slow(
    tmp_path: Path, settings: dict[str, str], code: str, line: str
) -> None:
    run = reducing(tmp_path, settings)
    finding = found(run, code)
    assert codes(run) == [code]
    assert line in f"{finding.evidence} {finding.advice}"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"HOROVOD_FUSION_THRESHOLD": "134217728"},
        {"HOROVOD_CYCLE_TIME": "1"},
        {"HOROVOD_CACHE_CAPACITY": "1024"},
        {"HOROVOD_AUTOTUNE": "0"},
        {"HOROVOD_FUSION_THRESHOLD": "much", "HOROVOD_CYCLE_TIME": "nan"},
    ],
)
def test_settings_of_reductions_as_they_should_be(tmp_path: Path, settings: dict[str, str]) -> None:
    assert codes(reducing(tmp_path, settings)) == []


def test_a_cycle_is_long_relative_to_its_step(tmp_path: Path) -> None:
    slow = replace(CLEAN, compute_ms=400.0, facts={"settings": {"HOROVOD_CYCLE_TIME": "10"}})
    assert codes(run_of_job(tmp_path, slow)) == []


def test_one_gradient_needs_no_fusion(tmp_path: Path) -> None:
    one = reducing(tmp_path, {"HOROVOD_FUSION_THRESHOLD": "0"}, gradient_tensors=1)
    assert codes(one) == []


def test_disabled_transports_matter_if_they_would_be_used(tmp_path: Path) -> None:
    settings = {"settings": {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}}
    run = run_of_job(tmp_path / "one", replace(CLEAN, facts=settings))
    assert codes(run) == []
    on_gpus = with_facts(run, {"devices": ["CPU", "GPU"]})
    finding = found(on_gpus, "transports_shut")
    assert "NCCL_P2P_DISABLE=1 on all ranks" in finding.evidence
    assert "`unset NCCL_P2P_DISABLE`" in finding.advice
    two = replace(CLEAN, **TWO_HOSTS, facts={**settings, "devices": ["CPU", "GPU"]})
    finding = found(run_of_job(tmp_path / "two", two), "transports_shut")
    assert "`unset NCCL_P2P_DISABLE NCCL_IB_DISABLE`" in finding.advice


# -- where ranks run -----------------------------------------------------------------------------


def test_ranks_of_a_host_that_see_each_others_accelerators(tmp_path: Path) -> None:
    several = {"devices": ["CPU", "GPU", "GPU"]}
    finding = found(
        run_of_job(tmp_path / "a", replace(CLEAN, facts=several)), "accelerators_not_pinned"
    )
    assert "On host alpha, ranks 0–3 each see 2 accelerators" in finding.evidence
    assert "[hvd.local_rank()]" in finding.advice
    pinned = replace(CLEAN, facts={"devices": ["CPU", "GPU"]})
    assert codes(run_of_job(tmp_path / "b", pinned)) == []
    # A rank alone on its host may have all of its accelerators.
    alone = replace(CLEAN, ranks=2, facts=several, **TWO_HOSTS)
    assert codes(run_of_job(tmp_path / "c", alone)) == []


def test_horovods_end_of_support_on_databricks(tmp_path: Path) -> None:
    facts = {"framework": "pytorch", "versions": {"horovod": "0.28.1"}}
    here = run_of_job(tmp_path, replace(CLEAN, facts=facts))
    assert codes(here) == []
    there = replace(here, source="databricks:job/42")
    finding = found(there, "horovod_leaves_databricks")
    assert "TorchDistributor(num_processes=4, local_mode=False, use_gpu=False)" in finding.advice
    keras = with_facts(there, {"framework": "tensorflow"})
    assert "tf.distribute" in found(keras, "horovod_leaves_databricks").advice
    assert codes(with_facts(there, {"versions": {"torch": "2.13.0"}})) == []


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
        assert line in found(run, code).advice
    assert "(2)" in found(run, "threads_oversubscribed").advice


# -- threads -------------------------------------------------------------------------------------


def threads(intra_op: int, processors: int, allowed: int | None = None, **more: Any) -> Row:
    return {
        "threads": {"inter_op": 2, "intra_op": intra_op},
        "cpu_count": processors,
        "cpus_allowed": processors if allowed is None else allowed,
        "devices": ["CPU"],
        **more,
    }


@pytest.mark.parametrize(
    ("facts", "evidence"),
    [
        (threads(4, 8), "16 intra-op threads together on 8 CPU cores"),
        (threads(0, 8), "32 intra-op threads together on 8 CPU cores"),
        (threads(8, 64, allowed=4), "32 intra-op threads together on 16 CPU cores"),
    ],
)
def test_more_threads_than_cpu_cores(tmp_path: Path, facts: Row, evidence: str) -> None:
    finding = found(run_of_job(tmp_path, replace(CLEAN, facts=facts)), "threads_oversubscribed")
    assert finding.severity == "warning"
    assert f"On host alpha, ranks 0–3 compute with {evidence}" in finding.evidence


@pytest.mark.parametrize(
    "facts",
    [
        threads(2, 8),
        threads(3, 8),
        # Every rank is bound to separate CPU cores.
        threads(4, 16, allowed=4),
        threads(0, 16, allowed=4),
        # The host's work beside its GPUs is unknown.
        threads(0, 8, devices=["CPU", "GPU"]),
        threads(4, 8, cpus_allowed=None),
        threads(4, 8, threads=None),
    ],
)
def test_threads_with_enough_cpu_cores(tmp_path: Path, facts: Row) -> None:
    assert codes(run_of_job(tmp_path, replace(CLEAN, facts=facts))) == []


def test_threads_are_counted_host_by_host(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, **TWO_HOSTS, facts=threads(4, 8)))
    assert codes(run) == []
    finding = found(with_facts(run, threads(8, 8), [2, 3]), "threads_oversubscribed")
    assert "On host beta, ranks 2 and 3 compute with 16 intra-op threads" in finding.evidence


# -- validation and checkpoints ------------------------------------------------------------------


def only(run: Run, kind: str, ranks: Sequence[int]) -> Run:
    """Return the run in which only these ranks did that between their steps."""
    return with_intervals(
        run, lambda row: None if row["kind"] == kind and row["rank"] not in ranks else row
    )


def seconds_of(run: Run) -> float:
    anchor = min(log.anchor for log in run.logs)
    return (max(row["end"] for row in run.intervals.to_pylist()) - anchor) / 1e9


def test_validation_on_all_ranks_is_reported_with_its_cost(tmp_path: Path) -> None:
    versions = {"versions": {"horovod": "0.28.1"}}
    run = run_of_job(tmp_path, replace(CLEAN, validation_ms=400, facts=versions))
    finding = found(run, "validation_on_all_ranks")
    assert finding.severity == "info"
    assert "4 of 4 ranks (ranks 0–3)" in finding.evidence
    assert f"0.8 s on every rank, {0.8 / seconds_of(run):.1%} of the job" in finding.evidence
    assert "MetricAverageCallback" in finding.advice
    assert "2 of 4 ranks (ranks 1 and 2)" in (
        found(only(run, "validation", [1, 2]), "validation_on_all_ranks").evidence
    )


def test_checkpoints_of_several_ranks_on_a_host(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, checkpoint_ms=30))
    finding = found(run, "checkpoint_on_all_ranks")
    assert finding.severity == "warning"
    assert "Ranks 0–3, 4 of them on host alpha, wrote 8 checkpoints in all:" in finding.evidence
    assert codes(only(run, "checkpoint", [0])) == []


def test_checkpoints_of_one_rank_per_host_are_fine_unless_all_ranks_write(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "four", replace(CLEAN, checkpoint_ms=30, **TWO_HOSTS))
    assert codes(only(run, "checkpoint", [0, 2])) == []
    assert codes(only(run, "checkpoint", [0, 1])) == ["checkpoint_on_all_ranks"]
    two = run_of_job(tmp_path / "two", replace(CLEAN, ranks=2, checkpoint_ms=30, **TWO_HOSTS))
    evidence = found(two, "checkpoint_on_all_ranks").evidence
    assert "Ranks 0 and 1 wrote 4 checkpoints in all:" in evidence


@pytest.mark.parametrize("rank", [0, 2])
def test_one_rank_that_works_while_the_others_wait(tmp_path: Path, rank: int) -> None:
    job = replace(CLEAN, epochs=4, validation_ms=400, checkpoint_ms=100)
    run = run_of_job(tmp_path, job)
    assert "rank_0_alone" not in codes(run)
    alone = only(only(run, "validation", [rank]), "checkpoint", [rank])
    finding = found(alone, "rank_0_alone")
    assert finding.severity == "info"
    assert finding.title == f"Rank {rank} works while the others wait"
    assert f"Only rank {rank} did 4 checkpoints and 4 validations;" in finding.evidence
    # After the last epoch no rank waits any more.
    cost = float(finding.evidence.partition("waited ")[2].split()[0])
    assert cost == pytest.approx(3 * 0.5, abs=0.1)
    assert f"{cost / seconds_of(run):.0%}"[:-1] in finding.evidence


def test_one_ranks_extra_work_is_counted_without_the_common_work(tmp_path: Path) -> None:
    job = replace(CLEAN, epochs=4, validation_ms=400, checkpoint_ms=100)
    finding = found(only(run_of_job(tmp_path, job), "checkpoint", [0]), "rank_0_alone")
    assert "Only rank 0 did 4 checkpoints;" in finding.evidence
    cost = float(finding.evidence.partition("waited ")[2].split()[0])
    assert cost == pytest.approx(3 * 0.1, abs=0.1)


def test_work_that_no_rank_waits_for_costs_nothing(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    rows = run.intervals.to_pylist()
    begins = {row["step"]: row["begin"] for row in run.steps.to_pylist() if row["rank"] == 0}
    in_the_background = [
        {**rows[0], "kind": "checkpoint", "step": step, "begin": begins[step] - 300 * MS}
        | {"end": begins[step]}
        for step in range(20, 200, 20)
    ]
    table = pa.Table.from_pylist(rows + in_the_background, INTERVALS_SCHEMA)
    assert codes(replace(run, intervals=table)) == []


def test_no_rank_works_alone_if_a_rank_left_no_log(tmp_path: Path) -> None:
    paths = write_job(tmp_path, replace(CLEAN, epochs=4, validation_ms=400))
    paths[3].unlink()
    (run,) = read(str(tmp_path))
    assert codes(only(run, "validation", [0])) == ["missing_ranks"]
