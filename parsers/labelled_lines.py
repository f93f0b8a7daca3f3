"""Whose the lines in a block are: labels at lines' beginnings, found many at once.

A line is one rank's own from its label to its end in almost all of what launchers print. In a torn line
there are further labels, or something before the first one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .digits import Ints, Words
from .needles import Block, mask

Bools = npt.NDArray[np.bool_]

#: The number of what has no label.
NOBODYS = 0
_WORD = 8
# An odd number without a pattern.
_MIXING = np.uint64(0x9E3779B97F4A7C15)
# Fractions of seconds that follow ``2026-11-21 02:28:01``: what else stands before labels repeats.
_POINT, _FRACTION = 19, (20, 21, 22)


@dataclass(frozen=True)
class Form:
    """How labels look, and what may stand before them at the beginning of a line."""

    tag: re.Pattern[bytes]
    #: What may follow a label's opening bracket; empty for labels that only begin lines.
    second: bytes
    #: Whether a text, never empty, belongs to the label after it.
    fits_before: Callable[[bytes], bool]
    #: Whether lines without a label belong to the label before them.
    goes_on: bool = False


#: Of text that no launcher has labelled.
NO_LABELS = Form(re.compile(rb"(?!)"), b"", lambda _: False)


@dataclass(frozen=True)
class Owned:
    """Whose each line of a block is."""

    #: The number of its label, of a torn line's last one.
    whose: Ints
    #: Which lines have labels.
    labelled: Bools
    torn: Bools
    #: Of labels in torn lines, and of what stands before them: the line, and the number.
    parts: tuple[Ints, Ints]
    #: Where a line's first label begins, and where it ends; of lines without one, where these begin.
    label_at: Ints
    text_at: Ints


def owned(block: Block, text: bytes, form: Form, known: Sequence[bytes]) -> Owned | None:
    """Whose the lines of a block are; None where there are labels that are not known.

    Args:
        text: the block's bytes.
        known: labels, whose numbers count from 1.
    """
    at, number = _labels(block, text, form, known)
    if not number.all():
        return None
    count = len(block.ends)
    starts = np.append(0, block.ends)
    line = block.lines_of(at)
    at, number, line = at[line < count], number[line < count], line[line < count]
    of_line = np.bincount(line, minlength=count)
    labelled = of_line > 0
    behind = np.cumsum(of_line)
    has = np.flatnonzero(labelled)
    first = behind[has] - of_line[has]
    label_at, text_at = starts[:-1].copy(), starts[:-1].copy()
    label_at[has] = at[first]
    text_at[has] = at[first] + np.array([0, *map(len, known)])[number[first]]
    before = label_at[has] - starts[has]
    clean = of_line[has] == 1
    prefixed = np.flatnonzero(clean & (before > 0))
    clean[prefixed] = _fitting(block, text, starts[has[prefixed]], before[prefixed], form)
    whose = np.full(count, NOBODYS)
    whose[has] = number[behind[has] - 1]
    torn = np.zeros(count, bool)
    torn[has[~clean]] = True
    if form.goes_on:
        if torn[has[:1]].any():
            return None  # what it begins with is of a label in the block before
        whose = whose[np.maximum.accumulate(np.where(labelled, np.arange(count), 0))]
    torn_at = np.flatnonzero(torn)
    owner = whose[np.maximum(torn_at - 1, 0)] if form.goes_on else np.full(len(torn_at), NOBODYS)
    inside = torn[line]
    parts = np.append(torn_at, line[inside]), np.append(owner, number[inside])
    return Owned(whose, labelled, torn, parts, label_at, text_at)


def _labels(block: Block, text: bytes, form: Form, known: Sequence[bytes]) -> tuple[Ints, Ints]:
    """Where labels begin, and their numbers; 0 for such as are not known."""
    if form is NO_LABELS:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if form.second:
        at = _closed(block.having(ord("[")), block.having(ord("]")))
        may_follow = np.zeros(256, bool)
        may_follow[list(form.second)] = True
        at = at[may_follow[block.bytes[at + 1]]]
    else:
        at = np.append(0, block.ends)
    number = _known(block, at, known)
    others = np.flatnonzero(number == 0)
    match = form.tag.match
    is_label = [match(text, one) is not None for one in at[others].tolist()]
    keep = np.ones(len(at), bool)
    keep[others] = is_label
    return at[keep], number[keep]


def _closed(opened: Ints, closed: Ints) -> Ints:
    """The brackets that are closed before the next one is opened, as those of labels are and those of
    colours are not.
    """
    until = np.append(opened[1:], np.iinfo(np.int64).max)
    there = np.searchsorted(closed, opened)
    fits = there < len(closed)
    fits[fits] = closed[there[fits]] < until[fits]
    return opened[fits]


def _known(block: Block, at: Ints, known: Sequence[bytes]) -> Ints:
    """Of places, the numbers of the labels that begin there; 0 where none of these does."""
    number = np.zeros(len(at), np.int64)
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(known):
        by_length[len(label)].append(place)
    for length, own in by_length.items():
        texts = b"".join(known[place].ljust(_whole(length), b"\0") for place in own)
        words = np.frombuffer(texts, "<u8").reshape(len(own), -1)
        sums = _sums(list(words.T))
        order = np.argsort(sums)
        found = _words(block, at, np.full(len(at), length), length)
        there = np.searchsorted(sums[order], _sums(found))
        there = order[np.minimum(there, len(own) - 1)]
        same = np.ones(len(at), bool)
        for column, word in enumerate(found):
            same &= words[there, column] == word
        number[same] = np.array(own)[there[same]] + 1
    return number


def _fitting(block: Block, text: bytes, start: Ints, length: Ints, form: Form) -> Bools:
    """Whether what stands before labels belongs to them; asked where more changes than a fraction."""
    if not len(start):
        return np.zeros(0, bool)
    words = _words(block, start, length, int(length.max()))
    if len(words) > _POINT // _WORD:
        words[_POINT // _WORD] = _without_fraction(words[_POINT // _WORD])
    changed = np.append(True, length[1:] != length[:-1])
    for word in words:
        changed[1:] |= word[1:] != word[:-1]
    asked = np.flatnonzero(changed)
    pairs = zip(start[asked].tolist(), length[asked].tolist(), strict=True)
    told = np.array([form.fits_before(text[at : at + size]) for at, size in pairs])
    return np.asarray(told[np.cumsum(changed) - 1])


def _without_fraction(word: Words) -> Words:
    """The same word for all fractions of one length."""
    first = _POINT - _POINT % _WORD
    point = _byte(word, _POINT - first)
    plain = (point == ord(".")) | (point == ord(","))
    zeros = np.uint64(0)
    for at in _FRACTION:
        plain &= _byte(word, at - first) - np.uint64(ord("0")) < np.uint64(10)
        zeros |= np.uint64(0xFF << 8 * (at - first))
    return np.where(plain, word | zeros, word)


def _byte(word: Words, at: int) -> Words:
    return np.asarray((word >> np.uint64(8 * at)) & np.uint64(0xFF))


def _words(block: Block, at: Ints, length: Ints, longest: int) -> list[Words]:
    """Texts of these lengths as numbers of eight bytes each."""
    masks = np.array([mask(size) for size in range(_WORD + 1)])
    return [
        block.words[np.minimum(at + first, block.size)] & masks[np.clip(length - first, 0, _WORD)]
        for first in range(0, longest, _WORD)
    ]


def _sums(words: Sequence[Words]) -> Words:
    """A number for each text; texts that differ mostly have others."""
    total = np.zeros(len(words[0]), np.uint64)
    for word in words:
        total = (total + word) * _MIXING
        total ^= total >> np.uint64(32)
    return total


def _whole(length: int) -> int:
    return -(-length // _WORD) * _WORD
