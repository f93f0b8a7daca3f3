"""Step logs that came as records in other logs, and compressed ones, are read without loss."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.collector.recorder.step_log.sinks import LONGEST, key_of, records
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.files import unpacking
from stallscope.parsers.files.unpacking import unpacked_whole
from stallscope.run import Run

JOB = Job(ranks=3, steps=400)


def recorded(path: Path, piece: int = 1500) -> list[str]:
    """Return a log's records, from a recorder that flushes at times."""
    data = path.read_bytes()
    key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
    return [
        record
        for offset in range(0, len(data), piece)
        for record in records(key, name, offset, data[offset : offset + piece])
    ]


@pytest.fixture
def original(tmp_path: Path) -> Run:
    return run_of_job(tmp_path / "original", JOB)


def all_records(tmp_path: Path, piece: int = 1500) -> list[str]:
    paths = sorted((tmp_path / "original").glob("*.steps.csv"))
    return [record for path in paths for record in recorded(path, piece)]


def lines(records: list[str]) -> bytes:
    return "".join(f"26/11/21 11:00:02 INFO stallscope: {record}\n" for record in records).encode()


def equal(run: Run, original: Run) -> bool:
    same = run.steps.equals(original.steps) and run.intervals.equals(original.intervals)
    return same and [log.facts for log in run.logs] == [log.facts for log in original.logs]


@pytest.mark.parametrize("piece", [1, 700, 1500, 10**7])
def test_records_are_short_and_give_the_log_back(tmp_path: Path, original: Run, piece: int) -> None:
    records = all_records(tmp_path, max(piece, 60))
    assert max(map(len, records)) <= LONGEST
    (tmp_path / "stderr").write_bytes(lines(records))
    assert equal(read(str(tmp_path / "stderr"))[0], original)


def test_order_repeats_and_files_do_not_matter(tmp_path: Path, original: Run) -> None:
    records = all_records(tmp_path)
    random.Random(1).shuffle(records)
    folder = tmp_path / "app-20261121110000-0000"
    for executor in range(3):
        part = records[executor::3] + records[:5]
        (folder / str(executor)).mkdir(parents=True)
        (folder / str(executor) / "stderr").write_bytes(lines(part))
    run = read(str(folder))[0]
    assert equal(run, original)
    assert run.problems == original.problems


def test_other_lines_between_and_within_do_no_harm(tmp_path: Path, original: Run) -> None:
    text = b"".join(
        b"Epoch 1/3\r\x1b[2K 12/100 " + line + b"\nWARNING: \xff\xfe something else\n"
        for line in lines(all_records(tmp_path)).splitlines()
    )
    (tmp_path / "driver.log").write_bytes(text)
    assert equal(read(str(tmp_path / "driver.log"))[0], original)


def test_a_lost_record_loses_what_follows_and_is_reported(tmp_path: Path, original: Run) -> None:
    paths = sorted((tmp_path / "original").glob("*.steps.csv"))
    records = recorded(paths[0])
    kept = records[:10] + records[11:]
    rest = [record for path in paths[1:] for record in recorded(path)]
    (tmp_path / "stderr").write_bytes(lines(kept + rest))
    run = read(str(tmp_path / "stderr"))[0]
    ranks = run.steps["rank"].to_numpy()
    assert (ranks == 1).sum() == JOB.steps
    assert 0 < (ranks == 0).sum() < JOB.steps
    messages = [problem.what for problem in run.problems]
    assert any(f"{len(records) - 11} records after the gap" in what for what in messages)


def test_damaged_records_are_skipped_and_counted(tmp_path: Path, original: Run) -> None:
    records = all_records(tmp_path)
    damaged = records[-1][:-12] + "AAAAAAAAAAAA"
    (tmp_path / "stderr").write_bytes(lines([*records[:-1], damaged]))
    run = read(str(tmp_path / "stderr"))[0]
    assert any("1 damaged record of" in problem.what for problem in run.problems)
    assert run.ranks == [0, 1, 2]


