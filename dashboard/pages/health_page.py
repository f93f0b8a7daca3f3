"""Show which logs of a run were read, which are missing, and how accurate they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.analysis.views.log_health import RankLogs, missing_timestamps
from stallscope.formatting.lists import as_text, capitalised, counted, listed
from stallscope.formatting.numbers import share
from stallscope.reports.document import NOTHING, Table
from stallscope.reports.run.run_contents import ranks_of_logs
from stallscope.reports.run.run_tables import clock
from stallscope.run import Run
from stallscope.text.figure_words import (
    bytes_in_words,
    clocks,
    health,
    lacks,
    late_timestamps,
    printed_figures,
)
from stallscope.text.job_words import epoch_figures

from ..components.basics import card, points, sentence_card
from ..components.data_tables import data_card, folded_table, table_card
from ..components.notices import PAGE_OF, findings_card, warnings_card
from ..store import RunStore
from ..store.cache import logs_of, timestamps_of
from .run_page import RunPage, RunRequest, side_by_side

_MOST_PROBLEMS = 500
_TIMESTAMPS = {
    "data": "Batch there",
    "ready": "Last gradient ready",
    "reduced": "Gradients reduced",
}
_CONTEXT = (
    ("recorder", "Recorder's version"),
    ("framework", "Framework"),
    ("versions", "Versions"),
    ("python", "Python"),
    ("flush_seconds", "Written every, s"),
    ("timeline", "Horovod Timeline on"),
)
# Figures that say how lines were read; the overview has the others.
_OF_LINES = ("Lines", "Their times", "Step numbers", "Precision")


class HealthPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/health"
    tab: ClassVar[str] = "Log health"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        ranks = logs_of(analysis)
        missing = lacks(analysis, ranks)
        title, text = health(analysis, ranks)
        problems = {str(problem) for problem in analysis.run.problems}
        of_lines = analysis.epoch_times is not None
        findings = [
            finding for finding in analysis.findings if PAGE_OF.get(finding.code) == self.tab
        ]
        return [
            sentence_card(title, text, "warning" if missing else "neutral"),
            side_by_side(
                card("Missing data", points(missing)) if missing else None,
                findings_card(findings, request.run_id, request.baseline_id) if findings else None,
            ),
            files_card(analysis.run) if of_lines else ranks_card(ranks),
            problems_card(analysis.run),
            side_by_side(clocks_card(analysis), timestamps_card(analysis)),
            lines_card(analysis) if of_lines else recorder_card(analysis.run, ranks),
            warnings_card([text for text in analysis.warnings if text not in problems]),
        ]


def ranks_card(ranks: Sequence[RankLogs]) -> Any:
    """Tabulate every rank's logs, those that lack most first; folded if all are whole."""
    ordered = sorted(ranks, key=_completeness)
    lacking = sum(not logs.whole for logs in ranks)
    lack = "lacks" if lacking == 1 else "lack"
    note = f"{counted(lacking, 'rank')} of {len(ranks):,} {lack} something; the most comes first."
    every_rank = counted(len(ranks), "rank")
    table = Table(
        "What was read",
        ("Rank", "Host", "State", "Files", "Bytes", "Steps", "Steps missing", "Torn lines"),
        tuple(_rank_row(logs) for logs in ordered),
        words=frozenset({0, 1, 2}),
    )
    return card(
        table.title,
        folded_table(table, f"All {every_rank}", is_open=lacking > 0),
        note=note if lacking else f"All {every_rank} left whole logs.",
    )


def files_card(run: Run) -> Any:
    """Tabulate the files of another program, each with the ranks whose lines it has."""
    ranks: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for log in run.logs:
        ranks.setdefault(log.path, []).append(log.rank)
        # A file that several ranks share counts once.
        sizes[log.path] = max(sizes.get(log.path, 0), log.size)
    columns = {"File": [*ranks], "Lines of": [listed("rank", of) for of in ranks.values()]}
    if run.known_size is None:
        del columns["Lines of"]
    columns["Size"] = [bytes_in_words(sizes[path]) for path in ranks]
    words = frozenset(range(len(columns) - 1))
    return table_card(Table.of("What was read", columns, words=words))


