"""Search for a text that labels may have cut, without splitting the output by rank.

The search never misses a text, and may report one that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from .labels import LONGEST_PREFIX, labels_of
from .splitting import BLOCK_BYTES
from .srun import has_cut_lines

# The ends of labels that may be in the middle of lines, with a space after them.
_ENDS_OF_LABELS = (b">:", b">: ", b"]:", b"] ", b": ")


def may_contain(data: bytes, text: bytes) -> bool:
    """Whether the output of any rank may contain a text, or end with a part of it.

    Args:
        text: without line ends.
    """
    if text in data:
        return True
    labels = labels_of(data)
    # Labels at the starts of lines cut no text, unless lines are too long.
    if labels is None or (labels.start_lines and not (labels.cut_lines and has_cut_lines(data))):
        return False
    # A launcher's own text continues in its next line, except with srun.
    before = labels.pattern if labels.start_lines else rb"(?:%s ?|\n)" % labels.pattern
    last = data[-len(text) - LONGEST_PREFIX :]
    cut = re.compile(rb"%s.{0,%d}\Z" % (before, len(text)), re.MULTILINE)
    if not data.endswith(b"\n") and cut.search(last):
        return True
    ends = [re.escape(text[at:]) for at in range(1, len(text))]
    ending = re.compile(rb"%s(?:%s)\Z" % (before, b"|".join(ends)), re.MULTILINE)
    places = _places_after(
        data, text[-1], [text[-3:], *_with_ends((*_ENDS_OF_LABELS, b"\n"), text)]
    )
    return any(ending.search(data, max(at - LONGEST_PREFIX, 0), at) for at in places)


def _with_ends(before: Iterable[bytes], text: bytes) -> Iterator[bytes]:
    for label_end in before:
        yield label_end + text[-1:]
        yield label_end + text[-2:]


def _places_after(data: bytes, last: int, texts: Iterable[bytes]) -> Iterator[int]:
    """Yield the places after a byte that may end one of these texts, by the two bytes before it."""
    likely = np.zeros((256, 256), bool)
    for text in texts:
        likely[text[-3] if len(text) > 2 else slice(None), text[-2]] = True
    whole = np.frombuffer(data, np.uint8)
    for first in range(2, len(data), BLOCK_BYTES):
        at = np.flatnonzero(whole[first : first + BLOCK_BYTES] == last) + first
        yield from (at[likely[whole[at - 2], whole[at - 1]]] + 1).tolist()
