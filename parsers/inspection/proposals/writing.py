"""Write patterns of the places of fields, with little text that still distinguishes the lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .choosing import Choice
from .lines import texts_around

# Text up to this length is kept whole.
_SHORT = 24
_FIELD = re.compile(r"\{\w*\}")
_DIGITS = re.compile(r"\d+")
# The last word of a text with its punctuation, and the one before if it is in brackets.
_LAST_WORD = re.compile(r"(?:\S+ (?=\())?[^\s,;|]*\w\W*$")
# A number right before a field, without a name for that.
_LAST_NUMBER = re.compile(r"(?<= )[-+.:\w]{0,40}\d[%)\]]? $")
_FIRST_SIGNS = re.compile(r"[^\w{}]{0,3}")
# The unit or sign after the last field, which excludes longer numbers and similar lines.
_UNIT = re.compile(r"[^\w\s.{}]|(?:ms|s)(?!\w)")
_SIGN = re.compile(rf" ?(?:{_UNIT.pattern})")


def patterns_of(choice: Choice) -> Iterator[str]:
    """Yield patterns for the lines of a choice, those with little text first."""
    gaps = _gaps(choice)
    for is_long in (False, True):
        written = "".join(
            _text_between(_aligned([line[at] for line in gaps], name), at == 0, is_long=is_long)
            + f"{{{name}}}"
            for at, name in enumerate(choice.names)
        )
        yield written + _end([line[-1] for line in gaps], _SIGN if is_long else _UNIT)


def _gaps(choice: Choice) -> list[list[str]]:
    """Return the texts before, between and after the fields of each line."""
    return [
        [*texts_around(line.text, places)]
        for line, places in zip(choice.lines, choice.places, strict=True)
    ]


def _aligned(texts: Sequence[str], name: str) -> list[str]:
    """Drop blanks before a number that only some lines have: fields allow them."""
    if name == "time" or all(text.endswith(" ") for text in texts):
        return [*texts]
    return [text.rstrip(" ") for text in texts]


def _text_between(texts: Sequence[str], starts_line: bool, *, is_long: bool) -> str:
    """Return the text before a field, with ``{}`` for what differs from line to line."""
    first = texts[0]
    same = all(text == first for text in texts) and _is_plain(first) and not _DIGITS.search(first)
    if same and (is_long or len(first) <= _SHORT):
        return first
    if all(_LAST_NUMBER.search(text) for text in texts):
        shorter = [_LAST_NUMBER.sub("", text) for text in texts]
        return _text_between(shorter, starts_line, is_long=is_long) + "{} "
    before, after = _kept_start(texts), _kept_end(texts)
    if same:
        before, after = first[: len(first) // 2], first[len(first) // 2 :]
    if not is_long:
        word = _LAST_WORD.search(after)
        after = after if word is None else word[0]
        signs = _FIRST_SIGNS.match(before)
        before = "" if starts_line or signs is None else signs[0]
    # Text has to follow ``{}``.
    return f"{before}{{}}{after}" if after.strip() else ""


def _is_plain(text: str) -> bool:
    """Whether a text can be typed, and does not look like a field."""
    return _typed(text) == text and not _FIELD.search(text)


def _typed(text: str) -> str:
    """Return the start of a text that can be typed."""
    for at, character in enumerate(text):
        if not character.isprintable() or character == "\ufffd":
            return text[:at]
    return text


def _kept_start(texts: Sequence[str]) -> str:
    """Return the common start of texts, up to the first number or field."""
    common = _typed(_common_start(texts))
    for form in (_DIGITS, _FIELD):
        common = form.split(common, maxsplit=1)[0]
    return common


def _kept_end(texts: Sequence[str]) -> str:
    """Return the common end of texts, after the last number or field."""
    common = _typed(_common_start([text[::-1] for text in texts]))[::-1]
    for form in (_DIGITS, _FIELD):
        common = form.split(common)[-1]
    return common


def _common_start(texts: Sequence[str]) -> str:
    # The common start of the first and the last in order is that of all.
    first, last = min(texts), max(texts)
    for at, (left, right) in enumerate(zip(first, last, strict=False)):
        if left != right:
            return first[:at]
    return first


def _end(texts: Sequence[str], form: re.Pattern[str]) -> str:
    """Return the sign or the unit after the last field."""
    ends = {match[0] if match else "" for match in map(form.match, texts)}
    return ends.pop() if len(ends) == 1 else ""
