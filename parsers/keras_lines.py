"""The lines that Keras prints of epochs, found among millions of others by short texts."""

from __future__ import annotations

import re

from .launcher_output import Wanted

# What every line of interest holds, to be looked for in millions of lines.
_OF_INTEREST = re.compile(
    rb"s/(?:step|sample|epoch)|\ds - |\ds\s*$|Epoch \d+/|Train on \d|ETA: \d|/Unknown "
)
# A bar on its way: how long it has still to go, or what is not done of it in Keras 3's colours.
ON_ITS_WAY = re.compile(rb" - ETA: \d|\d/Unknown ")
_PASSING = (rb" - ETA: \d", rb"\d/Unknown ", b"\x1b[37m\xe2\x94\x81")
# What stands after a bar that has lost its line's end: an epoch's beginning, or a finished bar.
_STAYING = (rb"Epoch \d", b"\x1b[37m\x1b[0m", b"\xe2\x94\x81 ", b"=] - ")


def _may_matter(line: bytes) -> bool:
    """Whether to look at a line: there are millions of others, and letters are found at once."""
    likely = (
        b"s/" in line
        or b"s - " in line
        or b"poch " in line
        or b"ETA" in line
        or b"/Unknown" in line
        or b"Train on" in line
        or line.rstrip().endswith(b"s")
    )
    return likely and _OF_INTEREST.search(line) is not None


WANTED = Wanted(
    (
        b"s/step",
        b"s/sample",
        b"s/epoch",
        rb"\ds - ",
        b"\\ds\n",
        b"\\ds\r",
        rb"Epoch \d",
        b"/Unknown ",
        rb"Train on \d",
    ),
    _may_matter,
    passing=_PASSING,
    staying=_STAYING,
)
