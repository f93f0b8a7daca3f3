"""Sample lines, and make templates of them, with places for numbers and timestamps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ...launcher_output import LineFilter, rank_lines
from ...lines.line_blocks import sample_parts
from ...lines.timestamps import DATED_MOMENT, read_timestamp

#: The size of the sample: a whole file, or parts of its start, middle and end.
SAMPLE_BYTES = 3 << 18
# The most characters of a line to look at, and the most numbers in it.
_MOST_CHARACTERS = 400
_MOST_PLACES = 32
_MOST_LINES = 12_000

# Values that no pattern can read, such as clocks, versions, and numbers that are hexadecimal or have
# signs, exponents or commas.
_UNREADABLE = (
    r"(?<![\w)\].])[-+]\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,4})?"
    r"|\d{1,4}(?::\d\d){2}(?:[.,]\d{1,9})?|\d\d:\d\d(?!\d)|0x[0-9a-fA-F]{1,20}"
    r"|\d{1,20}(?:\.\d{1,20})?[eE][-+]?\d{1,4}|\d{1,3}(?:,\d{3}){1,4}(?![\d.])|\d{1,20}(?:\.\d{1,20}){2,9}"
    r"|\b(?:nan|NaN|inf|None|True|False|null|true|false)\b"
)
# The lookahead excludes most places by one character.
_NUMBER = re.compile(
    rf"(?=[-+\d]|\b[nNiTFtf])(?:(?P<unreadable>{_UNREADABLE})|(?P<number>\d{{1,20}}(?:\.\d{{1,20}})?))"
)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_DATED = re.compile(rf"(?<![\w.]){DATED_MOMENT}")
# The longest text of a timestamp before its clock.
_LONGEST_DATE = 12
_BLANKS = re.compile(r"\s+")
_DIGIT = re.compile(rb"\d")
_NAMED = LineFilter((b"poch", b"EPOCH", b"tep", b"STEP", b"iter", b"Iter", b"atch", b"pdate"))
# Colours.
_ESCAPED = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]")


class FieldPlace(NamedTuple):
    """A number or a timestamp in a line; ``kind`` is ``time``, ``number`` or ``unreadable``."""

    kind: str
    start: int
    end: int


class SampleLine(NamedTuple):
    """A line of the sample."""

    text: str
    #: The rank in its launcher's label, None without one.
    rank: int | None
    #: The text that may contain its timestamp.
    before: bytes

    @property
    def plain(self) -> str:
        """The text with colours replaced by characters that are neither letters nor blanks."""
        if "\x1b" not in self.text:
            return self.text
        return _ESCAPED.sub(lambda match: "\x1b" * len(match[0]), self.text)

    @property
    def ns(self) -> int | None:
        """When it was printed; None without a timestamp of a launcher or a logger."""
        timestamp = read_timestamp(self.before)
        return None if timestamp is None else timestamp.ns


class Template(NamedTuple):
    """The common parts of lines: the texts around their places.

    Runs of blanks are one blank, and there are none before numbers.
    """

    #: One more than there are places.
    texts: tuple[str, ...]
    #: For each place whether it is a timestamp.
    is_time: tuple[bool, ...]


def sample_lines(data: bytes) -> list[SampleLine]:
    """Return the lines with a number in the start, the middle and the end of a file."""
    parts = sample_parts(data, SAMPLE_BYTES // 3)
    most = _MOST_LINES // len(parts)
    return [line for part in parts for line in islice(_lines_of(part), most)]


def named_lines(data: bytes) -> list[SampleLine]:
    """Return the first lines of a file with a number and a word for steps or epochs."""
    return [*islice(_lines_of(data, _NAMED), _MOST_LINES)]


def _lines_of(data: bytes, only: LineFilter | None = None) -> Iterator[SampleLine]:
    for line in rank_lines(data, only=only):
        if _DIGIT.search(line.text):
            text = line.text[: 4 * _MOST_CHARACTERS].decode("utf-8", "replace")
            yield SampleLine(text[:_MOST_CHARACTERS], line.rank, line.before)


def places_in(text: str) -> list[FieldPlace]:
    """Find the first places of a line."""
    places: list[FieldPlace] = []
    at = 0
    for clock in _CLOCK.finditer(text):
        dated = _DATED.search(text, max(at, clock.start() - _LONGEST_DATE), clock.end() + 40)
        if dated is not None and clock.start() < dated.end():
            places += _numbers(text, at, dated.start())
            places.append(FieldPlace("time", dated.start(), dated.end()))
            at = dated.end()
    return [*places, *_numbers(text, at, len(text))][:_MOST_PLACES]


def _numbers(text: str, start: int, end: int) -> Iterator[FieldPlace]:
    for match in _NUMBER.finditer(text, start, end):
        yield FieldPlace(str(match.lastgroup), match.start(), match.end())


def template_of(text: str) -> Template:
    """Make the template of a line."""
    places = places_in(text)
    *before, last = texts_around(text, places)
    # Numbers are printed as wide as the largest one.
    texts = [
        part if place.kind == "time" else part.rstrip(" ")
        for part, place in zip(before, places, strict=True)
    ]
    return Template((*texts, last), tuple(place.kind == "time" for place in places))


def texts_around(text: str, places: Sequence[FieldPlace]) -> Iterator[str]:
    """Yield the texts before, between and after places, without runs of blanks."""
    at = 0
    for place in places:
        yield _BLANKS.sub(" ", text[at : place.start])
        at = place.end
    yield _BLANKS.sub(" ", text[at:])
