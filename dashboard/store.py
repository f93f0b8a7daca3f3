"""The runs that a dashboard shows, and their analyses.

Requests come from several threads. An analysis is made once, however many ask for it at a time, and
nobody waits for one that he has not asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.baseline import find_baseline, find_single
from stallscope.analysis.result import Bottleneck
from stallscope.errors import NotFoundError
from stallscope.run import Run
from stallscope.safe_names import safe_name

T = TypeVar("T")

#: Analyses that are kept. One of a thousand ranks and steps holds about 50 MB.
_MOST_ANALYSES = 16
#: Summaries are a few lines each.
_MOST_SUMMARIES = 10_000


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run without taking it apart."""

    id: str
    name: str
    source: str
    synthetic: bool
    size: int


@dataclass(frozen=True)
class Summary:
    """A run in one line."""

    bottleneck: Bottleneck
    step_ms: float | None
    samples_per_second: float | None


class RunStore:
    """Runs, each under an id of its own that can stand in an address."""

    def __init__(
        self,
        runs: Iterable[Run],
        analyse: Callable[[Run, Run | None, Run | None], Analysis] = analyse,
    ) -> None:
        self._runs = _with_ids(runs)
        self._infos = tuple(
            RunInfo(key, run.name, run.source, run.synthetic, run.size)
            for key, run in self._runs.items()
        )
        self._analyse = analyse
        self._analyses: _Cache[tuple[str, str | None], Analysis] = _Cache(_MOST_ANALYSES)
        self._summaries: _Cache[str, Summary] = _Cache(_MOST_SUMMARIES)
        self._baselines: _Cache[str, str | None] = _Cache(_MOST_SUMMARIES)

    def runs(self) -> Sequence[RunInfo]:
        """All runs, in the order in which they were given."""
        return self._infos

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def analysis(self, run_id: str, baseline_id: str | None = None) -> Analysis:
        """A run against a baseline where one is named, and against the one on one rank if it is here.

        Raises:
            NotFoundError: if there is no run of either id.
        """
        run = self._run(run_id)
        baseline = None if baseline_id is None else self._run(baseline_id)
        return self._analyses.get(
            (run_id, baseline_id),
            lambda: self._analyse(run, baseline, find_single(run, self._runs.values())),
        )

    def summary(self, run_id: str) -> Summary:
        """A run in one line, against its own baseline where there is one.

        Raises:
            NotFoundError: if there is no run of that id.
        """
        return self._summaries.get(run_id, lambda: self._summarise(run_id))

    def baseline_of(self, run_id: str) -> str | None:
        """The id of the synthetic run that is the same job; None where there is none.

        Raises:
            NotFoundError: if there is no run of that id.
        """
        run = self._run(run_id)
        return self._baselines.get(run_id, lambda: self._find_baseline(run))

    def _run(self, run_id: str) -> Run:
        try:
            return self._runs[run_id]
        except KeyError:
            raise NotFoundError(f"there is no run {run_id!r} here") from None

    def _find_baseline(self, run: Run) -> str | None:
        synthetic = {info.id: self._runs[info.id] for info in self._infos if info.synthetic}
        found = find_baseline(run, [other for other in synthetic.values() if other is not run])
        return next((key for key, other in synthetic.items() if other is found), None)

    def _summarise(self, run_id: str) -> Summary:
        analysis = self.analysis(run_id, self.baseline_of(run_id))
        step = analysis.step
        return Summary(
            analysis.bottleneck,
            None if step is None else step.mean,
            analysis.samples_per_second,
        )


K = TypeVar("K")


class _Cache(Generic[K, T]):
    """Values by key, the least recently used ones dropped; made once, by whoever asks first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._futures: OrderedDict[K, Future[T]] = OrderedDict()

    def get(self, key: K, make: Callable[[], T]) -> T:
        with self._lock:
            future = self._futures.get(key)
            mine = future is None
            if future is None:
                future = self._futures[key] = Future()
            self._futures.move_to_end(key)
            if len(self._futures) > self._most:
                self._futures.popitem(last=False)
        if mine:
            self._fill(key, future, make)
        return future.result()

    def _fill(self, key: K, future: Future[T], make: Callable[[], T]) -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # whatever it is, nobody may wait for ever
            # Whoever asks later tries again.
            with self._lock:
                if self._futures.get(key) is future:
                    del self._futures[key]
            future.set_exception(error)


def _with_ids(runs: Iterable[Run]) -> dict[str, Run]:
    """Runs by an id that needs no quoting in an address; copies of one run are numbered."""
    named: dict[str, Run] = {}
    for run in runs:
        base = key = safe_name(run.id)
        number = 1
        while key in named:
            number += 1
            key = f"{base}-{number}"
        named[key] = run
    return named
