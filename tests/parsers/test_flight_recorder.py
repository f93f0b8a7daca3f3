"""Dumps of PyTorch's Flight Recorder name the ranks that delay the others, and no other ranks.

``tools/samples/flight_dumps.py`` made those in ``flight/``, with three real ranks over Gloo.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.analysis.findings import find
from stallscope.cli.main import main
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.flight_recorder import DumpComparison, compare, parse_dump
from stallscope.parsers.inspection.inspect_files import inspect

SAMPLES = Path(__file__).parent / "flight"
T = TypeVar("T")
NOW = 1_795_600_000 * 10**9


def dumps_in(folder: Path) -> DumpComparison:
    dumps = [
        parse_dump(path.name, path.read_bytes(), prefix="trace_rank_", rank=int(path.stem[-1]))
        for path in sorted(folder.iterdir())
    ]
    return compare(dumps)


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """Make a collective of the default group over NCCL that every rank has completed."""
    return {
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "record_id": number,
        "is_p2p": False,
        "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "state": "completed",
        "retired": True,
        "input_sizes": [[7]],
        "time_created_ns": NOW + number,
        "frames": [],
        **changes,
    }


def waits(number: int, **changes: Any) -> dict[str, Any]:
    """Make a collective that the rank has not completed."""
    return entry(number, **{"state": "scheduled", "retired": False, **changes})


def of_ranks(
    entries: Mapping[int, Sequence[Mapping[str, Any]]],
    ranks: int = 3,
    groups: Mapping[str, str] | None = None,
    folders: Mapping[int, str] | None = None,
) -> DumpComparison:
    """Compare made-up dumps, by rank."""
    world = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    more = {
        name: {"name": name, "desc": name, "ranks": members}
        for name, members in (groups or {}).items()
    }
    dumps = [
        parse_dump(
            f"{(folders or {}).get(rank, 'dumps')}/rank_{rank}",
            pickle.dumps(
                {"version": "2.10", "pg_config": {**world, **more}, "entries": recorded}, 2
            ),
            prefix="rank_",
            rank=rank,
        )
        for rank, recorded in entries.items()
    ]
    return compare(dumps)


def only(values: Iterable[T]) -> T:
    (value,) = values
    return value


@pytest.mark.parametrize(
    ("case", "what"),
    [
        (
            "uneven",
            "rank 1 is not in all_reduce 11 ([3, 2]) of the default process group; ranks 0 and 2 wait "
            "there, in `train` at `train.py:62`; the last one of rank 1 was broadcast 10, in `train` at "
            "`train.py:67`",
        ),
        (
            "skip",
            "rank 1 calls broadcast 7 ([3, 2]) of the default process group, in `train` at `train.py:67`"
            "; ranks 0 and 2 call all_reduce 7 ([3, 2]) of the default process group, in `train` at "
            "`train.py:62`",
        ),
        (
            "sleep",
            "rank 1 is not in all_reduce 7 ([3, 2]) of the default process group; ranks 0 and 2 wait "
            "there, in `train` at `train.py:62`; the last one of rank 1 was broadcast 6, in `train` at "
            "`train.py:67`",
        ),
        (
            "sigstop",
            "rank 1 left no dump; ranks 0 and 2 wait in all_reduce 7 ([3, 2]) of the default process "
            "group, in `train` at `train.py:62`",
        ),
        (
            "order",
            "rank 1 calls broadcast 7 ([3, 2]) of the default process group, in `train` at `train.py:58`"
            "; ranks 0 and 2 call all_reduce 7 ([3, 2]) of the default process group, in `train` at "
            "`train.py:62`",
        ),
        (
            "sleep-json",
            "rank 1 is not in all_reduce 7 ([3, 2]) of the default process group; ranks 0 and 2 wait "
            "there; the last one of rank 1 was broadcast 6",
        ),
    ],
)
def test_real_dumps_name_only_the_faulty_rank(case: str, what: str) -> None:
    comparison = dumps_in(SAMPLES / case)
    event = only(comparison.events)
    assert (event.kind, event.ranks) == ("collective_stall", (1,))
    assert event.what == what
    assert event.wall_ns is not None
    assert not comparison.problems


def test_a_rank_that_waits_in_another_group_is_not_the_cause() -> None:
    pair, world = dumps_in(SAMPLES / "subgroup").events
    assert (pair.ranks, world.ranks) == ((1,), (1,))
    assert "rank 1 is not in all_reduce 4 ([3, 2]) of process group pair; rank 2 waits" in pair.what
    assert "ranks 1 and 2 are not in broadcast 8" in world.what
    assert world.what.endswith("rank 2 waits in all_reduce 4 ([3, 2]) of process group pair")


def test_a_job_without_a_fault_has_no_events() -> None:
    assert dumps_in(SAMPLES / "none") == DumpComparison()


def test_the_innermost_frame_of_the_user_is_named() -> None:
    library = {
        "filename": "/env/lib/python3.11/site-packages/torch/x.py",
        "line": 5,
        "name": "wait",
    }
    frames = [library, {"filename": "/home/me/train.py", "line": 12, "name": "step"}]
    comparison = of_ranks({0: [waits(1, frames=frames)], 1: [], 2: [waits(1, frames=frames)]})
    assert "ranks 0 and 2 wait there, in `step` at `train.py:12`" in only(comparison.events).what


def test_ranks_that_call_other_sizes_are_named() -> None:
    comparison = of_ranks({0: [waits(1)], 1: [waits(1, input_sizes=[[8]])], 2: [waits(1)]})
    event = only(comparison.events)
    assert event.ranks == (1,)
    assert "rank 1 calls all_reduce 1 ([8])" in event.what


def test_of_two_ranks_that_differ_both_are_named() -> None:
    broadcast = waits(1, profiling_name="nccl:broadcast")
    assert only(of_ranks({0: [waits(1)], 1: [broadcast]}, ranks=2).events).ranks == (0, 1)


def test_other_sizes_of_a_gathering_are_not_a_fault() -> None:
    gather = {"profiling_name": "nccl:all_gather"}
    ranks = {0: [waits(1, **gather)], 1: [waits(1, input_sizes=[[8]], **gather)]}
    assert of_ranks(ranks, ranks=2) == DumpComparison()


def test_if_all_ranks_wait_no_rank_is_the_cause() -> None:
    assert of_ranks({rank: [entry(1), waits(2)] for rank in range(3)}) == DumpComparison()


def test_an_accelerator_that_has_not_started_is_named() -> None:
    started = waits(1, state="started")
    event = only(of_ranks({0: [started], 1: [waits(1)], 2: [started]}).events)
    assert event.ranks == (1,)
    assert "rank 1 scheduled all_reduce 1 ([7])" in event.what
    assert "ranks 0 and 2 wait there" in event.what


def test_a_rank_ahead_waits_in_a_later_one() -> None:
    """The root of a broadcast need not wait for the others."""
    sent = {"profiling_name": "gloo:broadcast"}
    comparison = of_ranks({0: [entry(1, **sent), waits(2)], 1: [], 2: [waits(1, **sent)]})
    event = only(comparison.events)
    assert event.ranks == (1,)
    assert "rank 2 waits there, and rank 0 in a later one" in event.what


def test_a_dump_that_is_older_than_the_others_blames_no_rank() -> None:
    comparison = of_ranks(
        {0: [entry(1), entry(2), waits(3)], 1: [entry(1)], 2: [entry(1), entry(2)]}
    )
    problem = only(comparison.problems)
    assert problem.where == "dumps/rank_1"
    assert "rank 1 has not entered all_reduce 2" in problem.what
    assert "which is over on ranks 0 and 2: its dump is older" in problem.what
    event = only(comparison.events)
    assert event.ranks == (2,)
    assert "rank 2 is not in all_reduce 3" in event.what


def test_an_older_dump_blames_no_rank_in_other_groups_either() -> None:
    pair = {"process_group": ("1", "pair")}
    entries = {
        0: [entry(1), entry(2), waits(1, **pair)],
        1: [entry(1)],
        2: [entry(1), entry(2)],
    }
    comparison = of_ranks(entries, groups={"1": "[0, 1]"})
    assert not comparison.events
    assert only(comparison.problems).where == "dumps/rank_1"


def test_a_stopped_rank_is_named_and_not_one_that_waits_for_it_in_another_group() -> None:
    pair = {"process_group": ("1", "pair")}
    entries = {0: [entry(1), waits(2)], 2: [entry(1), waits(1, **pair)]}
    comparison = of_ranks(entries, groups={"1": "[1, 2]"})
    assert [event.ranks for event in comparison.events] == [(1,), (1,)]
    # Over Gloo the ranks of the pair are unknown.
    assert only(of_ranks(entries).events).ranks == (1,)


def test_a_collective_of_nccl_that_is_retired_and_not_completed_has_failed() -> None:
    failed = waits(1, retired=True)
    assert only(of_ranks({0: [failed], 1: [], 2: [failed]}).events).ranks == (1,)
    over = waits(1, retired=True, profiling_name="gloo:all_reduce")
    comparison = of_ranks({0: [over], 1: [], 2: [over]})
    assert not comparison.events
    assert "or the collective failed there" in only(comparison.problems).what


def test_a_rank_with_overwritten_entries_is_not_evaluated() -> None:
    pair = {"process_group": ("1", "pair")}
    comparison = of_ranks(
        {0: [entry(5, **pair, record_id=0), waits(6, **pair)], 1: [entry(9, record_id=900)]},
        ranks=2,
        groups={"1": "[0, 1]"},
    )
    assert comparison.events == ()


def test_ranks_without_a_dump_are_not_named_if_another_rank_is_missing() -> None:
    event = only(of_ranks({0: [entry(1), waits(2)], 1: [entry(1)]}).events)
    assert event.ranks == (1,)
    assert "rank 2 left no dump" in event.what


def test_operations_between_two_ranks_are_left_out() -> None:
    sends = waits(1, profiling_name="nccl:send 0->1", is_p2p=True)
    assert of_ranks({0: [sends], 1: []}, ranks=2) == DumpComparison()


def test_groups_of_the_same_name_with_other_ranks_are_different() -> None:
    pair = {"process_group": ("1", "pair")}
    world = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    dumps = []
    for rank in range(4):
        ranks = "[0, 1]" if rank < 2 else "[2, 3]"
        config = {**world, "1": {"name": "1", "desc": "pair", "ranks": ranks}}
        entries = [waits(1, **pair)] if rank < 2 else [entry(1, **pair), entry(2, **pair)]
        data = pickle.dumps({"pg_config": config, "entries": entries}, 2)
        dumps.append(parse_dump(f"r_{rank}", data, prefix="r_", rank=rank))
    assert compare(dumps) == DumpComparison()


def test_folders_of_hosts_are_one_job() -> None:
    entries = {0: [waits(1)], 1: [], 2: [waits(1)]}
    hosts = {0: "node-0", 1: "node-0", 2: "node-1"}
    assert only(of_ranks(entries, folders=hosts).events).ranks == (1,)


def test_folders_with_the_same_ranks_are_two_jobs(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "sleep", tmp_path / "a")
    shutil.copytree(SAMPLES / "none", tmp_path / "b")
    with pytest.raises(NotFoundError, match="Rank 1 is not in all_reduce 7") as raised:
        read(str(tmp_path))
    assert str(raised.value).count("Rank") == 1


def test_of_two_dumps_of_a_rank_the_one_with_stacks_counts(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "sleep", tmp_path, dirs_exist_ok=True)
    for path in (SAMPLES / "sleep").iterdir():
        content = pickle.loads(path.read_bytes())
        content["entries"] = [{**entry, "frames": []} for entry in content["entries"]]
        (tmp_path / f"{path.name}.json").write_text(json.dumps(content))
    with pytest.raises(NotFoundError, match="Rank 1 is not in all_reduce 7") as raised:
        read(str(tmp_path))
    assert str(raised.value).endswith("at `train.py:67`")


# Only a whole folder shows this.


def shifted(case: str, folder: Path, to_ns: int) -> None:
    """Write the dumps of a case as if they were made at another time."""
    for path in (SAMPLES / case).iterdir():
        content = pickle.loads(path.read_bytes())
        first = content["entries"][0]["time_created_ns"]
        for entry in content["entries"]:
            entry["time_created_ns"] += to_ns - first
        (folder / path.name).write_bytes(pickle.dumps(content, 2))


def test_dumps_next_to_step_logs_join_their_run(tmp_path: Path) -> None:
    alone = run_of_job(tmp_path, Job(ranks=3, steps=60))
    assert alone.started_at is not None
    shifted("sleep", tmp_path, int(alone.started_at.timestamp() * 1e9) + 10**9)
    (run,) = read(str(tmp_path))
    assert only(run.events).ranks == (1,)
    finding = {finding.code: finding for finding in find(run, True)}["collectives_incomplete"]
    assert finding.severity == "warning"
    assert finding.title == "PyTorch's ranks waited for rank 1 in a collective"
    assert finding.evidence.startswith("Rank 1 is not in all_reduce 7 ([3, 2]) of the default")


def test_a_stopped_job_names_the_collective(tmp_path: Path) -> None:
    start = 0
    for path in write_job(tmp_path, Job(ranks=3, steps=60)):
        lines = path.read_text().splitlines(keepends=True)
        header = json.loads(lines[0][lines[0].index("{") :])
        start = header["anchor"]["wall_ns"]
        waiting = {
            "step": 60,
            "since_us": 2_200_000,
            "seen_us": 32_200_000,
            "usual_us": 30_000,
            "reached": "ready",
            "reached_us": 2_220_000,
            "stack": [],
            "other_threads": [],
        }
        # Without the end of the log.
        path.write_text("".join(lines[:-1]) + f"#facts {json.dumps({'in_flight': waiting})}\n")
    (before,) = read(str(tmp_path))
    assert analyse(before).bottleneck.ranks == ()
    shifted("order", tmp_path, start + 2_200_000_000)
    (run,) = read(str(tmp_path))
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.ranks) == ("stopped", (1,))
    assert verdict.evidence == (
        "No step has finished for 30 s, since step 60. Ranks 0 and 2 wait in the allreduce. PyTorch's "
        "Flight Recorder: rank 1 calls broadcast 7 ([3, 2]) of the default process group, in `train` at "
        "`train.py:58`; ranks 0 and 2 call all_reduce 7 ([3, 2]) of the default process group, in "
        "`train` at `train.py:62`."
    )


def test_dumps_of_another_time_are_left_out(tmp_path: Path) -> None:
    run_of_job(tmp_path, Job(ranks=3, steps=60))
    shifted("sleep", tmp_path, 10**18)
    (run,) = read(str(tmp_path))
    assert run.events == ()
    assert any("outside the run's time" in str(problem) for problem in run.problems)


def test_dumps_alone_end_in_a_sentence_that_names_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(SAMPLES / "sigstop")
    assert main(["report", place]) != 0
    printed = capsys.readouterr().err
    assert "dumps of PyTorch's Flight Recorder, and no logs next to them" in printed
    assert "Rank 1 left no dump; ranks 0 and 2 wait in all_reduce 7" in printed
    seen = inspect(place)
    assert [file.format for file in seen.files] == ["flight-recorder"] * 2
    assert seen.warnings == ()
    assert any("rank 1 left no dump" in note for file in seen.files for note in file.notes)
    assert main(["inspect", place]) == 0


def test_a_name_without_a_rank_is_reported(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes((SAMPLES / "sleep" / "trace_rank_0").read_bytes())
    with pytest.raises(UnreadableError, match="does not end with its rank"):
        read(str(tmp_path))


def test_a_pickle_of_something_else_is_left_alone(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=2, steps=20))
    (tmp_path / "weights_0").write_bytes(pickle.dumps({"weights": [1, 2]}))
    (run,) = read(str(tmp_path))
    assert any("left alone" in str(problem) for problem in run.problems)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"pg_config": {}, "entries": 5},
        {"pg_config": [], "entries": []},
        {"pg_config": {}, "entries": [5]},
        {"pg_config": {}, "entries": [entry(-1)]},
        {"pg_config": {}, "entries": [entry(2**64)]},
        {"pg_config": {}, "entries": [entry(1, input_sizes=7)]},
        {"pg_config": {}, "entries": [entry(1, process_group="0")]},
        {"pg_config": {}, "entries": [entry(1, frames=[1])]},
        {"pg_config": {}, "entries": [entry(1, profiling_name=None)]},
        {"pg_config": {"0": {"ranks": [0, 1]}}, "entries": []},
        {"pg_config": {"0": {"ranks": "9" * 9_000_000}}, "entries": []},
    ],
)
def test_other_files_are_refused(content: object) -> None:
    for data in (pickle.dumps(content, 2), json.dumps(content).encode()):
        with pytest.raises(UnreadableError, match="it: not a dump of PyTorch's Flight Recorder"):
            parse_dump("it", data, prefix="", rank=0)


@settings(max_examples=150)
@given(chance=st.randoms(use_true_random=False))
def test_damage_ends_in_a_dump_or_in_a_sentence(chance: random.Random) -> None:
    data = bytearray((SAMPLES / "sleep" / "trace_rank_0").read_bytes())
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    message = ""
    try:
        compare([parse_dump("it", bytes(data), prefix="", rank=0)])
    except UnreadableError as error:
        message = str(error)
    assert message == "" or message.startswith("it: ")
