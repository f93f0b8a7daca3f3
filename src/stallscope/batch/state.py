"""Record which reports a folder has, so that a batch continues after a stop, and redoes changed runs.

    OUT/.stallscope-reports.jsonl    one JSON object per line, appended to while a batch runs:
                                     known places, files that a batch is about to write, and the
                                     reports that it has written

The file names no places: keys are hashes, and hosts are only counted. Torn lines are skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallscope.analysis.gains.baseline import COMPARED
from stallscope.arrays import arrow
from stallscope.errors import UsageError
from stallscope.reports.index.index_lines import IndexLine
from stallscope.reports.write import write_texts, writing
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Run

if TYPE_CHECKING:
    from stallscope.conditions.condition import Outcome

STATE = ".stallscope-reports.jsonl"
LOCK = ".stallscope-reports.lock"
_VERSION = 1
_INDEX = "index"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)

#: The summary as JSON.
RunSummary = Mapping[str, Any]
_FACTS = (*COMPARED, "run_name", "synthetic", "gradient_bytes")


@dataclass(frozen=True)
class WrittenReport:
    """A run's report that a batch has written."""

    #: Changes with the run, its baselines, the options and the version.
    report_hash: str
    line: IndexLine
    #: File names with size and modification time, nanoseconds.
    files: Mapping[str, tuple[int, int]]
    anonymous: bool
    #: The outcomes of the conditions of ``--fail-if``.
    checked: tuple[Outcome, ...]


class WrittenReports:
    """The reports that batches have written into a folder."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path = out / STATE
        #: By place: the fingerprint of its files, and the runs that they were.
        self._places: dict[str, tuple[str, Sequence[RunSummary]]] = {}
        self._written: dict[str, WrittenReport] = {}
        self._started: dict[str, tuple[str, ...]] = {}
        self._index: dict[str, tuple[int, int]] = {}
        for content in _lines(self._path):
            with suppress(*_MALFORMED):
                self._add(content)

    @property
    def written(self) -> Sequence[WrittenReport]:
        """Return all reports whose files exist."""
        return [report for report in self._written.values() if self._is_there(report)]

    @property
    def stems(self) -> Sequence[str]:
        """Return the file names of all reports, even if the files are missing."""
        return [report.line.stem for report in self._written.values()]

    def runs_at(self, place: str) -> tuple[str, Sequence[RunSummary]]:
        """Return the fingerprint and the runs of a place in the last batch; no runs if it is new."""
        return self._places.get(_hashed(place), ("", ()))

    def note_runs(self, place: str, fingerprint: str, runs: Sequence[RunSummary]) -> None:
        """Record the runs at a place; the next ``tidy`` writes it."""
        self._places[_hashed(place)] = fingerprint, runs

    def written_for(self, key: str) -> WrittenReport | None:
        """Return the report on a run, even if its files are missing."""
        return self._written.get(_hashed(key))

    def current(self, key: str, report_hash: str) -> WrittenReport | None:
        """Return the report with this hash; None if it is outdated or a file is missing."""
        report = self.written_for(key)
        return (
            report
            if report and report.report_hash == report_hash and self._is_there(report)
            else None
        )

    def unchanged_files(self, written: WrittenReport) -> dict[str, tuple[int, int]]:
        """Return the report's files that were not changed or removed since."""
        return {
            name: file_state
            for name, file_state in written.files.items()
            if _file_state(self._out / name) == file_state
        }

    def was_written(self, path: Path) -> bool:
        """Whether a batch has written the file, and nothing has changed it since."""
        name = path.name
        if any(name in names for names in self._started.values()):
            return True
        known = [report.files[name] for report in self._written.values() if name in report.files]
        if name in self._index:
            known.append(self._index[name])
        return _file_state(path) in known

    def start(self, key: str, paths: Sequence[Path]) -> None:
        """Record files before they are written; the next ``tidy`` writes it."""
        self._started[_hashed(key)] = tuple(path.name for path in paths)

    def finish(self, key: str, written: WrittenReport) -> None:
        """Record a report that was written."""
        self._append({"run": _hashed(key), **_content(written)})

    def note_index(self, paths: Sequence[Path]) -> None:
        """Record the files of the index."""
        self._append({_INDEX: file_states(paths)})

    def tidy(self) -> None:
        """Rewrite the state without outdated lines."""
        lines: list[dict[str, Any]] = [{"stallscope_reports": _VERSION}, {_INDEX: self._index}]
        lines += [
            {"seen": key, "fingerprint": fingerprint, "contents": runs}
            for key, (fingerprint, runs) in self._places.items()
        ]
        lines += [{"begun": key, "files": names} for key, names in self._started.items()]
        lines += [{"run": key, **_content(report)} for key, report in self._written.items()]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_texts([self._path], [text], self._out, force=True)

    def _add(self, content: Mapping[str, Any]) -> None:
        if _INDEX in content:
            self._index |= {name: _pair(file_state) for name, file_state in content[_INDEX].items()}
        elif "seen" in content:
            for run in content["contents"]:
                run_of_summary(run)  # damaged ones raise
            self._places[str(content["seen"])] = str(content["fingerprint"]), content["contents"]
        elif "begun" in content:
            self._started[str(content["begun"])] = tuple(map(str, content["files"]))
        elif "run" in content:
            key = str(content["run"])
            self._written[key] = _written(content)
            self._started.pop(key, None)

    def _append(self, content: dict[str, Any]) -> None:
        with writing(self._out), self._path.open("a") as file:
            file.write(json.dumps(content) + "\n")
        self._add(content)

    def _is_there(self, report: WrittenReport) -> bool:
        return all((self._out / name).is_file() for name in report.files)


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock a folder, and create it if it is missing, because batches do not know each other's files.

    The system releases the lock of a killed process.

    Raises:
        UsageError: if another batch has the lock, or the folder is not writable.
    """
    # Only batches that write files need locks.
    from filelock import FileLock, Timeout

    lock = FileLock(out / LOCK, timeout=0)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        try:
            # A file system without locks cannot refuse a process.
            with suppress(NotImplementedError):
                lock.acquire()
        except Timeout:
            raise UsageError(
                f"{out}: another batch is writing its reports here; wait until it has ended, or name "
                "another folder with --out"
            ) from None
    try:
        yield
    finally:
        lock.release()


def hash_of(*parts: object) -> str:
    """Return a hash that is equal for equal reports."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def file_states(paths: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return size and modification time of the files that exist, by name."""
    states = {path.name: _file_state(path) for path in paths}
    return {name: file_state for name, file_state in states.items() if file_state is not None}


