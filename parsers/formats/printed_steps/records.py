"""Read records as columns: tables with names in their first line, lines of JSON, and documents of JSON.

Every column whose name is a word of the vocabulary is read, block by block. Records of one file may lack
some of them, as those of evaluations do: records with the same figures are a kind.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import json as arrow_json

from stallscope.arrays import arrow
from stallscope.arrays.types import Floats, Ints

from ...launcher_output import Lines, line_blocks
from ...lines.line_blocks import Column, groups_of, sample_parts
from ...lines.timestamp_columns import moments_in
from ...work_lines import ProgramStarts
from .figures import EVALUATES, FEWEST_LINES, NO_FIGURE, RE2_EVALUATES, spelled
from .metric_times import pivoted
from .rows import (
    Records,
    figures_of,
    line_texts,
    mask_of,
    stamps_of,
    without_stamps,
)
from .vocabulary import word_of

# Documents are read as a whole: larger ones are no logs.
_MOST_BYTES = 64 << 20
_SAMPLE_BYTES, _LONGEST_NAMES = 1 << 16, 1 << 14
# Arrow takes longer to start than Python to read so many records.
_FEW = 200
# In this share of a text's lines are its records, if it has nothing else to read.
_MOST = 0.5
_MOST_COLUMNS, _MOST_VALUES, _DEEPEST = 240, 4000, 4
_MISSING = ["", "null", "NULL", "None", "none", "nan", "NaN", "NAN", "NA", "N/A", "-"]
_NO_VALUES = "NaN|nan|Infinity|inf|None|True|False"
_NO_VALUE = re.compile(rb"([:\[,]\s*)-?(?:%b)\b" % _NO_VALUES.encode())
# Records of one line, alone on it or after other text.
_RECORD = re.compile(rb"(?m)^[^{\n]{0,300}\{[ \t]*[\"'][^\n]*\}[ \t\r]*$")
_LINE = re.compile(rb"(?m)^[^\n]*\S")
_BODY = r"(?s)^(?P<before>[^{]*)(?P<record>\{.*\})\s*$"
_NAMES_START = re.compile(r"[\s\"']*[A-Za-z_,;]")
_DECIMAL_COMMA = re.compile(rb"[;\n]-?\d+,\d+[;\r\n]")
_DATED = re.compile(r"(?i)date|time|(?:^|_)at$|when")
_SENTENCE = re.compile(r"\w: \S|\s\d+\.\d")
_NAME = re.compile(r"[A-Za-z_][\w ./()%#@\[\]:\-\ufffd]{0,80}")
# Objects around the figures of a record, whose names tell nothing.
_WRAPPERS = frozenset({"data", "metrics", "scalars", "values", "logs", "fields", "payload"})
# Columns of text: the kind of a record, the run that it is of, and the name of its only figure.
_MODES = frozenset({"mode", "phase", "split", "stage", "type", "event", "kind"})
_RUNS = frozenset({"run", "run id", "run name", "run uuid", "experiment"})
_KEYS = frozenset({"key", "metric", "metric name", "tag", "name"})
# Figures that only the Trainer's summary needs.
_OF_THE_TRAINER = frozenset({"train_runtime", "train_steps_per_second", "eval_runtime"})
SEVERAL_RUNS = "its records are of several runs: give each run a file"


def records_in(data: bytes) -> Records | None:
    """Read the records of a file; None for other text."""
    table = _Table.of(data)
    if table is not None:
        return table.records(data)
    if b"{" not in data:
        return None
    start = data[:_SAMPLE_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    sample = b"\n".join(sample_parts(data, _SAMPLE_BYTES))
    count = len(_RECORD.findall(sample))
    if start in (b"[", b"{") and count < FEWEST_LINES and len(data) <= _MOST_BYTES:
        records = _in_document(data)
        if records is not None:
            return records
    if count >= FEWEST_LINES or b"train_runtime" in data:
        starts, alone = ProgramStarts(), count > _MOST * len(_LINE.findall(sample))
        records = _of_pieces(_pieces_of_lines(data, starts), alone=alone)
        return records and replace(records, stamps=starts.settled(records.stamps))
    return None


# -- columns ---------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """The records of a block as columns."""

    figures: Mapping[str, Floats]
    clocks: frozenset[str]
    #: Texts by what they are: ``mode``, ``run`` or ``key``.
    texts: Mapping[str, Sequence[str | None]]
    stamps: Mapping[str, Column]
    names: frozenset[str]


def _role(name: str) -> str:
    """Return what a column is for: ``mode``, ``run``, ``key``, ``value``, ``figure``, or nothing."""
    for role, names in (("mode", _MODES), ("run", _RUNS), ("key", _KEYS), ("value", {"value"})):
        if spelled(name) in names:
            return role
    named = name in _OF_THE_TRAINER or EVALUATES.search(name)
    return "figure" if named or word_of(name).quantity not in NO_FIGURE else ""


def _tells(name: str) -> bool:
    """Whether a column is of use: others tell by their names at most."""
    return bool(_role(name)) or _may_be_date(name) or word_of(name).quantity == "trains"


def _piece(columns: Mapping[str, pa.Array], stamps: Mapping[str, Column]) -> _Piece:
    """Read the columns that tell something."""
    figures, clocks, texts = {}, set(), {}
    for name, column in columns.items():
        role = _role(name)
        if role in ("mode", "run", "key"):
            texts[role] = [None if text is None else str(text) for text in column.to_pylist()]
            continue
        moments = None
        if _may_be_date(name) and not stamps["timed"].all():
            moments = moments_in(column)
        if moments is not None:
            stamps = {**stamps, **moments}
        elif role:
            is_clock, values = figures_of(column)
            figures[name] = values
            clocks |= {name} if is_clock else set()
    return _Piece(figures, frozenset(clocks), texts, stamps, frozenset(columns))


def _may_be_date(name: str) -> bool:
    return word_of(name).quantity in ("stamp", "time") or bool(_DATED.search(name))


def _of_pieces(pieces: Iterable[_Piece], *, alone: bool) -> Records | None:
    """Join the records of blocks, without those of evaluations; None without records."""
    parts = [piece for piece in pieces if len(piece.stamps["rank"])]
    if not parts:
        return None
    lengths = [len(piece.stamps["rank"]) for piece in parts]
    columns = list(dict.fromkeys(name for piece in parts for name in piece.figures))
    missing = [np.full(length, np.nan) for length in lengths]
    figures = {
        name: np.concatenate(
            [piece.figures.get(name, empty) for piece, empty in zip(parts, missing, strict=True)]
        )
        for name in columns
    }
    stamps = {
        name: np.concatenate([piece.stamps[name] for piece in parts]) for name in parts[0].stamps
    }
    texts = {
        role: [
            text
            for piece, length in zip(parts, lengths, strict=True)
            for text in piece.texts.get(role, [None] * length)
        ]
        for role in {role for piece in parts for role in piece.texts}
    }
    names = frozenset[str]().union(*(piece.names for piece in parts))
    clocks = frozenset[str]().union(*(piece.clocks for piece in parts))
    if len({*texts.get("run", ())} - {None}) > 1:
        return Records(figures, clocks, stamps, names, alone, SEVERAL_RUNS)
    keys, value = texts.get("key"), figures.get("value")
    if keys is not None and value is not None:
        return pivoted(Records(figures, clocks, stamps, names, alone), keys)
    figures.pop("value", None)
    if "mode" in texts:
        others = {text for text in {*texts["mode"]} if EVALUATES.search(text or "")}
        trains = np.array([text not in others for text in texts["mode"]])
        figures = {name: column[trains] for name, column in figures.items()}
        stamps = {name: column[trains] for name, column in stamps.items()}
    return Records(figures, clocks, stamps, names, alone)


# -- tables ----------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """The first line of a table."""

    names: Sequence[str]
    separator: str

    @classmethod
    def of(cls, data: bytes) -> _Table | None:
        """Read the names of a table with a counter; None for other text."""
        end = data.find(b"\n", 0, _LONGEST_NAMES)
        first = data[: max(end, 0)].removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        if not _NAMES_START.match(first):
            return None
        separator = max(",\t;", key=first.count)
        names = [name.strip("\"' \r") for name in first.split(separator)]
        # Exports of W&B put the name of the run first.
        names = [name.rpartition(" - ")[2] for name in names]
        names[0] = names[0] or "index"  # of a data frame
        second = data[end + 1 : end + 1 + _LONGEST_NAMES].partition(b"\n")[0].decode("latin-1")
        is_line = bool(_SENTENCE.search(first)) or spelled(first) == spelled(second)
        if is_line or len(names) < 2 or not all(_NAME.fullmatch(name) for name in names):
            return None
        tells = any(word_of(name).quantity not in NO_FIGURE for name in names)
        return cls(names, separator) if tells and len({*names}) == len(names) else None

    def records(self, data: bytes) -> Records | None:
        """Read all columns that tell something; None if there are no rows."""
        data = _readable(data)
        columns = {
            str(at): name for at, name in enumerate(self.names) if _role(name) or _may_be_date(name)
        }
        is_long = len(data) > _SAMPLE_BYTES
        sample = data[:_SAMPLE_BYTES].rpartition(b"\n")[0] if is_long else data
        table = self._read(sample, columns, {})
        if table is None:
            return None
        kinds = dict.fromkeys(columns, pa.float64())
        for at in columns:
            kind = table.column(at).type
            if pa.types.is_string(kind) or pa.types.is_temporal(kind):
                kinds[at] = pa.string()
        if is_long:
            texts = dict.fromkeys(columns, pa.string())
            table = self._read(data, columns, kinds) or self._read(data, columns, texts)
        else:
            table = table.cast(pa.schema([*kinds.items()]), safe=False)
        if table is None:
            return None
        arrays = {name: table.column(at).combine_chunks() for at, name in columns.items()}
        piece = _piece(arrays, without_stamps(table.num_rows))
        return _of_pieces([piece._replace(names=frozenset(self.names))], alone=True)

    def _read(
        self, data: bytes, columns: Iterable[str], kinds: Mapping[str, pa.DataType]
    ) -> pa.Table | None:
        """Read columns by their numbers; None if a value is not of its kind."""
        has_commas = self.separator == ";" and _DECIMAL_COMMA.search(data, 0, _SAMPLE_BYTES)
        try:
            return csv.read_csv(
                pa.py_buffer(data),
                csv.ReadOptions(column_names=[*map(str, range(len(self.names)))], skip_rows=1),
                csv.ParseOptions(delimiter=self.separator, invalid_row_handler=lambda _: "skip"),
                csv.ConvertOptions(
                    decimal_point="," if has_commas else ".",
                    include_columns=[*columns],
                    column_types=kinds,
                    null_values=_MISSING,
                    strings_can_be_null=True,
                    timestamp_parsers=[],
                ),
            )
        except pa.ArrowInvalid:
            return None


def _readable(data: bytes) -> bytes:
    """Return a text with other bytes than those of UTF-8 replaced: Arrow cannot show them."""
    return data if data.isascii() else data.decode("utf-8", "replace").encode()


# -- lines of JSON ---------------------------------------------------------------------------------


def _pieces_of_lines(data: bytes, starts: ProgramStarts) -> Iterator[_Piece]:
    """Yield the records of each block of lines, without lines about evaluations."""
    for lines in line_blocks(data):
        at, before, bodies = _bodies(lines)
        columns = _by_arrow(bodies) if len(at) > _FEW else None
        if columns is None:
            at, columns = _by_python(at, bodies)
        again = starts.counts(lines, at)
        if not len(at):
            continue
        stamps = {**without_stamps(len(at)), "rank": lines.rank[at]}
        if mask_of(pc.match_substring_regex(before, r"\d:\d\d")).any():
            stamps = stamps_of(lines, at)
        yield _piece(columns, {**stamps, **again})


def _bodies(lines: Lines) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the lines with a record, the texts before the records, and the records."""
    texts = line_texts(lines)
    alone = mask_of(pc.starts_with(texts, "{")) & mask_of(pc.ends_with(texts, "}"))
    if alone.all():
        return np.arange(len(alone)), arrow.texts([]), texts
    at = np.flatnonzero(mask_of(pc.match_substring(texts, "}")))
    known, parts = groups_of(texts.take(arrow.array(at)), _BODY)
    trains = ~mask_of(pc.match_substring_regex(parts["before"], RE2_EVALUATES))
    before, bodies = (part.filter(arrow.array(trains)) for part in parts.values())
    return at[known][trains], before, bodies


