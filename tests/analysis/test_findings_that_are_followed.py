"""Findings give no advice that the run's facts show as followed, and appear otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.findings import CLEAN, codes, finding_of, only, threads
from support.step_logs import run_of_job

from stallscope import analysis
from stallscope.analysis.findings import find
from stallscope.analysis.gains.what_if import in_words
from stallscope.run import Event

Facts = Mapping[str, Any]

HOROVOD: Facts = {
    "framework": "tensorflow",
    "versions": {"horovod": "0.28.1"},
    "gradient_tensors": 160,
    "gradient_bytes": 100_000_000,
}
PYTORCH: Facts = {**HOROVOD, "framework": "pytorch"}
GPU: Facts = {"devices": ["CPU", "GPU"]}
STOPPING = {"name": "keras.EarlyStopping", "monitor": "val_loss"}
LINE_OF_A_WAIT = {"at": ["train.py", 41, "step"], "per_step": 2.0}
RETRIES = {"count": 2, "spans": [[3, 5, 2]], "kept_bytes": 7 * 10**10, "used_bytes": 4 * 10**10}
AVERAGE = {"name": "horovod.MetricAverageCallback"}
ROWS = {"name": "e", "shape": [30, 16], "itemsize": 4, "rows": 40}


class Example(NamedTuple):
    """Facts of a run that does not follow a finding's advice, and of the same run when it does."""

    before: Facts
    after: Facts


def environment(before: Mapping[str, str], after: Mapping[str, str], **more: Any) -> Example:
    facts = {**HOROVOD, **more}
    return Example({**facts, "settings": dict(before)}, {**facts, "settings": dict(after)})


