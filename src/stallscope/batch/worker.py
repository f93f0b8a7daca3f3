"""Do the work of a batch in one process: identify runs, and report on them one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from rich.console import RenderableType

from stallscope.analysis import Analysis, analyse
from stallscope.collector.run_names import RunAddress
from stallscope.errors import StallscopeError
from stallscope.opening import named_runs
from stallscope.parsers.base import ShowProgress, no_progress
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.index.index_lines import IndexLine, line_of
from stallscope.reports.report_formats import render
from stallscope.reports.run import parts
from stallscope.reports.write import paths_of, write_report
from stallscope.run import Run
from stallscope.words import Fix

from .state import RunSummary, run_of_summary, summarise
from .units import Settings, Unit

if TYPE_CHECKING:
    from stallscope.conditions.condition import Outcome

# The number of baselines in memory.
_MOST_BASELINES = 4


@dataclass(frozen=True)
class IdentifiedRun:
    """A run of a place, maybe without tables."""

    run: Run
    unit: Unit
    #: The place that the second pass reads: the same, or a copy of a remote one.
    read_from: Unit
    #: Whether the run has all its steps, so that it need not be read again while it is in memory.
    is_whole: bool = False


class RunReader(Protocol):
    """Reads runs, on this machine or on a cluster."""

    def identify(
        self, unit: Unit, read_as: str | None, scratch: Path | None
    ) -> list[IdentifiedRun]:
        """Return the runs at a place.

        Args:
            read_as: the parser for every file.
            scratch: a local folder for copies; None if the runs stay in memory.
        """

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """Return the run at a place."""


@dataclass
class LocalReader:
    """Reads runs in this process."""

    show_progress: ShowProgress = no_progress
    #: The last place with several runs, whose reports follow each other.
    _place: Unit | None = None
    _runs: list[Run] = field(default_factory=list)

    def identify(
        self, unit: Unit, read_as: str | None, scratch: Path | None
    ) -> list[IdentifiedRun]:
        runs = unit.heads(read_as, self.show_progress)
        places = [unit] if len(runs) == 1 else [unit.of_run(run.id) for run in runs]
        copies = scratch is not None and not unit.local
        return [
            IdentifiedRun(
                run, place, _copy(run, scratch) if copies else place, is_whole=not unit.collected
            )
            for run, place in zip(runs, places, strict=True)
        ]

    def read(self, unit: Unit, read_as: str | None) -> Run:
        if not unit.run:
            return unit.read(read_as, self.show_progress)[0]
        place = unit.of_run("")
        if place != self._place:
            self._place, self._runs = place, place.read(read_as, self.show_progress)
        return named_runs(RunAddress(unit.place, unit.run), self._runs)[0]


def _copy(run: Run, scratch: Path | None) -> Unit:
    """Save a run of another machine, so that the second pass does not fetch it again."""
    # Only runs of other machines are saved.
    from stallscope.collector.store.run_folders import save_run

    place = Path(tempfile.mkdtemp(prefix="fetched-", dir=scratch))
    return Unit(str(save_run(run, place)), collected=True)


@dataclass(frozen=True)
class KnownRun:
    """A run after the first pass."""

    #: The place that the first pass has read, which may have several runs.
    source: Unit
    unit: Unit
    #: The place that the second pass reads: the same, or a copy of a remote one.
    read_from: Unit
    content: RunSummary
    #: Of the source; empty if no files are written.
    fingerprint: str

    @property
    def key(self) -> str:
        """Return the place with the run's id, because a later job may log into the same folder."""
        return str(RunAddress(self.unit.place_key, self.content["id"]))

    @property
    def run(self) -> Run:
        """Return the run without its tables."""
        return run_of_summary(self.content)


@dataclass(frozen=True)
class Task:
    """A run to report on, with its baselines."""

    unit: Unit
    stem: str
    baseline: Unit | None = None
    single: Unit | None = None
    #: Other runs of the job, without steps, to answer questions from.
    others: tuple[Analysis, ...] = ()
    #: Whether it is the baseline of another run of the batch.
    is_baseline: bool = False


@dataclass(frozen=True)
class ReportResult:
    """The result of reporting on a run."""

    line: IndexLine
    paths: tuple[Path, ...] = ()
    summary: RenderableType | None = None
    #: The file with its JSON document, to print later.
    document: Path | None = None
    markdown: str = ""
    checked: tuple[Outcome, ...] = ()
    #: The message that ``Settings.afterwards`` returned, or the error that it raised.
    message: str = ""
    failed: str = ""


