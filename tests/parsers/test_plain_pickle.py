"""Dumps that are pickles are read as plain data: no code runs, and damage neither crashes nor hangs."""

from __future__ import annotations

import pickle
import pickletools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.flight_recorder import parse_dump
from stallscope.parsers.formats.flight_recorder.dump import load_plain

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.sets(st.text(max_size=3), max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.broad
@settings(max_examples=60)
@given(value=PLAIN, protocol=st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    # Before protocol 4, bytes and sets need code.
    if any(operation.name == "GLOBAL" for operation, _, _ in pickletools.genops(data)):
        with pytest.raises(UnreadableError, match="names code"):
            load_plain("it", data)
    else:
        assert load_plain("it", data) == value


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [Evil(), print, Path("x"), replace, ValueError("x"), 1j])
def test_code_is_refused_in_one_sentence(
    value: object, protocol: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pickle.dumps({"pg_config": {}, "entries": [], "more": value}, protocol)
    (tmp_path / "trace_rank_0").write_bytes(data)
    with pytest.raises(UnreadableError) as raised:
        read(str(tmp_path))
    assert str(raised.value) == (
        "trace_rank_0: a pickle that names code, unlike a dump: none of it was run"
    )
    assert capsys.readouterr().out == ""


@pytest.mark.broad
def test_endless_nesting_neither_crashes_nor_hangs() -> None:
    deep = b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b"."
    data = b"\x80\x02}(X\x09\x00\x00\x00pg_config}X\x07\x00\x00\x00entries"
    doubled = b")" + b"q\x01h\x01\x86" * 100
    for inner in (deep[2:-1], doubled, b"]" + doubled + b"a"):
        with pytest.raises(UnreadableError):
            parse_dump("it", data + inner + b"u.", prefix="", rank=0)
    assert isinstance(load_plain("it", deep), list)
    # Nested tuples as keys take forever to hash.
    with pytest.raises(UnreadableError):
        load_plain("it", b"\x80\x02}" + doubled + b"Ns.")


def test_false_sizes_allocate_nothing() -> None:
    for operation in (
        b"X\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f",
        b"\x95" + b"\xff" * 7 + b"\x7f",
    ):
        with pytest.raises(UnreadableError):
            load_plain("it", b"\x80\x04" + operation + b"x.")
    assert load_plain("it", b"\x80\x02Nr\xff\xff\xff\x7f.") is None
