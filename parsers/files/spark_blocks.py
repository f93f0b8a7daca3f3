"""Read the blocks of Spark's own codecs: lz4 (lz4-java), snappy (snappy-java) and lzf (Ning's).

    LZ4Block  token  compressed and original length, checksum (little endian)  bytes …   until length 0
    \\x82SNAPPY\\0  version, oldest compatible one  {length (big endian)  a raw snappy block} …
    ZV 0  length  bytes                            ZV 1  compressed and original length  bytes …

Each block starts with its length, which its codec limits, so that a few bytes never fill the memory.
Checksums are ignored: data after damage is dropped anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from stallscope.arrays.types import Ints

LZ4 = b"LZ4Block"
SNAPPY = b"\x82SNAPPY\0"
#: Followed by a 0 or a 1, which no text has there.
LZF = (b"ZV\0", b"ZV\1")

#: The errors of damaged blocks.
DAMAGE = (OSError, EOFError, ValueError, IndexError)

_LZ4_HEAD = struct.Struct("<Biii")
_LZ4_METHOD, _LZ4_RAW, _LZ4_PACKED = 0xF0, 0x10, 0x20
# The shortest block of lz4-java is of 2**10 bytes, the longest one of 2**25.
_LZ4_SHORTEST = 10
# Spark's own is 32 KiB; snappy-java allows any int, and no program sets more than this.
_SNAPPY_LONGEST = 64 << 20
# The magic, read as a length: also where several streams were joined.
_SNAPPY_BEGINS = int.from_bytes(SNAPPY[:4], "big")
_SNAPPY_VERSIONS = 8

# The first codes of repetitions, and of those with one more byte for the length.
_LZF_REPEATS, _LZF_LONG = 32, 224
# The lengths of instructions by their codes.
_LZF_SIZES = bytes(
    code + 2 if code < _LZF_REPEATS else 3 if code >= _LZF_LONG else 2 for code in range(256)
)
_SNAPPY_REPEATS = 64

BlockDecoder = Callable[[BinaryIO], "bytes | None"]


class Blocks:
    """Reads the contents of blocks, one after the other.

    Args:
        file: the compressed file.
        block: unpacks the next block; returns None after the last one, and raises ``DAMAGE``.
    """

    def __init__(self, file: BinaryIO, block: BlockDecoder) -> None:
        self._file = file
        self._block = block
        self._rest = memoryview(b"")

    def read1(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes of a block; none after the last one."""
        while not self._rest:
            block = self._block(self._file)
            if block is None:
                return b""
            self._rest = memoryview(block)
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)


def lz4_blocks(file: BinaryIO) -> Blocks:
    """Read blocks of Spark's former default, ``spark.io.compression.codec=lz4``."""
    codec = pa.Codec("lz4_raw")

    def block(file: BinaryIO) -> bytes | None:
        magic = file.read(len(LZ4))
        if not magic:
            return None
        token, packed, whole, _ = _LZ4_HEAD.unpack(_exactly(file, _LZ4_HEAD.size))
        longest = 1 << (_LZ4_SHORTEST + (token & ~_LZ4_METHOD))
        # Incompressible blocks are stored as they are.
        if magic != LZ4 or not 0 <= packed <= whole <= longest:
            raise ValueError("no block of lz4-java")
        data = _exactly(file, packed)
        if token & _LZ4_METHOD == _LZ4_RAW:
            return data
        if token & _LZ4_METHOD != _LZ4_PACKED:
            raise ValueError("a method that lz4-java does not have")
        return _unpacked_lz4(codec, data, whole)

    return Blocks(file, block)


def snappy_blocks(file: BinaryIO) -> Blocks:
    """Read blocks of ``spark.io.compression.codec=snappy``."""
    codec = pa.Codec("snappy")

    def block(file: BinaryIO) -> bytes | None:
        head = file.read(4)
        if not head:
            return None
        length = int.from_bytes(head + _exactly(file, 4 - len(head)), "big")
        if length == _SNAPPY_BEGINS:
            _exactly(file, len(SNAPPY) - 4 + _SNAPPY_VERSIONS)
            return b""
        if length > _SNAPPY_LONGEST:
            raise ValueError("longer than snappy-java's blocks are")
        data = _exactly(file, length)
        return bytes(codec.decompress(data, _snappy_length(data), asbytes=True))

    return Blocks(file, block)


