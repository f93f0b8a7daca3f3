"""Compare a run with its baselines: the cost of real data and the cost of scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from stallscope.analysis import Analysis
from stallscope.analysis.gains.baseline import COMPARED
from stallscope.charts.charts import decomposition_chart, jobs_chart
from stallscope.charts.compared_bars import compared_runs, stages_chart
from stallscope.formatting.lists import as_text, counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    amount,
    percent,
    rate,
    rate_between,
)
from stallscope.reports.document import NOTHING, Table
from stallscope.reports.run.network_tables import (
    probe_table,
    rates_table,
    stages_table,
    trials_table,
)
from stallscope.reports.run.step_tables import baselines_table
from stallscope.run import Run
from stallscope.text.baselines import against
from stallscope.text.job_words import job_texts, job_total, parts_of_jobs
from stallscope.text.vocabulary import TITLES

from ..components.basics import card, sentence_card
from ..components.chart_card import chart_card, picture
from ..components.data_tables import AS_A_TABLE, data_card, folded_table, text_table_card
from ..components.run_head import choices_card, howto_card
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side

_DEFINITION = (
    "A baseline is a run of the same model, ranks and batch size on synthetic data: random batches in "
    "memory. The difference between a run and its baseline is the cost of real data."
)

_FACTS = {
    "ranks": "Ranks",
    "hosts": "Hosts",
    "model": "Model",
    "parameters": "Parameters",
    "batch_size": "Batch size per rank",
    "optimizer": "Optimizer",
    "backward_passes_per_step": "Backward passes per step",
    "steps_per_execution": "Steps per execution",
    "framework": "Framework",
    "versions": "Versions",
    "threads": "Threads",
}
_LOADER_ALONE = (
    "The loader alone, without training, was not measured: measure_input shows whether it could be "
    "fast enough."
)


class BaselinePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/baseline"
    tab: ClassVar[str] = "Baseline"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        has_baseline = analysis.baseline is not None
        return [
            *(_comparison(analysis) if has_baseline else _no_baseline(request, store)),
            throughput_card(analysis),
            text_table_card(probe_table(analysis)),
            text_table_card(rates_table(analysis)),
            text_table_card(stages_table(analysis)),
            text_table_card(trials_table(analysis)),
            side_by_side(
                chart_card(
                    "jobs", jobs_chart(analysis), below=[folded_table(jobs_table(analysis))]
                ),
                facts_card(analysis),
            ),
        ]


def _comparison(analysis: Analysis) -> list[Any]:
    losses, table = decomposition_chart(analysis), baselines_table(analysis)
    if losses is not None and table is not None:
        # The chart above the table begins with the same sentence.
        table = replace(table, note=table.note.removeprefix(losses.sentence).strip())
    return [
        sentence_card(*against(analysis), colour="input"),
        side_by_side(
            picture("decomposition", losses, folded_table(table, AS_A_TABLE)),
            chart_card("stages", stages_chart(analysis)),
        ),
    ]


def _no_baseline(request: RunRequest, store: RunStore) -> list[Any]:
    run = request.analysis.run
    title = "No baseline is chosen"
    if run.synthetic:
        title = "This run is on synthetic data: it is a baseline itself"
    return [
        sentence_card(title, _DEFINITION),
        None if run.synthetic else howto_card(run.fact("framework")),
        choices_card(request.run_id, store.candidates(request.run_id)),
    ]


# -- Tables that compare a run with its baselines -------------------------------------------------


def throughput_card(analysis: Analysis) -> Any:
    """Tabulate throughput and step time of every run."""
    single = analysis.single
    on_one = None if single is None else single.samples_per_second
    columns = ["Run", "Ranks", "Step time", "Throughput", "95% interval", "Per rank"]
    rows = []
    for name, run in compared_runs(analysis):
        row = [f"{name}: {run.run.name}", _fact(run.run, "ranks"), _step(run), *_rates(run)]
        if on_one:
            row.append(_efficiency(run, on_one))
        rows.append(row)
    if on_one:
        columns.append("Scaling efficiency")
    alone = "" if analysis.input_rates is not None else f" {_LOADER_ALONE}"
    return data_card("Throughput", f"Steady steps.{alone}", columns, rows)


def jobs_table(analysis: Analysis) -> Table:
    """Tabulate the parts of the whole jobs' time."""
    runs = compared_runs(analysis)
    names = parts_of_jobs([run for _, run in runs])
    rows = [(TITLES[name], *(_job_part(name, run) for _, run in runs)) for name in names]
    rows.append(("Job", *(job_total(run) for _, run in runs)))
    rows.append(("Rank time", *(amount(run.job.total * run.run.size, "s") for _, run in runs)))
    return Table(
        "Parts of the job",
        ("Part", *(name for name, _ in runs)),
        tuple(rows),
        emphasised=frozenset({len(rows) - 2}),
        note="From the first process's start to the last end of a log; rank time is that of all ranks "
        "together.",
    )


