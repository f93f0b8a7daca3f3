"""An index of runs: each as one line with its bottleneck and how much time it costs, and as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.catalogue.entry import job_facts, job_of, moment
from stallscope.formatting.lists import as_text, counted
from stallscope.formatting.numbers import Scale, amount, finite, scale_for
from stallscope.text.gain_words import gains, loss_title, main_gain
from stallscope.text.verdicts import short_verdict
from stallscope.words import CAUSES, Verdict

from ..report_formats import Content, ReportRecords, Row, content_of, fields_of

# Milliseconds of one rank in an hour.
_HOUR = 3_600_000.0
Pair = tuple[float, float]
#: The name of the files of an index, which no run may have.
STEM = "index"
_HOURS = "h"

COLUMNS = (
    "run_id",
    "name",
    "started_at",
    "model",
    "ranks",
    "synthetic",
    "steps",
    "verdict",
    "said",
    "fix",
    "speedup",
    "lost_hours",
    "lost_ci_low_hours",
    "lost_ci_high_hours",
    "step_ms",
    "samples_per_second",
    *(f"{name}_ms" for name in CAUSES),
    "imbalance_ms",
    "versions",
    "commit",
)
_PLAIN = (
    "run_id=id name started_at model ranks synthetic steps verdict said fix speedup "
    "lost_hours=lost_h step_ms samples_per_second versions commit"
)


@dataclass(frozen=True)
class IndexLine:
    """A run; None is a value that is not known or was not measured."""

    #: The name that the run's files share.
    stem: str
    id: str
    name: str
    #: In UTC: 2026-11-01T08:30:00.000Z.
    started_at: str | None
    model: str | None
    #: A key that is equal for runs that do the same work, on any ranks and data.
    job: str
    versions: str
    commit: str | None
    #: The number of ranks that trained, as far as the logs say it.
    ranks: int | None
    synthetic: bool
    #: Steps that any rank recorded; None if logs know epochs only.
    steps: int | None
    #: The kind of the bottleneck, and the verdict in a few words.
    verdict: Verdict
    said: str
    #: The verdict's fix with the largest gain.
    fix: str | None
    speedup: float | None
    speedup_ci95: Pair | None
    #: Whether the speed-up is an upper bound: allreduce as if it cost nothing.
    bound: bool
    #: Hours of rank time that the fix would have saved: per step, times steps, times ranks.
    lost_h: float | None
    lost_ci95_h: Pair | None
    step_ms: float | None
    samples_per_second: float | None
    #: Milliseconds of the steady step by entry of the ledger; empty if stages were not measured.
    entries_ms: Mapping[str, float]
    #: The same by cause.
    by_cause_ms: Mapping[str, float]

    @property
    def day(self) -> str | None:
        return None if self.started_at is None else self.started_at[:10]

    @property
    def began(self) -> str | None:
        """The day and the time of the start, in UTC, as people read them."""
        return None if self.started_at is None else self.started_at[:19].replace("T", " ")

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> IndexLine:
        """Return a line from its fields as JSON.

        Raises:
            KeyError, TypeError: if these are not the fields of a line.
        """
        known = {field.name: content[field.name] for field in fields(cls)}
        for name in ("speedup_ci95", "lost_ci95_h"):
            known[name] = None if known[name] is None else tuple(known[name])
        return cls(**known)


def line_of(analysis: Analysis, stem: str) -> IndexLine:
    """Return the line of a run whose files have this name."""
    run, bottleneck = analysis.run, analysis.bottleneck
    facts = job_facts(run)
    best = main_gain(analysis) or next(iter(gains(analysis)), None)
    gain = None if best is None else best.what_if
    steps = analysis.steps if analysis.printed or not analysis.epoch_times else None
    per_ms = None if steps is None else steps * run.size / _HOUR
    saved = None if gain is None or per_ms is None else gain.saved_ms
    loss = bottleneck.loss
    if loss is not None:
        saved, per_ms = Mean(loss.saved_s * 1e3, None), run.size / _HOUR
    ends = None if saved is None else saved.ci95
    commit = run.fact("git_commit")
    return IndexLine(
        stem=stem,
        id=run.id,
        name=run.name,
        started_at=moment(run.started_at),
        model=None if run.fact("model") is None else str(run.fact("model")),
        job=job_of(facts),
        versions=as_text(run.fact("versions")),
        commit=None if commit is None else str(commit),
        ranks=run.known_size,
        synthetic=run.synthetic,
        steps=steps,
        verdict=bottleneck.kind,
        said=short_verdict(bottleneck),
        fix=loss_title(loss) if loss else None if best is None else best.title,
        speedup=None if gain is None else finite(gain.speedup),
        speedup_ci95=None if gain is None else gain.ci95,
        # The gain of a healthy run is a bound, not a certain loss.
        bound=loss is not None or (gain is not None and (gain.bound or not bottleneck.fault)),
        # A fix that gains nothing loses nothing.
        lost_h=None if saved is None else finite(max(0.0, saved.value) * (per_ms or 0.0)),
        lost_ci95_h=None if ends is None else _hours(ends, per_ms or 0.0),
        step_ms=None if analysis.step is None else finite(analysis.step.mean),
        samples_per_second=finite(analysis.samples_per_second),
        entries_ms={entry.name: entry.ms for entry in analysis.entries},
        by_cause_ms={entry.name: entry.ms for entry in analysis.by_cause},
    )


def by_time_lost(lines: list[IndexLine]) -> list[IndexLine]:
    """Sort the lines by lost time, the largest first; unknown times come last."""
    return sorted(lines, key=lambda line: (line.lost_h is None, -(line.lost_h or 0.0), line.name))


def _hours(ends: Pair, per_ms: float) -> Pair:
    low, high = (max(0.0, end) * per_ms for end in ends)
    return low, high


@dataclass(frozen=True)
class Index:
    """Runs, the reasons why others have no report, and the files to link to."""

    lines: Sequence[IndexLine]
    #: One error message for each run without a report.
    failed: Sequence[str] = ()
    files: frozenset[str] = frozenset()

    @property
    def ranked(self) -> list[IndexLine]:
        return by_time_lost(list(self.lines))

    def page(self, line: IndexLine, suffix: str) -> str | None:
        """Return the file about a run with that suffix; None if there is none."""
        name = f"{line.stem}{suffix}"
        return name if name in self.files else None

    @property
    def title(self) -> str:
        return f"Reports on {counted(len(self.lines), 'run')}"

    @property
    def headline(self) -> str:
        """Say how much time the fixes would have saved, over the runs for which it is known."""
        known = [line.lost_h for line in self.lines if line.lost_h is not None]
        if not known:
            return "No run here shows a potential gain"
        worst = self.ranked[0]
        total = sum(known)
        if not total:
            return "No time to gain in these runs"
        of = counted(len(self.lines), "run")
        of = of if len(known) == len(self.lines) else f"{len(known)} of {of}"
        most = "Up to " if any(line.bound for line in self.lines) else ""
        in_worst = (
            f", {amount(worst.lost_h, _HOURS)} of it in {worst.name}" if len(known) > 1 else ""
        )
        return f"{most}{amount(total, _HOURS)} of rank time could be saved in {of}{in_worst}"

    @property
    def scale(self) -> Scale:
        """Return the unit of all lost times, chosen for the largest."""
        return scale_for(max((line.lost_h or 0.0 for line in self.lines), default=0.0), _HOURS)


# -- The index for programs and spreadsheets: one object, and one row per run ---------------------


def json_content(index: Index) -> Content:
    """Return one object: the runs, the most costly first, and those that could not be reported."""
    return content_of(runs=index.ranked, failed=index.failed)


def records(index: Index) -> ReportRecords:
    """List the runs, the most costly first."""
    return ReportRecords(COLUMNS, map(_row, index.ranked))


def _row(line: IndexLine) -> Row:
    low, high = line.lost_ci95_h or (None, None)
    return {
        **fields_of(line, _PLAIN),
        "lost_ci_low_hours": low,
        "lost_ci_high_hours": high,
        **{f"{name}_ms": line.by_cause_ms.get(name) for name in CAUSES},
        "imbalance_ms": line.entries_ms.get("imbalance"),
    }