def test_two_runs_in_one_log_are_two_runs(tmp_path: Path, original: Run) -> None:
    write_job(tmp_path / "other", replace(JOB, run_id="run-b", seed=7))
    others = [record for path in (tmp_path / "other").glob("*.csv") for record in recorded(path)]
    (tmp_path / "stderr").write_bytes(lines(all_records(tmp_path) + others))
    assert {run.id for run in read(str(tmp_path / "stderr"))} == {"run-a", "run-b"}


@pytest.mark.parametrize(
    "compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"]
)
def test_compressed_logs_are_read_whatever_their_name(
    tmp_path: Path, original: Run, compress: object
) -> None:
    text = lines(all_records(tmp_path))
    half = text.index(b"\n", len(text) // 2) + 1
    # Rolled and appended: two members in one file.
    whole = compress(text[:half]) + compress(text[half:])  # type: ignore[operator]
    (tmp_path / "stderr--2026-11-21--11-00").write_bytes(whole)
    assert equal(read(str(tmp_path / "stderr--2026-11-21--11-00"))[0], original)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_zstd_and_lz4_are_read_as_well(tmp_path: Path, original: Run, codec: str) -> None:
    text = lines(all_records(tmp_path))
    half = text.index(b"\n", len(text) // 2) + 1
    (tmp_path / "stderr.packed").write_bytes(packed_as(codec, text[:half], text[half:]))
    assert equal(read(str(tmp_path / "stderr.packed"))[0], original)
    data = random.Random(1).randbytes(500_000)
    packed_data = packed_as(codec, data)
    part = unpacked("x.zst", packed_data[: len(packed_data) // 2])
    assert 0 < len(part) < len(data)
    assert data.startswith(part)
    with pytest.raises(UnreadableError, match="empty or damaged"):
        unpacked("x.zst", packed_data[:4] + b"nonsense")


def unpacked(where: str, data: bytes) -> bytes:
    return unpacked_whole(where, data).data


def packed_as(codec: str, *frames: bytes) -> bytes:
    """Compress into consecutive frames; none has its length."""
    whole = b""
    for frame in frames:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            for at in range(0, len(frame), 70_000):
                out.write(frame[at : at + 70_000])
                out.flush()
        whole += sink.getvalue().to_pybytes()
    return whole


def test_a_truncated_compressed_file_gives_its_whole_part() -> None:
    data = random.Random(1).randbytes(200_000)
    whole = gzip.compress(data)
    part = unpacked("x.gz", whole[: len(whole) // 2])
    assert 0 < len(part) < len(data)
    assert data.startswith(part)
    assert unpacked("x.gz", whole + b"\0" * 512) == data


def _not_built(*_: object) -> None:
    raise pa.ArrowNotImplementedError("Support for codec 'zstd' not built")


@pytest.mark.broad
def test_an_unreadable_compressed_file_is_an_error_of_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnreadableError, match=r"x\.gz: the compressed file is empty or damaged"):
        unpacked("x.gz", b"\x1f\x8bnonsense")
    with monkeypatch.context() as without:
        # As some distributions build it.
        without.setattr(unpacking.pa, "CompressedInputStream", _not_built)
        with pytest.raises(UnreadableError, match=r"x\.zst: this pyarrow cannot .* pip install"):
            unpacked("x.zst", b"\x28\xb5\x2f\xfd")
    with monkeypatch.context() as little:
        little.setattr(unpacking, "_MOST_BYTES", 1 << 20)
        with pytest.raises(UnreadableError, match="more than 1 MiB: this is not a log"):
            unpacked("x.gz", gzip.compress(bytes(50 << 20)))
    # A few kilobytes get less memory than a long log.
    monkeypatch.setattr(unpacking, "_FEWEST_BYTES", 2 << 20)
    with pytest.raises(UnreadableError, match=r"more than [0-9]{1,2} MiB: this is not a log"):
        unpacked("x.gz", gzip.compress(bytes(50 << 20)))
    assert len(unpacked("x.gz", gzip.compress(bytes(2 << 20)))) == 2 << 20
