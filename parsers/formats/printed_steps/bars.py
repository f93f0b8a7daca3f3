"""Read the bars that trainings draw: ``12%|█▏  | 48/400 [01:51<13:36, 2.32s/it, loss=2.1]``.

A bar is drawn over and over; all of its states are in the output, the bars of several ranks among each
other. Its elapsed times are the clock, and its printed pace has to agree with them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Floats, Ints

from ...window_lines import step_lines
from .counters import spans
from .evidence import Evidence

# What follows the percentage and the bar itself.
_STATE = re.compile(
    rb"(?P<done>\d{1,9})(?:/(?P<total>\d{1,9})|it) \[(?P<elapsed>(?:\d{1,4}:)?\d\d:\d\d)"
    rb"(?:<[\d:?]{1,12})?, {1,4}(?P<pace>\d{1,9}(?:\.\d{0,6})?) ?(?P<unit>s/|)"
    rb"(?:it|step|batch|ba)(?P<rate>/s|)"
)
_BEFORE_BYTES = 400
_LABEL = re.compile(r"([^\r\n|%\x1b\]]{0,80}?)\s{0,80}(?:\d{1,3}%\|[^|\r\n]{0,300}\|\s{0,8})?$")
_WORD = re.compile(r"[a-z]+")
# Bars of other work, by the start of a word in their label.
_OTHER_WORK = re.compile(
    r"\b(?:download|eval|valid|test|load|sav|check|pars|map|token|fetch|generat|predict|infer|read|extract"
    r"|copy|convert|import|shard|filter|group|compil|warm|resolv|install|cast|upload|prepar|process|cach)"
)
_FEWEST_STATES = 4
# Elapsed times are whole seconds.
_UNIT_NS = 10**9
# A bar's pace is smoothed: it agrees with elapsed times up to this ratio.
_AGREE = 1.15
# Bars of several ranks show each number equally often, up to this share of numbers.
_SHARE_ALIKE = 0.9

_Bar = tuple[str, int]


class _States(NamedTuple):
    """The states of one bar as columns, or of the bars with the same label and length."""

    done: Ints
    elapsed_s: Floats
    #: Seconds of a step by the printed pace.
    pace_s: Floats


class _Chain(NamedTuple):
    """The states of one rank's bar, each fit of it an epoch."""

    done: Ints
    elapsed_s: Floats
    epoch: Ints
    ranks: int


def bars_in(data: bytes, size: int | None) -> Evidence | None:
    """Return the times of steps that the bar of a training shows; None if there is none.

    Args:
        data: the output.
        size: the number of ranks that it states; None if unknown.
    """
    bars = {
        bar: states for bar, states in _bars(data).items() if len(states.done) >= _FEWEST_STATES
    }
    if not bars:
        return None
    label, total = max(bars, key=lambda bar: len(bars[bar].done))
    states = bars[label, total]
    chain = _chain(states, size)
    return None if chain is None else _evidence(chain, states, total)


def _bars(data: bytes) -> dict[_Bar, _States]:
    """Return the states of all bars, by their labels and lengths, without those of other work."""
    rows: dict[_Bar, list[tuple[int, float, float]]] = defaultdict(list)
    end = 0
    for match in _STATE.finditer(data):
        label = _label(data[max(end, match.start() - _BEFORE_BYTES) : match.start()])
        end = match.end()
        if label is None or bool(match["unit"]) == bool(match["rate"]):
            continue
        pace = float(match["pace"])
        pace_s = pace if match["unit"] else 1 / max(pace, 1e-9)
        rows[label, int(match["total"] or 0)].append(
            (int(match["done"]), _seconds(match["elapsed"]), pace_s)
        )
    return {bar: _States(*map(np.array, zip(*states, strict=True))) for bar, states in rows.items()}


def _label(before: bytes) -> str | None:
    """Return the words before a bar; None if it is of other work than training."""
    match = _LABEL.search(before.decode("utf-8", "replace"))
    words = _WORD.findall(match[1].lower()) if match else []
    label = " ".join(words)
    return None if _OTHER_WORK.search(label) else label


def _seconds(text: bytes) -> float:
    seconds = 0
    for part in text.split(b":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)


def _chain(states: _States, size: int | None) -> _Chain | None:
    """Return the states of one rank; None if those of several ranks cannot be told apart."""
    done = states.done
    numbers, counts = np.unique(done, return_counts=True)
    last = int(np.flatnonzero(done == numbers[-1])[0])
    ranks = int((done[:last] == numbers[0]).sum()) if last else 1
    if ranks < 2:
        keep = np.append(True, done[1:] != done[:-1])
        begins = np.append(False, np.diff(done[keep]) < 0)
        return _Chain(done[keep], states.elapsed_s[keep], np.cumsum(begins), 1)
    usual = int(np.median(counts))
    if (counts == usual).mean() < _SHARE_ALIKE or usual % ranks or (size or ranks) != ranks:
        return None
    return _median_chain(states, numbers[counts == usual], ranks)


def _median_chain(states: _States, numbers: Ints, ranks: int) -> _Chain:
    """Return the times of the median rank: bars that began earlier are ahead by the same time."""
    order = np.argsort(states.done, kind="stable")
    order = order[np.isin(states.done[order], numbers)]
    # For each number the states of the first epoch come first, those of all ranks together.
    elapsed = states.elapsed_s[order].reshape(len(numbers), -1, ranks)
    middle = np.sort(elapsed, axis=2)[:, :, ranks // 2].T
    epochs = middle.shape[0]
    return _Chain(
        np.tile(numbers, epochs), middle.ravel(), np.repeat(np.arange(epochs), len(numbers)), ranks
    )


def _evidence(chain: _Chain, states: _States, total: int) -> Evidence | None:
    count = len(chain.done)
    columns = {
        "rank": np.full(count, -1),
        "step": chain.done,
        "timed": np.zeros(count, bool),
        "ns": np.zeros(count, np.int64),
        "zone_known": np.zeros(count, bool),
        "resolution_ns": np.ones(count, np.int64),
        "year_known": np.ones(count, bool),
    }
    if chain.epoch.any():
        columns["epoch"] = chain.epoch
    if total:
        columns["steps"] = np.full(count, total)
    lines = step_lines(columns)
    if len(lines) != count:
        return None
    ns = np.rint(chain.elapsed_s * 1e9).astype(np.int64)
    breaks = lines.begins | np.append(False, np.diff(ns) < 0)
    _, end, seconds = spans(lines, ns, _UNIT_NS, breaks)
    if not len(seconds):
        return None
    ratio = float(np.median(states.pace_s)) / float(np.median(seconds))
    checks = (f"the bar's pace agrees with its elapsed times within {100 * abs(ratio - 1):.1f}%",)
    columns = {name: column[end] for name, column in columns.items()}
    return Evidence(
        {**columns, "seconds": seconds},
        "mean",
        checks if 1 / _AGREE <= ratio <= _AGREE else (),
        size=chain.ranks if chain.ranks > 1 else None,
    )
