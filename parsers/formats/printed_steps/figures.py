"""Find the figures of lines that repeat, and read them from all lines of their kind.

1. A sample of lines with a word for steps is taken apart into figures, each with its word.
2. Lines with the same words are a kind: the texts before their figures become one form.
3. The form finds the figures of all lines of a kind, in time that is linear in their length.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise, zip_longest
from typing import NamedTuple

from ...launcher_output import LineField, LineFilter, LineForm, rank_lines
from ...lines.line_blocks import sample_parts
from .vocabulary import (
    CLOCK,
    UNIT,
    Quantity,
    Word,
    after_date,
    among,
    clock_word,
    names_moment,
    word_of,
)

#: The size of the sample: a whole file, or parts of its start, middle and end.
SAMPLE_BYTES = 3 << 18
# The most lines of the sample, the most characters and figures of a line, and the most kinds.
_MOST_LINES, _MOST_CHARACTERS, _MOST_FIGURES, _MOST_KINDS = 1200, 4000, 120, 12
# Lines that differ in their digits only are taken apart up to this number.
_MOST_ALIKE = 80
#: A state of a bar (``bars``).
BAR = re.compile(rb"\d(?:/\d{1,9}|it) \[\d{1,4}:\d\d")
#: Fewer lines show no regularity.
FEWEST_LINES = 4

_NAMES = (
    *(b"poch", b"EPOCH", b"tep", b"STEP", b"iter", b"Iter", b"ITER", b"itr", b"atch", b"pdate"),
    *(b"][", b"loss", b"Loss", b"Up. "),
)
_NAMED = LineFilter(_NAMES, re.compile(b"|".join(map(re.escape, _NAMES))).search)
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,20})(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?"
_FIGURE = re.compile(
    rf"(?<![\w@.])(?:(?P<clock>{CLOCK})(?![\w:])"
    rf"|(?P<number>{_NUMBER})(?!\d*h\s?\d)(?:(?P<si>[KMGT])(?![A-Za-z]))?(?:\s?(?P<unit>{UNIT})(?![\w/]|\s?=|:\s?\d)(?<!min(?=\s[\d.]))"
    rf"|\s?\((?P<in_brackets>m?s|secs?|seconds?|min)\))?)"
)
# The start of the name of a figure. ``shy-time-of-day-03`` is a host, without a figure.
_NAME_STARTS = re.compile(r"[|;,{}\t\x1b]|\s{2,}| - |: (?=\S)|\) |(?:[A-Za-z]\w*-){3,}$")
_ATTACHED = re.compile(r"^[A-Za-z%]+")
# ``5epoch:train:3376-3750batch:`` has the names of its counters behind them.
_COUNTS_BEHIND = re.compile(r"(epoch|iter|step|batch|update)(?=:)")
# ``84.6s (100 iters)`` has a sum over the steps since the line before.
_COUNTS_SINCE = re.compile(r"\s?(?:iter|step|batch|update)\w*\)")
# ``time (data): 2.064 (0.521)`` has two names, then two values.
_TWO_NAMES = re.compile(r"([A-Za-z_]+) \(([A-Za-z_]*(?:data|load)[A-Za-z_]*)\): ?$")
_BLANKS, _NUMBERS = re.compile(r"\s+"), re.compile(r"\d+")
NO_FIGURE = ("other", "trains", "total")
#: Words of lines about evaluations and other work; not in a path: ``/data/test/train.py``.
RE2_EVALUATES = r"(?i)(?:^|[^a-z/\\])(?:eval|valid|val(?:[^a-z]|$)|test|infer|predict|generat)"
EVALUATES = re.compile(RE2_EVALUATES)
# ``Epoch 57 Val, MAE: 17.7``
_EVALUATES_BEHIND = re.compile(r"(?i)\s+(?:val|valid\w*|test|eval\w*),")
_WARNS = re.compile(rb"wandb.{0,40}(?:WARNING|ERROR)")  # they quote steps
# The longest text before a figure that tells it from others.
_MOST_BEFORE = 60
# The text of a number for RE2.
_VALUE = r"[-+]?[\d:](?:[\d:,.+\-]|[eE][-+]?\d)*[KMGT]?"
# Terminals' colours, which a sample has as their first character.
_COLOURED = r"\x1b\[[\d;]*m"
_COLOUR, _ESCAPE = re.compile(_COLOURED), "\x1b"
_WORD_START = rf"(?:^|[^\w]|{_COLOURED})"
# If this share of lines has figures of a training behind them, these are of the same record.
_SHARE_DESCRIBED = 0.8
# The text after a figure that tells it from others.
_MOST_AFTER = 12
_DIGITS, _LETTERS = re.compile(r"[\d\x1b]"), re.compile(r"[A-Za-z]")
_FRACTION = re.compile(r"\d+\.\d*[1-9]\d*$")
_COUNT = ("step", "count", "samples", "epoch")
# Names that a counter of a training may have.
_TRAINING = frozenset({"train", "training"})


class Figure(NamedTuple):
    """A figure in a line of the sample."""

    word: Word
    #: The name as words, for those of the same meaning.
    name: str
    #: The text between the figure before, or the start of the line, and this one.
    before: str
    #: The first characters after its number.
    after: str
    is_clock: bool
    #: Whether it is in parentheses after a figure of the same meaning.
    in_parentheses: bool
    text: str
    #: The maximum of a counter, as in ``20/500``; None without one.
    total: float | None = None


#: The quantities and the names of the figures in lines of a kind.
_Key = tuple[tuple[Quantity, str], ...]


@dataclass(frozen=True)
class Kind:
    """Lines with the same figures."""

    figures: Sequence[Figure]
    #: For each figure the text before it in all lines, and the text after the last one.
    anchors: Sequence[str]
    ending: str
    #: The names of all figures in its lines.
    words: frozenset[str]
    #: Whether some of them are figures that only training has.
    trains: bool

    @property
    def form(self) -> LineForm:
        """The form of its lines, with a field for each figure."""
        befores = [".*?" + _escaped(anchor) for anchor in self.anchors]
        ending = rf"\s*{_spaced(self.ending)}" if self.ending.strip() else ""
        if not _LETTERS.search(self.anchors[0]) and not self.figures[0].is_clock:
            after = _spaced(_DIGITS.split(self.figures[0].after)[0])
            if after and _spaced("".join(self.anchors[1:2])).startswith(after):
                # The text after the first figure is that before the second one.
                befores[1] = r"\s*" + _escaped(self.anchors[1]).removeprefix(_WORD_START)
            elif len(befores) > 1:
                befores[1] = rf"\s*{after}{befores[1]}"
            else:
                ending = rf"\s*{after}{ending}"
        fields = [
            LineField(before, f"f{at}", CLOCK if figure.is_clock else _VALUE)
            for at, (before, figure) in enumerate(zip(befores, self.figures, strict=True))
        ]
        # Texts without blanks, the longest first.
        literals = sorted((piece for anchor in self.anchors for piece in anchor.split()), key=len)
        return LineForm(fields, ending, [text.encode("latin-1") for text in reversed(literals)])


# -- the sample ------------------------------------------------------------------------------------


def kinds_in(data: bytes) -> list[Kind]:
    """Return the kinds of lines with a counter that repeat, the most frequent first."""
    kinds = _kinds_of(_sample(sample_parts(data, SAMPLE_BYTES // 3)))
    # A short training may be anywhere in a long output.
    return kinds or (_kinds_of(_sample([data])) if len(data) > SAMPLE_BYTES else [])


def _kinds_of(sample: Iterable[str]) -> list[Kind]:
    groups: dict[_Key, list[list[Figure]]] = defaultdict(list)
    words: dict[tuple[_Key, str], set[str]] = defaultdict(set)
    # By texts without their digits: the key of their counter, and whether they are of a training.
    known: dict[str, tuple[_Key | None, bool]] = {}
    seen, counts, described = Counter[str](), Counter[_Key](), Counter[_Key | None]()
    training: dict[_Key, bool] = defaultdict(bool)
    last: _Key | None = None
    for text in sample:
        shape = _NUMBERS.sub("0", text)
        seen[shape] += 1
        if seen[shape] <= _MOST_ALIKE:
            figures = figures_of(text)
            trains = any(_tells_training(figure) for figure in figures)
            key = None
            pairs = zip_longest(figures, figures[1:])
            if counts_training(figures):
                meant = [figure for figure, after in pairs if _is_needed(figure, after)]
                # Words before a name may vary.
                key = tuple((figure.word.quantity, figure.name.split(" ")[-1]) for figure in meant)
                groups[key].append(meant)
                words[key, meant[0].before] |= {figure.name for figure in figures}
                training[key] |= trains
            known[shape] = key, trains
        key, trains = known[shape]
        if key is not None:
            counts[key] += 1
            last = key
        elif trains:
            # A record of several lines begins with that of its counter.
            described[last] += 1
            last = None
    enough = [group for group in groups.items() if len(group[1]) >= FEWEST_LINES]
    enough.sort(key=lambda group: -counts[group[0]])
    kinds = []
    for key, lines in enough[:_MOST_KINDS]:
        trains = training[key] or described[key] > _SHARE_DESCRIBED * counts[key]
        for alike in (lines, _most_alike(lines)):
            every = list(zip(*alike, strict=True))
            columns = [
                column
                for column, after in zip_longest(every, every[1:])
                if _tells(column) or (after is not None and not after[0].before.strip())
            ]
            if any(column[0].word.quantity in _COUNT for column in columns):
                names = {name for line in alike for name in words[key, line[0].before]}
                kind = kind_of(columns, frozenset(names), trains=trains)
                if kind is not None:
                    kinds.append(kind)
                    break
    return kinds


def _is_needed(figure: Figure, after: Figure | None) -> bool:
    """Whether a figure tells something, or only it tells where the next one is: ``5.7 0.31s/it``."""
    quantity = "other" if after is None or after.before.strip() else after.word.quantity
    return not {figure.word.quantity, quantity} <= {*NO_FIGURE}


def _most_alike(lines: Sequence[list[Figure]]) -> list[list[Figure]]:
    """Return the most frequent of lines with the same figures, by the texts before these."""
    groups = defaultdict(list)
    for line in lines:
        groups[tuple(figure.before for figure in line)].append(line)
    return max(groups.values(), key=len)


def kind_of(
    columns: Sequence[Sequence[Figure]], words: frozenset[str] = frozenset(), *, trains: bool = True
) -> Kind | None:
    """Return the kind of lines of a sample; None if the texts before a figure have no common end.

    Args:
        columns: for each figure of the kind those of all lines.
        words: the names of all figures in its lines.
        trains: whether some of them are figures that only training has.
    """
    befores = [[figure.before for figure in column] for column in columns]
    anchors = [_anchor(texts) for texts in befores]
    known = [anchor for anchor in anchors if anchor is not None]
    if len(known) < len(anchors):
        return None
    ending = _DIGITS.split(_common([figure.after for figure in columns[-1]]))[0]
    first = [
        column[0]._replace(is_clock=any(figure.is_clock for figure in column)) for column in columns
    ]
    for at, column in enumerate(columns):
        if _counts_steps(columns[at - 1] if at else None, column):
            first[at] = first[at]._replace(word=Word("step", order=2))
    return Kind(first, known, ending, words, trains)


def _tells_training(figure: Figure) -> bool:
    """Whether only training has a figure: ``loss: 2.3``, ``Training epoch: 4``."""
    named = figure.word.quantity in _COUNT and not _TRAINING.isdisjoint(figure.name.split())
    return named or figure.word.quantity == "trains"


def counts_training(figures: Sequence[Figure]) -> bool:
    """Whether a line has a counter, and no word of an evaluation around it."""
    before = ""
    for figure, behind in zip_longest(figures, figures[1:]):
        before += figure.before
        if figure.word.quantity in _COUNT:
            named_behind = behind is not None and _EVALUATES_BEHIND.match(behind.before)
            return not (named_behind or EVALUATES.search(before))
    return False


def _counts_steps(before: Sequence[Figure] | None, column: Sequence[Figure]) -> bool:
    """Whether a number without a name counts steps: ``Epoch  1,   50/ 7000;``, ``[Train 50/7000]``.

    Numbers of samples rise by a multiple of the batch.
    """
    trains = column[0].name in _TRAINING
    of_epoch = before is not None and before[0].word.quantity == "epoch"
    if column[0].word.quantity != "count" or not (trains or of_epoch):
        return False
    plain = all(figure.total and (trains or not figure.before.strip(" ,;:|-")) for figure in column)
    texts = [figure.text.replace(",", "") for figure in column]
    # ``[Train 6M/20M]`` is none of steps.
    numbers = [int(text) for text in texts if text.isdigit()]
    rises = [after - number for number, after in pairwise(numbers) if after > number]
    if not plain or not rises:
        return False
    usual = max(set(rises), key=rises.count)
    return usual == 1 or (usual % 10 == 0 and usual % 8 > 0)


def _tells(column: Sequence[Figure]) -> bool:
    """Whether a figure is needed: counters and others that never change tell nothing."""
    texts = {figure.text for figure in column}
    return len(texts) > 1 or column[0].word.quantity in ("epoch", "batch", "time", "data", "since")


def _sample(parts: Sequence[bytes]) -> Iterator[str]:
    """Yield lines with a word for steps or epochs, without bars."""
    for part in parts:
        for line in islice(rank_lines(part, only=_NAMED), _MOST_LINES // len(parts)):
            if not BAR.search(line.text) and not _WARNS.search(line.text):
                yield line.text[:_MOST_CHARACTERS].decode("latin-1")


def figures_of(text: str) -> list[Figure]:
    """Take a line apart into its figures; dates are none."""
    figures: list[Figure] = []
    text = _COLOUR.sub(_ESCAPE, text)
    end, last, second, begin = 0, "", "", after_date(text)
    for match in islice(_FIGURE.finditer(text, begin), _MOST_FIGURES):
        before = text[end or begin : match.start()]
        name, unit = _name(before, bool(figures)), match["unit"] or match["in_brackets"] or ""
        counts = _COUNTS_BEHIND.match(text, match.end())
        name = counts[1] if counts else (before == " (" and second) or name
        two = _TWO_NAMES.search(before) if text.startswith(" (", match.end()) else None
        name, second = two.groups() if two else (name, "")
        is_clock = bool(match["clock"])
        in_parentheses = (
            before.strip() == "(" and bool(figures) and is_clock <= figures[-1].is_clock
        )
        word = word_of(name, unit)
        if word.quantity == "step" and word.order and _FRACTION.match(match["number"] or ""):
            # ``Batch 0.818 (3.887)``, but not ``reward/step 3.84``.
            word = Word("other") if "/" in name else Word("time", order=0)
        before_it = figures[-1].word.quantity if figures else "other"
        if before.strip() == ":" and names_moment(last.lower().split()):
            word = word_of(" ".join(last.lower().split()[:-2]))
        is_unit = word.quantity == "time" and before_it in ("data", "part")
        if in_parentheses and _COUNTS_SINCE.match(text, match.end()):
            word = Word("since")
        elif in_parentheses and (is_unit or word.quantity in ("other", before_it)):
            word, name = figures[-1].word, last
            if word.quantity in ("step", "count", "samples", "epoch"):
                word = Word("other")
        elif figures and before.strip() in ("/", "of"):
            # XLA's devices: ``Device=xla:0/3`` is that of rank 3.
            word = Word("rank" if figures[-1].name.endswith("device xla") else "total")
            figures[-1] = figures[-1]._replace(total=_total(match["number"]))
            nameless = figures[-1].name.split(" ")[-1] in ("", *_TRAINING)
            if figures[-1].word.quantity == "other" and nameless:
                figures[-1] = figures[-1]._replace(word=Word("count"))
        elif figures and _ends_range(figures[-1], before, match["number"]):
            word, name = figures[-1].word, last
            figures[-1] = figures[-1]._replace(word=Word("other"))
        last = name
        in_parentheses = in_parentheses and any(
            each.word.quantity == word.quantity for each in figures
        )
        number_end = match.end("clock" if is_clock else "si" if match["si"] else "number")
        after = text[number_end : number_end + _MOST_AFTER]
        if word.quantity == "left" and not is_clock and word.unit_s is None:
            word = Word("other")
        # A unit that is not known belongs to the figure before.
        before = _ATTACHED.sub("", before) if figures else before
        if is_clock and word.quantity == "other" and not spelled(name):
            word = clock_word(before, after)
        elif before == "][" and word.quantity == "other" and before_it == "epoch":
            word = Word("count")  # ``Epoch: [0][50]``
        number = match["clock"] or match["number"] + (match["si"] or "")
        figures.append(Figure(word, spelled(name), before, after, is_clock, in_parentheses, number))
        end = match.end()
    names = {figure.name for figure in figures}
    figures = [each._replace(word=among(each.word, each.name, names)) for each in figures]
    if figures and _counts_without_a_name(figures):
        figures[0] = figures[0]._replace(word=Word("count", order=5))
    return figures


def _ends_range(start: Figure, before: str, number: str | None) -> bool:
    """Whether a number ends a range of steps: ``Batch [20-40]``, ``between steps 0 and 100``."""
    are_numbers = start.text.isdigit() and bool(number) and str(number).isdigit()
    joins = before in ("-", " and ") and start.word.quantity == "step"
    return joins and are_numbers and int(start.text) <= int(str(number))


def _counts_without_a_name(figures: Sequence[Figure]) -> bool:
    """Whether a line of a training begins with its only counter, as ``490 | loss 5.7``."""
    first, quantities = figures[0], {figure.word.quantity for figure in figures}
    return (
        not quantities & {*_COUNT}
        and "trains" in quantities
        and first.word.quantity == "other"
        and not first.before.strip(" |[](:#-\t")
        and first.text.isdigit()
    )


def _total(number: str | None) -> float | None:
    return float(number.replace(",", "")) if number else None


@lru_cache(maxsize=4096)
def _name(before: str, follows: bool) -> str:
    """Return the name in the text before a figure."""
    text = _ATTACHED.sub("", before) if follows else before
    return _NAME_STARTS.split(text.strip().rstrip(":= \"'[(#"))[-1]


@lru_cache(maxsize=4096)
def spelled(name: str) -> str:
    return " ".join(re.findall(r"[a-z]+", name.lower()))


def _anchor(texts: Sequence[str]) -> str | None:
    """Return the common end of the texts before a figure, with single blanks; None without one.

    It is empty at the start of lines and right behind another figure.
    """
    texts = [text.rpartition(_ESCAPE)[2] for text in set(texts)]
    ends = [_BLANKS.sub(" ", text)[::-1] for text in texts]
    if len(ends) > 1 and not all(text.startswith(" ") for text in ends):
        ends = [text.lstrip(" ") for text in ends]
    common = _common(ends)[:_MOST_BEFORE][::-1]
    if _cuts_word(ends, len(common)):
        # Not from the middle of a word.
        common = re.sub(r"^\w+", "", common)
    if not any(text.strip() for text in texts):
        return ""
    return common if common.strip() else None


def _common(texts: Sequence[str]) -> str:
    """Return the common start of texts."""
    # That of the first and the last in order is that of all.
    first, last = min(texts), max(texts)
    alike = next((at for at, sign in enumerate(first) if last[at : at + 1] != sign), len(first))
    return first[:alike]


def _cuts_word(ends: Sequence[str], length: int) -> bool:
    return any(
        len(text) > length and (text[length].isalnum() or text[length] == "_") for text in ends
    )


def _escaped(anchor: str) -> str:
    """Return an anchor as a regular expression, with blanks of any number."""
    if not anchor:
        return rf"(?:^|\s|{_COLOURED})"
    start = _WORD_START if anchor.strip()[:1].isalnum() or anchor.strip()[:1] == "_" else ""
    return start + _spaced(anchor) + r"\s*"


def _spaced(text: str) -> str:
    """Return a text as a regular expression, with blanks of any number within it."""
    return r"\s+".join(map(re.escape, text.split()))
