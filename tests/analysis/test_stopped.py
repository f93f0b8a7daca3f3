"""A job that hangs: since when, who is missing, and where those ranks are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulator import Job, simulate
from support.schemas import errors_in

from stallscope.analysis import analyse
from stallscope.analysis.stopped.positions import process_has_ended
from stallscope.analysis.stopped.stopped import Stopped, find_stopped
from stallscope.batch.anonymous import anonymous
from stallscope.collector.recorder.job.world import process_start_ns
from stallscope.reports.run.json_content import json_content
from stallscope.run import Event, Log, Run

LIBRARY = ["/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 5, "__next__"]
USERS = ["/home/me/train.py", 12, "batches"]


def in_flight(reached: str, seconds: float = 20.0, **changes: Any) -> dict[str, Any]:
    return {
        "step": 150,
        "since_us": 2_000_000,
        "seen_us": 2_000_000 + int(seconds * 1e6),
        "usual_us": 10_000,
        "reached": reached,
        "reached_us": 2_000_000,
        "stack": [LIBRARY, USERS],
        "other_threads": [],
        **changes,
    }


def run_with(facts: Mapping[int, Any], ended: tuple[int, ...] = (), ranks: int = 3) -> Run:
    """Return a run with these reports of the ranks' steps in flight."""
    run = simulate(Job(ranks=ranks, steps=150)).run
    logs = tuple(
        replace(log, ended=log.rank in ended, facts={**log.facts, "in_flight": facts.get(log.rank)})
        for log in run.logs
    )
    return replace(run, logs=logs)


def stopped(facts: Mapping[int, Any], ended: tuple[int, ...] = ()) -> Stopped:
    stop = find_stopped(run_with(facts, ended))
    assert stop is not None
    return stop


@pytest.mark.parametrize(
    ("reached", "stage"), [("begin", "input"), ("data", "compute"), ("end", "other")]
)
def test_the_rank_that_has_not_arrived_is_missing(reached: str, stage: str) -> None:
    stop = stopped({0: in_flight("ready"), 1: in_flight(reached), 2: in_flight("ready")})
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, stage)]
    assert stop.waiting == (0, 2)
    assert stop.ranks[0].where == ("/home/me/train.py", 12, "batches")
    assert (stop.step, stop.seconds) == (150, 20.0)
    assert "No step has finished for 20 s, since step 150." in stop.evidence
    assert "`train.py:12`" in stop.evidence


def test_a_rank_after_its_reduction_is_between_steps() -> None:
    stop = stopped(
        {0: in_flight("ready", step=151), 1: in_flight("reduced"), 2: in_flight("ready", step=151)}
    )
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "other")]


def test_a_rank_that_is_a_step_behind_is_missing() -> None:
    stop = stopped({0: in_flight("ready"), 1: in_flight("ready"), 2: in_flight("data", step=149)})
    assert [rank.rank for rank in stop.ranks] == [2]


def test_where_all_wait_the_network_stands() -> None:
    run = run_with(dict.fromkeys(range(3), in_flight("ready")))
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("stopped", "network", ())
    assert "All ranks with a log wait in the same allreduce" in verdict.evidence


def test_a_silent_log_has_stopped() -> None:
    stop = stopped({0: in_flight("ready"), 1: in_flight("ready")})
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(2, None)]
    assert "The log of rank 2 on" in stop.evidence
    assert "has stopped without a last line" in stop.evidence


def test_a_rank_that_has_ended_is_missing() -> None:
    stop = stopped({0: in_flight("ready"), 1: in_flight("ready")}, ended=(2,))
    assert "has ended its training" in stop.evidence


def test_a_rank_may_still_describe_its_step_in_a_moment() -> None:
    # It may be about to say that it writes a checkpoint.
    for facts in ({0: "ready", 2: "ready"}, {0: "ready", 1: "data"}):
        early = {rank: in_flight(reached, 6.0) for rank, reached in facts.items()}
        assert find_stopped(run_with(early)) is None
    late = stopped({0: in_flight("ready", 8.0), 1: in_flight("data", 8.0)})
    assert [rank.rank for rank in late.ranks] == [1]


def test_ranks_that_have_ended_do_not_wait_for_the_last_checkpoint() -> None:
    writing = {0: in_flight("end", 12.0, pause="checkpoint")}
    assert find_stopped(run_with(writing, ended=(1, 2))) is None


