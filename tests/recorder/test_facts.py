"""Settings are recorded, secrets are not."""

from __future__ import annotations

import os
import socket

import pytest

from stallscope.collector.recorder.job.facts import host_facts, settings, timeline_is_on


@pytest.mark.parametrize(
    "name",
    [
        "HOROVOD_FUSION_THRESHOLD",
        "NCCL_SOCKET_IFNAME",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
        "_HOROVOD_STARTUP_TIMEOUT",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_CPP_LOG_LEVEL",
        "CUDA_LAUNCH_BLOCKING",
    ],
)
def test_settings_that_affect_speed_are_recorded(name: str) -> None:
    assert settings({name: "12"}) == {name: "12"}


@pytest.mark.parametrize(
    "name", ["PATH", "AWS_SECRET_ACCESS_KEY", "MY_HOROVOD_THING", "HOME", "CUDA_HOME"]
)
def test_other_settings_are_not(name: str) -> None:
    assert settings({name: "abc"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "HOROVOD_SECRET_TOKEN",
        "_HOROVOD_SECRET_KEY",
        "TF_API_KEY",
        "NCCL_PASSWORD",
        "HOROVOD_Passwd",
        "TORCH_AUTH_HEADER",
        "KERAS_CREDENTIALS",
        "HOROVOD_COOKIE",
    ],
)
def test_values_of_names_that_look_like_secrets_are_masked(name: str) -> None:
    assert settings({name: "abc"}) == {name: "***"}


def test_the_timeline_is_on_when_it_has_a_file() -> None:
    assert timeline_is_on({"HOROVOD_TIMELINE": "/tmp/timeline.json"})
    assert not timeline_is_on({"HOROVOD_TIMELINE": ""})
    assert not timeline_is_on({})


def test_the_host_and_its_cpu_cores() -> None:
    facts = host_facts()
    assert facts["host"] == socket.gethostname()
    assert facts["pid"] == os.getpid()
    assert facts["cpu_count"] == os.cpu_count()
    assert 1 <= facts["cpus_allowed"] <= facts["cpu_count"]


def test_facts_that_the_system_does_not_report_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not on this system")

    monkeypatch.setattr("stallscope.collector.recorder.job.facts.Path.read_text", refuse)
    monkeypatch.setattr("os.sched_getaffinity", refuse)
    facts = host_facts()
    assert facts["clock_domain"] is None
    assert facts["cpus_allowed"] is None
