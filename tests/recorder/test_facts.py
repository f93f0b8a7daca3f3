"""Settings are recorded, secrets are not."""

from __future__ import annotations

import os
import socket

import pytest

from stallscope.collector.recorder.job.job_facts import host_facts, timeline_is_on
from stallscope.collector.recorder.job.job_settings import MASK, masked, settings


@pytest.mark.parametrize(
    "name",
    [
        "HOROVOD_FUSION_THRESHOLD",
        "NCCL_SOCKET_IFNAME",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
        "HOROVOD_START_TIMEOUT",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_CPP_LOG_LEVEL",
        "CUDA_LAUNCH_BLOCKING",
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "HOROVOD_CCL_BGT_AFFINITY",
        "JAX_DEBUG_KEY_REUSE",
        "JAX_ENABLE_X64",
        "KERAS_BACKEND",
        "MKL_DYNAMIC",
        "NCCL_IB_PKEY",
        "NCCL_NET_GDR_LEVEL",
        "TF_XLA_FLAGS",
        "TORCH_NCCL_BLOCKING_WAIT",
        "XLA_FLAGS",
    ],
)
def test_settings_that_affect_speed_are_recorded(name: str) -> None:
    assert settings({name: "12"}) == {name: "12"}


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "AWS_SECRET_ACCESS_KEY",
        "MY_HOROVOD_THING",
        "HOME",
        "CUDA_HOME",
        "TF_VAR_db_pass",
        "TF_VAR_conn",
        "TF_CLI_CONFIG_FILE",
        "TF_TOKEN_app_terraform_io",
        "TF_ENCRYPTION",
        "TF_API_KEY",
        "TORCH_AUTH_HEADER",
        "KERAS_CREDENTIALS",
        "JAX_WS_ENDPOINT",
        "OMP_USER",
        # Prefixes of frameworks, but no names of theirs.
        "HOROVOD_PW",
        "HOROVOD_OF_A_USER",
        "HOROVOD_WEBHOOK",
        "_HOROVOD_SECRET_KEY",
        "HOROVOD_SECRET_KEY",
        "HOROVOD_DB_PASS",
        "NCCL_PASSWORD",
        "NCCL_OF_A_USER",
        "TORCH_NCCL_AUTH_HEADER",
    ],
)
def test_other_settings_are_not(name: str) -> None:
    assert settings({name: "abc"}) == {}


@pytest.mark.parametrize(
    "value",
    [
        "postgres://admin:pw@db.example/train",
        "postgres://admin:p/w@db.example",
        "redis://:pw@cache:6379",
        "https://abc@store.example/x",
        "admin:pw@db.example",
        "mysql:admin:pw@host",
        "admin:pw@10.0.0.1",
        "jdbc:oracle:thin:scott/tiger@h:1521:x",
        "scott/tiger@h:1521/x",
        "-u bob:pw",
        "curl --user bob:pw x",
        "--password pw",
        "host=db user=ada password=hunter2",
        "pass=hunter2",
        "--db_pass=hunter2",
        '{"token": "abc"}',
        "https://store.example/x?sv=2024&sig=abc%3D",
        "s3://bucket/x?X-Amz-Signature=0f",
        "https://hooks.slack.com/services/T0/B0/abc",
        "https://discord.com/api/webhooks/123456789012345678/abcdefGHIJ",
        "https://corp.webhook.office.com/webhookb2/a",
        "DefaultEndpointsProtocol=https;AccountKey=Zm9v",
        "Authorization: Basic dXNlcjpwdw==",
        "Bearer abcdefgh12",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "hf_" + "aBcD" * 9,
        "xoxb-123-abcdefgh",
        "xapp-1-A0-123-abcdef",
        "sk-proj-" + "a1B" * 8,
        "AIza" + "A1b" * 12,
        "dapi" + "0123456789abcdef" * 2,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.abc",
        "-----BEGIN " + "PRIVATE KEY-----",
        "9f86d081884c7d659a2feaa0c55ad015",
        "q7Tz0LmXw2Rk9VbN4cYp",
    ],
)
def test_values_that_look_like_credentials_are_masked_whatever_the_name(value: str) -> None:
    assert settings({"NCCL_NET": value, "XLA_FLAGS": f"--a=1 {value}"}) == {
        "NCCL_NET": MASK,
        "XLA_FLAGS": MASK,
    }


@pytest.mark.parametrize("value", ["user:pass", "bob:1pw", "bob.smith:p@ss"])
def test_a_user_and_a_password_are_masked(value: str) -> None:
    assert settings({"NCCL_NET": value}) == {"NCCL_NET": MASK}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "allreduce:ring"),
        ("NCCL_PROTO", "allreduce:LL"),
        ("TORCH_LOGS", "dynamo:info"),
        ("NCCL_IB_HCA", "mlx5_0:1"),
        ("KERAS_TORCH_DEVICE", "cuda:0"),
        ("NCCL_IB_ADDR_RANGE", "fd00:ab:cd::/64"),
        ("JAX_COORDINATOR_ADDRESS", "alpha:1234"),
    ],
)
def test_other_values_with_a_colon_are_not_masked(name: str, value: str) -> None:
    assert settings({name: value}) == {name: value}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "64",
        "INFO",
        "/home/ada/timeline.json",
        "/tmp/9f86d081884c7d659a2feaa0c55ad015/lib",
        "--xla_gpu_autotune_level=4 --xla_some_pass=true --xla_dump_to=/tmp/9f86d081884c7d659a2feaa0",
        "alpha:4,beta:4",
        "10.0.0.1:2222",
        "tcp://10.0.0.1:29500",
        "https://host:8443/x",
        "s3://bucket/logs/run-2026-11-28T12:00:00Z",
        "=mlx5_0:1,mlx5_1:1",
        "^docker0,lo",
        "0-15,32-47",
        "0xffffffff,0xffffffff",
        "granularity=fine,compact,1,0",
        "gpu-node-17.cluster.example.com",
        "ip-10-0-12-13.us-west-2.compute.internal",
        "GPU-5ba4538e-234f-ee33-a57e-3a37e2c6f4b2",
        "application_1764331200000_0012",
        "asiapacificnortheast1",
        '{"cluster": {"worker": ["w-0.svc:2222"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_ordinary_values_are_not_masked(value: str) -> None:
    assert settings({"NCCL_NET": value}) == {"NCCL_NET": value}


def test_what_earlier_recorders_recorded_of_other_programs_is_masked() -> None:
    recorded = {
        "TF_VAR_db_pass": "hunter2",
        "TF_API_KEY": "abc",
        "NCCL_ALGO": "Ring",
        "TF_CONFIG": 1,
        "HOROVOD_PW": "hunter2",
        "HOROVOD_CYCLE_TIME": "bob:pw",
    }
    shown = {"NCCL_ALGO": "Ring", "TF_CONFIG": 1}
    assert masked(recorded) == {**dict.fromkeys(recorded, MASK), **shown}


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

    monkeypatch.setattr("stallscope.collector.recorder.job.job_facts.Path.read_text", refuse)
    monkeypatch.setattr("os.sched_getaffinity", refuse)
    facts = host_facts()
    assert facts["clock_domain"] is None
    assert facts["cpus_allowed"] is None