def test_a_rank_without_a_description_is_not_taken_to_wait() -> None:
    stop = stopped({0: in_flight("ready", 8.0), 2: in_flight("ready", 8.0)})
    assert (stop.ranks, stop.unreported) == ((), (1,))
    assert "Rank 1 on host-0 has not reported where it is." in stop.evidence
    assert "All ranks" not in stop.evidence
    assert stopped({0: in_flight("ready"), 2: in_flight("ready")}).unreported == ()
    alone = stopped({2: in_flight("ready", 8.0)})
    assert "Ranks 0 and 1 have not reported where they are. Rank 2 waits" in alone.evidence


def test_a_thread_of_the_loader_shows_the_users_line() -> None:
    deep = [LIBRARY] * 12 + [["/home/me/train.py", 40, "<module>"]]
    loader = [["/home/me/data.py", 7, "read"], LIBRARY]
    stop = stopped(
        {
            0: in_flight("ready"),
            1: in_flight("begin", stack=deep, other_threads=[loader]),
            2: in_flight("ready"),
        }
    )
    assert stop.ranks[0].where == ("/home/me/data.py", 7, "read")


PACKAGES = "/env/lib/python3.11/site-packages"
MINE = ["/home/me/train.py", 81, "evaluate"]
ALLREDUCE = [
    [f"{PACKAGES}/horovod/torch/mpi_ops.py", 940, "synchronize"],
    [f"{PACKAGES}/horovod/torch/mpi_ops.py", 257, "allreduce"],
    MINE,
]
BARRIER = [
    [f"{PACKAGES}/torch/distributed/distributed_c10d.py", 3681, "barrier"],
    [f"{PACKAGES}/torch/distributed/c10d_logger.py", 75, "wrapper"],
    ["/home/me/train.py", 90, "main"],
]
# Horovod's optimizer waits for its own gradients.
OF_STEP = [
    [f"{PACKAGES}/horovod/torch/mpi_ops.py", 940, "synchronize"],
    [f"{PACKAGES}/horovod/torch/optimizer.py", 285, "synchronize"],
    USERS,
]


def still(reached: str, seconds: float, stack: list[Any], **changes: Any) -> dict[str, Any]:
    """A position with a stack that has not changed at any look."""
    return in_flight(reached, seconds, stack=stack, stack_since_us=3_000_000, **changes)


def test_a_rank_in_a_collective_of_its_own_is_missing() -> None:
    waiting = in_flight("ready", step=151)
    stop = stopped({0: waiting, 1: in_flight("end", stack=ALLREDUCE), 2: waiting})
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "collective")]
    assert stop.waiting == (0, 2)
    assert (
        "Rank 1 on host-0 waits in `allreduce`, in `evaluate` at `train.py:81`, a collective that the "
        "other ranks have not reached." in stop.evidence
    )
    assert "Ranks 0 and 2 wait in the allreduce." in stop.evidence


def test_a_collective_that_is_called_once_the_gradients_are_ready_is_of_its_own() -> None:
    stop = stopped(
        {0: in_flight("ready"), 1: in_flight("ready", stack=BARRIER), 2: in_flight("ready")}
    )
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "collective")]


def test_the_optimizers_own_reduction_is_the_steps() -> None:
    # Without a last gradient, as where a rank leaves a parameter unused.
    stop = stopped(
        {0: in_flight("data", stack=OF_STEP), 1: in_flight("begin"), 2: in_flight("ready")}
    )
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "input")]
    assert stop.waiting == (0, 2)


def test_the_rank_that_skips_a_collective_is_missing() -> None:
    mine = still("end", 20.0, ALLREDUCE)
    stop = stopped({0: mine, 1: in_flight("ready", step=151), 2: mine})
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "allreduce")]
    assert stop.waiting == (0, 2)
    assert "Ranks 0 and 2 wait in `allreduce`, in `evaluate` at `train.py:81`." in stop.evidence


def test_the_rank_that_does_not_reach_a_collective_is_missing() -> None:
    mine, elsewhere = still("end", 40.0, BARRIER), still("end", 40.0, [USERS])
    stop = stopped({0: mine, 1: mine, 2: elsewhere})
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(2, "other")]
    assert stop.waiting == (0, 1)


