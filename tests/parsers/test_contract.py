"""No input breaks a parser: one suite for all of them; a new one joins by a sample of its own."""

from __future__ import annotations

import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parser_contract import NAMES, PATTERN, SAMPLES, holds

from stallscope.parsers import PARSERS, read
from stallscope.parsers.named import by_name
from stallscope.run import Run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {name: make(tmp_path_factory.mktemp("sample")) for name, make in SAMPLES.items()}


def test_every_parser_has_a_sample() -> None:
    assert set(SAMPLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_its_own_sample_is_recognised_and_read(name: str, samples: dict[str, bytes]) -> None:
    parser, data = by_name(name), samples[name]
    if name != PATTERN:
        found = next(one for one in PARSERS if one.recognises("log", data))
        assert found.name == name
    assert any(log.steps.num_rows or log.log.facts for log in holds(parser, data))
    assert not any(one.recognises("log", b"") for one in PARSERS)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(chance=st.randoms(use_true_random=False))
def test_no_damage_breaks_it(name: str, samples: dict[str, bytes], chance: random.Random) -> None:
    data = samples[name]
    at, until = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    lines = data.splitlines(keepends=True)
    mixed = chance.sample(lines, len(lines))
    flipped = bytearray(data)
    for _ in range(20):
        flipped[chance.randrange(len(data))] = chance.randrange(256)
    other = chance.choice(list(samples.values()))
    for damaged in (
        data[:until],
        data[at:],
        data[:at] + data[until:],
        data[:at] + other + data[at:],
        data[:at] + chance.randbytes(300) + data[at:],
        b"".join(mixed),
        b"".join(line for pair in zip(lines, mixed, strict=True) for line in pair),
        bytes(flipped),
        data + data,
    ):
        holds(by_name(name), damaged)


@pytest.mark.parametrize("name", NAMES)
def test_no_encoding_breaks_it(name: str, samples: dict[str, bytes]) -> None:
    parser, data = by_name(name), samples[name]
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
        holds(parser, changed)


@pytest.mark.parametrize("name", NAMES)
def test_digits_without_end_and_one_line_of_20_megabytes_are_read_in_one_pass(
    name: str, samples: dict[str, bytes]
) -> None:
    """Whatever takes longer than in proportion never ends here."""
    parser, data = by_name(name), samples[name]
    line = data.replace(b"\n", b" ").replace(b"\r", b" ")
    for long in (line * (20_000_000 // len(line)), data + b"9" * 1_000_000 + b"/" * 1_000_000):
        parser.recognises("log", long[: 256 << 10])
        holds(parser, long)


@pytest.mark.parametrize("name", ["keras-output", "horovod-runner", PATTERN])
def test_ranks_that_appear_late_are_ranks(name: str, samples: dict[str, bytes]) -> None:
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