#: Findings that depend on facts.
BY_FACTS: Mapping[str, Example] = {
    "gradients_not_reduced": Example({"gradients_reduced": False}, {"gradients_reduced": True}),
    "learning_rate_not_scaled": Example(
        {"learning_rate": 0.001, "learning_rate_scaled": False},
        {"learning_rate": 0.004, "learning_rate_scaled": True},
    ),
    "metrics_not_averaged": Example(
        {**HOROVOD, "callbacks": [STOPPING, AVERAGE]}, {**HOROVOD, "callbacks": [AVERAGE, STOPPING]}
    ),
    "sparse_gradients": Example(
        {**HOROVOD, "sparse_gradients": {"count": 1, "largest": [ROWS]}},
        {**HOROVOD, "sparse_gradients": {"count": 0, "largest": []}},
    ),
    "same_order_every_epoch": Example(
        {**HOROVOD, "shuffled": "alike"}, {**HOROVOD, "shuffled": "anew"}
    ),
    # The line has 2 threads.
    "threads_oversubscribed": Example(threads(8, 8), threads(2, 8)),
    "accelerators_not_pinned": Example({**HOROVOD, "devices": ["GPU", "GPU"]}, {**HOROVOD, **GPU}),
    "fusion_off": environment({"HOROVOD_FUSION_THRESHOLD": "0"}, {}),
    "long_cycle_time": environment({"HOROVOD_CYCLE_TIME": "10"}, {}),
    # The line has 1024.
    "response_cache_too_small": environment(
        {"HOROVOD_CACHE_CAPACITY": "100"}, {"HOROVOD_CACHE_CAPACITY": "1024"}
    ),
    "autotune_on": environment({"HOROVOD_AUTOTUNE": "1"}, {"HOROVOD_CYCLE_TIME": "1"}),
    "transports_shut": environment({"NCCL_P2P_DISABLE": "1"}, {}, **GPU),
    "traffic_encrypted": environment(
        {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, {}, reduces_with=["gloo"]
    ),
    "debug_logging_on": environment({"NCCL_DEBUG": "INFO"}, {"NCCL_DEBUG": "WARN"}),
    "cuda_launch_blocking": environment({"CUDA_LAUNCH_BLOCKING": "1"}, {}, **GPU),
    "host_waits_for_device": Example(
        {**PYTORCH, "host_syncs": {"steps": 400, "per_step": 2.0, "lines": [LINE_OF_A_WAIT]}},
        {**PYTORCH, "host_syncs": {"steps": 400, "per_step": 0.01, "lines": [LINE_OF_A_WAIT]}},
    ),
    # The line has pinned memory; how long copies take then is measured.
    "copies_to_device": Example(
        {**PYTORCH, "device_copies": {"timed": 50, "us": 5000.0, "us_sd": 100.0, "bytes": 10**7}},
        {**PYTORCH, "device_copies": {"timed": 50, "us": 10.0, "us_sd": 1.0, "bytes": 10**7}},
    ),
    "memory_is_full": Example(
        {**PYTORCH, "allocator_retries": RETRIES}, {**PYTORCH, "allocator_retries": None}
    ),
    "stall_check_off": environment({"HOROVOD_STALL_CHECK_DISABLE": "1"}, {}),
    "timeline_on": Example({"timeline": True}, {"timeline": False}),
    "host_stamps_only": Example({"stamps": {"reason": "jit_compile=True"}}, {"stamps": {}}),
}

#: Findings that depend on a measurement, which changes when their advice is followed; with the
#: tests on runs with and without it.
BY_MEASUREMENT: Mapping[str, str] = {
    **dict.fromkeys(("weights_differ", "learning_rates_differ"), "test_agreement_findings"),
    **dict.fromkeys(("broadcast_in_every_fit",), "test_agreement_findings"),
    **dict.fromkeys(
        ("missing_ranks", "one_rank_only", "no_baseline", "not_ended"), "test_findings"
    ),
    **dict.fromkeys(
        ("ranks_apart", "epochs_of_different_lengths", "unequal_steps"), "test_synchrony_findings"
    ),
    **dict.fromkeys(
        ("steps_not_divided", "uneven_batches", "uneven_shards"), "test_synchrony_findings"
    ),
    "horovod_leaves_databricks": "test_settings_findings",
    **dict.fromkeys(
        ("checkpoint_on_all_ranks", "rank_0_alone", "validation_on_all_ranks"),
        "test_between_steps_findings",
    ),
    **dict.fromkeys(("slow_first_steps", "slow_every_nth_step"), "test_series"),
    "step_time_changed": "test_series",
    **dict.fromkeys(
        ("slow_windows", "pauses_between_steps", "steps_repeated", "steps_change_within_epochs"),
        "test_printed_steps",
    ),
    "rank_0_extra_work": "test_stragglers",
    "pipeline_stages": "test_pipelines",
    "ranks_starve_in_turn": "test_loaders",
    "input_too_slow_alone": "test_input_times",
    "padding": "test_step_causes",
    "input_probe_refused": "test_findings",
}

#: Findings whose advice is to read or look at something, and changes no setting of a run.
ONLY_LOOKS = {
    *("clock_jumped", "causality_broken", "clocks_unsteady", "link_is_slow"),
    *("ranks_stalled", "ranks_exited", "hosts_blacklisted", "workers_reset", "executors_lost"),
    *("collectives_incomplete", "collectives_timed_out", "processes_suspended", "uneven_timers"),
}
#: Tested on runs below.
ON_ITS_OWN = {"responses_evicted"}


def test_every_finding_has_an_example_or_a_reason() -> None:
    folder = Path(analysis.__file__).parent
    source = "".join(path.read_text() for path in folder.rglob("*.py"))
    known = {*BY_FACTS, *BY_MEASUREMENT, *ONLY_LOOKS, *ON_ITS_OWN}
    assert set(re.findall(r'Finding\(\s+"([a-z0-9_]+)"', source)) == known


@pytest.mark.parametrize("code", BY_MEASUREMENT)
def test_findings_by_measurement_have_their_own_tests(code: str) -> None:
    assert f'"{code}"' in (Path(__file__).parent / f"{BY_MEASUREMENT[code]}.py").read_text()


@pytest.mark.parametrize("code", BY_FACTS)
def test_a_finding_disappears_when_the_facts_show_that_it_is_followed(
    tmp_path: Path, code: str
) -> None:
    before, after = BY_FACTS[code]
    run = run_of_job(tmp_path / "before", replace(CLEAN, facts=dict(before)))
    assert finding_of(run, code).advice
    assert code not in codes(run_of_job(tmp_path / "after", replace(CLEAN, facts=dict(after))))


# -- values, and advice that only some of a finding's reasons call for ---------------------------


@pytest.mark.parametrize(("capacity", "advised"), [("", 4096), ("1024", 4096), ("4096", 8192)])
def test_a_cache_that_was_too_small_gets_a_larger_one(
    tmp_path: Path, capacity: str, advised: int
) -> None:
    settings = {"HOROVOD_CACHE_CAPACITY": capacity} if capacity else {}
    run = run_of_job(tmp_path, replace(CLEAN, facts={**HOROVOD, "settings": settings}))
    event = Event("cache_eviction", "evicted", "launcher.log")
    finding = finding_of(replace(run, events=(event,)), "responses_evicted")
    assert f"`HOROVOD_CACHE_CAPACITY={advised}`" in in_words(finding.advice)


@pytest.mark.parametrize(
    ("job", "expected", "unexpected"),
    [
        ({"checkpoint_ms": 600}, "Write checkpoints", "validation"),
        ({"validation_ms": 600}, "shard of the validation data", "checkpoints"),
    ],
)
def test_work_that_the_rank_did_not_do_alone_is_not_advised_on(
    tmp_path: Path, job: dict[str, float], expected: str, unexpected: str
) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, epochs=4, **job))
    (kind,) = (name.removesuffix("_ms") for name in job)
    advice = in_words(finding_of(only(run, kind, [0]), "rank_0_alone").advice)
    assert expected in advice
    assert unexpected not in advice


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({**HOROVOD, "pipeline": ["TensorSlice", "Batch"]}, "dataset.shard("),
        ({**HOROVOD, "pipeline": ["TensorSlice", "Shard", "Batch"]}, None),
        (PYTORCH, "DistributedSampler("),
        ({**PYTORCH, "orders": [{"sampler": "DistributedSampler", "shuffles": False}]}, None),
    ],
)
def test_sharded_data_is_not_to_be_sharded_again(
    tmp_path: Path, facts: dict[str, Any], line: str | None
) -> None:
    run = run_of_job(tmp_path / "run", replace(CLEAN, facts=facts))
    single = run_of_job(tmp_path / "single", replace(CLEAN, ranks=1, facts=facts))
    (finding,) = [
        finding for finding in find(run, True, single=single) if finding.code == "steps_not_divided"
    ]
    assert (line or "divide the steps of an epoch") in in_words(finding.advice)
    assert line is not None or "shard(" not in in_words(finding.advice)
    assert line is not None or "DistributedSampler(" not in in_words(finding.advice)