def test_what_moves_between_two_steps_is_no_stop() -> None:
    moving = {
        0: in_flight("end", 40.0, stack=ALLREDUCE, stack_since_us=41_000_000),
        1: in_flight("end", 40.0, stack=[USERS], stack_since_us=40_000_000),
        2: in_flight("end", 40.0, stack=[MINE], stack_since_us=41_500_000),
    }
    assert find_stopped(run_with(moving)) is None
    longer = {rank: {**state, "seen_us": 900 * 10**6} for rank, state in moving.items()}
    assert find_stopped(run_with(longer)) is not None


def test_where_all_wait_in_one_collective_the_network_stands() -> None:
    verdict = analyse(run_with(dict.fromkeys(range(3), still("data", 40.0, BARRIER)))).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("stopped", "network", ())
    assert (
        "All ranks with a log wait in `barrier`, in `main` at `train.py:90`: the network or the "
        "reduction itself hangs." in verdict.evidence
    )


def test_ranks_that_all_wait_for_input_are_missing() -> None:
    verdict = analyse(run_with(dict.fromkeys(range(3), in_flight("begin")))).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("stopped", "input", (0, 1, 2))
    # Ranks at one place have one sentence.
    assert (
        "Ranks 0, 1 and 2 on host-0 wait for their batches, in `batches` at `train.py:12`."
        in verdict.evidence
    )


def test_a_debugger_is_named() -> None:
    stack = [
        ["/usr/lib/python3.11/cmd.py", 126, "cmdloop"],
        ["/usr/lib/python3.11/pdb.py", 358, "interaction"],
        USERS,
    ]
    stop = stopped(
        {0: in_flight("ready"), 1: in_flight("data", stack=stack), 2: in_flight("ready")}
    )
    assert "a debugger holds it" in stop.evidence


@pytest.mark.parametrize("pause", ["validation", "checkpoint"])
def test_a_pause_is_no_stop(pause: str) -> None:
    paused = {
        0: in_flight("end", 90.0, pause=pause),
        1: in_flight("ready", 90.0),
        2: in_flight("ready", 90.0),
    }
    assert find_stopped(run_with(paused)) is None
    longer = {rank: {**state, "seen_us": 900 * 10**6} for rank, state in paused.items()}
    assert find_stopped(run_with(longer)) is not None


def test_a_pause_of_all_ranks_is_no_stop() -> None:
    assert (
        find_stopped(run_with(dict.fromkeys(range(3), in_flight("end", 90.0, pause="validation"))))
        is None
    )


def going_on(
    facts: Mapping[int, Any], seconds: float, *ranks: int, ended: tuple[int, ...] = ()
) -> Run:
    """A run of which these ranks went on so long after the last progress of the others."""
    run = run_with(facts, ended)
    fact = {"went_on_us": 2_000_000 + int(seconds * 1e6)}
    logs = tuple(
        replace(log, facts={**log.facts, **fact}) if log.rank in ranks else log for log in run.logs
    )
    return replace(run, logs=logs)


@pytest.mark.parametrize("seconds", [7.0, 20.0])
def test_the_first_rank_that_goes_on_after_a_pause_has_not_stopped(seconds: float) -> None:
    paused, waiting = in_flight("end", seconds, pause="checkpoint"), in_flight("ready", seconds)
    for facts in ({1: waiting, 2: waiting}, {1: paused, 2: waiting}, {1: paused, 2: paused}):
        assert find_stopped(going_on(facts, seconds - 0.5, 0)) is None
        assert find_stopped(going_on(facts, seconds + 0.5, 0)) is None
        assert find_stopped(going_on(facts, seconds - 0.5, 0, ended=(0,))) is None


def test_a_rank_that_went_on_and_then_stopped_is_silent() -> None:
    waiting = {0: in_flight("ready", 40.0), 1: in_flight("ready", 40.0)}
    for seconds in (-30.0, 15.0):
        stop = find_stopped(going_on(waiting, seconds, 2))
        assert stop is not None
        assert [rank.rank for rank in stop.ranks] == [2]


def test_a_missing_rank_is_named_while_another_goes_on() -> None:
    stop = find_stopped(going_on({0: in_flight("ready"), 1: in_flight("begin")}, 19.0, 2))
    assert stop is not None
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "input")]


@pytest.mark.parametrize("damaged", ["x", None, 10**400, []])
def test_a_damaged_time_of_progress_is_ignored(damaged: Any) -> None:
    run = run_with({0: in_flight("ready"), 1: in_flight("ready")})
    logs = tuple(replace(log, facts={**log.facts, "went_on_us": damaged}) for log in run.logs)
    find_stopped(replace(run, logs=logs))