def lines_card(analysis: Analysis) -> Any:
    """Tabulate how lines were read; what they do not have is left out."""
    known = {**dict(printed_figures(analysis.printed)), **dict(epoch_figures(analysis))}
    rows = [
        ("Known from", as_text(analysis.run.fact("known_from"))),
        *((title, known[title]) for title in _OF_LINES if title in known),
        ("Clock", as_text(analysis.run.fact("clock"))),
        ("Ranks", ranks_of_logs(analysis)),
        *((title, _fact(analysis.run.fact(name))) for name, title in _CONTEXT),
    ]
    return data_card(
        "How it was read", "", ("Fact", "Value"), [row for row in rows if row[1]], text_columns=2
    )


def _completeness(logs: RankLogs) -> tuple[bool, bool, int, bool, int, int]:
    """Return a key that sorts ranks by how much of their logs is there."""
    return (
        logs.whole,
        logs.files > 0,
        -logs.missing_steps,
        logs.ended,
        -logs.torn,
        logs.rank,
    )


def problems_card(run: Run) -> Any:
    """Tabulate the problems of reading."""
    if not run.problems:
        return None
    more = len(run.problems) - _MOST_PROBLEMS
    also = f"; {more:,} more are not shown" if more > 0 else ""
    return data_card(
        "Problems while reading",
        f"{counted(len(run.problems), 'problem')}: nothing is dropped silently{also}.",
        ("Where", "What"),
        [(problem.where, problem.what) for problem in run.problems[:_MOST_PROBLEMS]],
        text_columns=2,
    )


def clocks_card(analysis: Analysis) -> Any:
    """Tabulate how the hosts' clocks are aligned."""
    alignment = analysis.clocks
    if alignment is None:
        return None
    hosts: dict[str, RankSummary] = {}
    for rank in analysis.ranks:
        hosts.setdefault(rank.host, rank)
    jumps = [f"{name}: {ms:+.1f} ms at step {step:,}" for name, step, ms in alignment.jumps]
    return data_card(
        "Clocks",
        f"{capitalised(clocks(analysis))}. Causality is broken in {share(alignment.violations)} of "
        f"steps. {late_timestamps(analysis)} "
        + (f"Set while the job ran: {'; '.join(jumps)}." if jumps else "No clock was set."),
        ("Host", "Ahead of the first host's, ms"),
        [(host, clock(rank)) for host, rank in hosts.items()],
    )


def timestamps_card(analysis: Analysis) -> Any:
    """Tabulate the share of steps with each timestamp, and the reasons for missing ones.

    None without steps.
    """
    if not analysis.coverage.steps:
        return None
    missing = missing_timestamps(analysis.run)
    reasons = [f"{listed('rank', timestamps.ranks)}: {timestamps.reason}" for timestamps in missing]
    why = f"Not everywhere: {'; '.join(reasons)}." if reasons else "No recorder left one out."
    return data_card(
        "Stages",
        f"Timestamps within a step, from which its stages come. {why}",
        ("Timestamp", "Taken in"),
        [
            (_TIMESTAMPS[name], NOTHING if part is None else f"{share(part)} of steps")
            for name, part in timestamps_of(analysis).items()
        ],
    )


def recorder_card(run: Run, ranks: Sequence[RankLogs]) -> Any:
    """Tabulate the recorder's settings and its cost."""
    rows = [(title, _fact(run.fact(name)) or "not recorded") for name, title in _CONTEXT]
    rows.append(("Recorder's own cost", _cost(ranks)))
    return data_card("How it was recorded", "", ("Fact", "Value"), rows, text_columns=2)


def _cost(ranks: Sequence[RankLogs]) -> str:
    """Return the median and the largest cost of the ranks that recorded it."""
    costs = sorted(rank.cost_us for rank in ranks if rank.cost_us is not None)
    if not costs:
        return "not in these logs: recorders write it at the end"
    written = [rank.written for rank in ranks if rank.written is not None]
    most = f", at most {costs[-1]:.3g} µs on a rank" if len(costs) > 1 else ""
    return (
        f"{costs[len(costs) // 2]:.3g} µs of the training thread per step{most}; "
        f"{bytes_in_words(sum(written))} written"
    )


def _fact(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else as_text(value)


def _rank_row(logs: RankLogs) -> tuple[str, ...]:
    if not logs.files:
        return (str(logs.rank), NOTHING, "no log", "0", *[NOTHING] * 4)
    return (
        str(logs.rank),
        logs.host or NOTHING,
        "ended" if logs.ended else "no end: running, or killed",
        f"{logs.files:,}",
        bytes_in_words(logs.size),
        f"{logs.steps:,}",
        f"{logs.missing_steps:,}",
        f"{logs.torn:,}",
    )
