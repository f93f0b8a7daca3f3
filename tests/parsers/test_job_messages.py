"""Messages of Horovod, launchers, NCCL and schedulers become events of the run, and findings."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings import find
from stallscope.analysis.stopped.stopped import find_stopped
from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.parsers.formats.job_messages import job_events
from stallscope.run import Event, Run
from stallscope.text.job_words import since_start_s, when

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
OOM = ("out_of_memory", (), ())
CLOSED = ("connection_lost", (), ("gpu-2",))
CANCELLED = "slurmstepd: error: *** JOB 123 ON gpu-1 CANCELLED AT 2026-11-21T02:28:01"
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


# -- failures and ends -----------------------------------------------------------------------------


def watchdog(rank: int, sequence: int = 808, label: bool = True) -> str:
    """Return what the watchdog of NCCL prints on a rank: twice, and more about it."""
    head = f"[rank{rank}]:[E321 02:28:01.903881913 ProcessGroupNCCL.cpp:616] " if label else ""
    head = head or "[E ProcessGroupNCCL.cpp:475] "
    timeout = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, "
        "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600020 milliseconds "
        "before timing out.\n"
    )
    taken_down = (
        f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
    )
    return f"{head}{timeout}{head}{taken_down}  what():  [PG ID 0 PG GUID 0 Rank {rank}] {timeout}"


def failure(number: int, rank: int, status: int, pid: int) -> str:
    return (
        f"[{number}]:\n  time      : 2026-11-21_02:28:0{number + 1}\n  host      : gpu-{rank}\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {status} (pid: {pid})\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org\n"
    )


def torchrun_table(*failures: str, root: str) -> str:
    rule = "-" * 60
    return (
        f"train.py FAILED\n{rule}\nFailures:\n{''.join(failures)}{rule}\n"
        f"Root Cause (first observed failure):\n{root}{rule}\n"
    )


@pytest.mark.parametrize(
    ("line", "kind", "ranks", "hosts"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", *OOM),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 31 GiB", *OOM),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", *OOM),
        ("[123.4] Out of memory: Killed process 4711 (python) total-vm:1kB", *OOM),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the", *OOM),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 1.0 cgroup.", *OOM),
        ("srun: error: gpu-2: task 3: Out Of Memory", "out_of_memory", (3,), ("gpu-2",)),
        ("srun: error: gpu-2: tasks 0-1,3: Killed", "rank_exited", (0, 1, 3), ("gpu-2",)),
        ("srun: error: gpu-2: task 3: Exited with exit code 1", "rank_exited", (3,), ("gpu-2",)),
        (
            "mpirun noticed that process rank 3 with PID 9 on node gpu-2 exited on signal 9 (Killed).",
            "rank_exited",
            (3,),
            ("gpu-2",),
        ),
        (f"{CANCELLED} DUE TO TIME LIMIT ***", "time_limit", (), ("gpu-1",)),
        (f"{CANCELLED} DUE TO PREEMPTION ***", "preempted", (), ("gpu-1",)),
        (f"{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", "node_failed", (), ("gpu-1",)),
        (f"{CANCELLED} ***", "cancelled", (), ("gpu-1",)),
        (
            "[x/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
            "collective_timeout",
            (),
            (),
        ),
        ("Connection closed by peer [10.0.0.2]:32451", "connection_lost", (), ("10.0.0.2",)),
        (
            "[Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 2000000 ms",
            "barrier_timeout",
            (4, 5),
            (),
        ),
        ("Loss is nan, stopping training", "loss_not_finite", (), ()),
        ("The actor died unexpectedly before finishing this task.", "worker_died", (), ()),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "gpu_error", (), ()),
        ("DataLoader worker (pid 4711) is killed by signal: Killed. ", "loader_died", (), ()),
        ("DataLoader worker (pid 4711) is killed by signal: Terminated. ", "terminated", (), ()),
        ("KeyboardInterrupt", "interrupted", (), ()),
        ("Killed", "rank_exited", (), ()),
        ("2026-11-21T02:28:01.123Z stderr F Terminated", "rank_exited", (), ()),
        ('      "reason": "OOMKilled",', *OOM),
        ("run.sh: line 12:  4711 Killed          python train.py", "rank_exited", (), ()),
        ("['python'] exits with return code = -9", "rank_exited", (), ()),
        ("ProcessExitedException: process 3 terminated with signal SIGKILL", "rank_exited", (), ()),
        ("[rank: 2] Received SIGTERM: 15", "terminated", (2,), ()),
        ("SignalException: Process 9 got signal: 15", "terminated", (), ()),
        ("Last error: Connection closed by remote peer gpu-2<46318>", *CLOSED),
        ("ERROR: Unexpected bus error encountered in worker. This might be", "loader_died", (), ()),
    ],
)
def test_a_line_tells_why_a_job_ended(
    line: str, kind: str, ranks: tuple[int, ...], hosts: tuple[str, ...]
) -> None:
    (event,) = events(f"Epoch 1/5\n{line}\n")
    assert (event.kind, event.ranks, event.hosts, event.followed) == (kind, ranks, hosts, False)


@pytest.mark.parametrize(
    "line",
    [
        "total 8 out of memory budget",
        "except KeyboardInterrupt:",
        "srun: error: gpu-1: tasks 0-2: Terminated",
        "step 3: timeout=600 loss is nan",
        "Timeout(ms)=600000",
    ],
)
def test_other_lines_tell_no_end(line: str) -> None:
    assert events(f"{line}\n") == []


@pytest.mark.parametrize("line", ["Killed", "2026-11-21T02:28:01.123Z stderr F Terminated"])
@pytest.mark.parametrize("after", [0, 4, 40])
def test_a_word_alone_tells_an_end_unless_the_training_goes_on(line: str, after: int) -> None:
    # The program that is trained on, a game, prints this word as a status.
    text = f"{steps(0, 100)}{line}\n{steps(100, 100 + after)}"
    kinds = [(event.kind, event.followed) for event in events(text)]
    assert kinds == ([] if after > 9 else [("rank_exited", False)])
    # A shell that names the process tells that it has ended.
    (event,) = events(text.replace(line, "run.sh: line 12:  4711 Killed          python train.py"))
    assert event.followed == (after > 9)


@pytest.mark.parametrize(
    "line",
    [
        "Steps : {}, s/b : 0.4",
        "Epochs: {} lr: 0.1",
        "updates={} wps=300",
        "[ 7/90][ {}/1000] lr: 0.1",
        "Batches [{}] lr: 0.1",
    ],
)
def test_a_start_that_fails_is_no_end_of_the_training_that_follows(line: str) -> None:
    """Programs name their steps in many ways."""
    failed = "run.sh: line 12:  4711 Killed          python train.py\n"
    trained = "".join(line.format(n) + "\n" for n in range(100, 1000, 50))
    (event,) = events(f"batch_size=16\n{failed}batch_size=16\n{trained}")
    assert event.followed
    (event,) = events(f"batch_size=16\n{trained}{failed}")
    assert not event.followed


def test_what_a_launcher_reported_of_a_start_that_failed_is_a_warning(tmp_path: Path) -> None:
    failed = "run.sh: line 12:  4711 Killed          python train.py\n"
    (tmp_path / "out.txt").write_text(f"{failed}{steps(0, 100)}")
    (run,) = read(str(tmp_path))
    finding = next(each for each in analyse(run).findings if each.code == "ranks_exited")
    assert finding.severity == "warning"
    assert finding.evidence.endswith("Steps followed.")


@pytest.mark.parametrize(
    "line",
    ["Killed 3 enemies", "enemies: Killed", "Killed, 0.1", "status\tTerminated", "  [Killed]"],
)
def test_a_word_among_others_tells_no_end(line: str) -> None:
    assert events(f"{steps(0, 20)}{line}\n") == []


def test_slurms_time_is_that_of_its_message() -> None:
    (event,) = events(f"{CANCELLED} DUE TO TIME LIMIT ***\n")
    assert event.local_ns == local("2026-11-21 02:28:01")


def test_the_watchdogs_of_all_ranks_are_one_event() -> None:
    (event,) = events("".join(map(watchdog, (0, 2, 1))))
    assert (event.kind, event.ranks) == ("collective_timeout", (0, 1, 2))
    assert event.what == "ALLREDUCE 808 of NCCL timed out"
    assert event.waited_ns == 600_020_000_000
    assert event.local_ns is not None
    moment = datetime.fromtimestamp(event.local_ns // 10**9, UTC)
    assert (moment.month, moment.day, moment.hour) == (3, 21, 2)
    (old,) = events(watchdog(3, label=False))
    assert (old.ranks, old.local_ns) == ((3,), None)


def test_the_first_failure_of_a_table_comes_first() -> None:
    line = "failed (exitcode: -9) local_rank: 3 (pid: 1237) of binary: /env/bin/python\n"
    table = torchrun_table(failure(1, 5, 1, 1239), root=failure(0, 3, -9, 1237))
    first, second = events(line + table)
    assert first.what == "rank 3 exited with status -9 (SIGKILL), the first failure"
    assert (first.ranks, first.hosts, first.pids, first.status) == ((3,), ("gpu-3",), (1237,), -9)
    assert first.local_ns == local("2026-11-21 02:28:01")
    assert (second.ranks, second.status) == ((5,), 1)


def steps(first: int, last: int) -> str:
    return "".join(
        f"2026-11-21 02:{step // 60 + 10:02}:{step % 60:02},500 step {step}/999 loss 2.{step} "
        f"time 1.00{step % 7}s\n"
        for step in range(first, last)
    )


def analysed(tmp_path: Path, text: str) -> Analysis:
    (tmp_path / "train.log").write_text(text)
    (run,) = read(str(tmp_path / "train.log"))
    return analyse(run)


def test_a_rank_that_reports_no_timeout_is_the_suspect(tmp_path: Path) -> None:
    waiting = "".join(watchdog(rank) for rank in (0, 1, 3))
    analysis = analysed(tmp_path, f"world_size: 4\n{steps(1, 60)}{waiting}")
    stopped = analysis.stopped
    assert stopped is not None
    assert ([rank.rank for rank in stopped.ranks], stopped.waiting) == ([2], (0, 1, 3))
    assert (stopped.seconds, stopped.step) == (600.02, 59)
    assert "since 21 Mar 02:18:01 in the log's time" in stopped.evidence
    assert "Rank 2 reported no timeout: the others may wait for it." in stopped.evidence
    assert analysis.bottleneck.kind == "stopped"
    (finding,) = [
        finding for finding in analysis.findings if finding.code == "collectives_timed_out"
    ]
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("messages", "missing", "evidence"),
    [
        ("".join(watchdog(rank) for rank in range(4)), [], "All ranks report it"),
        (
            "".join(watchdog(rank, 640 if rank == 1 else 808) for rank in range(4)),
            [1],
            "ranks 0, 2, 3 in ALLREDUCE 808 and rank 1 in ALLREDUCE 640",
        ),
        (watchdog(0), [], "timed out"),
    ],
)
def test_ranks_in_another_collective_are_suspects(
    messages: str, missing: list[int], evidence: str, tmp_path: Path
) -> None:
    stopped = analysed(tmp_path, f"world_size: 4\n{steps(1, 60)}{messages}").stopped
    assert stopped is not None
    assert [rank.rank for rank in stopped.ranks] == missing
    assert evidence in stopped.evidence


def test_the_cause_comes_before_what_follows_from_it(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    analysis = analysed(tmp_path, steps(1, 60) + watchdog(0) + oom + f"{CANCELLED} ***\n")
    stopped = analysis.stopped
    assert stopped is not None
    assert [rank.rank for rank in stopped.ranks] == [2]
    first = "A GPU's memory ran out, allocating 2.00 GiB (rank 2)."
    assert stopped.evidence.startswith(first)
    assert "Use smaller batches" in analysis.bottleneck.advice[0].action


def test_a_message_among_steps_has_their_clock(tmp_path: Path) -> None:
    text = steps(1, 60) + f"{CANCELLED} DUE TO TIME LIMIT ***\n"
    run = analysed(tmp_path, text).run
    # The first step began at 02:10:00.
    seconds = since_start_s(run.events[0], run)
    assert seconds is not None
    assert 1080 <= seconds <= 1082
    assert when(run.events[0], run).startswith("18.0 min after the start")


def test_a_scheduler_that_ends_a_job_is_no_fault_of_it(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, f"{steps(1, 60)}{CANCELLED} DUE TO TIME LIMIT ***\n")
    assert analysis.stopped is not None
    assert not analysis.stopped.is_fault
    assert analysis.bottleneck.kind != "stopped"
    assert [finding.code for finding in analysis.findings] == ["time_limit"]


def test_a_job_that_goes_on_has_not_stopped(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, steps(1, 60) + watchdog(0, label=False) + steps(60, 120))
    assert analysis.stopped is None
    (finding,) = analysis.findings
    assert (finding.code, finding.severity) == ("collectives_timed_out", "warning")


def test_steps_of_before_may_be_printed_late(tmp_path: Path) -> None:
    # Standard output is written in blocks.
    text = steps(1, 30) + f"{CANCELLED} DUE TO TIME LIMIT ***\n" + steps(30, 60)
    assert analysed(tmp_path, text).stopped is not None
    text = text.replace("T02:28:01", "T02:10:30")
    assert analysed(tmp_path, text).stopped is None


def test_messages_next_to_recorded_steps_tell_why_they_end(tmp_path: Path) -> None:
    at = started(tmp_path) + timedelta(seconds=60)
    cancelled = CANCELLED.replace("2026-11-21T02:28:01", f"{at:%Y-%m-%dT%H:%M:%S}")
    (tmp_path / "slurm.err").write_text(f"{cancelled} DUE TO NODE FAILURE ***\n")
    (run,) = read(str(tmp_path))
    logs = tuple(replace(log, ended=False) for log in run.logs)
    stopped = find_stopped(replace(run, logs=logs))
    assert stopped is not None
    assert stopped.evidence == "Slurm ended the job because a node failed."
    assert stopped.step == 100
    assert find_stopped(replace(run, logs=tuple(replace(log, ended=True) for log in logs))) is None


def test_a_text_with_messages_only_is_refused_with_them(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text("".join(map(watchdog, (0, 1))))
    with pytest.raises(NotFoundError) as refusal:
        read(str(tmp_path / "err.txt"))
    ended = "how the job ended: ALLREDUCE 808 of NCCL timed out after 600 s (ranks 0 and 1)"
    assert ended in str(refusal.value)


def test_damaged_ranges_of_ranks_end() -> None:
    ranges = ",".join(f"{first}-{first + 19_999}" for first in range(0, 200_000, 20_000))
    (event,) = job_events("log", f"srun: error: node0: tasks {ranges}: Killed\n".encode())
    assert len(event.ranks) == 1 << 14


BEGINS = "Reading the settings of the training\nBuilding a network with 50 layers\n"
FAILS = (
    "Traceback (most recent call last):\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    "srun: error: node-3: task 1: Exited with exit code 1\n"
)


def few_steps(count: int) -> str:
    return "".join(
        f"2026-11-21 02:28:{4 * n:02},000 iter {10 * n}/80 iter_time: 0.40{n % 3}s loss: 2.{n}\n"
        for n in range(1, count + 1)
    )


@pytest.mark.parametrize("before", [0, 6], ids=["its first start", "after steps"])
def test_a_failure_before_another_start_with_few_steps_is_not_the_end(
    tmp_path: Path, before: int
) -> None:
    text = BEGINS + few_steps(before) + FAILS + BEGINS + few_steps(8)
    assert all(event.followed for event in events(text))
    analysis = analysed(tmp_path, text)
    assert analysis.stopped is None
    exited = {finding.code: finding for finding in analysis.findings}["ranks_exited"]
    assert exited.severity == "warning"
    assert "Steps followed" in exited.evidence
    assert "stops the others" not in exited.evidence


def test_steps_that_are_printed_late_do_not_follow_a_failure() -> None:
    """Another rank's end, and what that rank prints then, is no start."""
    text = BEGINS + few_steps(8) + FAILS + "Closing the network\n" + FAILS + few_steps(4)
    assert not any(event.followed for event in events(text))
