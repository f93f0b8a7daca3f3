"""Blocks of ranks' output without irrelevant lines, before they are separated by rank.

Taking millions of lines apart takes far longer than to see which few are wanted. Where labels stand in
the middle of a line, it stays, and so do those that go on with what it has of ranks' lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from .digits import Ints
from .labelled_lines import Bools, Form, Owned, owned
from .needles import Block, Sign

# Where more of the lines are torn, or lines are that long on average, as bars that are written over are,
# taking them apart is the cheaper way.
_MOST_TORN = 0.1
_LONG_LINES = 2048


class Signs(Protocol):
    """How wanted lines are recognised, as in ``Wanted``."""

    @property
    def sought(self) -> Sequence[Sign]: ...

    @property
    def passes(self) -> Sequence[Sign]: ...

    @property
    def stays(self) -> Sequence[Sign]: ...


class Thinning:
    """Leaves out lines of blocks.

    Args:
        form: how labels look.
        wanted: the lines to be kept; of those that pass, the last ones.
    """

    def __init__(self, form: Form, wanted: Signs) -> None:
        self._form = form
        self._wanted = wanted

    def thinned(self, text: bytes, known: Collection[bytes], *, nobodys: bool) -> bytes:
        """Return the block without irrelevant lines; all of it if they cannot be recognised.

        Args:
            text: a block that begins with a line, where no line of any rank goes on.
            known: labels of streams that have had their first line.
            nobodys: whether what has no label has had it, too.
        """
        if text.count(b"\n") * _LONG_LINES < len(text):
            return text
        block = Block(text)
        lines = owned(block, text, self._form, [*known])
        if lines is None or np.count_nonzero(lines.torn) > _MOST_TORN * len(block.ends):
            return text
        kept = self._kept(block, lines, nobodys)
        starts = np.append(0, block.ends)
        if kept.all():
            return text
        kept_at = np.flatnonzero(kept)
        pairs = zip(starts[kept_at].tolist(), block.ends[kept_at].tolist(), strict=True)
        return b"".join([*(text[start:end] for start, end in pairs), text[starts[-1] :]])

    def _kept(self, block: Block, lines: Owned, nobodys: bool) -> Bools:
        kept = self._needed(lines, nobodys)
        passing = _with(self._wanted.passes, block)
        wanted = _with(self._wanted.sought, block)
        if passing.any():
            # What was written over does not pass: something else may be shown of it.
            wanted &= ~passing | _written_over(block) | _with(self._wanted.stays, block)
        kept |= wanted
        # What stays anyway stands for none of those before it.
        kept[_last_ones(np.flatnonzero(passing & ~kept), kept, lines.whose)] = True
        if self._form.goes_on:
            _keep_owners(kept, lines)
        return kept

    def _needed(self, lines: Owned, nobodys: bool) -> Bools:
        """Lines that stay whatever they say."""
        needed = lines.torn.copy()
        needed[_going_on(lines)] = True
        if self._form.goes_on:
            # What comes before the first label is of the last one before, and of its line.
            labelled = np.flatnonzero(lines.labelled)
            needed[: labelled[0] if len(labelled) else None] = True
            needed[labelled[-1:]] = True
        elif not nobodys:
            needed |= ~lines.labelled
        return needed


def _with(signs: Sequence[Sign], block: Block) -> Bools:
    """Which lines have one of these in them."""
    found = np.zeros(len(block.ends) + 1, bool)
    for sign in signs:
        found[block.lines_of(block.places(sign))] = True
    return found[:-1]


def _written_over(block: Block) -> Bools:
    """Which lines have carriage returns that are not their ends."""
    found = np.zeros(len(block.ends) + 1, bool)
    at = block.having(ord("\r"))
    after = block.bytes[at + 1]
    found[block.lines_of(at[(after != ord("\n")) & (after != ord("\r"))])] = True
    return found[:-1]


def _going_on(lines: Owned) -> Ints:
    """The lines that go on with what torn lines have of others."""
    torn, whose = lines.parts
    order = np.argsort(lines.whose, kind="stable")
    beyond = len(order) + 1
    keys = lines.whose[order] * beyond + order
    there = np.searchsorted(keys, whose * beyond + torn, "right")
    there, whose = there[there < len(order)], whose[there < len(order)]
    next_ones = order[there]
    return np.asarray(next_ones[lines.whose[next_ones] == whose])


def _last_ones(passing: Ints, kept: Bools, whose: Ints) -> Ints:
    """Of each label the last passing lines before others that are kept, and before the end."""
    stretch = np.searchsorted(np.flatnonzero(kept), passing)
    order = np.lexsort((stretch, whose[passing]))
    own, stretch = whose[passing][order], stretch[order]
    last = np.append((own[1:] != own[:-1]) | (stretch[1:] != stretch[:-1]), True)
    found: Ints = passing[order][last[: len(passing)]]
    return found


def _keep_owners(kept: Bools, lines: Owned) -> None:
    """Keep the lines with the labels that other lines go on with."""
    last = np.maximum.accumulate(np.where(lines.labelled, np.arange(len(kept)), -1))
    places = np.flatnonzero(kept & (~lines.labelled | lines.torn))
    owners = last[np.maximum(places - 1, 0)]
    kept[owners[owners >= 0]] = True
