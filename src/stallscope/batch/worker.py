"""What a process does for a batch: it looks what runs are, and reports on them one by one."""

from __future__ import annotations

import json
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from rich.console import RenderableType

from stallscope import conditions
from stallscope.analysis import Analysis, analyse, ask
from stallscope.collector.store.runs import save_run
from stallscope.errors import StallscopeError
from stallscope.parsers.progress import Watching, unwatched
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.index.line import Line, line_of
from stallscope.reports.registry import render
from stallscope.reports.run import json_content, parts
from stallscope.reports.write import paths_of, write_report
from stallscope.run import Run

from .anonymous import anonymous
from .run_summary import Sketch, sketch, sketched
from .settings import Settings
from .units import Unit

# Baselines of so many jobs are held at once; those of one job follow each other.
_MOST_BASELINES = 4


class Reads(Protocol):
    """Return the reader of runs, with the parser of a name if one is given."""

    def look(self, unit: Unit, read_as: str | None, scratch: Path) -> tuple[Run, Unit]:
        """The run at a place, whose tables may be empty, and where the second pass reads it.

        Args:
            scratch: for copies, on a disk of this machine.
        """

    def read(self, unit: Unit, read_as: str | None) -> Run:
        """The run at a place."""


@dataclass(frozen=True)
class Here:
    """This process."""

    watching: Watching = unwatched

    def look(self, unit: Unit, read_as: str | None, scratch: Path) -> tuple[Run, Unit]:
        run = unit.head(read_as, self.watching)
        if unit.local:
            return run, unit
        # Fetched once: the second pass reads the copy.
        place = Path(tempfile.mkdtemp(prefix="fetched-", dir=scratch))
        return run, Unit(str(save_run(run, place)), collected=True)

    def read(self, unit: Unit, read_as: str | None) -> Run:
        return unit.read(read_as, self.watching)


#: Reads runs in the process that asks.
HERE: Reads = Here()


@dataclass(frozen=True)
class Known:
    """A run after the first pass."""

    unit: Unit
    #: Where the second pass reads it: the same place, or a copy of what is far away.
    near: Unit
    content: Sketch
    fingerprint: str

    @property
    def key(self) -> str:
        """The same for the same run in the same place: a later job may log into the same folder."""
        return f"{self.unit.key}#{self.content['id']}"

    @property
    def run(self) -> Run:
        """The run without its tables."""
        return sketched(self.content)


@dataclass(frozen=True)
class Task:
    """A run to be reported, and what it is held against."""

    unit: Unit
    stem: str
    baseline: Unit | None = None
    single: Unit | None = None
    #: Runs that questions are answered from, without their steps.
    others: tuple[Analysis, ...] = ()


@dataclass(frozen=True)
class Done:
    """What is left of a run when it has been reported."""

    line: Line
    paths: tuple[Path, ...] = ()
    shown: RenderableType | None = None
    #: Where its JSON document waits to be printed.
    document: Path | None = None
    markdown: str = ""
    checked: tuple[conditions.Outcome, ...] = ()
    #: What ``Settings.afterwards`` returned; or why it failed.
    said: str = ""
    failed: str = ""


class Worker:
    """Reads, takes apart and reports runs, one at a time."""

    def __init__(self, settings: Settings, reads: Reads = HERE) -> None:
        self._settings, self._reads = settings, reads
        self._held: dict[Unit, Run] = {}
        self._baselines: OrderedDict[Unit, Analysis] = OrderedDict()

    def look(self, unit: Unit, known: Known | None = None) -> Known:
        """First pass: what the run is; as it was known, if nothing has changed there.

        Raises:
            NotFoundError, UnreadableError: if it cannot be read.
        """
        settings = self._settings
        state = unit.fingerprint(settings.read_as) if settings.resumable else ""
        if known is not None and known.fingerprint == state:
            return replace(known, unit=unit, near=unit)
        if not settings.many:
            run = self._held[unit] = self._reads.read(unit, settings.read_as)
            return Known(unit, unit, sketch(run), state)
        run, near = self._reads.look(unit, settings.read_as, settings.scratch)
        return Known(unit, near, sketch(run), state)

    def survey(self, task: Task) -> Analysis:
        """An analysis without its steps: what questions about other numbers of ranks go by."""
        analysis = self._analysis(task)
        return replace(
            analysis,
            run=sketched(sketch(analysis.run)),
            ledger=None,
            warm_up=np.zeros(0, bool),
            steady=None,
            baseline=None,
            single=None,
        )

    def report(self, task: Task) -> Done:
        """Second pass: the whole report.

        Raises:
            StallscopeError: if the run cannot be read, or its report cannot be written.
        """
        settings = self._settings
        analysis = answered(self._analysis(task), settings.questions, task.others)
        checked = tuple(conditions.parse(text).check(analysis) for text in settings.conditions)
        done = self._shown(task, Done(line_of(analysis, task.stem), checked=checked), analysis)
        if settings.markdown:
            done = replace(done, markdown=render("md", parts(analysis), settings.report))
        if settings.afterwards is None:
            return done
        try:
            return replace(done, said=settings.afterwards(analysis, self._read(task.unit).source))
        except StallscopeError as error:
            return replace(done, failed=str(error))

    def _shown(self, task: Task, done: Done, analysis: Analysis) -> Done:
        settings = self._settings
        if settings.output == "terminal":
            return replace(done, shown=terminal_summary(parts(analysis).document()))
        if settings.output == "json":
            path = settings.scratch / f"{task.stem}.json"
            path.write_text(json.dumps(json_content(analysis), indent=1, allow_nan=False))
            return replace(done, document=path)
        paths = paths_of(task.stem, settings.formats, settings.out)
        for name, path in zip(settings.formats, paths, strict=True):
            write_report(analysis, name, path, settings.report)
        return replace(done, paths=tuple(paths))

    def _analysis(self, task: Task) -> Analysis:
        return analyse(
            self._named(self._read(task.unit)),
            self._baseline(task.baseline),
            self._baseline(task.single),
            self._settings.bandwidth,
        )

    def _baseline(self, unit: Unit | None) -> Analysis | None:
        """Of a run that many are held against: taken apart once."""
        if unit is None:
            return None
        if unit not in self._baselines:
            self._baselines[unit] = analyse(self._named(self._read(unit)))
        self._baselines.move_to_end(unit)
        while len(self._baselines) > _MOST_BASELINES:
            self._baselines.popitem(last=False)
        return self._baselines[unit]

    def _read(self, unit: Unit) -> Run:
        return self._held.get(unit) or self._reads.read(unit, self._settings.read_as)

    def _named(self, run: Run) -> Run:
        return anonymous(run) if self._settings.anonymous else run


def answered(analysis: Analysis, questions: Sequence[str], others: Sequence[Analysis]) -> Analysis:
    """The analysis with the answers among its gains, and a warning for every question without one."""
    answers = []
    unanswered = []
    # Where waiting and communicating look the same, no answer is worth anything.
    tells = analysis.bottleneck.kind != "insufficient_data"
    for question in questions:
        answer = ask(question, analysis, others) if tells else None
        if answer is not None:
            answers.append(answer)
        elif tells:
            unanswered.append(f"--what-if {question}: no run of this job on several ranks is here")
        else:
            unanswered.append(f"--what-if {question}: these logs do not show where the time goes")
    return replace(
        analysis,
        what_if=(*analysis.what_if, *answers),
        warnings=(*analysis.warnings, *unanswered),
    )
