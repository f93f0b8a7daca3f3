"""Findings on settings and threads, and on where ranks run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.findings import CLEAN, TWO_HOSTS, Row, codes, finding_of, threads, with_facts
from support.step_logs import run_of_job

from stallscope.analysis.gains.what_if import in_words
from stallscope.run import Run

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
    everywhere = finding_of(with_facts(run, {"settings": {name: value}}), code)
    assert everywhere.severity == severity
    assert f"{name}={value} on all ranks" in everywhere.evidence
    somewhere = with_facts(run, {"settings": {name: value}}, [1, 3])
    assert f"{name}={value} on ranks 1 and 3" in finding_of(somewhere, code).evidence


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
    finding = finding_of(
        run_of_job(tmp_path, replace(CLEAN, facts={"settings": settings})), "debug_logging_on"
    )
    assert all(name in finding.evidence for name in settings)
    assert len(finding.evidence) < 300


def test_the_timeline_that_was_left_on(tmp_path: Path) -> None:
    finding = finding_of(
        run_of_job(tmp_path, replace(CLEAN, facts={"timeline": True})), "timeline_on"
    )
    assert "left on" in finding.title


# -- settings of reductions ----------------------------------------------------------------------


def reducing(folder: Path, settings: dict[str, str], **facts: Any) -> Run:
    """Return a run of 160 gradients of 100 MB with these settings in its environment."""
    defaults = {"settings": settings, "gradient_tensors": 160, "gradient_bytes": 100_000_000}
    defaults["versions"] = {"horovod": "0.28.1"}
    return run_of_job(folder, replace(CLEAN, facts={**defaults, **facts}))


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
    finding = finding_of(run, code)
    assert codes(run) == [code]
    assert line in f"{finding.evidence} {in_words(finding.advice)}"


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
    run = reducing(tmp_path, {"HOROVOD_FUSION_THRESHOLD": "0"}, gradient_tensors=1)
    assert codes(run) == []


def test_disabled_transports_matter_if_they_would_be_used(tmp_path: Path) -> None:
    settings = {"settings": {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}}
    run = run_of_job(tmp_path / "one", replace(CLEAN, facts=settings))
    assert codes(run) == []
    on_gpus = with_facts(run, {"devices": ["CPU", "GPU"]})
    finding = finding_of(on_gpus, "transports_shut")
    assert "NCCL_P2P_DISABLE=1 on all ranks" in finding.evidence
    assert "`unset NCCL_P2P_DISABLE`" in in_words(finding.advice)
    two = replace(CLEAN, **TWO_HOSTS, facts={**settings, "devices": ["CPU", "GPU"]})
    finding = finding_of(run_of_job(tmp_path / "two", two), "transports_shut")
    assert "`unset NCCL_P2P_DISABLE NCCL_IB_DISABLE`" in in_words(finding.advice)


# -- where ranks run -----------------------------------------------------------------------------


def test_ranks_of_a_host_that_see_each_others_accelerators(tmp_path: Path) -> None:
    several = {"devices": ["CPU", "GPU", "GPU"]}
    finding = finding_of(
        run_of_job(tmp_path / "a", replace(CLEAN, facts=several)), "accelerators_not_pinned"
    )
    assert "On host alpha, ranks 0–3 each see 2 accelerators" in finding.evidence
    assert "[hvd.local_rank()]" in in_words(finding.advice)
    pinned = replace(CLEAN, facts={"devices": ["CPU", "GPU"]})
    assert codes(run_of_job(tmp_path / "b", pinned)) == []
    # A rank alone on its host may have all of its accelerators.
    alone = replace(CLEAN, ranks=2, facts=several, **TWO_HOSTS)
    assert codes(run_of_job(tmp_path / "c", alone)) == []


def test_horovods_end_of_support_on_databricks(tmp_path: Path) -> None:
    facts = {"framework": "pytorch", "versions": {"horovod": "0.28.1"}}
    here = run_of_job(tmp_path, replace(CLEAN, facts=facts))
    assert codes(here) == []
    on_databricks = replace(here, source="databricks:job/42")
    finding = finding_of(on_databricks, "horovod_leaves_databricks")
    assert "TorchDistributor(num_processes=4, local_mode=False, use_gpu=False)" in in_words(
        finding.advice
    )
    keras = with_facts(on_databricks, {"framework": "tensorflow"})
    assert "tf.distribute" in in_words(finding_of(keras, "horovod_leaves_databricks").advice)
    assert codes(with_facts(on_databricks, {"versions": {"torch": "2.13.0"}})) == []


# -- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "evidence"),
    [
        (threads(4, 8), "16 intra-op threads together on 8 CPU cores"),
        (threads(0, 8), "32 intra-op threads together on 8 CPU cores"),
        (threads(8, 64, allowed=4), "32 intra-op threads together on 16 CPU cores"),
    ],
)
def test_more_threads_than_cpu_cores(tmp_path: Path, facts: Row, evidence: str) -> None:
    finding = finding_of(
        run_of_job(tmp_path, replace(CLEAN, facts=facts)), "threads_oversubscribed"
    )
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


def test_all_containers_of_a_machine_are_named(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, facts=threads(4, 8)))
    finding = finding_of(with_facts(run, {"host": "box"}, [2, 3]), "threads_oversubscribed")
    assert "On hosts alpha and box, ranks 0–3 compute with 16 intra-op" in finding.evidence


def test_threads_are_counted_host_by_host(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, **TWO_HOSTS, facts=threads(4, 8)))
    assert codes(run) == []
    finding = finding_of(with_facts(run, threads(8, 8), [2, 3]), "threads_oversubscribed")
    assert "On host beta, ranks 2 and 3 compute with 16 intra-op threads" in finding.evidence
