"""Whether a text may be among what ranks have written, where launchers put labels into the middle of it.

To know it for sure, all of a file has to be taken apart, which takes ten times as long as this look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from .cut_lines import has_cut_lines
from .launchers import BLOCK_BYTES, LONGEST_PREFIX, labels_of

# How labels end that may stand in the middle of lines, a space after them included.
_ENDS_OF_LABELS = (b">:", b">: ", b"]:", b"] ", b": ")


def may_hold(data: bytes, text: bytes) -> bool:
    """Whether something that ranks have written may have a text in it, or a part of it as its end.

    True is said of every file where a label or a line's end stands before what the text ends with;
    False only where neither the text nor a piece of it at the end can be put together from pieces.

    Args:
        text: without line ends.
    """
    if text in data:
        return True
    labels = labels_of(data)
    # Where labels begin lines, these come whole, if they are not too long.
    if labels is None or (labels.begin_lines and not has_cut_lines(data)):
        return False
    # What launchers say themselves goes on in their next line, and srun is none of these.
    before = labels.pattern if labels.begin_lines else rb"(?:%s ?|\n)" % labels.pattern
    last = data[-len(text) - LONGEST_PREFIX :]
    cut = re.compile(rb"%s.{0,%d}\Z" % (before, len(text)), re.MULTILINE)
    if not data.endswith(b"\n") and cut.search(last):
        return True
    ends = [re.escape(text[at:]) for at in range(1, len(text))]
    behind = re.compile(rb"%s(?:%s)\Z" % (before, b"|".join(ends)), re.MULTILINE)
    found = _places_behind(
        data, text[-1], [text[-3:], *_with_ends((*_ENDS_OF_LABELS, b"\n"), text)]
    )
    return any(behind.search(data, max(at - LONGEST_PREFIX, 0), at) for at in found)


def _with_ends(before: Iterable[bytes], text: bytes) -> Iterator[bytes]:
    for one in before:
        yield one + text[-1:]
        yield one + text[-2:]


def _places_behind(data: bytes, last: int, texts: Iterable[bytes]) -> Iterator[int]:
    """After every such byte that the two bytes before which are as before the end of one of these."""
    likely = np.zeros((256, 256), bool)
    for text in texts:
        likely[text[-3] if len(text) > 2 else slice(None), text[-2]] = True
    whole = np.frombuffer(data, np.uint8)
    for first in range(2, len(data), BLOCK_BYTES):
        at = np.flatnonzero(whole[first : first + BLOCK_BYTES] == last) + first
        yield from (at[likely[whole[at - 2], whole[at - 1]]] + 1).tolist()
