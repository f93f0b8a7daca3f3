"""Select what a report shows of an analysis: verdict, advice, ranks that matter, facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.gains.baseline import BaselineMatch, match_single
from stallscope.analysis.gains.what_if import Advice
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.analysis.network.network_check import network_sentence
from stallscope.formatting.lists import as_text, counted, listed
from stallscope.formatting.numbers import percent, percent_ends
from stallscope.run import Run
from stallscope.text.figure_words import clocks, communication, coverage, step_in_words
from stallscope.text.gain_words import (
    Gain,
    answers,
    as_fast,
    how_sure,
    loss_gain,
    main_gain,
    other_gains,
    saving,
    speedup,
    speedup_interval,
)
from stallscope.text.job_words import (
    JOB_PARTS,
    ranks_and_hosts,
    steps_and_epochs,
    throughput,
)
from stallscope.text.machine_words import TITLE, evidence, why
from stallscope.text.verdicts import badge, basis, headline, status
from stallscope.words import Verdict

from ..document import (
    BigFigure,
    DocumentBlock,
    KeyFigure,
    KeyFigures,
    Listing,
    Section,
    Steps,
    Text,
)

_MOST_LATEST = 4
_TEXTS = (
    ("model", "Model"),
    ("parameters", "Parameters"),
    ("optimizer", "Optimizer"),
    ("learning_rate", "Learning rate"),
    ("batch_size", "Batch size per rank"),
    ("backward_passes_per_step", "Backward passes per step"),
    ("steps_per_execution", "Steps per execution"),
    ("gradient_tensors", "Gradient tensors"),
    ("gradient_bytes", "Gradient bytes"),
    ("steps_per_epoch", "Steps per epoch"),
    ("samples_per_epoch", "Samples per epoch"),
    ("known_from", "Known from"),
    ("clock", "Times of epochs"),
    ("python", "Python"),
    ("cpu_count", "CPU cores per host"),
    ("threads", "Threads"),
    ("loader_workers", "Loader workers"),
    ("devices", "Devices"),
)
#: Explanations of the terms in a report.
HOW_TO_READ = (
    (
        "Input",
        "From the start of a step until its batch is there. The part that exceeds the synthetic "
        "baseline's is input stall.",
    ),
    (
        "Compute",
        "From the arrival of the batch until the last gradient is ready: copy to the device, forward, "
        "backward, and what they overlap.",
    ),
    ("Other", "Between steps: optimizer update, callbacks, logging, overhead of the host."),
    (
        "Waiting for slow ranks",
        "From a rank's last gradient until the last rank's. A step has the typical rank's, which JSON "
        "calls imbalance. It is never zero: the slowest of many ranks is slower by chance. Ranks are "
        "named only if a test rules chance out.",
    ),
    (
        "Exposed allreduce",
        "From the last rank's last gradient until all gradients are reduced. The part that backward "
        "hides costs nothing.",
    ),
    (
        "Ledger",
        "Input, compute and other of the reference rank (the median one), plus waiting, plus exposed "
        "allreduce. Together they are exactly the step.",
    ),
    (
        "±",
        "The 95% interval of a mean, widened because steps resemble the ones before them.",
    ),
)

_MOST_GAINS = 4
_NOTHING_GAINED: dict[Verdict, str] = {
    "insufficient_data": "These logs cannot show it.",
    "compute": "Beyond compute, nothing that is worth mentioning.",
}


def advice(analysis: Analysis) -> Sequence[Advice]:
    """Return the verdict's advice, or that of the most severe findings."""
    if analysis.bottleneck.advice:
        return analysis.bottleneck.advice
    for severity in ("error", "warning", "info"):
        pieces = [
            advice
            for finding in analysis.findings
            if finding.severity == severity
            for advice in finding.advice
        ]
        if pieces:
            return pieces
    return ()


def ranks_that_matter(analysis: Analysis) -> tuple[str, list[RankSummary]]:
    """Return the stragglers, or else the latest ranks, with a title."""
    named = [rank for rank in analysis.ranks if rank.rank in analysis.bottleneck.ranks]
    if named:
        return "Named ranks", named
    stamped = [rank for rank in analysis.ranks if rank.wait_ms is not None]
    latest = sorted(stamped, key=lambda rank: rank.wait_ms or 0.0)[:_MOST_LATEST]
    reason = "no single straggler" if analysis.stragglers else "no straggler found"
    return f"Ranks, latest first ({reason})", latest


def job_parts(analysis: Analysis) -> list[tuple[str, float | None]]:
    """Return the seconds of each part of the job; None for all if steps have no stages."""
    job = analysis.job
    split = analysis.ledger is not None
    return [(name, getattr(job, name) if split else None) for name in JOB_PARTS]


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the known facts about the run with their names."""
    run = analysis.run
    known = [
        ("Run", run.id),
        ("Read from", run.source),
        ("Started", f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC" if run.started_at else ""),
        ("Status", _status(run)),
        ("Framework", _framework(analysis)),
        ("Ranks", ranks_of_logs(analysis)),
        ("Hosts", "" if analysis.epoch_times else listed("host", run.hosts)),
        ("Length", steps_and_epochs(analysis)),
        ("Throughput", throughput(analysis)),
        ("Data", "synthetic" if run.synthetic else "real"),
        *context(analysis),
        *((title, as_text(run.fact(name))) for name, title in _TEXTS),
    ]
    return [(title, text) for title, text in known if text]


def context(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the basis of the figures: communication, clocks, and steps outside the ledger."""
    known = [
        ("Communication", communication(analysis)),
        ("Network", network(analysis)),
        ("Clocks", clocks(analysis)),
        ("Steps in the ledger", coverage(analysis)),
        ("On one rank", "" if analysis.single is None else analysis.single.run.name),
    ]
    return [(title, text) for title, text in known if text]


