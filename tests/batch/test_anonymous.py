"""Anonymous reports contain no names of hosts, users, files, tensors, callbacks and functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.input_times import write_measured
from support.network_checks import pair, write_network_check
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.arrays.arrow import empty_table
from stallscope.batch.anonymous import anonymous, anonymous_failure
from stallscope.batch.state import LOCK, STATE
from stallscope.cli.main import main
from stallscope.formatting.plain import LEFT_OUT, without_paths
from stallscope.parsers import read
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Run

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


#: Part of every name below that identifies something; no output may contain it.
MARK = "zq"
MLFLOW_ID = "9f86d081884c7d659a2feaa0c55ad015"
STALL = (
    "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
    "ranks and are waiting for remainder of ranks for more than 60 seconds.\nMissing ranks:\n"
    "1: [zqtensor_a, gpu-zq1/zqtensor_b]\nINFO:root:blacklist failing host: zqhost9\n"
)


def of_rank(rank: int) -> dict[str, object]:
    """Return a rank's facts with a marked name in each of their texts."""
    stack = [
        ["/usr/lib/python3.11/site-packages/keras/fit.py", 3, "fit"],
        ["/home/zquser/zqfile.py", 12, "zqfunction"],
    ]
    return {
        "model": "resnet50",
        "run_name": "nightly of zquser@corp.example on gpu-zq1_a by zqbob@zqlogin as zqbob",
        "framework": "tensorflow",
        "versions": {"tensorflow": "2.15", "horovod": "0.28"},
        "optimizer": "Adam at gpu-zq2.zqdomain.example",
        "gradients_reduced": True,
        "launch": f"SLURM_JOB_ID:{MLFLOW_ID}:zqlaunch",
        "callbacks": [
            {"name": "keras.ReduceLROnPlateau", "monitor": "val_zqother"},
            {"name": "zqpackage.ZqCallback", "monitor": "val_zqmetric"},
        ],
        "weights": {"of": "zqtensor/kernel", "after": 1, "values": [0.1 + rank, 0.2]},
        "sparse_gradients": {
            "count": 1,
            "largest": [{"name": "zqtensor/table", "shape": [90, 8], "itemsize": 4, "rows": 999}],
        },
        "in_flight": {
            "step": 200,
            "since_us": 9_000_000,
            "seen_us": 99_000_000,
            "usual_us": 20_000,
            "reached": "begin",
            "reached_us": 9_000_000,
            "stack": stack,
            "other_threads": [stack],
        },
        "stamps": {"placed": [], "reason": "no graph in /home/zquser/zqfile.py"},
        "spooled": "/home/zquser/zqspool.csv",
        "git_commit": MLFLOW_ID + "abcdef01",
        "connections": [
            {
                "local": "10.11.12.13",
                "peer": "zqpeer.zqdomain.example",
                "sent_kb": 200_000,
                "rate_kb_s": [900, 1000, 1100],
                "round_trip_us": [80, 90, 100],
                "retransmitted": 9000,
            }
        ],
        "settings": {
            "HOROVOD_TIMELINE": "/home/zquser/timeline.json",
            "HOROVOD_LOG_LEVEL": "trace",
            "HOROVOD_GLOO_IFACE": "zqhook",
            "TF_VAR_zqname": "zqvalue",
            "XLA_FLAGS": "--xla_dump_to=zqdump",
            "NCCL_DEBUG": "INFO",
        },
    }


def write_marked(folder: Path) -> list[str]:
    """Write runs with a marked name in every text that a log can hold; return their places."""
    run = folder / "zqfolder"
    hosts = ("gpu-zq1.zqdomain.example", "gpu-zq2.zqdomain.example")
    paths = write_job(run, replace(JOB, hosts=hosts, run_id=MLFLOW_ID, facts={}))
    for rank, path in enumerate(paths):
        head, *rows = path.read_text().splitlines()
        facts = json.loads(head.split(" ", 2)[2]) | of_rank(rank)
        rows = [row for row in rows if not (rank == 1 and row.startswith("end"))]
        path.write_text("\n".join([f"#stallscope 1 {json.dumps(facts)}", *rows]) + "\n")
    paths[0].write_bytes(paths[0].read_bytes()[:-5])
    paths[2].rename(run / "zqrank-gpu-zq1.steps.csv")
    for name in ("zqnotes-gpu-zq1.txt", "gpu-zq2_zqnotes.dat"):
        (run / name).write_text("nothing")
    (run / "zqjob.log").write_text(STALL)
    stages = [{"kind": "augment", "name": "Map(zqfunction)", "ms": 6.5, "ci95_ms": None}]
    write_measured(
        run, host=hosts[0], run_id=MLFLOW_ID, stages=stages, error="zqerror in zqfile.py"
    )
    write_network_check(
        run,
        run_id=MLFLOW_ID,
        hosts=list(hosts),
        settings={"NCCL_NET": "zqnet"},
        pairs=[pair(*hosts, 900)],
        left_out=["gpu-zq2: no answer from zqpeer.zqdomain.example"],
    )
    for name, notes in (("zqalone", ["zqnotes.txt"]), ("zqempty", ["zqa.txt", "zqb.txt"])):
        (folder / name).mkdir()
        for note in notes:
            (folder / name / note).write_text("nothing")
    epochs = folder / "zqmlflow"
    epochs.mkdir()
    content = {
        "run_id": MLFLOW_ID,
        "run_name": "weekly of zquser@corp.example",
        "where": f"mlflow:{MLFLOW_ID}",
        "artifacts": 2,
        "start_ms": 1_700_000_000_000,
        "params": {"zqparam": "zqvalue", "model": "vgg16"},
        "metric_names": ["zqmetric"],
        "metrics": {"zqmetric": [[1_700_000_000_000 + 60_000 * at, at, 0.5] for at in range(4)]},
    }
    text = '{"stallscope_mlflow": 1, ' + json.dumps(content)[1:]
    (epochs / "zqmetrics.mlflow.json").write_text(text)
    named = ("zqfolder", "zqalone", "zqempty", "zqmlflow", "zqnowhere")
    return [str(folder / name) for name in named]


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


