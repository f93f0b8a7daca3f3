"""The sentences and tables on a job's runs over time."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis.comparison import Difference
from stallscope.analysis.regression import RATE, TOKENS, Figure, History
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted, joined
from stallscope.formatting.numbers import amount, percent, plus_minus, rate
from stallscope.text.job_words import number_of_ranks
from stallscope.text.verdicts import short_verdict
from stallscope.text.vocabulary import TITLES

from ..document import NOTHING, Table
from .pair import fact_title, fact_value, started

_MOST_FACTS = 3
# Reports as files show all runs.
_LATEST_RUNS = 15
_NOTE = (
    "Runs differ by: the standard deviation from run to run, apart from changes and drifts. A change is "
    "found by Student's t over all splits of the runs, a drift by Kendall's τ. 1 in 100 of them may be "
    "chance (Benjamini and Hochberg), if successive runs are no more alike than others."
)


def title(history: History) -> str:
    """Name the job, its ranks, its data and the number of runs."""
    run = history.runs[0].analysis.run
    data = "synthetic" if run.synthetic else "real"
    runs = counted(len(history.runs), "run")
    return f"{history.name}, {number_of_ranks(run)}, {data} data: {runs}"


def headline(history: History) -> str:
    """Say how the step changed over the runs."""
    step = history.figure("step")
    if step.status == "insufficient_data":
        return f"Too few runs to tell: {step.why}"
    if step.status == "change":
        last = step.changes[-1]
        longer = "longer" if last.by.value > 0 else "shorter"
        run = history.runs[last.run].analysis.run.name
        steps = "Steps are" if history.unit is None else f"For as many {history.unit}s steps are"
        return f"{steps} {_share(abs(last.by.value), last.before)} {longer} since {run}"
    if step.status == "trend" and step.trend is not None:
        longer = "longer" if step.trend.per_run.value > 0 else "shorter"
        return f"Steps get {longer} from run to run: {over_the_runs(step)}"
    changed = [
        name_of(figure).lower()
        for figure in history.figures
        if figure.status in ("change", "trend")
    ]
    if changed:
        return f"The step time has not changed; lasting changes: {joined(changed)}"
    return "No lasting change"


def since(history: History) -> list[str]:
    """Describe the other changes at each run where the step changed for good."""
    sentences = []
    for change in history.figure("step").changes:
        run = history.runs[change.run]
        facts = [_fact(difference) for difference in run.differences]
        changed = joined(facts) if facts else "the run recorded the same facts as the run before it"
        sentences.append(f"At run {change.run + 1} ({run.analysis.run.name}): {changed}.")
    return sentences


def name_of(figure: Figure) -> str:
    """Return a figure's name for people."""
    names = {"step": "Step", RATE: "Throughput", TOKENS: "Throughput in tokens"}
    return names.get(figure.name) or TITLES[figure.name]


def over_the_runs(figure: Figure) -> str:
    """Say in a few words how a figure changed over the runs."""
    if figure.status == "insufficient_data":
        return "too few runs"
    if figure.status == "change":
        return "; ".join(
            f"{_signed(change.by.value, change.before, figure)} since run {change.run + 1}"
            for change in figure.changes
        )
    if figure.status == "trend" and figure.trend is not None:
        per_run, begin = figure.trend.per_run, figure.trend.begin
        return f"{_signed(per_run.value, begin, figure)} per run"
    return "no lasting change"


def figures_table(history: History) -> Table:
    """Return every figure: its latest value, its spread, its change over the runs."""
    figures = history.figures
    return Table.of(
        "Over the runs",
        {
            "Figure": map(name_of, figures),
            "Latest run": map(_latest, figures),
            "Runs differ by": map(_spread, figures),
            "Over the runs": map(over_the_runs, figures),
        },
        words=frozenset({0, 3}),
        emphasised=frozenset(
            at for at, figure in enumerate(figures) if figure.status in ("change", "trend")
        ),
        note=_NOTE,
    )


def changes_table(history: History) -> Table | None:
    """Return every lasting change with its interval and the facts that changed too; None without any."""
    rows = [
        (
            name_of(figure),
            f"{change.run + 1}. {history.runs[change.run].analysis.run.name}",
            amount_of(figure, Mean(change.before, None)),
            amount_of(figure, Mean(change.after, None)),
            amount_of(figure, change.by),
            _facts(history.runs[change.run].differences),
        )
        for figure in history.figures
        for change in figure.changes
    ]
    if not rows:
        return None
    return Table(
        "Since when",
        ("Figure", "Since run", "Before", "After", "After − before", "Other changes at that run"),
        tuple(rows),
        words=frozenset({0, 1, 5}),
        note="± is the 95% interval from run to run.",
    )


def runs_table(history: History) -> Table:
    """Return the table of runs, the oldest first."""
    runs = history.runs
    analyses = [run.analysis for run in runs]
    columns = {
        "": map(str, range(1, len(runs) + 1)),
        "Run": [analysis.run.name for analysis in analyses],
        "Started": [started(analysis.run) for analysis in analyses],
        "Step": [
            NOTHING if mean is None else amount(mean.value, "ms", mean.ci95)
            for mean in history.figure("step").values
        ],
        "Throughput": [
            rate(None if mean is None else mean.value) for mean in _values(history, RATE)
        ],
        "Verdict": [short_verdict(analysis.bottleneck) for analysis in analyses],
    }
    if any(run.differences for run in runs):
        columns["Changes since the run before"] = [_facts(run.differences) for run in runs]
    return Table.of(
        "The runs",
        columns,
        words=frozenset({1, 2, 5, 6}),
        note="± is the 95% interval from step to step.",
        without={"terminal": (2, 5)},
        most={"terminal": _LATEST_RUNS},
        latest=True,
    )


def _values(history: History, name: str) -> Sequence[Mean | None]:
    values = [figure.values for figure in history.figures if figure.name == name]
    return values[0] if values else [None] * len(history.runs)


def amount_of(figure: Figure, mean: Mean) -> str:
    """Return a figure's value in its unit, with its interval if it has one."""
    if figure.is_rate:
        return f"{plus_minus(mean.value, mean.ci95)} {figure.unit}"
    return amount(mean.value, "ms", mean.ci95)


def _latest(figure: Figure) -> str:
    last = figure.values[-1]
    return NOTHING if last is None else amount_of(figure, last)


def _spread(figure: Figure) -> str:
    known = [mean.value for mean in figure.values if mean is not None]
    if figure.spread is None or not known:
        return NOTHING
    middle = sum(known) / len(known)
    if middle > 0:
        return percent(figure.spread.value / middle)
    return amount_of(figure, Mean(figure.spread.value, None))


def _signed(by: float, reference: float, figure: Figure) -> str:
    sign = "+" if by > 0 else ""
    if reference > 0:
        return f"{sign}{percent(by / reference)}"
    return f"{sign}{amount_of(figure, Mean(by, None))}"


def _share(by: float, reference: float) -> str:
    return percent(by / reference) if reference > 0 else amount(by, "ms")


def _fact(difference: Difference) -> str:
    first, second = fact_value(difference.first), fact_value(difference.second)
    return f"{fact_title(difference.name)} {first} → {second}"


def _facts(differences: Sequence[Difference]) -> str:
    shown = [_fact(difference) for difference in differences[:_MOST_FACTS]]
    more = len(differences) - len(shown)
    return "; ".join([*shown, *([f"{more} more"] if more else [])])
