"""Step logs: whole, torn, foreign, repeated, from several hosts; nothing is dropped silently."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.step_logs import MS, Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.errors import (
    NotFoundError,
    StallscopeError,
    UnknownVersionError,
    UnreadableError,
    UsageError,
)
from stallscope.parsers import read
from stallscope.parsers.formats.step_log.step_log_parser import StepLogParser
from stallscope.parsers.runs.grouping import group

JOB = Job(ranks=2, steps=20)
COLUMNS = b"\nkind,step,epoch,begin_us,end_us\n"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_folder_of_logs_is_one_run(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(JOB, epochs=2, validation_ms=5))
    assert (run.id, run.size, run.ranks, run.hosts) == ("run-a", 2, [0, 1], ["alpha"])
    assert run.steps.num_rows == 40
    assert run.status == "completed"
    assert run.problems == ()
    kinds = run.intervals["kind"].to_pylist()
    assert {kind: kinds.count(kind) for kind in kinds} == {"validation": 4, "epoch": 4, "end": 2}


def test_a_damaged_list_of_timestamps_does_not_end_the_analysis(tmp_path: Path) -> None:
    stamps = {"placed": False, "reason": "no graph"}
    run = run_of_job(tmp_path, replace(JOB, facts={"stamps": stamps}))
    assert run.fact("stamps") is None
    assert analyse(run).ledger is not None


def test_times_are_monotonic_nanoseconds_in_order(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, JOB)
    rows = run.steps.to_pylist()
    assert rows[0]["begin"] == pytest.approx(1_001 * MS, abs=MS)
    for row in rows:
        assert row["begin"] <= row["data"] <= row["ready"] <= row["reduced"] <= row["end"]


def test_a_single_log_is_a_run_with_missing_ranks(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    (run,) = read(str(paths[1]))
    assert (run.ranks, run.missing_ranks) == ([1], [0])


def test_a_torn_last_line_is_skipped_and_counted(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[: data.rindex(b"step,19") + 12])
    (run,) = read(str(tmp_path))
    assert [log.torn for log in run.logs] == [1, 0]
    assert run.status == "open"
    assert run.steps.num_rows == 39
    assert "1 torn" in str(run.problems[0])


def test_a_log_cut_anywhere_reads_up_to_there(tmp_path: Path) -> None:
    (path,) = write_job(tmp_path, replace(JOB, ranks=1))
    data = path.read_bytes()
    header = data.index(b"\n", data.index(b"\n") + 1) + 1
    parser = StepLogParser()
    for cut in range(header, len(data) + 1, 7):
        parsed = parser.parse("log", data[:cut])
        whole = data[header:cut].rpartition(b"\n")[0]
        assert parsed.steps.num_rows == whole.count(b"step,")


def test_damaged_cells_lose_their_line_only(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    edit(paths[0], "step,7,", "step,7x,")
    edit(paths[0], "step,9,", "step,9,1,2,3,")
    (run,) = read(str(tmp_path))
    assert run.steps.num_rows == 38
    assert run.logs[0].torn == 2


def test_later_facts_are_added(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    edit(paths[0], "step,3,", '#facts {"gradient_bytes":123,"batch_size":64}\nstep,3,')
    (run,) = read(str(tmp_path))
    assert run.fact("gradient_bytes") == 123
    assert run.logs[0].facts["batch_size"] == 64
    assert run.steps.num_rows == 40


@pytest.mark.broad
def test_a_long_log_is_read_as_a_short_one() -> None:
    header = b"#stallscope 1 {}\nkind,step,begin_us,ready_us,end_us\n"
    rows = b"".join(b"step,%d,%d,3,7\n" % (n, 10 * n) for n in range(1100))
    # Longer than one thread's part, and than the copied part, with comments before and after.
    data = header + rows + b'#facts {"model": "net"}\n' + 1000 * rows + b"#facts {\n" + rows
    parsed = StepLogParser().parse("long", data + b"epoch,1,5,,9\n")
    assert parsed.steps["step"].to_pylist() == 1002 * [*range(1100)]
    assert set(parsed.steps["end"].to_pylist()) == {(10 * n + 7) * 1000 for n in range(1100)}
    assert parsed.intervals["kind"].to_pylist() == ["epoch"]
    assert parsed.log.facts["model"] == "net"
    assert parsed.log.torn == 1


def test_impossible_timestamps_are_missing_and_counted() -> None:
    header = b"#stallscope 1 {}\nkind,step,begin_us,data_us,ready_us,reduced_us,end_us\n"
    # A device finishes the last one while the host is in the next step.
    rows = (b"1,0,1,2,3,4", b"2,10,5,2,3,4", b"3,20,-1,-2,3,4", b"4,30,1,2,-3,4", b"5,40,1,8,9,4")
    parsed = StepLogParser().parse("log", header + b"".join(b"step,%s\n" % row for row in rows))
    us = [
        [None if stamp is None else (stamp - row["begin"]) // 1000 for stamp in stamps]
        for row in parsed.steps.to_pylist()
        for stamps in [[row["data"], row["ready"], row["reduced"]]]
    ]
    assert us == [[1, 2, 3], [None, 2, 3], [None, None, 3], [1, 2, None], [1, 8, 9]]
    assert [str(problem) for problem in parsed.problems] == [
        "log: 4 timestamps outside of their steps treated as missing"
    ]


def test_unknown_columns_and_kinds_are_ignored(tmp_path: Path) -> None:
    (path,) = write_job(tmp_path, replace(JOB, ranks=1))
    lines = path.read_text().splitlines()
    lines[1] += ",power_w"
    lines[2:] = [line + ",250" for line in lines[2:]]
    lines.append("coffee,20,,5,,,,6,,,0,,250")
    path.write_text("\n".join(lines) + "\n")
    (run,) = read(str(tmp_path))
    assert run.steps.num_rows == 20
    assert "coffee" in run.intervals["kind"].to_pylist()


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    (path,) = write_job(tmp_path, replace(JOB, ranks=1))
    edit(path, "#stallscope 1 ", "#stallscope 2 ")
    with pytest.raises(UnknownVersionError, match=r"format 2 is newer .* upgrade"):
        read(str(tmp_path))


def test_one_unreadable_log_does_not_hide_the_others(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    paths[0].write_bytes(b"#stallscope 1 {torn")
    (run,) = read(str(tmp_path))
    assert run.ranks == [1]
    assert any(paths[0].name in problem.where for problem in run.problems)


def test_foreign_files_are_named_and_left_alone(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    (tmp_path / "notes.txt").write_text("remember the milk")
    (tmp_path / "weights.h5").write_bytes(bytes(range(256)) * 100)
    # What is no log by its name is not worth a warning.
    for name in ("run.json", "README", "train.py", "train.ipynb", "job.yaml", "report.html"):
        (tmp_path / name).write_text("{}")
    (run,) = read(str(tmp_path))
    (problem,) = run.problems
    assert str(problem).startswith("2 files: no log that Stallscope knows; left alone: ")
    assert "notes.txt" in problem.what
    assert "weights.h5" in problem.what


def test_a_log_that_is_named_alone_may_have_any_name(tmp_path: Path) -> None:
    (path,) = write_job(tmp_path, replace(JOB, ranks=1))
    log = path.rename(tmp_path / "printed.md")
    (run,) = read(str(log))
    assert run.ranks == [0]


def test_ranks_of_different_length_are_read_whole(tmp_path: Path) -> None:
    paths = write_job(tmp_path, JOB)
    lines = paths[1].read_text().splitlines(keepends=True)
    paths[1].write_text("".join(lines[:12]))
    (run,) = read(str(tmp_path))
    counts = {rank: run.steps["rank"].to_pylist().count(rank) for rank in (0, 1)}
    assert counts == {0: 20, 1: 10}


def test_the_last_of_several_attempts_counts_and_is_reported(tmp_path: Path) -> None:
    write_job(tmp_path / "first", replace(JOB, ranks=1, steps=10))
    (again,) = write_job(
        tmp_path / "again", replace(JOB, ranks=1, steps=10, first_step=5, input_ms=50)
    )
    edit(again, '"part":0', '"part":1')
    (run,) = read(str(tmp_path))
    rows = run.steps.sort_by("step").to_pylist()
    assert [row["step"] for row in rows] == list(range(15))
    assert [row["data"] - row["begin"] > 20 * MS for row in rows] == [False] * 5 + [True] * 10
    assert any("more than one attempt recorded 5 steps" in str(p) for p in run.problems)


def test_generations_of_a_restarted_job_stay_apart(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    run = run_of_job(tmp_path, replace(JOB, generation=1, ranks=3))
    assert run.steps.num_rows == 40 + 60
    assert (run.size, run.ranks) == (3, [0, 1, 2])


def test_two_jobs_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    write_job(tmp_path / "a", JOB)
    write_job(tmp_path / "b", replace(JOB, run_id="run-b"))
    assert {run.id for run in read(str(tmp_path))} == {"run-a", "run-b"}


def test_ranks_that_share_no_folder_are_joined_by_their_launch(tmp_path: Path) -> None:
    for rank in range(2):
        paths = write_job(
            tmp_path / f"host-{rank}",
            replace(JOB, run_id=f"id-{rank}", facts={"launch": "HOROVOD:10.0.0.1:4711"}),
        )
        paths[1 - rank].unlink()
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "no logs in an empty folder; looked for: step logs"),
        (lambda path: None, "no such file or folder"),
        (lambda path: path.write_text("hello"), "no logs in 1 file"),
        (lambda path: path.write_bytes(b""), "no logs in 1 file"),
    ],
)
def test_other_folders_are_an_error_of_one_sentence(tmp_path: Path, make, words: str) -> None:
    path = tmp_path / "runs"
    make(path)
    with pytest.raises(NotFoundError, match=words):
        read(str(path))


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([b"", b"", b""], "3 step logs, none with a whole row (an empty step log: 0.steps.csv, "),
        ([b"", b"\x00\x01\xff\n" * 9], "2 step logs, none with a whole row (an empty step log: 0"),
        (
            [b"\x00\x01\xff\n" * 9],
            "1 step log, without a whole row (a damaged step log: it does not",
        ),
        ([b"hello\n"], "1 step log, without a whole row (a damaged step log: it does not begin"),
        ([b'#stallscope 1 {"run', b""], "the header's facts are torn or not JSON: 0.steps.csv"),
    ],
    ids=["empty", "empty and binary", "binary", "text", "torn"],
)
def test_step_logs_without_a_row_are_named_for_what_they_are(
    tmp_path: Path, contents: list[bytes], words: str
) -> None:
    for number, data in enumerate(contents):
        (tmp_path / f"{number}.steps.csv").write_bytes(data)
    with pytest.raises(UnreadableError, match=re.escape(words)) as error:
        read(str(tmp_path))
    assert "copy the logs again" in str(error.value)
    assert "looked for" not in str(error.value)


def test_a_damaged_step_log_next_to_others_is_a_problem(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    (tmp_path / "rank-00008.0.0.steps.csv").write_bytes(b"")
    (tmp_path / "rank-00009.0.0.steps.csv").write_bytes(b"hello")
    (run,) = read(str(tmp_path))
    assert [str(problem) for problem in run.problems] == [
        "rank-00008.0.0.steps.csv: an empty step log",
        "rank-00009.0.0.steps.csv: a damaged step log: it does not begin with a step log's first line",
    ]


IN_FLIGHT = {"step": 9, "reached": "data", "since_us": 1, "seen_us": 9_000_000, "usual_us": 1000}


@pytest.mark.parametrize("number", [10**400, -(10**18), 2**52, 1.5, "x"])
@pytest.mark.parametrize(
    ("name", "fact"),
    [
        *(("in_flight", {**IN_FLIGHT, key: ...}) for key in IN_FLIGHT if key != "reached"),
        ("in_flight", {**IN_FLIGHT, "stack": [["a.py", 1, "f"]], "stack_since_us": ...}),
        ("suspended", [{"since_us": 0, "until_us": ...}]),
        ("suspended", [{"since_us": ..., "until_us": 9_000_000}]),
        ("went_on_us", ...),
    ],
)
def test_facts_with_impossible_numbers_are_dropped(
    tmp_path: Path, number: Any, name: str, fact: Any
) -> None:
    write_job(tmp_path, JOB)
    line = json.dumps({name: fact}, default=lambda _: number)
    for path in tmp_path.glob("*.csv"):
        lines = [row for row in path.read_text().splitlines() if not row.startswith("end,")]
        path.write_text("\n".join([*lines, f"#facts {line}", ""]))
    (run,) = read(str(tmp_path))
    assert all(name not in log.facts for log in run.logs)
    assert analyse(run).stopped is None


@pytest.mark.parametrize("pid", [[], {"a": 1}, "x", True])
def test_a_process_number_of_another_type_does_not_stop_the_analysis(
    tmp_path: Path, pid: object
) -> None:
    for path in write_job(tmp_path, JOB):
        with path.open("a") as log:
            log.write(f"#facts {json.dumps({'pid': pid})}\n")
    (run,) = read(str(tmp_path))
    assert analyse(run).steps == 20


def test_a_parser_can_be_forced_by_name(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    assert read(str(tmp_path), read_as="step-log")[0].id == "run-a"
    with pytest.raises(UsageError, match="there are step-log"):
        read(str(tmp_path), read_as="nonsense")
    (tmp_path / "notes.txt").write_text("remember the milk")
    with pytest.raises(UnreadableError):
        read(str(tmp_path / "notes.txt"), read_as="step-log")


def test_ranks_that_no_job_has_are_damage() -> None:
    """Each rank that trained takes memory, with a log or without."""
    rows = b"\nkind,step,begin_us,ready_us,end_us\nstep,1,0,5,6\n"
    parsed = StepLogParser().parse("log", b'#stallscope 1 {"size": 1000000000}' + rows)
    (run,) = group("log", [parsed], [])
    assert run.size == 1
    with pytest.raises(UnreadableError, match="the header has the rank 1000000000"):
        StepLogParser().parse("log", b'#stallscope 1 {"rank": 1000000000}' + rows)
    with pytest.raises(UnreadableError, match="the header has the rank True"):
        StepLogParser().parse("log", b'#stallscope 1 {"rank": true}' + rows)


@pytest.mark.broad
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    header=st.one_of(
        st.dictionaries(
            st.sampled_from(["rank", "generation", "part", "anchor", "size", "stamps", "launch"]),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=5),
                lambda inner: st.dictionaries(st.sampled_from(["monotonic_ns", "wall_ns"]), inner),
                max_leaves=4,
            ),
        ).map(lambda facts: b"#stallscope 1 " + json.dumps(facts).encode() + COLUMNS),
        st.binary(max_size=40).map(lambda junk: b"#stallscope " + junk),
    ),
    body=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from(
                [b"step,1,0,5,6\n", b"#facts {}\n", b"#facts [\n", b"step,,,,\n", b"\r\n"]
            ),
            st.tuples(*[st.integers()] * 4).map(lambda n: b"step,%d,%d,%d,%d\n" % n),
        ),
        max_size=12,
    ),
)
def test_no_bytes_crash_the_parser(header: bytes, body: list[bytes]) -> None:
    try:
        parsed = StepLogParser().parse("log", header + b"".join(body))
    except StallscopeError:
        return
    (run,) = group("log", [parsed], [])
    assert run.status in ("completed", "open")
    # Everything readable can be analysed.
    assert analyse(run).bottleneck.kind
