"""Reports as text, and the words and figures in them that contradict each other."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

from rich.console import Console, RenderableType

from stallscope.analysis import Analysis
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.report_formats import ReportOptions, ReportParts, render
from stallscope.reports.run import parts

_WIDE = 200
_UNITS = {"µs": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3, "d": 86400e3}
_ROUNDED = 1.005  # The same amount in two units is rounded twice.
_LARGEST_FACTOR = 20

_NUMBER = r"[−-]?\d[\d,]*(?:\.\d+)?"
_AMOUNT = rf"({_NUMBER})(?: ± <?[\d.,]+)?(?: ({'|'.join(_UNITS)})\b)?"
_THINGS = "ranks|hosts|steps|epochs|runs|batches|lines|logs|settings|workers|samples|tensors|cores"
_NEVER = {
    # Neither Python's nor numpy's words for "nothing" reach a reader.
    "no figure": re.compile(r"\b(None|nan|NaN|inf|Infinity|np\.float64|undefined)\b|∞"),
    "a doubled noun": re.compile(r"\b(host|rank|step|run|epoch)s? \1", re.IGNORECASE),
    "a plural of one": re.compile(
        rf"(?<![\w.,–−/-])(?<![Rr]ank )1 (?:(?:steady|late|slow|more|other) )*(?:{_THINGS})\b(?!/)"
    ),
    "a zero with a sign": re.compile(r"(?<![\w.…])[−-]0(?:\.0+)?(?![\d.,–])"),
    "a bound with a sign": re.compile(r"[<>]\s?[−-]\d"),
    "a long list": re.compile(r"(?:\d+(?:–\d+)?(?:, | and )){10}|(?:[\w.]+-\d+(?:, | and )){10}"),
}
_PART = re.compile(rf"{_AMOUNT} of (?:the |its )?(?:step's )?{_AMOUNT}")
_UNIT = rf"(?:%|×| (?:{'|'.join(_UNITS)})\b)"
_SURE = re.compile(
    rf"(?<![±<;\d.,])(?<!± )({_NUMBER})(?: ± (?:<|&lt;)?[\d.,]+)?{_UNIT}?(?: as fast| shorter)?"
    rf"(?:, [^\n]{{,6}}% of [\d.,]+{_UNIT})?"
    rf"\s\(?95% interval: ({_NUMBER})%?(?:–| to )({_NUMBER})"
)
_FACTOR = re.compile(rf"({_NUMBER})×(?! throughput)")
# The keys of JSON whose numbers have a unit, and of those that need none.
_WITH_UNIT = re.compile(r"(^|_)(ms|s|h|ns|hours|seconds|second|rank|bytes|mib|(mb|gb|mbit)_s)$")
_WITHOUT_UNIT = re.compile(
    r"share|fraction|gap|speedup|efficiency|goodput|estimate|\.work$|\.late|violations|\.cost$|\.p$"
    r"|differences|what_if\.ci95$|points\.lost|score_noise|in_full|tensors_each"
)


def rendered(name: str, analysis: Analysis, options: ReportOptions) -> str:
    """Return the report in the format of that name, or in the form of the terminal."""
    return written(name, parts(analysis), options)


def written(name: str, report: ReportParts, options: ReportOptions) -> str:
    """Return a report on one or several runs in the format of that name, or for the terminal."""
    if name != "terminal":
        return render(name, report, options)
    console = Console(file=io.StringIO(), width=_WIDE)
    console.print(terminal_summary(report.document("terminal")))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def summary(analysis: Analysis) -> RenderableType:
    """Return the report for a terminal."""
    return terminal_summary(parts(analysis).document("terminal"))


def contradictions(name: str, text: str) -> list[str]:
    """Return the words and figures that no reader of a report in this format should see."""
    if name in ("csv", "openmetrics", "prom"):
        return list(_matches("no figure", text))
    if name == "json":
        content = json.loads(text, parse_constant=_refuse)
        leaves = list(_leaves(content, (), False))
        words = "\n".join(value for _, value, _ in leaves if isinstance(value, str))
        return [*_in_words(words), *_without_unit(leaves)]
    return list(_in_words(_visible(text) if name == "html" else text))


def _in_words(text: str) -> Iterator[str]:
    for fault in _NEVER:
        yield from _matches(fault, text)
    for match in _PART.finditer(text):
        part, part_unit, whole, whole_unit = match.groups()
        # "6.8 of 51.0 ms", "20.9 s of 18.6 s", "29 of 64 ranks"; not "1.5% of 3 ms".
        unit = _UNITS.get(whole_unit, 1.0)
        more = _number(part) * _UNITS.get(part_unit or whole_unit, 1.0) / unit - _number(whole)
        rounded = (_ROUNDED - 1) * _number(whole) if part_unit not in (None, whole_unit) else 0.0
        if more > rounded:
            yield f"a part above its whole: {_around(match, text)}"
    for match in _SURE.finditer(text):
        value, low, high = match[1], *map(_number, match.groups()[-2:])
        half = 10.0 ** -len(value.partition(".")[2]) / 2
        if not low - half <= _number(value) <= high + half:
            yield f"a figure outside its interval: {_around(match, text)}"
    for match in _FACTOR.finditer(text):
        if _number(match[1]) > _LARGEST_FACTOR:
            yield f"a large factor: {_around(match, text)}"


def _matches(fault: str, text: str) -> Iterator[str]:
    for match in _NEVER[fault].finditer(text):
        yield f"{fault}: {_around(match, text)}"


def _around(match: re.Match[str], text: str) -> str:
    return text[max(0, match.start() - 60) : match.end() + 40]


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _leaves(value: Any, path: tuple[str, ...], known: bool) -> Iterator[tuple[str, Any, bool]]:
    """Yield all values with their dotted keys, and whether a key names their unit."""
    if isinstance(value, Mapping):
        known = known or "unit" in value
        for key, part in value.items():
            yield from _leaves(part, (*path, key), known or bool(_WITH_UNIT.search(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from _leaves(part, path, known)
    else:
        yield ".".join(path), value, known


def _without_unit(leaves: Sequence[tuple[str, Any, bool]]) -> set[str]:
    """Return the keys of numbers that may be amounts of anything; counts are whole numbers."""
    return {
        f"no unit: {path}"
        for path, value, known in leaves
        if isinstance(value, float) and not known and not _WITHOUT_UNIT.search(path)
    }


class _Visible(HTMLParser):
    """Collects the texts of a page and its tooltips; an element that is no part of a text is a line."""

    _WITHIN = frozenset({"a", "b", "code", "em", "i", "small", "span", "strong", "tspan"})
    _UNSEEN = frozenset({"script", "style"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in self._UNSEEN
        self._end_line(tag)
        self.parts += [f"\n{value}\n" for name, value in attrs if name in ("title", "aria-label")]

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in self._UNSEEN
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(" ".join(data.split("\n")))

    def _end_line(self, tag: str) -> None:
        if tag not in self._WITHIN:
            self.parts.append("\n")


def _visible(page: str) -> str:
    visible = _Visible()
    visible.feed(page)
    visible.close()
    return "".join(visible.parts)