def test_the_first_steps_may_take_minutes() -> None:
    tracing = dict.fromkeys(range(3), in_flight("begin", 200.0, usual_us=None))
    assert find_stopped(run_with(tracing)) is None


def test_without_timestamps_nobody_is_blamed() -> None:
    stop = stopped(dict.fromkeys(range(3), in_flight("data")))
    assert stop.ranks == ()
    assert "do not show which rank" in stop.evidence


def test_a_run_that_ended_or_goes_on_is_not_stopped() -> None:
    assert find_stopped(run_with({})) is None
    assert (
        find_stopped(run_with(dict.fromkeys(range(3), in_flight("ready")), ended=(0, 1, 2))) is None
    )


@pytest.mark.parametrize(
    "damaged", [7, [], {}, {"step": "x"}, in_flight("nowhere"), in_flight("data", stack=[1])]
)
def test_damaged_facts_are_ignored(damaged: Any) -> None:
    assert find_stopped(run_with({0: damaged})) is None


def test_horovods_stall_inspector_is_joined() -> None:
    run = run_with({0: in_flight("ready"), 1: in_flight("begin"), 2: in_flight("ready")})
    stall = Event("stall", "job.log", "a stall", ranks=(1,))
    stop = find_stopped(replace(run, events=(stall,)))
    assert stop is not None
    assert "Horovod's stall inspector names rank 1 as well." in stop.evidence


NOT_IN = "rank 1 is not in all_reduce 42 of the default process group; ranks 0 and 2 wait there"
MISSING = Event("collective_stall", "trace_rank_0", NOT_IN, ranks=(1,))


def test_pytorchs_flight_recorder_is_joined() -> None:
    run = run_with({0: in_flight("ready"), 1: in_flight("begin"), 2: in_flight("ready")})
    stop = find_stopped(replace(run, events=(MISSING,)))
    assert stop is not None
    assert stop.evidence.endswith(f"PyTorch's Flight Recorder: {NOT_IN}.")
    assert [(rank.rank, rank.stage) for rank in stop.ranks] == [(1, "input")]


def test_the_flight_recorder_names_a_rank_where_all_seem_to_wait() -> None:
    run = run_with(dict.fromkeys(range(3), in_flight("ready")))
    run = replace(run, events=(MISSING,))
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("stopped", None, (1,))
    assert "Ranks 0 and 2 wait in the allreduce." in verdict.evidence
    assert "All ranks" not in verdict.evidence
    stop = find_stopped(run)
    assert stop is not None
    assert stop.waiting == (0, 2)
    assert stop.ranks[0].where == ("/home/me/train.py", 12, "batches")


def test_the_flight_recorder_names_a_rank_without_a_log() -> None:
    run = run_with(dict.fromkeys(range(3), in_flight("ready")))
    event = replace(
        MISSING, what="rank 3 left no dump; ranks 0–2 wait in all_reduce 42", ranks=(3,)
    )
    stop = find_stopped(replace(run, events=(event,)))
    assert stop is not None
    assert stop.waiting == (0, 1, 2)
    assert "the network or the reduction" not in stop.evidence
    assert "rank 3 left no dump" in stop.evidence


def test_the_verdict_says_so() -> None:
    analysis = analyse(
        run_with({0: in_flight("ready"), 1: in_flight("begin"), 2: in_flight("ready")})
    )
    assert (analysis.bottleneck.kind, analysis.bottleneck.cause) == ("stopped", "input")
    assert analysis.bottleneck.ranks == (1,)
    assert analysis.bottleneck.fault


def test_its_json_is_valid_and_has_the_stacks() -> None:
    run = run_with({0: in_flight("ready"), 1: in_flight("begin"), 2: in_flight("ready")})
    content = json_content(analyse(run))
    document = json.loads(json.dumps(content))
    assert errors_in("report", document) == []
    (missing,) = document["stopped"]["ranks"]
    assert missing["stage"] == "input"
    assert missing["stack"][1] == "/home/me/train.py:12 in batches"


def test_an_anonymous_report_names_no_path_and_no_function_of_the_user() -> None:
    secret = ["/env/lib/python3.11/site-packages/acme/loading.py", 7, "decode_acme"]
    begin = in_flight("begin", stack=[LIBRARY, secret, USERS])
    run = run_with({0: in_flight("ready"), 1: begin, 2: in_flight("ready")})
    document = json_content(analyse(anonymous(run)))
    (missing,) = document["stopped"]["ranks"]
    assert missing["stack"] == [
        "…/site-packages/torch/utils/data/dataloader.py:5 in __next__",
        "…/site-packages/script-2.py:7 in function-2",
        "script-1.py:12 in function-1",
    ]
    content = json.dumps(document)
    for name in ("train.py", "/home/me", "batches", "acme"):
        assert name not in content