@pytest.mark.broad
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


def marked_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if MARK in line.lower() or MLFLOW_ID in line]


@pytest.mark.broad
def test_no_output_contains_a_name_that_any_log_can_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = write_marked(tmp_path / "logs")
    words = ["report", *places, "--format", "html,md,json,csv,openmetrics", "--out"]
    assert main([*words, str(tmp_path / "named")]) == 2
    named = "".join(text for _, text in texts(tmp_path / "named"))
    for shown in (
        "zqtensor",
        "ZqCallback",
        "val_zqother",
        "zqfunction",
        "zqnotes",
        "zqhost9",
        "zqhook",
    ):
        assert shown in named
    # The first pass of an anonymous report finds the runs of the other one in the folder.
    for out in ("named", "anonymous"):
        capsys.readouterr()
        assert main([*words, str(tmp_path / out), "--anonymous", "--force"]) == 2
        printed = list(map(Path, capsys.readouterr().out.splitlines()))
        assert len(printed) == 2 * 5 + 4
        state = [tmp_path / out / STATE] if out == "anonymous" else []
        for path in (*printed, *state):
            assert MARK not in path.name.lower()
            assert not marked_lines(path.read_text()), path.name
    shown = ""
    for place in places:
        for options in (["--format", "json"], []):
            main(["report", place, "--anonymous", *options])
            shown += capsys.readouterr().out
    assert "tensor-1" in shown
    assert not marked_lines(shown)


def test_the_analysis_is_the_same(logs: Path) -> None:
    (run,) = read(str(logs / "mnt-run"))
    named, hidden = analyse(run), analyse(anonymous(run))
    assert hidden.run.hosts == ["host-1", "host-2"]
    assert hidden.run.source == "nightly"
    assert hidden.bottleneck.kind == named.bottleneck.kind == "imbalance"
    assert hidden.bottleneck.ranks == named.bottleneck.ranks
    assert hidden.bottleneck.hosts == ("host-2",)
    assert [gain.speedup for gain in hidden.what_if] == [gain.speedup for gain in named.what_if]
    assert [finding.code for finding in hidden.findings] == [
        finding.code for finding in named.findings
    ]
    assert len(hidden.warnings) == len(named.warnings)


def test_the_findings_are_the_same_without_names(tmp_path: Path) -> None:
    (run,) = read(write_marked(tmp_path)[0])
    named, hidden = analyse(run), analyse(anonymous(run))
    assert [finding.code for finding in hidden.findings] == [
        finding.code for finding in named.findings
    ]
    assert hidden.bottleneck.kind == named.bottleneck.kind
    evidence = {finding.code: finding.evidence for finding in hidden.findings}
    assert "tensor-" in evidence["weights_differ"]
    assert "ReduceLROnPlateau by metric-" in evidence["metrics_not_averaged"]


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
    hidden = anonymous(run)
    assert hidden.hosts == ["host-1", "host-2"]
    assert isinstance(hidden, Run)
    assert name not in analyse(hidden).bottleneck.hosts


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("train_gpu-node-17.log is torn", "train_host-1.log is torn"),
        ("grads/gpu-node-17:0 and gpu-node-170", "grads/host-1:0 and gpu-node-170"),
        ("login.secret.example", "login.domain"),
        ("job of ada on adapter", "job of user-1 on adapter"),
        ("ask ada@corp.example", "ask …"),
        ("bob@gpu-node-17 job", "user-2@host-1 job"),
        ("bob@gpu-node-4.secret.example", "user-2@host-2"),
        (
            "run of bob, ssh bob@login-3 on login-3",
            "run of user-2, ssh user-2@other-host-1 on other-host-1",
        ),
        ("b@vm", "user-2@other-host-1"),
        (r"C:\Users\bob\x by bob", "… by user-2"),
        (r"C:\\Users\\bob\\x by bob", "… by user-2"),
        ("~bob/logs by bob", "… by user-2"),
        ("resnet50@8 and x@b of ResNet", "resnet50@8 and user-2@other-host-1 of ResNet"),
        ("mlflow:9f86d081884c7d659a2feaa0c55ad015", "mlflow:run-67212462"),
    ],
)
def test_names_are_replaced_within_other_names(text: str, cleaned: str) -> None:
    run = replace(run_of_facts(run_name=text), source="/home/ada/logs")
    assert anonymous(run).name == cleaned


def run_of_facts(**facts: object) -> Run:
    """Return a run without steps, of two hosts."""
    logs = [Log("", rank, 0, 0, {"host": host, **facts}, True) for rank, host in enumerate(HOSTS)]
    return Run("a", "", tuple(logs), empty_table(STEPS_SCHEMA), empty_table(INTERVALS_SCHEMA))


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


def test_messages_about_places_have_no_logins() -> None:
    message = "ssh://x/logs: bob@login-3 refused the key of bob@corp.example"
    text = anonymous_failure(message, "ssh://x/logs", 1)
    assert text == "run 1: … refused the key of …"


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
