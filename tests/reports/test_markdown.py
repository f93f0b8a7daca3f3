"""Markdown for pull requests: the verdict, tables that stay tables, text that stays text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import Advice
from stallscope.reports.formats.markdown import escaped
from stallscope.reports.report_formats import ReportOptions

from .cases import NAMES


@pytest.fixture
def page(case: Callable[[str], Analysis], options: ReportOptions) -> Callable[[str], str]:
    return lambda name: rendered("md", case(name), options)


def test_the_verdict_comes_first_with_its_gain(page: Callable[[str], str]) -> None:
    text = page("a slow rank and a baseline")
    assert text.startswith("## Rank 2 holds this run back: its input is slow\n")
    promised = re.search(r"\*\*With rank 2 as fast as the others, steps would be (\S+)×", text)
    assert promised is not None
    assert float(promised[1]) > 1.2
    assert re.search(r"95% interval: 1\.\d+–1\.\d+×\)\.", text)
    assert len(re.findall(r"saves \S+ ± \S+ ms", text)) == 1
    assert "**What to do**\n\n- **Look at this rank's" in text


def test_the_ledger_has_baseline_and_excess_only_with_a_baseline(
    page: Callable[[str], str],
) -> None:
    assert "| Entry | ms per step | Share | Baseline, ms | Difference, ms |" in page(
        "a slow rank and a baseline"
    )
    assert "| Entry | ms per step | Share |\n| --- | ---: | ---: |" in page("a slow rank")


@pytest.mark.parametrize("name", NAMES)
def test_every_table_row_has_as_many_cells_as_its_head(
    name: str, page: Callable[[str], str]
) -> None:
    tables = re.findall(r"(?:^\|.*\|\n)+", page(name), re.MULTILINE)
    assert tables
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_commands_are_code_that_copies_as_it_is(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case("a slow rank")
    command = "dataset = dataset.shard(hvd.size(), *rank_<x>)"
    # An unpaired backtick is none.
    advice = (Advice("Shard first", command, unless="Not ` twice."), Advice("`a` | @b"))
    verdict = replace(analysis.bottleneck, advice=advice)
    text = rendered("md", replace(analysis, bottleneck=verdict), options)
    assert f"- **Shard first:**\n\n  ```\n  {command}\n  ```\n\n  Not \\` twice.\n" in text
    assert "- **`a` \\| @<!-- -->b.**" in text


def test_unmeasured_stages_are_marked(page: Callable[[str], str]) -> None:
    text = page("host stamps only")
    assert text.count("| not measured |") == 5 + 4
    assert "### Potential gains" not in text


def test_names_from_logs_are_neither_html_nor_links_nor_mentions(
    page: Callable[[str], str],
) -> None:
    for name in ("hostile names", "hostile names with stages", "a measured network"):
        text = page(name)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert set(re.findall(r"<[^>]*>", text)) == {"<sub>", "</sub>"} | (
            {"<!-- -->"} if "<!-- -->" in text else set()
        )
        assert "\n# " not in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u200b-\u200f\u202a-\u202e]", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`c`", r"\`c\`"),
        ("*d* _e_ ~f~ $g$", r"\*d\* \_e\_ \~f\~ \$g\$"),
        ("[x](http://y)", r"\[x\](http:<!-- -->//y)"),
        ("www.evil.example", "www.<!-- -->evil.example"),
        ("@everyone", "@<!-- -->everyone"),
        ("see #12", r"see \#<!-- -->12"),
        ("&lt;b>", "&amp;lt;b&gt;"),
        ("<!-- -->", "&lt;!-- --&gt;"),
        ("a\nb", "a b"),
        ("\u202eevil", r"\\u202eevil"),
        ("9.7 of 18.8 ms", "9.7 of 18.8 ms"),
    ],
)
def test_text_shows_as_itself(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_warnings_are_listed_and_many_are_cut(
    page: Callable[[str], str], case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    assert "### Warnings\n\n- rank-00001.0.0.steps.csv: 1 torn" in page("a torn line")
    many = replace(case("a torn line"), warnings=tuple(f"file {n}: torn" for n in range(30)))
    text = rendered("md", many, options)
    assert "- file 9: torn\n- and 20 more\n" in text


def test_epochs_are_shown_if_there_are_no_steps(page: Callable[[str], str]) -> None:
    text = page("epochs of two ranks only")
    assert "2 ranks, 2 epochs" in text
    assert (
        "### Epochs\n\n| Epoch | Rank | Took |\n| ---: | ---: | ---: |\n| 1 | 0 | 17.00 ± " in text
    )
    assert "- Mean epoch: 17.00 ± 0.04 s" in text
    assert text.count("| not measured |") == 5 + 4
    assert "ranks not known, 3 epochs" in page("epochs only")
    assert "0 steps" not in page("epochs only")


def test_stragglers_losses_and_answers_are_tables(page: Callable[[str], str]) -> None:
    assert re.search(
        r"### Stragglers\n\n\| Who \| When \| .*\n\| --- \| --- \| --- \| ---: .*\n"
        r"\| rank 2 \| all the time \| Input \| 12\.\d+ ± ",
        page("a slow rank"),
    )
    text = page("everything")
    assert re.search(r"\| of it: input stall \| \+8\.\d+ ± \S+ \| 4\.\d% \|", text)
    assert re.search(
        r"\| On 64 ranks \(extrapolated\) \| – \| 7\.\d\d× throughput \| \S+× \|", text
    )
    assert "- Communication: 100 MB of gradients" in text
    assert "- On one rank: ring\n" in text
    assert "Stragglers" not in text


def test_long_tables_are_cut(case: Callable[[str], Analysis], options: ReportOptions) -> None:
    analysis = case("a slow rank")
    many = replace(analysis, stragglers=analysis.stragglers * 30)
    text = rendered("md", many, options)
    assert text.count("| rank 2 |") == 20
    assert "\n\nAnd 10 more.\n\n" in text