class Worker:
    """Reads, analyses and reports on runs, one at a time."""

    def __init__(self, settings: Settings, reader: RunReader | None = None) -> None:
        self._settings, self._reader = settings, reader or LocalReader()
        self._runs: dict[Unit, Run] = {}
        # Runs that share a baseline follow each other.
        self._baseline = lru_cache(_MOST_BASELINES)(self._analyse_baseline)

    def identify(self, unit: Unit, known: Sequence[KnownRun] = ()) -> list[KnownRun]:
        """Identify the runs at a place in the first pass; return the known ones if nothing has changed.

        Raises:
            NotFoundError, UnreadableError: if the place cannot be read.
        """
        settings = self._settings
        fingerprint = unit.fingerprint(settings.read_as) if settings.output == "files" else ""
        if known and all(run.fingerprint == fingerprint for run in known):
            return list(known)
        scratch = settings.scratch if settings.many else None
        identified = self._reader.identify(unit, settings.read_as, scratch)
        if not settings.many:
            self._runs |= {place.read_from: place.run for place in identified if place.is_whole}
        return [
            KnownRun(unit, place.unit, place.read_from, self._summarised(place.run), fingerprint)
            for place in identified
        ]

    def survey(self, task: Task) -> Analysis:
        """Return an analysis without steps, for questions about other numbers of ranks."""
        analysis = self._analysis(task)
        return replace(
            analysis,
            run=run_of_summary(summarise(analysis.run)),
            ledger=None,
            warm_up=np.zeros(0, bool),
            steady=None,
            baseline=None,
            single=None,
        )

    def report(self, task: Task) -> ReportResult:
        """Write a run's report in the second pass.

        Raises:
            StallscopeError: if the run cannot be read, or its report cannot be written.
        """
        settings = self._settings
        analysis = with_answers(self._analysis(task), settings.questions, task.others)
        checked = _checked(settings.conditions, analysis, task.is_baseline)
        done = self._output(
            task, ReportResult(line_of(analysis, task.stem), checked=checked), analysis
        )
        if settings.markdown:
            done = replace(done, markdown=render("md", parts(analysis), settings.report))
        if settings.afterwards is None:
            return done
        try:
            return replace(
                done, message=settings.afterwards(analysis, self._read(task.unit).source)
            )
        except StallscopeError as error:
            return replace(done, failed=str(error))

    def _output(self, task: Task, done: ReportResult, analysis: Analysis) -> ReportResult:
        settings = self._settings
        if settings.output == "terminal":
            return replace(done, summary=terminal_summary(parts(analysis).document("terminal")))
        if settings.output == "json":
            path = settings.scratch / f"{task.stem}.json"
            path.write_text(render("json", parts(analysis), settings.report))
            return replace(done, document=path)
        paths = paths_of(task.stem, settings.formats, settings.out)
        for name, path in zip(settings.formats, paths, strict=True):
            write_report(analysis, name, path, settings.report)
        return replace(done, paths=tuple(paths))

    def _analysis(self, task: Task) -> Analysis:
        return analyse(
            self._anonymised(self._read(task.unit)),
            self._baseline(task.baseline),
            self._baseline(task.single),
            self._settings.bandwidth,
        )

    def _analyse_baseline(self, unit: Unit | None) -> Analysis | None:
        return None if unit is None else analyse(self._anonymised(self._read(unit)))

    def _read(self, unit: Unit) -> Run:
        return self._runs.get(unit) or self._reader.read(unit, self._settings.read_as)

    def _summarised(self, run: Run) -> RunSummary:
        # Reports are named after the run.
        return summarise(self._anonymised(run))

    def _anonymised(self, run: Run) -> Run:
        if not self._settings.anonymous:
            return run
        # Few reports are anonymous.
        from .anonymous import anonymous

        return anonymous(run)


def _checked(texts: Sequence[str], analysis: Analysis, is_baseline: bool) -> tuple[Outcome, ...]:
    """Evaluate the conditions, on a baseline only those that do not compare with one."""
    if not texts:
        return ()
    # Few reports have conditions, whose language is large.
    from stallscope.conditions.condition import parse

    conditions = map(parse, texts)
    return tuple(
        condition.check(analysis)
        for condition in conditions
        if not (is_baseline and condition.lacks_baseline(analysis))
    )


def with_answers(
    analysis: Analysis, questions: Sequence[Fix], others: Sequence[Analysis]
) -> Analysis:
    """Add the answers to the analysis, and a warning for every question without an answer."""
    if not questions:
        return analysis
    # Few reports have questions, which are answered from the scaling of many runs.
    from stallscope.analysis.views.what_if_queries import ask

    answers = []
    unanswered = []
    # Without knowing where the time goes, no answer is reliable.
    sufficient = analysis.bottleneck.kind != "insufficient_data"
    for question in questions:
        answer = ask(question, analysis, others) if sufficient else None
        if answer is not None:
            answers.append(answer)
        elif sufficient:
            unanswered.append(f"--what-if {question}: it needs a run of this job on several ranks")
        else:
            unanswered.append(f"--what-if {question}: these logs do not show where the time goes")
    return replace(
        analysis,
        what_if=(*analysis.what_if, *answers),
        warnings=(*analysis.warnings, *unanswered),
    )
