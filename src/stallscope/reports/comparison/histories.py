"""What reports on a job's runs one after the other say in all formats: sentences and tables."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis.history.comparison import Difference
from stallscope.analysis.history.regression import Figure, History, Rerun
from stallscope.arrays.stats import Mean
from stallscope.charts.charts import TITLES
from stallscope.formatting.lists import counted, joined
from stallscope.formatting.numbers import amount, percent, plus_minus, rate
from stallscope.text.verdicts import short_verdict

from ..tables import NOTHING, Table
from .sentences import fact_title, fact_value

_RATE = "samples_per_second"
_MOST_FACTS = 3
_NOTE = (
    "Runs differ by: the standard deviation from run to run beside what was found; noise of steps does "
    "not show it. A change is Student's t over all splits of the runs, a drift Kendall's τ; of what is "
    "found 1 in 100 may be chance (Benjamini and Hochberg), if runs that follow each other are no more "
    "alike than others."
)


def title(history: History) -> str:
    """Which job, on how many ranks, and how many runs."""
    run = history.runs[0].analysis.run
    data = "synthetic" if run.synthetic else "real"
    runs = counted(len(history.runs), "run")
    return f"{history.name}, {counted(run.size, 'rank')}, {data} data: {runs}"


def headline(history: History) -> str:
    """What has become of the step over the runs."""
    step = history.figure("step")
    if step.status == "insufficient_data":
        return f"Too few runs to tell: {step.why}"
    if step.status == "change":
        last = step.changes[-1]
        longer = "longer" if last.by.value > 0 else "shorter"
        run = history.runs[last.run].analysis.run.name
        return f"Steps are {_share(abs(last.by.value), last.before)} {longer} since {run}"
    if step.status == "trend" and step.trend is not None:
        longer = "longer" if step.trend.per_run.value > 0 else "shorter"
        return f"Steps get {longer} from run to run: {over_the_runs(step)}"
    moved = [name_of(one).lower() for one in history.figures if one.status in ("change", "trend")]
    if moved:
        return f"Steps are as long as ever; what changed: {joined(moved)}"
    return "Nothing has changed for good"


def since(history: History) -> list[str]:
    """Other differences since each run from which on the step is another one."""
    said = []
    for change in history.figure("step").changes:
        run = history.runs[change.run]
        facts = [_fact(one) for one in run.differences]
        what = joined(facts) if facts else "the run recorded the same facts as the one before"
        said.append(f"At run {change.run + 1} ({run.analysis.run.name}): {what}.")
    return said


def name_of(figure: Figure) -> str:
    """A figure's name for people."""
    names = {"step": "Step", _RATE: "Throughput"}
    return names.get(figure.name) or TITLES[figure.name]


def over_the_runs(figure: Figure) -> str:
    """What was found of a figure, in a few words."""
    if figure.status == "insufficient_data":
        return "too few runs"
    if figure.status == "change":
        return "; ".join(
            f"{_signed(one.by.value, one.before, figure)} since run {one.run + 1}"
            for one in figure.changes
        )
    if figure.status == "trend" and figure.trend is not None:
        per_run, begin = figure.trend.per_run, figure.trend.begin
        return f"{_signed(per_run.value, begin, figure)} per run"
    return "no lasting change"


def figures_table(history: History) -> Table:
    """Every figure: what the runs are about now, what they differ by, what has become of it."""
    return Table(
        "Over the runs",
        ("Figure", "Latest run", "Runs differ by", "Over the runs"),
        tuple(
            (name_of(one), _latest(one), _spread(one), over_the_runs(one))
            for one in history.figures
        ),
        words=frozenset({0, 3}),
        emphasised=frozenset(
            at for at, one in enumerate(history.figures) if one.status in ("change", "trend")
        ),
        note=_NOTE,
    )


def changes_table(history: History) -> Table | None:
    """Every lasting change, with its interval and what the runs say of themselves. None without any."""
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
    """Every run, the oldest first."""
    step, rates = history.figure("step").values, _values(history, _RATE)
    rows = [
        _run_row(number, run, mean, per_second)
        for number, (run, mean, per_second) in enumerate(
            zip(history.runs, step, rates, strict=True), 1
        )
    ]
    columns = ("", "Run", "Began", "Step", "Throughput", "Verdict", "Not as in the run before")
    # Without anything to say a column only takes room.
    shown = len(columns) if any(run.differences for run in history.runs) else len(columns) - 1
    return Table(
        "The runs",
        columns[:shown],
        tuple(row[:shown] for row in rows),
        words=frozenset({1, 2, 5, 6}),
        note="± is the 95% interval from step to step.",
    )


def _run_row(
    number: int, run: Rerun, step: Mean | None, per_second: Mean | None
) -> tuple[str, ...]:
    analysis = run.analysis
    began = analysis.run.started_at
    return (
        f"{number}",
        analysis.run.name,
        f"{began:%Y-%m-%d %H:%M}" if began else NOTHING,
        NOTHING if step is None else amount(step.value, "ms", step.ci95),
        rate(None if per_second is None else per_second.value),
        short_verdict(analysis.bottleneck),
        _facts(run.differences),
    )


def _values(history: History, name: str) -> Sequence[Mean | None]:
    found = [one.values for one in history.figures if one.name == name]
    return found[0] if found else [None] * len(history.runs)


def amount_of(figure: Figure, mean: Mean) -> str:
    """A figure's value in its unit, with its interval where it has one."""
    if figure.name == _RATE:
        return f"{plus_minus(mean.value, mean.ci95)} samples/s"
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


def _signed(by: float, beside: float, figure: Figure) -> str:
    sign = "+" if by > 0 else ""
    if beside > 0:
        return f"{sign}{percent(by / beside)}"
    return f"{sign}{amount_of(figure, Mean(by, None))}"


def _share(by: float, beside: float) -> str:
    return percent(by / beside) if beside > 0 else amount(by, "ms")


def _fact(one: Difference) -> str:
    return f"{fact_title(one.name)} {fact_value(one.first)} → {fact_value(one.second)}"


def _facts(differences: Sequence[Difference]) -> str:
    shown = [_fact(one) for one in differences[:_MOST_FACTS]]
    more = len(differences) - len(shown)
    return "; ".join([*shown, *([f"{more} more"] if more else [])])
