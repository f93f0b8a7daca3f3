"""Change logs as it happens in practice: tear, mix, label them, change numbers and line ends."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Change = Callable[[bytes, random.Random], bytes]

_NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"9" * 9,
    b"9" * 19,
    b"9" * 400,
    b"2147483648",
    b"9223372036854775807",
    b"1e308",
    b"NaN",
    b"0.000001",
)
_TOKENS = (
    b"\r",
    b"\b",
    b"\0",
    b"\x1b[2K",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b'"',
    b"{",
    b"[" * 40,
    b",",
    b" " * 200,
    b"Epoch 1/3\n",
    b"3/3 [====================] - 17s 5ms/step - loss: 1.9\n",
    b"3/3 - 17s - loss: 1.9000 - 17s/epoch - 5s/step\n",
    b"[1,0]<stdout>:",
    b"[1,70000]<stderr>:",
    b"[3]<stdout>:",
    b"[0] ",
    b"[default1]:",
    b" 1: ",
    b"Sat Nov 21 02:28:01 2026",
    b"2026-11-21 02:28:01,123 - STDOUT - INFO - ",
    b"1970-01-01T00:00:00.000000001+23:59 ",
    b"#facts {}\n",
    b"#stallscope 1 {}\n",
    b"null",
)
_ENDS = (b"\r\n", b"\r", b"\b", b"", b"\0\n", b"\n\n")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def changes(more: Sequence[bytes]) -> list[Change]:
    """Return all kinds of changes; ``more`` are other logs to mix a log with."""

    def mixed(data: bytes, chance: random.Random) -> bytes:
        at = chance.randrange(len(data) + 1)
        return data[:at] + chance.choice(more) + data[at:]

    def interleaved(data: bytes, chance: random.Random) -> bytes:
        shuffled = [
            (chance.random(), line) for text in (data, chance.choice(more)) for line in _lines(text)
        ]
        return b"".join(line for _, line in sorted(shuffled, key=lambda placed: placed[0]))

    mutations = [_torn, _lines_moved, _labelled, _number, _token, _ends, _again, _flipped]
    return [*mutations, mixed, interleaved] if more else mutations


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _torn(data: bytes, chance: random.Random) -> bytes:
    at, until = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return chance.choice((data[:at], data[at:], data[at:until], data[:at] + data[until:]))


def _lines_moved(data: bytes, chance: random.Random) -> bytes:
    lines = _lines(data)
    if not lines:
        return data
    line = lines.pop(chance.randrange(len(lines)))
    for _ in range(chance.randrange(3)):
        lines.insert(chance.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _labelled(data: bytes, chance: random.Random) -> bytes:
    form = chance.choice(
        (b"[1,%d]<stdout>:", b"[%d]<stderr>:", b"[%d] ", b"[default%d]:", b"%2d: ")
    )
    ranks = chance.choice((1, 2, 300))
    return b"".join(form % chance.randrange(ranks) + line for line in _lines(data))


def _number(data: bytes, chance: random.Random) -> bytes:
    matches = list(_NUMBER.finditer(data))
    if not matches:
        return data
    match = chance.choice(matches)
    return data[: match.start()] + chance.choice(_NUMBERS) + data[match.end() :]


def _token(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_TOKENS) + data[at:]


def _ends(data: bytes, chance: random.Random) -> bytes:
    return data.replace(b"\n", chance.choice(_ENDS))


def _again(data: bytes, chance: random.Random) -> bytes:
    at, until = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:until] + data[at:until] * chance.choice((1, 2, 50)) + data[until:]


def _flipped(data: bytes, chance: random.Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(chance.randrange(4) if data else 0):
        flipped[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(flipped)