def lzf_blocks(file: BinaryIO) -> Blocks:
    """Read blocks of ``spark.io.compression.codec=lzf``."""
    codec = pa.Codec("snappy")

    def block(file: BinaryIO) -> bytes | None:
        magic = file.read(3)
        if not magic:
            return None
        if magic not in LZF:
            raise ValueError("no block of LZF")
        packed = int.from_bytes(_exactly(file, 2), "big")
        if magic == LZF[0]:
            return _exactly(file, packed)
        whole = int.from_bytes(_exactly(file, 2), "big")
        return _lzf(codec, _exactly(file, packed), whole)

    return Blocks(file, block)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError("breaks off")
    return data


def _unpacked_lz4(codec: pa.Codec, data: bytes, whole: int) -> bytes:
    """Unpack a block of a given length; Arrow does not notice shorter ones."""
    with suppress(OSError):
        codec.decompress(data, whole - 1)
        raise ValueError("not as long as it says")
    return bytes(codec.decompress(data, whole, asbytes=True))


def _snappy_length(data: bytes) -> int:
    """Read a block's unpacked length: seven bits a byte, the lowest first."""
    length = 0
    for at, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            break
    if length > _SNAPPY_LONGEST:
        raise ValueError("longer than snappy-java's blocks are")
    return length


def _lzf(codec: pa.Codec, data: bytes, whole: int) -> bytes:
    """Unpack a block by converting it to snappy, which has the same two instructions.

    LZF     000lllll                    l + 1 bytes as they are
            LLLbbbbb [length] back      a repetition, up to 264 bytes from up to 8 KiB before
    snappy  llllll00                    l + 1 bytes as they are
            llllll10 back back          a repetition, l + 1 bytes, up to 64
    """
    at = _lzf_instructions(data)
    block = np.frombuffer(data, np.uint8)
    code = block[at].astype(np.int64)
    plain = code < _LZF_REPEATS
    size = np.where(plain, code + 2, 0)
    repeats = at[~plain]
    high = code[~plain]
    long = high >= _LZF_LONG
    length = (high >> 5) + 2 + np.where(long, block[np.minimum(repeats + 1, len(data) - 1)], 0)
    back = ((high & 31) << 8) + block[repeats + 1 + long] + 1
    size[~plain] = -(-length // _SNAPPY_REPEATS) * 3
    snappy_at = np.cumsum(size) - size
    snappy = np.zeros(int(size.sum()), np.uint8)

    begins, sizes = at[plain], size[plain]
    copied = np.arange(int(sizes.sum())) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
    snappy[copied + np.repeat(snappy_at[plain] - begins, sizes)] = block[copied]
    snappy[snappy_at[plain]] = code[plain] << 2
    first = snappy_at[~plain]
    while len(first):
        snappy[first] = (np.minimum(length, _SNAPPY_REPEATS) - 1) << 2 | 2
        snappy[first + 1], snappy[first + 2] = back & 0xFF, back >> 8
        more = length > _SNAPPY_REPEATS
        first, length, back = first[more] + 3, length[more] - _SNAPPY_REPEATS, back[more]
    return bytes(codec.decompress(_varint(whole) + snappy.tobytes(), whole, asbytes=True))


def _lzf_instructions(data: bytes) -> Ints:
    """Find the starts of instructions, one after the other."""
    sizes, begins = data.translate(_LZF_SIZES), bytearray(len(data))
    at = 0
    while at < len(begins):
        begins[at] = 1
        at += sizes[at]
    if at > len(begins):
        raise ValueError("breaks off")
    return np.flatnonzero(np.frombuffer(begins, np.uint8))


def _varint(length: int) -> bytes:
    """Encode a length as snappy's blocks start with it."""
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length])
