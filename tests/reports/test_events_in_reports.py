"""Events from other logs are in reports, with time, kind, ranks and log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.reports import rendered
from support.schemas import errors_in

from stallscope.analysis import Analysis, analyse
from stallscope.batch.anonymous import anonymous
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.run_tables import events_table
from stallscope.run import Event

from .cases import IMAGE, SCRIPT

S = 10**9
STALL = Event("stall", "logs/stderr.txt", "tensors wait for rank 1: grad_a", (1,), ("beta",))

Told = Callable[..., Analysis]


@pytest.fixture
def with_events(case: Callable[[str], Analysis]) -> Told:
    """Analyse two ranks whose companion files contain these events."""

    def analysis_of(*events: Event) -> Analysis:
        analysis = case("two ranks")
        return replace(analysis, run=replace(analysis.run, events=events))

    return analysis_of


def wall(analysis: Analysis, seconds: float) -> int:
    began = analysis.run.started_at
    assert began is not None
    return round(began.timestamp() * S + seconds * S)


def rows(analysis: Analysis) -> list[tuple[str, ...]]:
    table = events_table(analysis)
    assert table is not None
    return list(table.rows)


def test_each_has_its_time_with_its_uncertainty(with_events: Told) -> None:
    at = wall(with_events(), 12.5)
    analysis = with_events(
        replace(STALL, ranks=(), hosts=(), local_ns=5),
        replace(STALL, wall_ns=at, uncertainty_ns=S),
        replace(STALL, wall_ns=at - 20 * S, ranks=()),
    )
    what, log = "tensors wait for rank 1: grad_a", "logs/stderr.txt"
    assert rows(analysis) == [
        ("7.50 s before the start", what, "beta", log),
        ("12.5 s after the start, or up to 1.00 s later", what, "rank 1, beta", log),
        ("not known", what, "–", log),
    ]


def test_problems_come_before_other_events(with_events: Told) -> None:
    at = wall(with_events(), 0)
    quiet = [Event("executor_added", "app", f"{n} was added", wall_ns=at + n) for n in range(80)]
    lost = Event("executor_lost", "app", "was lost", wall_ns=at + 79)
    exited = Event("rank_exited", "out", "rank 0 exited with status 1")
    analysis = with_events(*quiet, lost, exited)
    event_rows = rows(analysis)
    assert [row[1] for row in event_rows[-2:]] == ["was lost", "rank 0 exited with status 1"]
    assert [row[1] for row in event_rows[:2]] == ["0 was added", "1 was added"]
    assert len(event_rows) == 50
    table = events_table(analysis)
    assert table is not None
    assert table.note.endswith("32 more of 82 are left out, the harmless ones first.")


def test_without_events_there_is_no_section(with_events: Told, options: ReportOptions) -> None:
    assert events_table(with_events()) is None
    for name in ("html", "md"):
        assert "Events from other logs" not in rendered(name, with_events(), options)
    assert json_content(with_events())["events"] == {"total": 0, "listed": []}


def test_pages_have_them_as_text(with_events: Told, options: ReportOptions) -> None:
    hostile = Event("stall", IMAGE, f"{SCRIPT} | `x`\u202e", hosts=(IMAGE,), wall_ns=1)
    analysis = with_events(hostile, STALL)
    page = rendered("html", analysis, options)
    assert "tensors wait for rank 1: grad_a" in page
    assert SCRIPT not in page
    assert "<img" not in page
    assert "\\u202e" in page
    text = rendered("md", analysis, options)
    assert "### Events from other logs\n\n| When | What happened | Of | Log |" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\| \\`x\\`" in text
    assert "<script>" not in text


def test_programs_get_numbers(with_events: Told) -> None:
    analysis = with_events(
        replace(STALL, wall_ns=wall(with_events(), 3.5), uncertainty_ns=S, waited_ns=60 * S)
    )
    document = json_content(analysis)
    assert errors_in("report", document) == []
    (event,) = document["events"]["listed"]
    assert event["since_begin_s"] == pytest.approx(3.5, abs=1e-6)
    assert event | {"since_begin_s": 3.5} == {
        "kind": "stall",
        "what": "tensors wait for rank 1: grad_a",
        "ranks": [1],
        "hosts": ["beta"],
        "log": "logs/stderr.txt",
        "since_begin_s": 3.5,
        "uncertainty_s": 1.0,
        "lasted_s": 60.0,
    }


def test_of_very_many_events_programs_get_the_important_ones(with_events: Told) -> None:
    many = [replace(STALL, kind="task_started", wall_ns=n) for n in range(5000)]
    events = json_content(with_events(*many, STALL))["events"]
    assert (events["total"], len(events["listed"])) == (5001, 1000)
    assert events["listed"][-1]["kind"] == "stall"
    assert events["listed"][-1]["since_begin_s"] is None


def test_anonymous_reports_name_no_host(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    run = case("two hosts").run
    assert run.hosts == ["alpha", "beta"]
    event = Event(
        "host_blacklisted",
        "/vault/mpi/stderr",
        "host beta.secret.example failed, as did gamma at 10.1.2.3, see /vault/x",
        hosts=("beta.secret.example", "gamma"),
        wall_ns=1,
    )
    analysis = analyse(anonymous(replace(run, events=(event,))))
    (shown,) = analysis.run.events
    assert shown.hosts == ("host-2", "other-host-1")
    assert shown.where == "stderr"
    texts = [
        rendered("html", analysis, options),
        rendered("md", analysis, options),
        json.dumps(json_content(analysis)),
    ]
    for text in texts:
        assert "other-host-1" in text
        for secret in ("beta", "gamma", "secret", "10.1.2.3", "vault"):
            assert secret not in text
