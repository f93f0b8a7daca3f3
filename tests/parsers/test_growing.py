"""Growing logs are read from their previous end, and give the same as the whole."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.parsers import read
from stallscope.parsers.growing import Growing
from stallscope.run import Run

COLUMNS = ["time_us", "cpu_ms", "resident_mb", "run_delay_ms"]
JOB = Job(ranks=2, steps=60, epochs=3, checkpoint_ms=5.0, facts={"machine_columns": COLUMNS})


class Counted(Source):
    """A folder that counts the bytes read from it."""

    local = True

    def __init__(self, folder: Path) -> None:
        self.where, self.bytes = str(folder), 0

    def files(self) -> list[SourceFile]:
        return [
            replace(file, read_range=self._of(file)) for file in open_source(self.where).files()
        ]

    def _of(self, file: SourceFile):  # type: ignore[no-untyped-def]
        def reads(start: int, end: int | None) -> bytes:
            data = file.read(start, end)
            self.bytes += len(data)
            return data

        return reads


@pytest.fixture
def whole(tmp_path: Path) -> list[Path]:
    """Logs with machine figures between their rows, one of them in every seventh line only."""
    paths = write_job(tmp_path / "whole", JOB)
    for path in paths:
        lines, seconds = [], 0
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
            lines.append(line)
            if number % 4 == 3:
                rare = b"%d" % (7 * seconds) if seconds % 7 == 0 else b""
                figures = (seconds * 10**6, seconds % 5 if seconds else b"", 300 + seconds, rare)
                lines.append(
                    b"#machine " + b",".join(b"%b" % _cell(figure) for figure in figures) + b"\n"
                )
                seconds += 1
        path.write_bytes(b"".join(lines))
    return paths


def _cell(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def same(logs: Path, growing: Growing) -> None:
    """Check that logs read in parts give what a first reading gives."""
    (grown,), (fresh,) = read(str(logs), reads=growing), read(str(logs))
    assert grown.logs == fresh.logs
    assert grown.problems == fresh.problems
    assert grown.steps.equals(fresh.steps)
    assert grown.intervals.equals(fresh.intervals)
    assert figures(grown) == figures(fresh)


def figures(run: Run) -> dict[tuple[str, int | None], tuple[list[int], list[float]]]:
    by_name = {(series.name, series.rank): series for series in run.series}
    return {
        key: (series.wall_ns.tolist(), series.value.tolist()) for key, series in by_name.items()
    }


def cuts(data: bytes) -> Iterator[int]:
    """Return ends of lines and places within them, from the first row on."""
    row = data.index(b"\nstep,") + 1
    yield from (row - 1, row, row + 3)
    yield from range(row + 40, len(data), len(data) // 9)
    yield from (len(data) - 1, len(data), len(data))


def test_a_log_cut_anywhere_becomes_the_whole_log(whole: list[Path], logs: Path) -> None:
    growing = Growing()
    for number, path in enumerate(whole):
        data = path.read_bytes()
        for cut in cuts(data):
            (logs / path.name).write_bytes(data[:cut])
            same(logs, growing)
        assert len(list(logs.iterdir())) == number + 1
    (run,) = read(str(logs), reads=growing)
    assert sorted(series.name for series in run.series) == [
        *(["process_cpu"] * 2),
        *(["process_memory"] * 2),
        *(["process_waiting_for_cores"] * 2),
    ]


def test_only_new_bytes_are_read(whole: list[Path], logs: Path) -> None:
    place, growing = Counted(logs), Growing()
    data = {path.name: path.read_bytes() for path in whole}
    for name, content in data.items():
        (logs / name).write_bytes(content[: len(content) // 2])
    read(place, reads=growing)
    place.bytes = 0
    read(place, reads=growing)
    assert place.bytes == 0
    name, content = next(iter(data.items()))
    (logs / name).write_bytes(content)
    read(place, reads=growing)
    # Plus the end of the previous part, to check that it is the same log.
    assert len(content) // 2 <= place.bytes <= len(content) // 2 + 4096 + 200
    same(logs, growing)


def test_unreadable_lines_are_counted_once(whole: list[Path], logs: Path) -> None:
    growing, path = Growing(), logs / whole[0].name
    lines = whole[0].read_bytes().splitlines(keepends=True)
    bad = [b"#facts {torn\n", b"step,1,x\n", b"\xff\xfe\n", b'#facts {"batch_size": 64}\n']
    for at, line in zip((10, 20, 30, 40), bad, strict=True):
        lines.insert(at, line)
    for end in (5, 15, 16, 25, 35, 38, 45, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        same(logs, growing)


def test_timestamps_outside_of_their_steps_are_counted_once(whole: list[Path], logs: Path) -> None:
    growing, path = Growing(), logs / whole[0].name
    lines = whole[0].read_bytes().splitlines(keepends=True)
    columns = lines[1].decode().strip().split(",")
    for at in (10, 30):
        cells = dict(zip(columns, lines[at].decode().strip().split(","), strict=True))
        cells["data_us"] = str(int(cells["end_us"]) + 1)
        lines[at] = ",".join(cells.values()).encode() + b"\n"
    for end in (5, 12, 20, 35, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        same(logs, growing)


def test_a_restarted_log_is_read_again(whole: list[Path], logs: Path) -> None:
    growing, path = Growing(), logs / whole[0].name
    before = whole[0].read_bytes()
    write_job(whole[0].parent, replace(JOB, steps=90, seed=7))
    after = whole[0].read_bytes()
    assert len(after) > len(before)
    for content in (before, after, before[: len(before) // 2], after):
        path.write_bytes(content)
        same(logs, growing)


def test_text_appended_after_a_log_is_another_log(whole: list[Path], logs: Path) -> None:
    growing, path = Growing(), logs / whole[0].name
    first, second = (path.read_bytes() for path in whole)
    for content in (first, first + second, first + second[:-5], first + second):
        path.write_bytes(content)
        same(logs, growing)


def test_compressed_logs_and_those_of_other_parsers_are_read_whole(
    whole: list[Path], logs: Path
) -> None:
    growing, data = Growing(), whole[0].read_bytes()
    for end in (len(data) // 2, len(data)):
        (logs / f"{whole[0].name}.gz").write_bytes(gzip.compress(data[:end]))
        same(logs, growing)
        (run,) = read(str(logs), read_as="step-log", reads=growing)
        assert run.steps.equals(read(str(logs))[0].steps)
