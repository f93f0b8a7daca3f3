"""Reports as files: safe names, complete files only, and nothing overwritten without ``force``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from stallscope.analysis import Analysis
from stallscope.collector.run_names import safe_name
from stallscope.collector.store.layout import written_whole
from stallscope.errors import UsageError, WouldOverwriteError
from stallscope.run import Run

from .report_formats import ReportOptions, by_name, render
from .run import parts


def write_reports(
    analyses: Sequence[Analysis],
    formats: Sequence[str],
    out: Path,
    force: bool = False,
    options: ReportOptions | None = None,
) -> list[Path]:
    """Write every analysis in every format, into one folder.

    Args:
        analyses: of the runs to report.
        formats: names of formats, as ``registry.names()`` lists them.
        out: the folder; it is created if it is missing.
        force: whether existing files may be replaced.
        options: without them, reports are made now and by this version.

    Returns:
        The files, run by run.

    Raises:
        UsageError: if a format is unknown, or the folder cannot be written to.
        WouldOverwriteError: if a file exists already; then none is written.
    """
    names = [by_name(name).name for name in dict.fromkeys(formats)]
    options = options or ReportOptions(generated_at=datetime.now(UTC))
    stems = stems_of([analysis.run for analysis in analyses])
    paths = [path for stem in stems for path in paths_of(stem, formats, out)]
    texts = (render(name, parts(analysis), options) for analysis in analyses for name in names)
    write_texts(paths, texts, out, force)
    return paths


def paths_of(stem: str, formats: Sequence[str], out: Path) -> list[Path]:
    """Return the files of one run, which share a stem."""
    return [out / f"{stem}{by_name(name).suffix}" for name in dict.fromkeys(formats)]


def write_report(analysis: Analysis, name: str, path: Path, options: ReportOptions) -> None:
    """Write one report; replace an existing file.

    Raises:
        UsageError: if the format is unknown, or the folder cannot be written to.
    """
    text = render(name, parts(analysis), options)
    write_texts([path], [text], path.parent, force=True)


def write_texts(paths: Sequence[Path], texts: Iterable[str], out: Path, force: bool) -> None:
    """Write texts into files of one folder, one after the other.

    Raises:
        UsageError: if the folder cannot be written to.
        WouldOverwriteError: if a file exists already, without ``force``; then none is written.
    """
    if not force:
        refuse_to_overwrite(paths)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            # Readers see the old file or the new one.
            with written_whole(path) as draft:
                draft.write_bytes(text.encode("utf-8"))


def make_folder(out: Path) -> None:
    """Create a folder for reports.

    Raises:
        UsageError: if the folder cannot be made.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn errors of writing in the ``with`` statement into advice.

    Raises:
        UsageError: if the folder cannot be written to.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or out}: reports cannot be written here ({error.strerror}); "
            "name another folder with --out"
        ) from error


def stems_of(runs: Sequence[Run], taken: Iterable[str] = ()) -> list[str]:
    """Return a file name per run, without suffix; names differ even if case is ignored.

    Args:
        runs: the subjects of the files.
        taken: names of other files.
    """
    used = {name.lower() for name in taken}
    named = [safe_name(run.name) for run in runs]
    counts = Counter(name.lower() for name in named)
    shared = {name for name, count in counts.items() if count > 1} | used
    with_ids = [
        f"{name}-{safe_name(run.id)}" if name.lower() in shared else name
        for name, run in zip(named, runs, strict=True)
    ]
    stems = []
    for name in with_ids:
        number, stem = 1, name
        while stem.lower() in used:
            number += 1
            stem = f"{name}-{number}"
        used.add(stem.lower())
        stems.append(stem)
    return stems


def refuse_to_overwrite(paths: Sequence[Path]) -> None:
    """Check that no file would be overwritten.

    Raises:
        WouldOverwriteError: if a file exists already.
    """
    existing = [path for path in paths if os.path.lexists(path)]
    if existing:
        more = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        raise WouldOverwriteError(
            f"{existing[0]} already exists{more}: add --force to replace it, or name another folder "
            "with --out; nothing was written"
        )
