"""Anonymous reports contain no host names and no paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.batch.anonymous import LEFT_OUT, anonymous, without_paths
from stallscope.batch.state import LOCK, STATE
from stallscope.cli.main import main
from stallscope.parsers import read
from stallscope.run import Run

HOSTS = ("gpu-node-17.secret.example", "gpu-node-4.secret.example")
SECRETS = ("gpu-node", "secret", "10.11.12.13", "/home/ada", "mnt", "vault")
JOB = Job(
    ranks=4,
    steps=200,
    hosts=HOSTS,
    clock_offset_ms=(0.0, 50.0),
    slow={(2, "compute"): 9.0, (3, "compute"): 9.0},
    facts={
        "model": "resnet50",
        "run_name": "nightly",
        "timeline": True,
        "settings": {
            "HOROVOD_TIMELINE": "/home/ada/timeline.json",
            "HOROVOD_HOSTNAME": HOSTS[0],
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.11.12.13",
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "NCCL_DEBUG": "INFO",
        },
        "launch": "HOROVOD_GLOO_RENDEZVOUS_ADDR:10.11.12.13:4242",
        "connections": [
            {
                "local": "10.11.12.13",
                "peer": "10.11.12.14",
                "sent_kb": 200_000,
                "rate_kb_s": [900, 1000, 1100],
                "round_trip_us": [80, 90, 100],
                "retransmitted": 0,
            }
        ],
    },
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vault-of-ada")
    write_job(folder / "mnt-run", JOB)
    # A torn line, a file that is not a log, and a rank without a log.
    first = folder / "mnt-run" / "rank-00001.0.0.steps.csv"
    first.write_bytes(first.read_bytes()[:-5])
    (folder / "mnt-run" / "gpu-node-17.txt").write_text("notes")
    write_job(folder / "mnt-base", replace(JOB, run_id="base", slow={}, facts={"synthetic": True}))
    return folder


def texts(out: Path) -> Iterator[tuple[str, str]]:
    for path in out.iterdir():
        yield path.name, path.read_text()


def test_no_output_contains_a_host_name_or_a_path(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [str(logs / "mnt-run"), str(logs / "mnt-base"), str(logs / "mnt-nowhere")]
    words = ["report", *sources, "--format", "html,md,json,csv,openmetrics", "--out"]
    assert main([*words, str(tmp_path / "named")]) == 2
    named = "".join(text for _, text in texts(tmp_path / "named"))
    assert HOSTS[1] in named
    assert str(logs) in named
    assert main([*words, str(tmp_path / "out"), "--anonymous"]) == 2
    written = dict(texts(tmp_path / "out"))
    assert {STATE, LOCK} < set(written)
    assert len(written) == 2 * 5 + 4 + 2
    for name, text in written.items():
        for secret in SECRETS:
            assert secret not in text, name
    capsys.readouterr()
    assert main(["report", *sources, "--anonymous", "--format", "json"]) == 2
    assert main(["report", *sources, "--anonymous"]) == 2
    shown = capsys.readouterr().out
    assert not [secret for secret in SECRETS if secret in shown]


def test_the_analysis_is_the_same(logs: Path) -> None:
    (run,) = read(str(logs / "mnt-run"))
    named, hidden = analyse(run), analyse(anonymous(run))
    assert hidden.run.hosts == ["host-1", "host-2"]
    assert hidden.run.source == "nightly"
    assert hidden.bottleneck.kind == named.bottleneck.kind == "imbalance"
    assert hidden.bottleneck.ranks == named.bottleneck.ranks
    assert hidden.bottleneck.hosts == ("host-2",)
    assert [one.speedup for one in hidden.what_if] == [one.speedup for one in named.what_if]
    assert [one.code for one in hidden.findings] == [one.code for one in named.findings]
    assert len(hidden.warnings) == len(named.warnings)


def test_settings_without_names_stay(logs: Path) -> None:
    (run,) = read(str(logs / "mnt-run"))
    assert anonymous(run).fact("settings") == {
        "HOROVOD_TIMELINE": LEFT_OUT,
        "HOROVOD_HOSTNAME": LEFT_OUT,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": LEFT_OUT,
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "NCCL_DEBUG": "INFO",
    }


@pytest.mark.parametrize("name", ["a", "vm", "rank", "node-1"])
def test_hosts_of_any_name_are_replaced_as_whole_words(name: str, tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "logs", replace(JOB, hosts=(name, "other"), facts={}))
    found = anonymous(run)
    assert found.hosts == ["host-1", "host-2"]
    assert isinstance(found, Run)
    assert name not in analyse(found).bottleneck.hosts


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("see /home/ada/logs/run.csv: torn", "see …: torn"),
        ("1,234 samples/s and a/b", "1,234 samples/s and a/b"),
        ("s3://bucket/key and https://x.example/y", "… and …"),
        ("~/logs and ./logs and ../logs", "… and … and …"),
        (r"C:\Users\ada\x and \\server\share", "… and …"),
        ("10.0.0.1:8080 is up", "… is up"),
        ("12:30:00 and 1/2", "12:30:00 and 1/2"),
    ],
)
def test_paths_and_addresses_are_found_in_sentences(text: str, cleaned: str) -> None:
    assert without_paths(text) == cleaned


def test_a_run_of_a_store_is_anonymous_too(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "vault-store"
    assert main(["collect", str(logs / "mnt-run"), "--to", str(store)]) == 0
    capsys.readouterr()
    assert main(["report", str(store), "--anonymous", "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)[0]["run"]["source"] == "nightly"
    assert not [secret for secret in SECRETS if secret in out]
