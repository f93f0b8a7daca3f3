"""The public names, and the page that describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import pandas as pd
import pytest
from support.commands import collect_job
from support.step_logs import Job, write_job

import stallscope as ss
from stallscope.api.steps import MOST_ROWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Analysed = Callable[[str], ss.Analysis]


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    text = PAGE.partition(f"# {title}\n")[2]
    assert text, title
    return re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]


def documented(title: str) -> set[str]:
    """Return the columns that the first cells of a section's table name."""
    cells = re.findall(r"^\| (`.*?) \|", section(title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def columns(frame: pd.DataFrame) -> set[str]:
    return {*frame.columns, *frame.index.names} - {None}


def test_the_page_has_the_public_names() -> None:
    cells = re.findall(r"^\| (`ss.*?) \|", section("Names"), re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`ss\.(\w+)", cell)}
    assert names == set(ss.__all__)
    assert all(hasattr(ss, name) for name in names)
    assert names <= set(dir(ss))


@pytest.mark.parametrize("name", ["steps", "epochs", "windows", "events", "machines"])
def test_the_page_has_the_columns_of_a_run(analysed: Analysed, name: str) -> None:
    assert documented(f"`run.{name}`") == columns(getattr(analysed("steps").run, name))


@pytest.mark.parametrize("name", ["steps", "series", "ranks", "stragglers", "causes", "gains"])
def test_the_page_has_the_columns_of_an_analysis(analysed: Analysed, name: str) -> None:
    assert documented(f"`found.{name}`") == columns(getattr(analysed("steps"), name))


def test_the_page_has_the_columns_of_ledgers_and_findings(analysed: Analysed) -> None:
    analysis = analysed("steps")
    ledgers = columns(analysis.ledger) | columns(analysis.by_cause)
    assert documented("`found.ledger`, `found.by_cause`") == ledgers
    assert set(re.findall(r"`(\w+)`", section("`found.findings`"))) == columns(analysis.findings)
    of_steps = {name for name in documented("`found.steps`") if name.endswith(("_ms", "_s"))}
    assert columns(analysis.epochs) == of_steps | {"epoch", "steps"}


def test_the_page_has_the_columns_of_several_runs(tmp_path: Path, analysed: Analysed) -> None:
    analysis = analysed("steps")
    change = ss.compare(analysis, analysis)
    assert documented("Two runs") == columns(change.step) == columns(change.by_cause)
    assert documented("Sizes") == columns(ss.scaling([analysis]).points)
    collect_job(tmp_path, Job(steps=60))
    assert documented("Runs of a store") == columns(ss.runs(tmp_path / "store"))


def test_the_page_has_the_columns_of_a_history(analysed: Analysed) -> None:
    history = ss.history([analysed("steps")])
    rows = re.findall(r"^\| `nights\.(\w+)` (.*)$", section("Many runs of a job"), re.MULTILINE)
    assert len(rows) == 4
    statuses = {*history.outcomes["status"].cat.categories}
    for name, row in rows:
        frame = getattr(history, name)
        words = {*re.findall(r"`(\w+)`", row)} - statuses
        assert {*frame.index.names} <= words <= columns(frame), name


def test_the_page_has_the_limit_of_rows() -> None:
    assert f"up to {MOST_ROWS:,} rows" in section("`run.steps`")
    assert ss.Run.steps.__doc__ is not None
    assert f"{MOST_ROWS:,} rows" in ss.Run.steps.__doc__


def test_the_pages_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ranks in (2, 8):
        collect_job(tmp_path, replace(Job(steps=60), ranks=ranks, run_id=f"on-{ranks}"))
    (tmp_path / "store").rename(tmp_path / "runs")
    for night in range(2):
        write_job(tmp_path / "nightly" / str(night), Job(steps=60, run_id=f"night-{night}"))
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    examples = PYTHON.findall(PAGE)
    assert len(examples) == 6
    monkeypatch.chdir(tmp_path)
    # A browser would open.
    program = "\n".join(examples).replace(".show()", "")
    names: dict[str, object] = {}
    exec(compile(program, "docs/python.md", "exec"), names)
    analysis = names["found"]
    assert isinstance(analysis, ss.Analysis)
    assert f"# '{analysis.headline}'" in PAGE


def test_an_unknown_name_is_no_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne_run'"):
        _ = ss.opne_run  # type: ignore[attr-defined]


PUBLIC = [getattr(ss, name) for name in ss.__all__ if name != "StallscopeError"]


def members(public: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """Return a function, or the public functions and properties of a type."""
    if not isinstance(public, type):
        assert callable(public)
        yield public.__name__, public
        return
    for name, member in vars(public).items():
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and callable(function):
            yield f"{public.__name__}.{name}", function


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: str(public.__name__))
def test_every_public_name_is_typed_and_described(public: object) -> None:
    functions = [*members(public)]
    assert functions
    for name, function in functions:
        assert function.__doc__, name
        hints = get_type_hints(function)
        arguments = inspect.signature(function).parameters.keys() - {"self"}
        assert {*arguments, "return"} <= hints.keys(), name
