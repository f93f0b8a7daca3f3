"""A batch from start to end; the command prints its messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from stallscope.analysis import Analysis
from stallscope.conditions import Outcome
from stallscope.errors import StallscopeError
from stallscope.parsers.progress import Watching
from stallscope.reports import registry
from stallscope.reports.index import Index, Line, parts
from stallscope.reports.index.index import STEM
from stallscope.reports.write import (
    make_folder,
    paths_of,
    refuse_to_overwrite,
    stems_of,
    write_texts,
)

from .anonymous import without_paths
from .plan import Against, against, job_key
from .settings import Settings
from .state import Seen, State, Written, made_of, stamps
from .units import Unit
from .worker import Done, Known, Task
from .workers import Failed, Result, Workers


@dataclass
class Batch:
    """Runs on their way to their reports."""

    settings: Settings
    workers: Workers
    watching: Watching
    force: bool = False
    #: What could not be reported: a sentence each, with the place it is about.
    failed: list[tuple[Unit, str]] = field(default_factory=list)
    #: How many reports there are to make, and how many of them are there.
    wanted: int = 0
    already: int = 0
    #: How many were made.
    made: int = 0
    #: Runs that are left out because it is not known when they began.
    undated: int = 0

    def __post_init__(self) -> None:
        self._state = State(self.settings.out) if self.settings.resumable else None
        self._there: list[Written] = []

    def look(self, units: Sequence[Unit]) -> list[Known]:
        """First pass: the runs that can be read."""
        found: dict[int, Known] = {}
        for index, result in self.looked(units):
            if isinstance(result, Failed):
                self._fail(units[index], result.says)
            else:
                found[index] = result
        return [found[index] for index in sorted(found)]

    def looked(self, units: Sequence[Unit]) -> Iterator[Result]:
        """The index of every place with the run that is there, or with why it cannot be read."""
        before = [self._remembered(unit) for unit in units]
        left = []
        for index, known in enumerate(before):
            # To see that nothing has changed takes less than to start a process.
            if known is not None and known.unit.local and self._is_current(known):
                yield index, known
            else:
                left.append(index)
        with self.watching("reading", len(left)) as watch:
            tasks = [(units[index], before[index]) for index in left]
            for at, result in self.workers.each("look", tasks, watch):
                yield left[at], result

    def report(
        self,
        known: Sequence[Known],
        named: Sequence[Known],
        stores: Iterable[Path],
        since: datetime | None = None,
    ) -> list[Done]:
        """Second pass: all reports that are not there already, in the order of the runs.

        Args:
            known: the runs.
            named: baselines that the user named.
            stores: where further baselines may be.
            since: report on runs only that have begun since; baselines may be older.

        Raises:
            WouldOverwriteError: if files are there that no batch has written; then none is written.
        """
        chosen = [one for one in known if self._began_since(one, since)]
        pairs = against(chosen, known, named, stores)
        wanted = self._wanted(chosen, [*known, *named], pairs)
        left = [one for one in wanted if self.force or one.written is None]
        self.wanted, self.already = len(wanted), len(wanted) - len(left)
        self._there = [one.written for one in wanted if one.written and one not in left]
        self._begin(left, [*known, *named])
        if left and self.settings.asks_for_ranks and self.settings.many:
            left = self._surveyed(wanted, left)
        # Runs that share a baseline follow each other: it is taken apart once.
        left.sort(key=lambda one: (str(one.task.baseline), str(one.task.single)))
        done: dict[str, Done] = {}
        with self.watching("reporting", len(left)) as watch:
            tasks = [(one.task,) for one in left]
            for index, result in self.workers.each("report", tasks, watch):
                one = left[index]
                if isinstance(result, Failed):
                    self._fail(one.known.unit, result.says)
                else:
                    done[one.task.stem] = result
                    self._finish(one, result)
        return [done[one.task.stem] for one in wanted if one.task.stem in done]

    def checked(self, done: Sequence[Done]) -> list[tuple[str, Outcome]]:
        """What became of conditions, also of runs that were there already: names with outcomes."""
        found = [(one.line, one.checked) for one in done]
        found += [(one.line, one.checked) for one in self._there]
        return [(line.name, outcome) for line, outcomes in found for outcome in outcomes]

    def index(self) -> list[Path]:
        """Write the index of all reports that batches have left in the folder; its files."""
        if self._state is None:
            return []
        settings = self.settings
        shown = [one for one in self._state.written if one.anonymous or not settings.anonymous]
        files = frozenset(name for one in shown for name in one.files)
        index = Index([one.line for one in shown], self.sentences(), files)
        paths = paths_of(STEM, self._documents, settings.out)
        texts = (registry.render(name, parts(index), settings.report) for name in self._documents)
        write_texts(paths, texts, settings.out, force=True)
        self._state.wrote_index(paths)
        self._state.tidy()
        return paths

    def markdown_index(self, lines: Sequence[Line]) -> str:
        """These runs alone."""
        return registry.render("md", parts(Index(lines, self.sentences())), self.settings.report)

    def sentences(self) -> list[str]:
        """Why runs could not be reported, as reports may say it."""
        if not self.settings.anonymous:
            return [says for _, says in self.failed]
        return [
            without_paths(says.replace(unit.where, f"run {number}"))
            for number, (unit, says) in enumerate(self.failed, start=1)
        ]

    def _fail(self, unit: Unit, says: str) -> None:
        """Name the run of a sentence, if there are many."""
        named = not self.settings.many or unit.where in says
        self.failed.append((unit, says if named else f"{unit.where}: {says}"))

    def _remembered(self, unit: Unit) -> Known | None:
        found = None if self._state is None else self._state.seen(unit.key)
        return None if found is None else Known(unit, unit, found.content, found.fingerprint)

    def _is_current(self, known: Known) -> bool:
        try:
            return known.unit.fingerprint(self.settings.read_as) == known.fingerprint
        except StallscopeError:
            return False  # reported where it is read

    def _began_since(self, known: Known, since: datetime | None) -> bool:
        if since is None:
            return True
        began = known.run.started_at
        self.undated += began is None
        return began is not None and began >= since

    def _wanted(
        self, chosen: Sequence[Known], everything: Sequence[Known], pairs: Sequence[Against]
    ) -> list[_Wanted]:
        prints = {one.near: one.fingerprint for one in everything}
        others = [one.fingerprint for one in chosen] if self.settings.asks_for_ranks else []
        wanted = []
        for one, stem, pair in zip(chosen, self._stems(chosen), pairs, strict=True):
            own = (one.run.id, one.fingerprint)
            bases = [self._print(unit, prints) for unit in (pair.baseline, pair.single)]
            made = made_of(*own, bases, others, self.settings.told)
            written = None if self._state is None else self._state.there(one.key, made)
            task = Task(one.near, stem, pair.baseline, pair.single)
            wanted.append(_Wanted(one, task, made, written))
        return wanted

    def _stems(self, known: Sequence[Known]) -> list[str]:
        """Names of files: those that runs had before, and others for new ones."""
        if self._state is None:
            return stems_of([one.run for one in known])
        before = [self._state.of(one.key) for one in known]
        new = [one.run for one, old in zip(known, before, strict=True) if old is None]
        fresh = iter(stems_of(new, [STEM, *self._state.stems]))
        return [next(fresh) if old is None else old.line.stem for old in before]

    def _print(self, unit: Unit | None, known: dict[Unit, str]) -> str:
        if unit is None or self._state is None:
            return ""
        return known[unit] if unit in known else unit.fingerprint(self.settings.read_as)

    def _begin(self, left: Sequence[_Wanted], seen: Iterable[Known]) -> None:
        """See that nothing is overwritten, and note what was seen and what will be written."""
        settings, state = self.settings, self._state
        if settings.output != "files":
            return
        paths = [paths_of(one.task.stem, settings.formats, settings.out) for one in left]
        new = [path for own in paths for path in own]
        if state is not None:
            new += paths_of(STEM, self._documents, settings.out)
            new = [path for path in new if not state.is_own(path)]
        if not self.force:
            refuse_to_overwrite(new)
        if left:
            make_folder(settings.out)
        if state is not None:
            for known in seen:
                state.saw(known.unit.key, Seen(known.fingerprint, known.content))
            state.tidy()
            for one, own in zip(left, paths, strict=True):
                state.begin(one.known.key, own)

    def _finish(self, one: _Wanted, done: Done) -> None:
        self.made += 1
        if done.failed:
            self._fail(one.known.unit, done.failed)
        # What could not be brought where it belongs is done again.
        if self._state is None or done.failed:
            return
        before = self._state.of(one.known.key)
        # Files of other formats stay what they are: this batch's own.
        kept = {} if before is None else self._state.still_own(before)
        written = Written(
            made=one.made,
            line=done.line,
            files={**kept, **stamps(done.paths)},
            anonymous=self.settings.anonymous,
            checked=done.checked,
        )
        self._state.finish(one.known.key, written)

    def _surveyed(self, wanted: Sequence[_Wanted], left: Sequence[_Wanted]) -> list[_Wanted]:
        """With the runs of the same job that questions about numbers of ranks go by."""
        jobs: dict[str, list[Analysis]] = defaultdict(list)
        with self.watching("surveying", len(wanted)) as watch:
            tasks = [(one.task,) for one in wanted]
            for index, result in self.workers.each("survey", tasks, watch):
                if not isinstance(result, Failed):
                    jobs[job_key(wanted[index].known.run)].append(result)
        return [
            replace(one, task=replace(one.task, others=tuple(jobs[job_key(one.known.run)])))
            for one in left
        ]

    @property
    def _documents(self) -> list[str]:
        return [name for name in self.settings.formats if name in registry.SEVERAL_RUNS]


@dataclass(frozen=True)
class _Wanted:
    """A run, how it is to be reported, and what tells that report from others."""

    known: Known
    task: Task
    made: str
    #: The very report, where it is there already.
    written: Written | None
