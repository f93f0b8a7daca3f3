"""Properties of every format and every kind of run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dash_mantine_components as dmc
import pytest
from dashboard.content import charts, of_type, texts
from support.reports import contradictions, rendered, written

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import compare
from stallscope.analysis.findings.finding import Finding
from stallscope.analysis.gains.what_if import Advice
from stallscope.analysis.regression import regression
from stallscope.analysis.scaling import scaling
from stallscope.cli.main import main
from stallscope.dashboard import RunStore
from stallscope.dashboard.components.basics import advice_steps
from stallscope.dashboard.pages import PAGES
from stallscope.dashboard.pages.run_page import RunPage, RunRequest
from stallscope.errors import UsageError
from stallscope.reports import comparison, report_formats
from stallscope.reports import scaling as scaling_reports
from stallscope.reports.comparison import Compared
from stallscope.reports.report_formats import ReportFormat, ReportOptions
from stallscope.reports.run.json_content import json_content
from stallscope.text.summary_words import six_lines

from .cases import CASES, NAMES

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_logs"
PRINTED = ROOT / "tests" / "parsers"
#: Every command that prints what it found in a run, and formats of files.
COMMANDS = {
    "a report on all samples": ("report", SAMPLES, "--format", "html,md,json,csv", "--out", "."),
    "a list of all samples": ("report", SAMPLES),
    **{
        f"a report on {name} alone": ("report", SAMPLES / name)
        for name in ("slow-input-one-rank", "slow-compute-rank", "busy-rank-0", "ranks-1")
    },
    **{
        f"files on {name} alone": (
            *("report", SAMPLES / name),
            *("--format", "html,md,json", "--out", "."),
        )
        for name in ("slow-input-one-rank", "slow-input-all-ranks")
    },
    "a report on the run itself": ("report", SAMPLES / "clean", "--baseline", SAMPLES / "clean"),
    "one line per epoch": ("report", PRINTED / "printed" / "tf-2.15-verbose-2.txt"),
    "one epoch": ("report", PRINTED / "printed" / "keras-3.15-one-epoch.txt"),
    "a trace of GPUs": ("report", PRINTED / "neighbours" / "one-gpu.pt.trace.json.gz"),
    "all samples inspected": ("inspect", SAMPLES),
    "printed logs inspected": ("inspect", PRINTED / "printed"),
    "a comparison": ("compare", SAMPLES / "clean", SAMPLES / "slow-input-one-rank"),
    "samples over time": ("compare", SAMPLES),
    "scaling": ("scaling", SAMPLES),
    "settings": ("tune", ROOT / "tests" / "cli" / "tune"),
    "settings as files": (
        *("tune", ROOT / "tests" / "cli" / "tune"),
        *("--format", "md,json", "--out", "."),
    ),
    "a summary": ("summary", SAMPLES / "slow-compute-rank"),
    "events": (
        *("watch", "--once", SAMPLES / "slow-input-one-rank", SAMPLES / "clean"),
        *("--baseline", SAMPLES / "synthetic", "--when", "input.excess>1%"),
        *("--when", "step_ms.p99>step_ms.p50", "--when", "imbalance.share>0"),
    ),
}

every_case = pytest.mark.parametrize("name", NAMES)
every_report = pytest.mark.parametrize(
    "report", report_formats.FORMATS, ids=lambda report: report.name
)


@pytest.mark.broad
@every_case
@every_report
def test_every_run_can_be_reported(
    report: ReportFormat, name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered(report.name, case(name), options)
    assert text.encode("utf-8").decode("utf-8") == text
    assert contradictions(report.name, text) == []


@pytest.mark.broad
@every_case
def test_terminals_show_no_contradictions(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered("terminal", case(name), options)
    assert contradictions("terminal", text) == []
    assert contradictions("terminal", "\n".join(six_lines(case(name), "logs"))) == []


@pytest.mark.broad
@every_case
def test_the_dashboard_shows_no_contradictions(name: str, case: Callable[[str], Analysis]) -> None:
    analysis = case(name)
    steps = [] if analysis.ledger is None else analysis.ledger.steps[:1].tolist()
    store = RunStore([analysis.run])
    (run,) = store.runs()
    for page in (page for page in PAGES if isinstance(page, RunPage)):
        if "<step>" in page.path and not steps:
            continue
        values = {"step": str(*steps)}
        content = page.parts(RunRequest(run.id, None, analysis, values, {}), store)
        labels = [label for chart in charts(content).values() for label in _labels(chart.to_dict())]
        shown = "\n".join([*texts(content), *labels])
        assert contradictions("terminal", shown) == [], page.path


def _labels(part: object) -> Iterator[str]:
    """Yield the texts of a chart."""
    if isinstance(part, str):
        yield re.sub(r"</?[bi]>|<br>", "\n", part)
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _labels(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _labels(value)


@pytest.fixture(scope="module")
def runs(case: Callable[[str], Analysis]) -> list[Analysis]:
    """Return the analyses of all cases, as those of different runs."""
    named = ((name, case(name)) for name in CASES)
    return [replace(analysis, run=replace(analysis.run, id=name)) for name, analysis in named]


@pytest.mark.broad
@pytest.mark.parametrize("name", ["terminal", *report_formats.SEVERAL_RUNS])
def test_reports_on_several_runs_show_no_contradictions(
    name: str, runs: list[Analysis], options: ReportOptions
) -> None:
    pairs = [Compared(pair=compare(*pair)) for pair in pairwise(runs)]
    several = [*map(comparison.parts, [*pairs, Compared(histories=regression(runs))])]
    several.append(scaling_reports.parts(scaling(runs)))
    for report in several:
        assert contradictions(name, written(name, report, options)) == []


@pytest.mark.broad
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_no_contradictions(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([str(word) for word in COMMANDS[name]]) in (0, 1)
    printed = "".join(capsys.readouterr())
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name[0] != "."]
    assert printed or files
    assert contradictions("terminal", printed) == []
    for path in files:
        assert contradictions(path.suffix[1:], path.read_text()) == [], path.name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("md", "at most nan×"),
        ("md", "Replace host host-5"),
        ("md", "means of the last of 1 steps"),
        ("terminal", "on 1 ranks"),
        ("html", "<p>a change of <b>−0.0%</b></p>"),
        ("html", "<p title='>−0.1%'>no change</p>"),
        ("md", "input 20.9 s of 18.6 s"),
        ("md", "Fixing it saves 60.9 of 50.9 ms per step"),
        ("md", "1.2 min of the step's 54.1 s"),
        ("md", "at most 18,569,909,091×"),
        ("html", "<title>Compute\n−0.01 s\n95% interval: −0.00462 to −0.00326 s</title>"),
        ("html", "<title>Input\n0.1 s, 1.2% of 8.0 s\n95% interval: 0.201–0.212 s</title>"),
        ("md", "steps 1.25× as fast (95% interval: 1.31–1.34×)"),
        ("md", "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20"),
        ("json", '{"versions": {"horovod": "None"}}'),
        ("json", '{"lost_ci_low": 1.5}'),
    ],
)
def test_contradictions_are_seen(name: str, text: str) -> None:
    assert len(contradictions(name, text)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("md", "at most 1.25×, and 12.3 ± 0.4 ms of the step's 54.1 ms"),
        ("md", "29 of 64 ranks: rank 1 waits, 1 step, 1,001 samples/s, 60.0 s of 1.00 min"),
        ("md", "56.1× throughput on 64 ranks; +0.0 ms of host-0 on rank 0"),
        ("terminal", "Step   steps\nfrom step to step\nstep time"),
        ("html", "<title>Input\n+0.1 s\n95% interval: 0.052–0.061 s</title>"),
        ("md", "96.7% of the baseline's (95% interval: 96.71% to 96.74%)"),
        ("html", "<style>a{inset:-0}</style><td>Run</td><td>run-a</td>"),
        ("json", '{"ms": null, "saved_ci95_ms": [1.5, 2.5], "speedup": 1.25, "steps": 12}'),
    ],
)
def test_honest_figures_pass(name: str, text: str) -> None:
    assert contradictions(name, text) == []


@pytest.mark.broad
@every_report
def test_a_report_is_the_same_every_time(
    report: ReportFormat, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case("a slow rank and a baseline")
    assert rendered(report.name, analysis, options) == rendered(report.name, analysis, options)


@pytest.mark.parametrize("name", ["html", "md"])
def test_reports_show_when_and_by_which_version_they_were_made(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered(name, case("two ranks"), options)
    assert "Stallscope 1.2.3, 2026-11-21 06:30 UTC" in text


def test_formats_are_found_by_name() -> None:
    assert report_formats.names() == ["html", "md", "json", "csv", "openmetrics"]
    assert [report_formats.by_name(name).suffix for name in report_formats.names()] == [
        ".html",
        ".md",
        ".json",
        ".csv",
        ".prom",
    ]


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'pdf': there are html, md, json, csv"):
        report_formats.by_name("pdf")


def test_a_list_of_formats_contains_each_once() -> None:
    assert report_formats.parse("md, HTML,md,") == ["md", "html"]


@pytest.mark.parametrize("text", ["", " , ", "html,pdf"])
def test_a_list_with_no_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there are html, md, json, csv"):
        report_formats.parse(text)


# -- advice ----------------------------------------------------------------------------------------

#: Its names, which come from logs, look like sentences, clauses and lines to copy.
NAMES = Advice("Replace host a. Then run: `rm b`. C; d", unless="Not if it is: `rm c`. E.")
LINE = Advice(
    "Unset it", "unset A", reason="It is slow:", detail="; it is old", gain="It is short."
)
#: What stands out, and the lines to copy.
PARTS = {
    "md": (r"\*\*(.+?)\*\*", r"```\n  (.*)\n  ```"),
    "html": (r"<b>(.*?)</b>", r'<pre tabindex="0" aria-label="To copy">(.*?)</pre>'),
}


@pytest.mark.parametrize("name", PARTS)
def test_advice_reaches_reports_in_its_parts(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case("a slow rank")
    verdict = replace(analysis.bottleneck, advice=(NAMES, LINE))
    finding = Finding("timeline_on", "warning", "It was on", "It is set.", (LINE, NAMES))
    emphasised, to_copy = PARTS[name]
    text = rendered(name, replace(analysis, bottleneck=verdict, findings=(finding,)), options)
    marked = [re.sub("</?code>|`", "", part) for part in re.findall(emphasised, text)]
    actions = [part for part in marked if part.startswith(("Replace", "Unset"))]
    names = "Replace host a. Then run: rm b. C; d."
    assert actions == [names, "Unset it", "Unset it", names]
    assert re.findall(to_copy, text) == ["unset A"] * 2


def test_advice_reaches_the_dashboard_in_its_parts() -> None:
    content = dmc.Box(advice_steps((NAMES, LINE)))
    actions = ["".join(texts(action)) for action in of_type(content, "Strong")]
    assert actions == ["Replace host a. Then run: rm b. C; d.", "Unset it"]
    lines = [code.children for code in of_type(content, "Code") if getattr(code, "block", False)]
    assert lines == ["unset A"]
    assert "".join(texts(content)).endswith("It is slow: Unset it; it is old:unset AIt is short.")


def test_programs_get_advice_as_text(case: Callable[[str], Analysis]) -> None:
    analysis = case("a slow rank")
    finding = Finding("timeline_on", "warning", "It was on", "It is set.", (LINE, NAMES))
    verdict = replace(analysis.bottleneck, advice=(LINE,))
    content = json_content(replace(analysis, bottleneck=verdict, findings=(finding,)))
    line = "It is slow: Unset it; it is old: `unset A`. It is short."
    assert content["bottleneck"]["advice"] == [line]
    names = "Replace host a. Then run: `rm b`. C; d. Not if it is: `rm c`. E."
    assert content["findings"][0]["advice"] == f"{line} {names}"