def _by_arrow(bodies: pa.Array) -> dict[str, pa.Array] | None:
    """Read records with Arrow; None if they are not alike, or damaged."""
    text = _in_json(
        arrow.lines_of(bodies), bool(mask_of(pc.match_substring_regex(bodies, _NO_VALUES)).any())
    )
    try:
        options = arrow_json.ReadOptions(use_threads=False, block_size=max(len(text), 1))
        table = arrow_json.read_json(pa.BufferReader(text), options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    for _ in range(_DEEPEST):
        table = table.flatten()
    lists = (field.name for field in table.schema if pa.types.is_list(field.type))
    if table.num_rows != len(bodies) or any(word_of(name).quantity == "step" for name in lists):
        return None
    return {_unwrapped(name): table.column(name).combine_chunks() for name in table.schema.names}


def _in_json(text: bytes, has_no_values: bool = True) -> bytes:
    """Write dicts of Python as JSON, and numbers that are none as nulls."""
    text = _readable(text)
    if text.startswith(b"{'"):
        text = text.replace(b"'", b'"')
    return _NO_VALUE.sub(rb"\1null", text) if has_no_values else text


def _by_python(at: Ints, bodies: pa.Array) -> tuple[Ints, dict[str, pa.Array]]:
    """Read records one by one; damaged ones are left out. Return their lines and columns."""
    records = [_record(body) for body in bodies.to_pylist()]
    whole = [record for record in records if record is not None]
    known = np.array([record is not None for record in records], bool)
    return at[known], _columns(whole)


def _record(body: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(_in_json(body))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Make columns of records: of numbers, or of texts if a value is one."""
    flat = [dict(islice(_flat(record), _MOST_VALUES)) for record in records]
    names = dict.fromkeys(name for record in flat for name in record)
    columns = dict.fromkeys(names, pa.nulls(len(flat)))
    for name in islice(filter(_tells, names), _MOST_COLUMNS):
        values = [record.get(name) for record in flat]
        if any(isinstance(value, str) for value in values):
            # JSON has halves of characters, which cannot be encoded.
            texts = ["" if value is None else str(value) for value in values]
            columns[name] = arrow.texts(
                [text.encode("utf-8", "replace").decode() for text in texts]
            )
        else:
            columns[name] = arrow.array([_number(value) for value in values], pa.float64())
    return columns


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return math.nan


def _flat(record: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the values of a record and of objects in it, with the names of these before theirs."""
    for name, value in record.items():
        path = _unwrapped(f"{before}.{name}" if before else str(name))
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, path, depth + 1)
        elif isinstance(value, list) and value and word_of(path).quantity == "step":
            # DLLogger's steps: the epoch, and the step in it.
            yield f"{path}.{len(value)}", value[-1]
            if len(value) > 1:
                yield "epoch", value[0]
        else:
            yield path, value


def _unwrapped(name: str) -> str:
    first, dot, rest = name.partition(".")
    return rest if dot and first in _WRAPPERS else name


# -- documents of JSON -----------------------------------------------------------------------------


def _in_document(data: bytes) -> Records | None:
    """Read the records of a document; None if it has none."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    rows = [row for row in _rows_in(content) if isinstance(row, dict)]
    piece = _piece(_columns(rows), without_stamps(len(rows)))
    if isinstance(content, dict):
        # They tell of the program that wrote it.
        inner = {name for value in content.values() if isinstance(value, dict) for name in value}
        piece = piece._replace(names=piece.names | content.keys() | inner)
    return _of_pieces([piece], alone=True)


def _rows_in(content: object) -> Sequence[Any]:
    """Return the records of a document: its list of objects, or its series by step."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return ()
    lists = [value for value in content.values() if isinstance(value, list)]
    objects = [value for value in lists if value and isinstance(value[0], dict)]
    if objects:
        return max(objects, key=len)
    series = {name: steps for name, value in content.items() if (steps := _by_step(value))}
    if "train_runtime" in content:
        return [content]
    if series:
        every = sorted({step for steps in series.values() for step in steps})
        return [
            {"step": step, **{name: steps.get(step) for name, steps in series.items()}}
            for step in every
        ]
    # Data frames are objects of columns, each an object by row.
    frame = {name: value for name, value in content.items() if _is_by_row(value)}
    if frame:
        rows = next(iter(frame.values()))
        return [{name: column.get(row) for name, column in frame.items()} for row in rows]
    if len({len(value) for value in lists}) > 1:
        return ()
    names = [name for name, value in content.items() if isinstance(value, list)]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]


def _is_by_row(content: object) -> bool:
    return isinstance(content, dict) and bool(content) and all(map(str.isdecimal, content))


def _by_step(content: object) -> dict[int, Any]:
    """Return the values of a series by step, as Megatron-LM's tests keep them; empty for others."""
    if not isinstance(content, dict):
        return {}
    values, first, apart = (content.get(name) for name in ("values", "start_step", "step_interval"))
    if isinstance(values, list) and isinstance(first, int) and isinstance(apart, int):
        return {first + number * apart: value for number, value in enumerate(values)}
    if isinstance(values, dict) and _is_by_row(values):
        return {int(step): value for step, value in values.items()}
    return {}