def facts_card(analysis: Analysis) -> Any:
    """Tabulate facts that must be equal for a fair comparison, folded if all are; others come first."""
    match = analysis.match
    if match is None:
        return None
    runs = [run.run for _, run in compared_runs(analysis)]
    differing = {text.partition(":")[0] for text in match.differs}
    rows = [
        (title, *(_fact(run, name) for run in runs), _verdict(name, match.same, differing))
        for name, title in _FACTS.items()
        if name in ("ranks", "hosts", *COMPARED)
    ]
    rows.sort(key=lambda row: row[-1] != "differs")
    some = f"{len(differing)} of them differ from the baseline's" if differing else "they agree"
    title = "Are they the same job?"
    table = Table(
        title,
        ("Fact", *(name for name, _ in compared_runs(analysis)), "Against the baseline"),
        tuple(rows),
        words=frozenset(range(len(runs) + 2)),
        emphasised=frozenset(range(len(differing))),
    )
    return card(
        title,
        folded_table(table, counted(len(rows), "fact"), is_open=bool(differing)),
        note=f"A comparison needs the same: {some}.",
    )


def _verdict(name: str, same: Sequence[str], differing: set[str]) -> str:
    if name in differing:
        return "differs"
    return "same" if name in same else "not recorded"


def _fact(run: Run, name: str) -> str:
    if name == "ranks":
        return NOTHING if run.known_size is None else f"{run.known_size:,}"
    if name == "hosts":
        return f"{len(run.hosts):,}"
    return as_text(run.fact(name)) or NOTHING


def _step(run: Analysis) -> str:
    step = run.step
    return NOT_MEASURED if step is None else amount(step.mean, "ms", step.ci95)


def _rates(run: Analysis) -> tuple[str, str, str]:
    throughput = run.samples_per_second
    if throughput is None:
        return NOT_MEASURED, NOTHING, NOTHING
    ends = _interval(run, throughput)
    return (
        rate(throughput),
        NOTHING if ends is None else rate_between(*ends),
        rate(throughput / run.run.size),
    )


def _interval(run: Analysis, throughput: float) -> Interval | None:
    """Compute the throughput's interval from the step time's."""
    step = run.step
    if step is None or step.ci95 is None or step.ci95[0] <= 0:
        return None
    return throughput * step.mean / step.ci95[1], throughput * step.mean / step.ci95[0]


def _efficiency(run: Analysis, alone: float) -> str:
    throughput = run.samples_per_second
    return NOT_MEASURED if throughput is None else percent(throughput / (run.run.size * alone))


def _job_part(name: str, run: Analysis) -> str:
    """Write a part of the job's time, and its share."""
    text = job_texts(run)[name]
    if text == NOT_MEASURED or not run.job.total:
        return text
    return f"{text} ({percent(getattr(run.job, name) / run.job.total)})"
