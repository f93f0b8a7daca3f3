"""No input crashes a reader: one suite for all of them; a new reader joins with a sample."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parser_contract import NAMES, PATTERN, SAMPLES, holds
from support.reader_contract import COMPANIONS, READERS

from stallscope.cli.main import main
from stallscope.errors import StallscopeError
from stallscope.parsers import PARSERS, read
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.parsers.inspection.inspected import InspectedFile
from stallscope.parsers.registry import by_name, formats
from stallscope.run import Run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {
        name: reader.sample(tmp_path_factory.mktemp("sample")) for name, reader in READERS.items()
    }


def test_every_reader_has_a_sample() -> None:
    assert set(SAMPLES) == set(NAMES)
    # Parsers have samples by their names; every other format has one, and unknown files have one.
    others = [reader.name for reader in formats() if reader not in PARSERS]
    assert sorted(others) == sorted(
        reader.format for reader in COMPANIONS.values() if reader.format
    )
    assert [key for key, reader in COMPANIONS.items() if reader.format is None] == ["foreign"]


@pytest.mark.parametrize("name", NAMES)
def test_its_own_sample_is_recognised_and_read(name: str, samples: dict[str, bytes]) -> None:
    parser, data = by_name(name), samples[name]
    if name != PATTERN:
        recognised = next(candidate for candidate in PARSERS if candidate.recognises("log", data))
        assert recognised.name == name
    assert any(log.steps.num_rows or log.log.facts for log in holds(parser, data))
    assert not any(candidate.recognises("log", b"") for candidate in PARSERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=15)
@given(chance=st.randoms(use_true_random=False))
def test_no_damage_crashes_it(name: str, samples: dict[str, bytes], chance: random.Random) -> None:
    data = samples[name]
    at, until = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    lines = data.splitlines(keepends=True)
    mixed = chance.sample(lines, len(lines))
    flipped = bytearray(data)
    for _ in range(20):
        flipped[chance.randrange(len(data))] = chance.randrange(256)
    sample = chance.choice(list(samples.values()))
    for damaged in (
        data[:until],
        data[at:],
        data[:at] + data[until:],
        data[:at] + sample + data[at:],
        data[:at] + chance.randbytes(300) + data[at:],
        b"".join(mixed),
        b"".join(line for pair in zip(lines, mixed, strict=True) for line in pair),
        bytes(flipped),
        data + data,
    ):
        READERS[name].holds(damaged)


@pytest.mark.parametrize("name", READERS)
def test_no_encoding_crashes_it(name: str, samples: dict[str, bytes]) -> None:
    data = samples[name]
    text = data.decode(errors="replace")
    for changed in (
        b"",
        b"\n",
        b"\0" * 1000,
        bytes(range(256)) * 40,
        b"\xef\xbb\xbf" + data,
        text.encode("utf-16"),
        text.encode("latin-1", "replace"),
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data.replace(b"\n", b"\0\n"),
        data.replace(b"1", "１".encode()),
    ):
        READERS[name].holds(changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_endless_digits_and_one_line_of_megabytes_are_read_in_one_pass(
    name: str, samples: dict[str, bytes]
) -> None:
    """Anything slower than proportional would never end here."""
    data = samples[name]
    line = data.replace(b"\n", b" ").replace(b"\r", b" ")
    size = 2_000_000 if name in NAMES else 1_000_000
    for long in (line * (size // len(line)), data + b"9" * 1_000_000 + b"/" * 1_000_000):
        if name in NAMES:
            by_name(name).recognises("log", long[: 256 << 10])
        READERS[name].holds(long)


@pytest.mark.parametrize("name", ["keras-output", "horovod-runner", PATTERN])
def test_late_ranks_are_found(name: str, samples: dict[str, bytes]) -> None:
    unlabelled = (HERE / "printed" / "tf-2.15-verbose-2.txt").read_bytes()
    data = unlabelled if name == "keras-output" else samples[name]
    late = b"".join(
        b"[1,%d]<stdout>:%s\n" % (rank, line) for rank in (0, 7) for line in data.splitlines()
    )
    assert {log.log.rank for log in holds(by_name(name), late)} == {0, 7}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mlflow-metrics"])
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_compressed_it_is_the_same(
    name: str, compress: Callable[[bytes], bytes], samples: dict[str, bytes], tmp_path: Path
) -> None:
    def read_back(data: bytes) -> list[Run]:
        (tmp_path / "log").write_bytes(data)
        return read(str(tmp_path), read_as=name)

    plain, packed = read_back(samples[name]), read_back(compress(samples[name]))
    assert [run.intervals for run in packed] == [run.intervals for run in plain]
    assert [run.steps for run in packed] == [run.steps for run in plain]


def crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def going_back(data: bytes) -> bytes:
    """Return the first line, and the others in reverse order: so their clocks go back."""
    first, *others = data.splitlines(keepends=True) or [b""]
    return first + b"".join(reversed(others))


def in_other_encodings(data: bytes) -> bytes:
    """Return half of the lines in Latin-1, and every fifth one in UTF-16."""
    lines = data.splitlines(keepends=True)
    for at in range(0, len(lines), 2):
        lines[at] = lines[at].replace(b" ", b" \xe9\xfc ")
    for at in range(0, len(lines), 5):
        lines[at] = lines[at].decode("latin-1").encode("utf-16-le")
    return b"".join(lines)


#: Changes that make files unreadable for a human.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "blank": lambda data: b" \r\n\t\n" * 99,
    "binary": lambda data: random.Random(7).randbytes(5000),
    "binary behind its beginning": lambda data: data[:200] + random.Random(7).randbytes(5000),
    "in several encodings": in_other_encodings,
    "one line": lambda data: data.replace(b"\n", b" ").replace(b"\r", b" ") * 3,
    "twice": lambda data: data + data,
    "twice, torn between": lambda data: data[: len(data) * 2 // 3] + data,
    "going back": going_back,
    "without ends of lines": lambda data: data.replace(b"\n", b""),
    "packed and torn": lambda data: gzip.compress(data)[: len(data) // 3],
    "packed twice": lambda data: gzip.compress(gzip.compress(data)),
}


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


#: Changes that keep a file's content.
DRESSES: dict[str, Callable[[bytes], bytes]] = {
    "crlf": crlf,
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstd,
}
#: Binary formats, which are not edited as text.
NO_TEXT = ("tensorboard", "flight-recorder")


def looked_at(folder: Path, name: str, data: bytes) -> InspectedFile:
    """Return what ``inspect`` reports about a file, for people and for programs."""
    path = folder / READERS[name].file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    read_as = name if name == PATTERN else None
    with suppress(StallscopeError):
        read(str(folder), read_as=read_as)
    (seen,) = inspect(str(folder), read_as=read_as).files
    is_true(seen, data)
    return seen


def is_true(seen: InspectedFile, data: bytes) -> None:
    """Check that the report about a file is true, whatever it contains."""
    json.dumps(asdict(seen), allow_nan=False)
    assert seen.bytes == len(data)
    assert "\n" not in "".join((seen.title, *seen.notes))
    if not data:
        # Spark leaves empty outputs, recognised by their names.
        assert seen.format in (None, "spark")
        assert (seen.steps, seen.epochs, seen.span, seen.used) == (None, None, None, False)
    if seen.format is None:
        assert (seen.steps, seen.epochs, seen.span) == (None, None, None)
        assert not seen.used
        # An empty file needs no explanation, and neither does an unrelated one.
        assert seen.notes or seen.title in ("empty", "next to logs")
    assert seen.steps is None or seen.steps > 0
    assert list(seen.ranks) == sorted(set(seen.ranks))
    if seen.span is not None:
        assert seen.span.begin <= seen.span.end


@pytest.mark.parametrize("name", READERS)
def test_inspect_names_it(name: str, samples: dict[str, bytes], tmp_path: Path) -> None:
    assert looked_at(tmp_path, name, samples[name]).format == READERS[name].format
    assert READERS[name].holds(samples[name])


@pytest.mark.broad
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READERS)
def test_damaged_it_is_not_mistaken_for_another_format(
    name: str, damage: str, samples: dict[str, bytes], tmp_path: Path
) -> None:
    data = DAMAGES[damage](samples[name])
    READERS[name].holds(data)
    assert looked_at(tmp_path, name, data).format in (READERS[name].format, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_torn_anywhere_it_is_the_same_format_or_none(
    name: str, samples: dict[str, bytes], tmp_path: Path
) -> None:
    data = samples[name]
    for end in range(1, len(data), max(1, len(data) // 10)):
        READERS[name].holds(data[:end])
        assert looked_at(tmp_path, name, data[:end]).format in (READERS[name].format, None)


@pytest.fixture(scope="module")
def undressed(
    samples: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], InspectedFile]:
    """Return what ``inspect`` reports about a sample, by its name."""
    return cache(lambda name: looked_at(tmp_path_factory.mktemp("plain"), name, samples[name]))


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("name", READERS)
def test_harmless_changes_keep_its_content(
    name: str,
    dress: str,
    samples: dict[str, bytes],
    undressed: Callable[[str], InspectedFile],
    tmp_path: Path,
) -> None:
    if name in NO_TEXT and dress in ("crlf", "bom"):
        return
    plain = undressed(name)
    worn = looked_at(tmp_path, name, DRESSES[dress](samples[name]))
    assert replace(worn, bytes=plain.bytes) == plain


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("name", READERS)
def test_the_suffix_of_its_compression_does_not_matter(
    name: str, ending: str, samples: dict[str, bytes], tmp_path: Path
) -> None:
    data = DRESSES[ending[1:]](samples[name])
    path = tmp_path / (READERS[name].file_name + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (seen,) = inspect(str(tmp_path), read_as=name if name == PATTERN else None).files
    is_true(seen, data)
    assert seen.format == READERS[name].format


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_one_line_of_megabytes_takes_memory_in_proportion(
    name: str, samples: dict[str, bytes], tmp_path: Path
) -> None:
    line = samples[name].replace(b"\n", b" ").replace(b"\r", b" ")
    data = samples[name] + line * (1_000_000 // len(line))
    tracemalloc.start()
    try:
        looked_at(tmp_path, name, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30 * len(data) + (32 << 20)


#: Unusual file names that a disk allows.
HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "two\nlines",
    "a\ttab and a \r return",
    "%s {0} [bold]",
    "-rf --help",
    "\u202eright to left",
    "no \udcff text",
    "long" * 50,
    "rank-99999999999999999999.9.9.steps.csv",
    "rank.99999999999999999999",
    "'quoted' \"twice\" `and` $HOME",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_file_name_crashes_the_report(
    name: str,
    samples: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for called in HOSTILE:
        # Folders, where a file's own name decides.
        file_name = READERS[name].file_name
        path = tmp_path / called if file_name == "log" else tmp_path / called / file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(samples[name])
    words = ["--read-as", name] if name == PATTERN else []
    assert main(["inspect", str(tmp_path), *words]) == 0
    printed = "".join(capsys.readouterr())
    assert not set(printed) & {"\x1b", "\u202e", "\r", "\t"}
    assert main(["inspect", str(tmp_path), "--format", "json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["files"]) == len(HOSTILE)
    assert {file["format"] for file in document["files"]} == {READERS[name].format}
    with suppress(StallscopeError):
        read(str(tmp_path), read_as=words[-1] if words else None)
