"""Run a batch from start to end; the command prints its messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.analysis import Analysis
from stallscope.collector.run_names import NamedRun
from stallscope.errors import StallscopeError
from stallscope.parsers.base import ShowProgress
from stallscope.reports import report_formats
from stallscope.reports.index import Index, IndexLine, parts
from stallscope.reports.index.index_lines import STEM
from stallscope.reports.write import (
    make_folder,
    paths_of,
    refuse_to_overwrite,
    stems_of,
    write_texts,
)

from .plan import BaselinePair, find_baselines, job_key
from .state import WrittenReport, WrittenReports, file_states, hash_of
from .units import Settings, Unit
from .worker import KnownRun, ReportResult, Task
from .workers import Failed, Result, Workers

if TYPE_CHECKING:
    from stallscope.conditions.condition import Outcome


@dataclass
class Batch:
    """A batch of runs to report on."""

    settings: Settings
    workers: Workers
    show_progress: ShowProgress
    force: bool = False
    #: The runs without a report, each with an error message.
    failed: list[tuple[Unit, str]] = field(default_factory=list)
    #: The number of reports, and of those that existed before.
    planned: int = 0
    already: int = 0
    #: Runs that ``--since`` leaves out because their start is unknown.
    undated: int = 0

    def __post_init__(self) -> None:
        self._existing: list[WrittenReport] = []
        self._remaining: list[_PlannedReport] = []
        self._state: WrittenReports | None = None
        self.load_state()

    def load_state(self) -> None:
        """Load the state of the reports' folder, if the settings are of a batch that continues."""
        if self.settings.resumable:
            self._state = WrittenReports(self.settings.out)

    def identify(self, units: Sequence[Unit]) -> list[KnownRun]:
        """Run the first pass; return the runs of all places that can be read, each once."""
        identified: dict[int, Sequence[KnownRun]] = {}
        for index, result in self.identify_each(units):
            if isinstance(result, Failed):
                self._fail(units[index], result.message)
            else:
                identified[index] = result
        once: dict[str, KnownRun] = {}
        for index in sorted(identified):
            for run in identified[index]:
                once.setdefault(run.key, run)
        return list(once.values())

    def identify_each(self, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield the index of every place with its runs, or with the error that prevents reading it."""
        before = [self._recorded(unit) for unit in units]
        remaining = []
        for index, known in enumerate(before):
            # Comparing fingerprints takes less time than starting a process.
            if known and units[index].local and self._is_current(units[index], known):
                yield index, known
            else:
                remaining.append(index)
        with self.show_progress("reading", len(remaining)) as update:
            tasks = [(units[index], before[index]) for index in remaining]
            for at, result in self.workers.each("identify", tasks, update):
                yield remaining[at], result

    def report(
        self,
        known: Sequence[KnownRun],
        named: Sequence[KnownRun],
        stores: Iterable[Path],
        since: datetime | None = None,
    ) -> list[ReportResult]:
        """Run the second pass: write all missing reports; return them in the order of the runs.

        Args:
            known: the runs.
            named: baselines that the user named.
            stores: stores to search for further baselines.
            since: only report on runs that have started since; baselines may be older.

        Raises:
            WouldOverwriteError: if a file exists that no batch has written; then no file is written.
        """
        chosen = [run for run in known if self._started_since(run, since)]
        pairs = find_baselines(chosen, known, named, stores)
        planned = self._plan(chosen, [*known, *named], pairs)
        remaining = [report for report in planned if self.force or report.written is None]
        self.planned, self.already = len(planned), len(planned) - len(remaining)
        self._existing = [
            report.written for report in planned if report.written and report not in remaining
        ]
        self._prepare(remaining, [*known, *named])
        if remaining and self.settings.asks_for_ranks and self.settings.many:
            remaining = self._with_others(planned, remaining)
        # Runs with the same baseline follow each other, so that it is analysed once.
        remaining.sort(key=lambda report: (str(report.task.baseline), str(report.task.single)))
        self._remaining = remaining
        done: dict[str, ReportResult] = {}
        with self.show_progress("reporting", len(remaining)) as update:
            tasks = [(report.task,) for report in remaining]
            for index, result in self.workers.each("report", tasks, update):
                report = remaining[index]
                if isinstance(result, Failed):
                    self._fail(report.known.unit, result.message)
                else:
                    done[report.task.stem] = result
                    self._finish(report, result)
        return [done[report.task.stem] for report in planned if report.task.stem in done]

    @property
    def written(self) -> int:
        """The number of planned reports that are recorded as written."""
        # Read the file: an interruption may come between writing it and updating the state in memory.
        recorded = WrittenReports(self.settings.out)
        reports = [
            (recorded.current(report.known.key, report.report_hash), report.written)
            for report in self._remaining
        ]
        return self.already + sum(now is not None and now != before for now, before in reports)

    def checked(self, done: Sequence[ReportResult]) -> list[tuple[str, Outcome]]:
        """Return the outcomes of the conditions with run names, including those of existing reports."""
        checked = [(report.line, report.checked) for report in done]
        checked += [(report.line, report.checked) for report in self._existing]
        names = Counter(line.name for line, _ in checked)
        return [
            # Runs of one name are told apart by their ids.
            (line.name if names[line.name] == 1 else NamedRun(line.id, line.name).title, outcome)
            for line, outcomes in checked
            for outcome in outcomes
        ]

    def index(self) -> list[Path]:
        """Write the index of all reports of batches in the folder; return its files."""
        if self._state is None:
            return []
        settings = self.settings
        shown = [
            report for report in self._state.written if report.anonymous or not settings.anonymous
        ]
        files = frozenset(name for report in shown for name in report.files)
        index = Index([report.line for report in shown], self.sentences(), files)
        paths = paths_of(STEM, self._documents, settings.out)
        texts = (
            report_formats.render(name, parts(index), settings.report) for name in self._documents
        )
        write_texts(paths, texts, settings.out, force=True)
        self._state.note_index(paths)
        self._state.tidy()
        return paths

    def markdown_index(self, lines: Sequence[IndexLine]) -> str:
        """Return the index of these runs as Markdown."""
        return report_formats.render(
            "md", parts(Index(lines, self.sentences())), self.settings.report
        )

    def sentences(self) -> list[str]:
        """Return the error messages of runs without a report, anonymous if the reports are."""
        if not self.settings.anonymous:
            return [message for _, message in self.failed]
        from .anonymous import anonymous_failure

        return [
            anonymous_failure(message, unit.where, number)
            for number, (unit, message) in enumerate(self.failed, start=1)
        ]

    def _fail(self, unit: Unit, message: str) -> None:
        """Record an error message; with several runs, add the run's place."""
        named = not self.settings.many or unit.where in message
        self.failed.append((unit, message if named else f"{unit.where}: {message}"))

    def _recorded(self, unit: Unit) -> list[KnownRun]:
        # Anonymous batches record no places: their runs' ids are no addresses.
        if self._state is None or self.settings.anonymous:
            return []
        fingerprint, contents = self._state.runs_at(unit.key)
        units = [unit.of_run(run["id"]) if len(contents) > 1 else unit for run in contents]
        return [
            KnownRun(unit, run_unit, run_unit, content, fingerprint)
            for run_unit, content in zip(units, contents, strict=True)
        ]

    def _is_current(self, unit: Unit, known: Sequence[KnownRun]) -> bool:
        try:
            fingerprint = unit.fingerprint(self.settings.read_as)
        except StallscopeError:
            return False  # reading it reports the error
        return all(run.fingerprint == fingerprint for run in known)

    def _started_since(self, known: KnownRun, since: datetime | None) -> bool:
        if since is None:
            return True
        start = known.run.started_at
        self.undated += start is None
        return start is not None and start >= since

    def _plan(
        self,
        chosen: Sequence[KnownRun],
        everything: Sequence[KnownRun],
        pairs: Sequence[BaselinePair],
    ) -> list[_PlannedReport]:
        fingerprints = {run.read_from: run.fingerprint for run in everything}
        others = [run.fingerprint for run in chosen] if self.settings.asks_for_ranks else []
        used = {unit for pair in pairs for unit in (pair.baseline, pair.single)}
        planned = []
        for known, stem, pair in zip(chosen, self._stems(chosen), pairs, strict=True):
            identity = (known.run.id, known.fingerprint)
            baselines = [
                self._fingerprint(unit, fingerprints) for unit in (pair.baseline, pair.single)
            ]
            is_baseline = known.read_from in used
            report_hash = hash_of(
                *identity, baselines, others, is_baseline, self.settings.report_inputs
            )
            written = None if self._state is None else self._state.current(known.key, report_hash)
            task = Task(known.read_from, stem, pair.baseline, pair.single, is_baseline=is_baseline)
            planned.append(_PlannedReport(known, task, report_hash, written))
        return planned

    def _stems(self, known: Sequence[KnownRun]) -> list[str]:
        """Return the file names of reports: runs keep their names, new runs get unused ones."""
        if self._state is None:
            return stems_of([known_run.run for known_run in known])
        before = [self._state.written_for(known_run.key) for known_run in known]
        new = [known_run.run for known_run, old in zip(known, before, strict=True) if old is None]
        fresh = iter(stems_of(new, [STEM, *self._state.stems]))
        return [next(fresh) if old is None else old.line.stem for old in before]

    def _fingerprint(self, unit: Unit | None, known: dict[Unit, str]) -> str:
        if unit is None or self._state is None:
            return ""
        return known[unit] if unit in known else unit.fingerprint(self.settings.read_as)

    def _prepare(self, remaining: Sequence[_PlannedReport], known_runs: Iterable[KnownRun]) -> None:
        """Check that nothing is overwritten; record the known runs and the files to write."""
        settings, state = self.settings, self._state
        if settings.output != "files":
            return
        paths = [paths_of(report.task.stem, settings.formats, settings.out) for report in remaining]
        new = [path for report_paths in paths for path in report_paths]
        if state is not None:
            new += paths_of(STEM, self._documents, settings.out)
            new = [path for path in new if not state.was_written(path)]
        if not self.force:
            refuse_to_overwrite(new)
        if remaining:
            make_folder(settings.out)
        if state is not None:
            places = {} if settings.anonymous else _by_source(known_runs)
            for source, runs in places.items():
                contents = [run.content for run in runs]
                state.note_runs(source.key, runs[0].fingerprint, contents)
            for report, report_paths in zip(remaining, paths, strict=True):
                state.start(report.known.key, report_paths)
            state.tidy()

    def _finish(self, planned: _PlannedReport, done: ReportResult) -> None:
        if done.failed:
            self._fail(planned.known.unit, done.failed)
        # A report that could not be sent to MLflow is made again next time.
        if self._state is None or done.failed:
            return
        before = self._state.written_for(planned.known.key)
        # Unchanged files of other formats still belong to the batch.
        unchanged = {} if before is None else self._state.unchanged_files(before)
        written = WrittenReport(
            report_hash=planned.report_hash,
            line=done.line,
            files={**unchanged, **file_states(done.paths)},
            anonymous=self.settings.anonymous,
            checked=done.checked,
        )
        self._state.finish(planned.known.key, written)

    def _with_others(
        self, planned: Sequence[_PlannedReport], remaining: Sequence[_PlannedReport]
    ) -> list[_PlannedReport]:
        """Add the other runs of each job, which answer questions about numbers of ranks."""
        jobs: dict[str, list[Analysis]] = defaultdict(list)
        with self.show_progress("surveying", len(planned)) as update:
            tasks = [(report.task,) for report in planned]
            for index, result in self.workers.each("survey", tasks, update):
                if not isinstance(result, Failed):
                    jobs[job_key(planned[index].known.run)].append(result)
        return [
            replace(
                report, task=replace(report.task, others=tuple(jobs[job_key(report.known.run)]))
            )
            for report in remaining
        ]

    @property
    def _documents(self) -> list[str]:
        return [name for name in self.settings.formats if name in report_formats.SEVERAL_RUNS]


@dataclass(frozen=True)
class _PlannedReport:
    """A run, its report task, and a hash that identifies the report."""

    known: KnownRun
    task: Task
    report_hash: str
    #: The report, if it exists already.
    written: WrittenReport | None


def _by_source(runs: Iterable[KnownRun]) -> dict[Unit, list[KnownRun]]:
    """Return the runs by the place that the first pass has read, each once."""
    sources: dict[Unit, list[KnownRun]] = defaultdict(list)
    # A baseline that the user names may be one of the runs.
    for run in {run.key: run for run in runs}.values():
        sources[run.source].append(run)
    return sources
