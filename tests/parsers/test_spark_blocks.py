"""Blocks of LZF: its instructions, byte for byte."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.files.spark_blocks import DAMAGE, lzf_blocks

LONGEST_BACK, LONGEST_REPEAT, LONGEST_PLAIN = 1 << 13, 264, 32

plain = st.binary(min_size=1, max_size=LONGEST_PLAIN)
#: The distance back, as a share of the output so far, and the number of bytes.
repeats = st.tuples(st.integers(0, LONGEST_BACK - 1), st.integers(3, LONGEST_REPEAT))
instructions = st.lists(st.one_of(plain, plain, repeats, repeats), max_size=40)


def written(first: bytes, pieces: list[bytes | tuple[int, int]]) -> tuple[bytes, bytes]:
    """Return instructions in LZF's format, and their output, one byte after the other."""
    packed, whole = bytearray([len(first) - 1, *first]), bytearray(first)
    for piece in pieces:
        if isinstance(piece, bytes):
            packed += bytes([len(piece) - 1, *piece])
            whole += piece
            continue
        back, length = piece[0] % min(len(whole), LONGEST_BACK), piece[1]
        high, low = divmod(back, 256)
        if length < 9:
            packed += bytes([(length - 2) << 5 | high, low])
        else:
            packed += bytes([7 << 5 | high, length - 9, low])
        for _ in range(length):
            whole.append(whole[-back - 1])
    return bytes(packed), bytes(whole)


def unpacked(packed: bytes, size: int) -> bytes:
    blocks = lzf_blocks(io.BytesIO(b"ZV\1" + struct.pack(">HH", len(packed), size) + packed))
    return blocks.read1(1 << 16)


@given(plain, instructions)
def test_instructions_give_their_output(
    first: bytes, pieces: list[bytes | tuple[int, int]]
) -> None:
    packed, whole = written(first, pieces)
    assert unpacked(packed, len(whole)) == whole
    for size in (len(whole) - 1, len(whole) + 1):
        with pytest.raises(DAMAGE):
            unpacked(packed, size)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_damage_is_an_error_or_keeps_the_size(packed: bytes, size: int) -> None:
    try:
        data = unpacked(packed, size)
    except DAMAGE:
        return
    assert len(data) == size


@pytest.mark.parametrize(
    ("packed", "size"),
    [(b"\2ab", 2), (b"\1ab\x20", 5), (b"\1ab\xe0\0", 5), (b"\1ab\x20\2", 5)],
    ids=["bytes that break off", "a repetition", "a long one", "before the block"],
)
def test_truncated_blocks_and_invalid_references_are_damage(packed: bytes, size: int) -> None:
    with pytest.raises(DAMAGE):
        unpacked(packed, size)
