"""Times of steps that programs print are read as they were, whoever printed and labelled them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.parser_contract import holds
from support.printed_steps import LABELS, PROGRAMS, SIZE, Program, Truth, labelled

from stallscope.parsers import PARSERS, Parsed, read
from stallscope.parsers.named import by_name

# The last line of an epoch counts twice as many steps as a line in the middle.
_MOST_TIMES_THE_TYPICAL = 3
_NS = 1e-9


def parsed(program: Program, data: bytes, path: str = "run.log") -> list[Parsed]:
    first = by_name(program.parser).parse(path, data)
    return [first, *first.more]


def windows(log: Parsed) -> list[dict[str, int]]:
    return [row for row in log.intervals.to_pylist() if row["kind"] == "window"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_lines_are_recognised(name: str) -> None:
    program = PROGRAMS[name]
    data = program.text()
    assert next(one for one in PARSERS if one.recognises("log", data)).name == program.parser
    assert holds(by_name(program.parser), data)


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_take_what_they_took(name: str) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    (log,) = parsed(program, program.text())
    facts = log.log.facts
    step_s, data_s = program.timed(truth)
    half_ms = facts["step_precision_ms"]
    assert facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), abs=half_ms + 1e-6)
    # Rounding is all that is lost.
    assert half_ms < 0.002 * facts["step_ms"]
    assert ("data_ms" in facts) == program.has_data
    if program.has_data:
        share = data_s.sum() / step_s.sum()
        assert facts["data_ms"] / facts["step_ms"] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_are_those_of_their_steps(name: str) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    (log,) = parsed(program, program.text())
    half_s = _MOST_TIMES_THE_TYPICAL * log.log.facts["window_precision_ms"] / 1e3
    found = windows(log)
    assert len(found) >= 8
    for row in found:
        own = steps_of(program, truth, row)
        step_s, data_s = truth.step_s[own], truth.data_s[own]
        assert (row["end"] - row["begin"]) * _NS == pytest.approx(
            step_s.sum(), abs=half_s * len(step_s) + 1e-6
        )
        # Waits of the first window may be means over steps that are not timed, too.
        if program.has_data and not (program.untimed and own[1].start == program.untimed):
            assert row["data"] * _NS == pytest.approx(data_s.sum(), abs=half_s * len(step_s) + 1e-6)
    assert sum(row["steps"] for row in found) <= program.timed(truth)[0].size


def steps_of(program: Program, truth: Truth, row: dict[str, int]) -> tuple[int, slice]:
    """Return which steps a window has, by its number and its count of steps."""
    length, before = truth.step_s.shape[1], 0
    if program.parser == "mxnet-speedometer":
        # It does not say how many steps an epoch has, and leaves the first one out.
        length, before = program.printed_at(truth)[-1] - program.untimed, program.untimed
    epoch, done = divmod(row["step"] - 1, length)
    done += 1 + before
    return epoch, slice(done - row["steps"], done)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_are_those_of_the_launcher(name: str, label: str) -> None:
    program = PROGRAMS[name]
    logs = parsed(program, labelled(program, LABELS[label]))
    assert [log.log.rank for log in logs] == list(range(SIZE))
    for log in logs:
        (alone,) = parsed(program, program.text(1 + log.log.rank, log.log.rank))
        assert log.log.facts["step_ms"] == pytest.approx(alone.log.facts["step_ms"], rel=0.02)
        assert log.log.facts.get("data_ms") == alone.log.facts.get("data_ms")
        assert [row["steps"] for row in windows(log)] == [row["steps"] for row in windows(alone)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_of_ranks_are_one_run(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    for rank in range(SIZE):
        folder = tmp_path / f"rank.{rank}"
        folder.mkdir()
        # Programs that do not know of each other call themselves 0.
        (folder / "stdout").write_bytes(gzip.compress(program.text(1 + rank, rank=0)))
    (run,) = read(str(tmp_path))
    assert sorted(log.rank for log in run.logs) == list(range(SIZE))
    by_rank = {log.rank: log for log in run.logs}
    for rank in range(SIZE):
        step_s, _ = program.timed(program.truth(1 + rank))
        facts = by_rank[rank].facts
        assert facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), rel=0.002)
