"""The condition language: no input crashes it, conditions survive writing and reading, all is
documented.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import simulator
from hypothesis import example, given
from hypothesis import strategies as st
from simulator import Job

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.catalogue.entry import AnalysisSummary, Entry
from stallscope.catalogue.where import parse_search, parse_where
from stallscope.conditions.condition import Condition, parse
from stallscope.conditions.known_figures import known_names
from stallscope.conditions.language import UNITS
from stallscope.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "conditions.md"
_NAMES = [name.replace("FIX", "input") for name in known_names()]
_WORDS = [
    *_NAMES,
    *("baseline", "and", "or", "not", "surely", "(", ")", "'input'", "'", '"', "\x00", "‮"),
    *("<", "<=", ">", ">=", "==", "!=", "=", "~", "+", "-", "*", "/", "%", "ms", "s"),
    *(
        "0",
        "20",
        "1e3",
        "0.5",
        "1e-320",
        "9" * 400,
        "what_if.rank:3.speedup",
        "what_if.'host:a.b'.saved_ms",
    ),
]

FILTER_WORDS = ["model=x", "age<7d", "ranks", "host~'a", "started_at>=2026-11-21", "word", "3"]
ENTRY = Entry(
    *("folder", "id", "name", "source", "torch", "x"),
    *(2, ("host-a",), 64, False, "open", None, "2026-11-22T00:00:00.000Z", 1000, {}, "job"),
    summary=AnalysisSummary(verdict="input"),
    manifest="",
)

_amounts = st.builds(
    lambda factor, name: f"{factor}{name}",
    st.sampled_from(["", "", "2*", "-0.5 * ", "1e3*", "90%*"]),
    st.sampled_from(
        ["baseline", *(name for name in _NAMES if not name.startswith(("bottleneck", "status")))]
    ),
)
_limits = st.one_of(
    _amounts,
    st.builds(
        lambda number, unit: f"{number}{unit}",
        st.floats(-1e300, 1e300).map(repr),
        st.sampled_from(sorted(UNITS)),
    ),
)
_comparisons = st.one_of(
    st.builds(
        lambda left, sign, right: f"{left}{sign}{right}",
        _amounts,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        _limits,
    ),
    st.sampled_from(["bottleneck=='input'", 'status != "open"', "size>1", "gap>=10%", "0<gap"]),
    st.sampled_from(["verdict=input", "cause~'in'", "ranks=2", "compute>=10%", "0<2*step_ms"]),
    st.sampled_from(["stopped", "stopped.seconds>=1min"]),
)
_conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds(lambda condition: f"not {condition}", inner),
        st.builds(lambda condition: f"({condition})", inner),
        st.builds(lambda condition: f"surely({condition})", inner),
        st.builds(
            lambda left, word, right: f"{left} {word} {right}",
            inner,
            st.sampled_from(["and", "or"]),
            inner,
        ),
    ),
    max_leaves=6,
)


@cache
def analyses() -> list[Analysis]:
    job = Job(ranks=2, steps=60)
    run = simulator.simulate(job).run
    bare = simulator.simulate(Job(ranks=1, steps=3, stamps=False)).run
    return [analyse(run, simulator.simulate(job.baseline()).run), analyse(bare)]


def _checked(text: str) -> None:
    """Read, write, read again and evaluate on runs; or get an error of one sentence."""
    try:
        condition = parse(text)
    except ValueError as error:
        message = str(error)
    else:
        _evaluated_on_runs(condition)
        return
    assert re.match(r"column \d+: \S|a condition has at most ", message)
    assert message.isprintable()


def _evaluated_on_runs(condition: Condition) -> None:
    assert parse(str(condition)) == condition
    for analysis in analyses():
        outcome = condition.check(analysis)
        assert outcome.held in (True, False, None)
        assert outcome.why
        assert "nan" not in outcome.why.split()


@pytest.mark.slow
@given(st.text(max_size=80))
@example("\ud800>1")
@example("٣>1")
def test_no_text_crashes_it(text: str) -> None:
    _checked(text)


@given(st.lists(st.sampled_from(_WORDS), max_size=20), st.sampled_from(["", " "]))
def test_no_order_of_words_crashes_it(words: list[str], between: str) -> None:
    _checked(between.join(words))


@given(_conditions)
@example("not not size>1")
@example("size>0 or (size>1 and (size>2 or size>3))")
@example("size>0 or (size>1 or surely(not (size>2 and size>3)))")
@example("-2*size<-1 and 90 % * baseline>size")
def test_written_conditions_read_the_same(text: str) -> None:
    _checked(text)


@pytest.mark.broad
@given(
    st.lists(st.sampled_from([*_WORDS, *FILTER_WORDS]) | st.text(max_size=9), max_size=20),
    st.sampled_from(["", " "]),
)
@example(["not", "(", "model", "~", "(x", "or"], " ")
@example(["bottleneck", "<", "samples_per_second"], "")
@example(["bottleneck.cause", "<", "samples_per_second"], "")
def test_no_order_of_words_crashes_a_filter(words: list[str], between: str) -> None:
    for parse_any in (parse_where, parse_search):
        try:
            parsed = parse_any(between.join(words))
        except UsageError as error:
            message = str(error).removeprefix("--where: ")
        else:
            assert parsed.finds(ENTRY, "training") in (True, False)
            continue
        assert re.match(
            r"column \d+: \S|there is no field |\w.*?[<>=~].*?: \S|[\w.]+ is never ", message
        )
        assert message.isprintable()


def test_parentheses_stay_where_they_matter() -> None:
    assert str(parse("0.90 * baseline > size")) == "0.9*baseline.size>size"
    assert str(parse("size < baseline * 90%")) == "size<90%*baseline.size"
    assert str(parse("size>1 and (size>2 and size>3)")) == "size>1 and (size>2 and size>3)"
    assert str(parse("(size>1 or size>2) and size>3")) == "(size>1 or size>2) and size>3"
    assert str(parse("not (size>1 and gap>20 %)")) == "not (size>1 and gap>20%)"
    assert str(parse("step_ms.mean<baseline")) == "step_ms.mean<baseline.step_ms.mean"
    assert str(parse("what_if.'host:a.b'.speedup>1.50")) == "what_if.'host:a.b'.speedup>1.5"


def test_every_figure_and_unit_is_documented() -> None:
    documented = set(re.findall(r"`([^`]+)`", PAGE.read_text()))
    for name in known_names():
        first, _, rest = name.partition(".")
        generic = f"PART.{rest}" if first in ENTRIES else name
        assert generic in documented, name
    assert set(UNITS) - {""} <= documented


def test_every_example_on_the_page_is_a_condition() -> None:
    examples = re.findall(r"--fail-if '([^']+(?:'\\''[^']*)*)'", PAGE.read_text())
    fenced = re.findall(r"^    ([a-z(][^\n]*)$", PAGE.read_text(), re.MULTILINE)
    conditions = [text for text in fenced if not text.startswith("stallscope")]
    assert len(conditions) > 5
    for text in [*examples, *conditions]:
        parse(text)