def network(analysis: Analysis) -> str:
    """Describe the network's performance; empty if unknown, or if the verdict contains it."""
    use = analysis.network_use
    return "" if use is None or analysis.bottleneck.kind == "allreduce" else network_sentence(use)


def gap(analysis: Analysis) -> str:
    """Return the share of the baseline's throughput that is lost; empty if not known."""
    if analysis.gap is None:
        return ""
    interval = analysis.gap_ci95
    sure = f" (95% interval: {percent_ends(interval)})" if interval else ""
    return f"{percent(analysis.gap)} of the baseline's{sure}"


def single_match(analysis: Analysis) -> BaselineMatch | None:
    """Compare the run with the one on one rank; None without one."""
    return None if analysis.single is None else match_single(analysis.run, analysis.single.run)


def settings(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the recorded environment settings."""
    recorded = analysis.run.fact("settings")
    if not isinstance(recorded, Mapping):
        return []
    return [(str(name), str(value)) for name, value in recorded.items()]


def _status(run: Run) -> str:
    """Say whether the run has ended; empty if its logs cannot show it."""
    if run.lacks_end:
        return "open: running, or killed"
    return "completed" if run.status == "completed" else ""


def _framework(analysis: Analysis) -> str:
    name = as_text(analysis.run.fact("framework"))
    versions = as_text(analysis.run.fact("versions"))
    return f"{name} ({versions})" if name and versions else name or versions


def ranks_of_logs(analysis: Analysis) -> str:
    """Say how many ranks trained, how that is known, and which of them left no log."""
    run = analysis.run
    if analysis.epoch_times is not None and not run.size_known:
        return f"{len(run.ranks):,} left a log; how many trained is not known"
    known_from = run.fact("size_from")
    source = f" (from {known_from})" if known_from else ""
    missing = run.missing_ranks
    # Often one rank of another program prints for all.
    if not missing or analysis.epoch_times is not None:
        return f"{'at least ' if run.size_is_least else ''}{run.size:,}{source}"
    return f"{len(run.ranks):,} of {run.size:,}{source}; no log of {listed('rank', missing)}"


# -- The first section: what holds the run back, what to do, and the gain -------------------------


def verdict_section(analysis: Analysis, form: str) -> Section:
    """Return the verdict with its evidence and its advice; the gains are its aside."""
    bottleneck = analysis.bottleneck
    return Section(
        headline(bottleneck, analysis.stragglers),
        [*_blocks(analysis, form)],
        style="verdict",
        label=badge(bottleneck),
        status=status(bottleneck),
        aside=[*_aside(analysis)],
    )


def _blocks(analysis: Analysis, form: str) -> Iterator[DocumentBlock]:
    if form == "md":
        yield Text(f": {_about(analysis)}", lead=analysis.run.name)
    yield Text(analysis.bottleneck.evidence)
    reasons = why(analysis)
    if reasons:
        yield Listing(reasons, title=TITLE)
    measured = evidence(analysis)
    if measured and form != "terminal":
        yield Text(measured)
    gain = main_gain(analysis)
    # Pages show it in the aside.
    if gain is not None and form != "html":
        what_if = gain.what_if
        lead = f"{gain.title}, steps would be {' '.join(as_fast(what_if))}"
        yield Text(f" ({how_sure(what_if)}).", lead=lead)
    if loss_gain(analysis) and form != "html":
        yield Text(loss_gain(analysis))
    steps = advice(analysis)
    if steps:
        yield Steps(steps, title="What to do")
    if form == "terminal":
        yield Text(f"From {basis(analysis)}.", note=True)
    if form == "html":
        yield from _concerns(analysis)


def _concerns(analysis: Analysis) -> Iterator[Text]:
    """Name the serious findings and count the warnings, which stand below the charts."""
    titles = [
        finding.title for finding in analysis.further_findings if finding.severity == "warning"
    ]
    parts = [*titles, *([counted(len(analysis.warnings), "warning")] if analysis.warnings else [])]
    if parts:
        yield Text("; ".join(parts), lead="Also: ", leads_to="findings" if titles else "warnings")


def _about(analysis: Analysis) -> str:
    texts = [ranks_and_hosts(analysis), steps_and_epochs(analysis), throughput(analysis)]
    if analysis.baseline is not None:
        texts.append(f"against baseline {analysis.baseline.run.name}")
    return ", ".join(text for text in texts if text)


def _aside(analysis: Analysis) -> Iterator[DocumentBlock]:
    main, others = main_gain(analysis), other_gains(analysis)[:_MOST_GAINS]
    if main is not None:
        sure = how_sure(main.what_if).capitalize()
        yield BigFigure(
            "Potential gain",
            *as_fast(main.what_if),
            (f"{main.title}. {sure}.", f"Saves {saving(main.what_if, analysis)}."),
        )
    lost = loss_gain(analysis)
    if lost:
        yield Text(lost, title="Potential gains")
    if others:
        yield _key_figures("Other fixes" if main or lost else "Potential gains", others)
    if main is None and not others and not lost:
        nothing = _NOTHING_GAINED.get(analysis.bottleneck.kind, "Nothing that is worth mentioning.")
        yield Text(nothing, title="Potential gains")
    asked = answers(analysis)
    if asked:
        yield _key_figures("What-if", asked)
    step = analysis.step
    takes = "" if step is None else f"A step takes {step_in_words(step)}. "
    yield Text(f"{takes}From {basis(analysis)}.", note=True)


def _key_figures(title: str, gains: list[Gain]) -> KeyFigures:
    figures = [
        KeyFigure(gain.title, speedup(gain.what_if), speedup_interval(gain.what_if))
        for gain in gains
    ]
    return KeyFigures(figures, title)