def _file_state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        texts = path.read_text().splitlines()
    except (OSError, ValueError):
        return
    for text in texts:
        with suppress(*_MALFORMED):
            content = json.loads(text)
            if isinstance(content, dict):
                yield content


def _written(content: Mapping[str, Any]) -> WrittenReport:
    from stallscope.conditions.condition import Outcome

    return WrittenReport(
        report_hash=str(content["made"]),
        line=IndexLine.read(content["line"]),
        files={str(name): _pair(file_state) for name, file_state in content["files"].items()},
        anonymous=bool(content["anonymous"]),
        checked=tuple(Outcome(held, str(why)) for held, why in content["checked"]),
    )


def _content(report: WrittenReport) -> dict[str, Any]:
    return {
        "made": report.report_hash,
        "line": asdict(report.line),
        "files": report.files,
        "anonymous": report.anonymous,
        "checked": [(outcome.held, outcome.why) for outcome in report.checked],
    }


def _pair(file_state: Sequence[Any]) -> tuple[int, int]:
    size, changed = file_state
    return int(size), int(changed)


# -- Summarise a run without tables and host names ------------------------------------------------
#
# Its identity, and the facts that match baselines.


def summarise(run: Run) -> RunSummary:
    """Summarise a run; the size does not depend on its number of ranks."""
    content = {
        "id": run.id,
        "hosts": len(run.hosts),
        "ended": run.status == "completed",
        "place_warnings": run.place_warnings,
        "facts": {
            **{name: run.fact(name) for name in _FACTS},
            "size": run.size,
            "anchor": {"wall_ns": _nanoseconds(run.started_at)},
        },
    }
    # Through JSON, so that fresh facts equal those that are read from a file.
    return dict(json.loads(json.dumps(content, default=str)))


def run_of_summary(content: RunSummary) -> Run:
    """Return a Run with the facts of a summary; its hosts have other names.

    Raises:
        KeyError, TypeError: if the content is not a summary.
    """
    hosts = range(max(1, int(content["hosts"])))
    facts = dict(content["facts"])
    return Run(
        id=str(content["id"]),
        source="",
        logs=tuple(
            Log("", 0, 0, part, {"host": f"host-{part}", **(facts if not part else {})}, ended)
            for part, ended in ((part, bool(content["ended"])) for part in hosts)
        ),
        steps=arrow.empty_table(STEPS_SCHEMA),
        intervals=arrow.empty_table(INTERVALS_SCHEMA),
        # Earlier versions wrote none.
        place_warnings=tuple(map(str, content.get("place_warnings", ()))),
    )


def _nanoseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1e9)