def test_an_anonymous_run_waits_in_the_same_collective() -> None:
    waiting = in_flight("ready", step=151)
    run = run_with({0: waiting, 1: in_flight("end", stack=ALLREDUCE), 2: waiting})
    named, hidden = find_stopped(run), find_stopped(anonymous(run))
    assert named is not None
    assert hidden is not None
    assert [(rank.rank, rank.stage) for rank in hidden.ranks] == [(1, "collective")]
    assert (hidden.ranks[0].rank, hidden.waiting) == (named.ranks[0].rank, named.waiting)
    assert "waits in `allreduce`, in `function-2` at `script-1.py:81`" in hidden.evidence


def test_the_launchers_exit_status_is_joined() -> None:
    run = run_with({0: in_flight("ready"), 1: in_flight("ready")})
    exited = Event("rank_exited", "out.txt", "rank 2 exited with status 137", ranks=(2,))
    stop = find_stopped(replace(run, events=(exited,)))
    assert stop is not None
    assert "its launcher says: rank 2 exited with status 137." in stop.evidence


def here(log: Log, pid: int) -> Log:
    """The log, as if a process of this machine had written it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    anchor = {"monotonic_ns": process_start_ns(), "wall_ns": 1}
    facts = {"pid": pid, "host": socket.gethostname(), "clock_domain": boot, "anchor": anchor}
    return replace(log, facts={**log.facts, **facts, "process_start_us": 0})


def test_a_process_of_this_machine_is_looked_for() -> None:
    (log,) = run_with({}, ranks=1).logs
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_has_ended(here(log, os.getpid())) is False
    assert process_has_ended(here(log, ended.pid)) is True
    assert process_has_ended(log) is None


def test_a_number_that_another_process_has_now_is_not_the_process() -> None:
    (log,) = run_with({}, ranks=1).logs
    # The init process started long before this one.
    assert process_has_ended(here(log, 1)) is True


def test_a_rank_that_its_launcher_saw_end_has_died() -> None:
    run = run_with({}, ended=(0, 2))
    exited = Event("rank_exited", "out.txt", "process 7 exited with status -9", pids=(7,))
    logs = tuple(replace(log, facts={**log.facts, "pid": 6 + log.rank}) for log in run.logs)
    stop = find_stopped(replace(run, logs=logs, events=(exited,)))
    assert stop is not None
    assert [rank.rank for rank in stop.ranks] == [1]
    assert stop.step == 150
    assert "its launcher says: process 7 exited with status -9." in stop.evidence
    assert analyse(replace(run, logs=logs, events=(exited,))).bottleneck.kind == "stopped"


def test_a_rank_is_dead_if_only_its_process_is_gone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    run = run_with({}, ranks=2)
    pids = {0: os.getpid(), 1: ended.pid}
    logs = tuple(here(log, pids[log.rank]) for log in run.logs)
    stop = find_stopped(replace(run, logs=logs))
    assert stop is not None
    assert [rank.rank for rank in stop.ranks] == [1]
    # Somebody ended the whole job: no rank is to blame.
    all_gone = tuple(here(log, ended.pid) for log in run.logs)
    assert find_stopped(replace(run, logs=all_gone)) is None


def test_a_rank_that_closed_its_log_has_not_died() -> None:
    run = run_with({}, ended=(0, 1, 2))
    exited = Event("rank_exited", "out.txt", "rank 1 exited with status 1", ranks=(1,))
    assert find_stopped(replace(run, events=(exited,))) is None


def test_ranks_that_the_launcher_ended_have_not_died() -> None:
    run = run_with({})
    statuses = {0: 143, 1: 137, 2: 143}
    exits = tuple(
        Event(
            "rank_exited",
            "out.txt",
            f"rank {rank} exited with status {status}",
            ranks=(rank,),
            status=status,
        )
        for rank, status in statuses.items()
    )
    stop = find_stopped(replace(run, events=exits))
    assert stop is not None
    assert [rank.rank for rank in stop.ranks] == [1]
    assert find_stopped(replace(run, events=(exits[0], exits[2]))) is None
