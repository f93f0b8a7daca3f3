"""Find the lines that Keras prints about epochs among millions of others, by short texts."""

from __future__ import annotations

import re

from .launcher_output import LineFilter

# Every line of interest contains one of these.
_OF_INTEREST = re.compile(
    rb"s/(?:step|sample|epoch)|\ds - |\ds\s*$|Epoch \d+/|Train on \d|ETA: \d|/Unknown "
)
# A bar in progress: the remaining time, or the rest of the bar in Keras 3's colours.
_IN_PROGRESS = re.compile(rb" - ETA: \d|\d/Unknown ")
_UPDATES = (rb" - ETA: \d", rb"\d/Unknown ", b"\x1b[37m\xe2\x94\x81")
# Text after a bar that has lost its newline: the start of an epoch, or a finished bar.
_NOT_UPDATES = (rb"Epoch \d", b"\x1b[37m\x1b[0m", b"\xe2\x94\x81 ", b"=] - ")


def is_in_progress(line: bytes) -> bool:
    """Whether a line is an update of a bar in progress."""
    return (b"ETA" in line or b"Unknown" in line) and _IN_PROGRESS.search(line) is not None


def may_tell_epochs(line: bytes) -> bool:
    """Whether a line may be about epochs: other lines are millions, and letters are found at once."""
    return (
        b"s - " in line
        or b"poch " in line
        or b"/Unknown" in line
        or b"s/" in line
        or b"ETA" in line
        or b"==" in line
        or b"] - " in line
        or b"\x1b" in line
        or b"\xe2\x94\x81" in line
        or line.rstrip().endswith(b"s")
    )


def _may_matter(line: bytes) -> bool:
    likely = may_tell_epochs(line) or b"Train on" in line
    return likely and _OF_INTEREST.search(line) is not None


EPOCH_LINES = LineFilter(
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
    updates=_UPDATES,
    not_updates=_NOT_UPDATES,
)
