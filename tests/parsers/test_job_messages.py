"""Messages of Horovod, launchers, NCCL and schedulers become events of the run, and findings."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis.findings import find
from stallscope.parsers import read
from stallscope.parsers.formats.job_messages import job_events
from stallscope.run import Event, Run

STALL = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and "
    "are waiting for remainder of ranks for more than 60 seconds. This may indicate that different "
    "ranks are trying to submit different tensors or that only subset of ranks is submitting tensors, "
    "which will cause deadlock. \n"
)
MISSING = "Missing ranks:\n1: [grad_a, grad_b, grad_c, grad_d, grad_e, grad_f ...]\n3!: [grad_a]\n"
SHUTDOWN = (
    'One or more rank (marked by "!") is stalled for longer than 120 seconds. Will shutdown.\n'
)
HEAD = "[2026-11-21 02:28:41.236416: W /build/horovod/common/stall_inspector.cc:107] "


def events(text: str) -> list[Event]:
    return job_events("stderr.txt", text.encode())


def local(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp()) * 10**9


@pytest.mark.parametrize(
    ("head", "stamped"),
    [
        (HEAD, 236_416_000),
        (HEAD.replace(".236416", ".  1234"), 1_234_000),
        (HEAD + "[0]: ", 236_416_000),
        ("[W /build/horovod/common/stall_inspector.cc:107] ", None),
        ("WARNING: ", None),
    ],
)
def test_a_stall_names_the_ranks_that_are_missing(head: str, stamped: int | None) -> None:
    (event,) = events(head + STALL + MISSING)
    assert (event.kind, event.ranks) == ("stall", (1, 3))
    assert event.waited_ns == 60 * 10**9
    what = "tensors wait for more than 60 s for ranks 1 and 3: grad_a, grad_b, "
    assert event.what.startswith(what)
    assert event.wall_ns is None
    expected = None if stamped is None else local("2026-11-21 02:28:41") + stamped
    assert event.local_ns == expected


@pytest.mark.parametrize(
    ("following", "ranks"),
    [
        (MISSING.replace("Missing", "Stalled"), (1, 3)),
        ("Stalled ops:HorovodAllreduce_grads_0 [missing ranks: 1, 3]\n", (1, 3)),
        (
            "Stalled ops:\nHorovodAllreduce_grads_0 [missing ranks: 2]\nother [missing ranks: 4]\n",
            (2, 4),
        ),
        ("something else\n", ()),
        ("", ()),
    ],
)
def test_all_versions_name_the_missing_ranks(following: str, ranks: tuple[int, ...]) -> None:
    (event,) = events(HEAD + STALL + following)
    assert event.ranks == ranks


def test_launchers_labels_are_removed_first_wherever_they_are() -> None:
    whole = HEAD + STALL + MISSING + HEAD.replace(": W", ": E") + SHUTDOWN
    # As Open MPI prints it: a label before each chunk that it has read, with other ranks' chunks
    # between.
    torn = "".join(
        f"[1,0]<stderr>:{piece}[1,2]<stdout>:step 7\n"
        if piece[-1:] != "\n"
        else f"[1,0]<stderr>:{piece}"
        for piece in re.findall(r".{1,37}\n?", whole)
    )
    torn_events = events(torn)
    assert [(event.kind, event.ranks) for event in torn_events] == [
        ("stall", (1, 3)),
        ("stall_shutdown", ()),
    ]


@pytest.mark.parametrize(
    ("line", "kind", "ranks", "hosts"),
    [
        (
            "[0]<stderr>:[2026-11-21 02:28:41.236416: W x/response_cache.cc:155] A response has been "
            "evicted from cache which may indicate reduced performance. Better performance",
            "cache_eviction",
            (),
            (),
        ),
        ("Process 3 exit with status code 137.", "rank_exited", (3,), ()),
        ("INFO:root:blacklist failing host: node-7", "host_blacklisted", (), ("node-7",)),
        ("2026-11-21 02:28:41,123 INFO reset workers: 6", "workers_reset", (), ()),
        ("wait for available slots: 4", "waiting_for_slots", (), ()),
        (
            "ERROR:root:reset count 11 has exceeded limit 10 -> stop running",
            "resets_exceeded",
            (),
            (),
        ),
    ],
)
def test_one_line_each(
    line: str, kind: str, ranks: tuple[int, ...], hosts: tuple[str, ...]
) -> None:
    (event,) = events(f"Epoch 1/5\n{line}\nEpoch 2/5\n")
    assert (event.kind, event.ranks, event.hosts) == (kind, ranks, hosts)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reset workers: 6", "the job restarts with 6 workers"),
        ("reset workers: 1", "the job restarts with 1 worker"),
        ("wait for available slots: 1", "the job waits for 1 slot"),
        ("reset count 11 has exceeded limit 10", "the job ends: it was reset 11 times"),
        ("reset count 1 has exceeded limit 0", "the job ends: it was reset 1 time"),
    ],
)
def test_numbers_have_their_nouns_in_singular_or_plural(line: str, what: str) -> None:
    (event,) = events(f"INFO:root:{line}\n")
    assert event.what == what


def test_torchrun_names_the_process() -> None:
    (event,) = events(
        "E1125 10:31:09.418000 29159 torch/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: "
        "29189) of binary: /env/bin/python\n"
    )
    assert (event.kind, event.ranks, event.pids) == ("rank_exited", (), (29189,))
    assert (event.what, event.status) == ("process 29189 exited with status -9", -9)


def test_normal_exits_and_other_lines_are_not_events() -> None:
    assert events("Process 3 exit with status code 0.\nrecord state: host[0] = READY\n") == []
    assert events("78/78 [====] - 17s 195ms/step - loss: 1.9\n1: [a, b]\n") == []


def started(folder: Path) -> datetime:
    run = run_of_job(folder, Job(ranks=2, steps=100))
    assert run.started_at is not None
    return run.started_at


def with_stderr(folder: Path, at: datetime, name: str = "stderr.txt") -> Run:
    head = f"[{at:%Y-%m-%d %H:%M:%S}.000123: W x/stall_inspector.cc:107] "
    (folder / name).write_text(head + STALL + MISSING)
    (run,) = read(str(folder))
    return run


@pytest.mark.parametrize("hours", [-8.0, 0.0, 1.0, 5.75])
def test_next_to_step_logs_the_zone_is_the_one_that_fits_the_run(
    tmp_path: Path, hours: float
) -> None:
    at = started(tmp_path) + timedelta(seconds=1)
    run = with_stderr(tmp_path, at + timedelta(hours=hours))
    (event,) = run.events
    assert event.wall_ns is not None
    assert abs(event.wall_ns / 1e9 - at.timestamp()) < 1 + 1e-3
    assert run.steps.num_rows == 200
    assert not [problem for problem in run.problems if "stderr" in problem.where]


def test_timestamps_that_fit_in_no_zone_give_no_time(tmp_path: Path) -> None:
    run = with_stderr(tmp_path, started(tmp_path) + timedelta(days=3))
    assert [event.wall_ns for event in run.events] == [None]


def test_of_several_runs_the_folder_decides(tmp_path: Path) -> None:
    at = datetime.now(UTC)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_job(tmp_path / name, Job(steps=50, run_id=name))
    head = f"[{at:%Y-%m-%d %H:%M:%S}.000123: W x/stall_inspector.cc:107] "
    (tmp_path / "two" / "stderr.txt").write_text(head + STALL + MISSING)
    runs = read(str(tmp_path))
    assert {run.logs[0].path.split("/")[0]: len(run.events) for run in runs} == {"one": 0, "two": 1}


def test_they_become_findings_that_name_ranks_and_hosts(tmp_path: Path) -> None:
    started(tmp_path)
    lines = [
        HEAD + STALL + MISSING,
        "blacklist failing host: node-7\n",
        "reset workers: 6\n",
        "Process 3 exit with status code 137.\n",
        "[W x/response_cache.cc:155] A response has been evicted from cache which may indicate\n",
    ]
    (tmp_path / "driver.log").write_text("".join(lines))
    (run,) = read(str(tmp_path))
    findings = {finding.code: finding for finding in find(run, True)}
    assert "ranks 1 and 3" in findings["ranks_stalled"].title
    assert findings["ranks_stalled"].severity == "warning"
    assert "node-7" in findings["hosts_blacklisted"].evidence
    assert "rank 3" in findings["ranks_exited"].title
    assert {"workers_reset", "responses_evicted"} <= findings.keys()
    (tmp_path / "driver.log").write_text("".join([*lines, SHUTDOWN]))
    (run,) = read(str(tmp_path))
    severities = {finding.code: finding.severity for finding in find(run, True)}
    assert severities["ranks_stalled"] == "error"


def test_printed_epochs_have_the_events_of_the_same_output(tmp_path: Path) -> None:
    text = "".join(
        f"[{rank}]<stdout>:Epoch 1/2\n[{rank}]<stdout>:8/8 [==============================] - 17s "
        f"195ms/step - loss: 1.9146\n"
        for rank in (0, 1)
    )
    stall = "".join(f"[0]<stderr>:{line}\n" for line in (HEAD + STALL + MISSING).splitlines())
    (tmp_path / "out.txt").write_text(text + stall)
    (run,) = read(str(tmp_path))
    assert [(event.kind, event.ranks) for event in run.events] == [("stall", (1, 3))]
