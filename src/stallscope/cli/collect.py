"""Copy logs from where they are into a store: a folder, or a URL, of collected runs."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from stallscope.catalogue.collecting import Collected, Engine, collect
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source
from stallscope.collector.store.layout import where_is
from stallscope.collector.store.mirror import Mirror, temporary_mirrors
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError, UsageError
from stallscope.formatting.lists import counted
from stallscope.run import Run

from .engine_option import add_engine, collecting_engine
from .main import FAILED, SUCCESS, add_read_as
from .progress_bars import show_bytes

# Following takes at most this share of the time, however large a run has grown.
_MOST_TIME_SHARE = 0.2
# The number of problems printed per run; reports list all of them.
_PROBLEMS_SHOWN = 10

# The placeholder for a host's name in a URL.
_HOST = "{host}"
# "host1 slots=2" of a hostfile, or "host1:2" of the option -H; slots are ignored.
_ENTRY = re.compile(r"(?P<host>\w[\w.-]*)(?:\s+slots\s*=\s*\d+|:\d+)?", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="a folder with logs, a log, a pattern, a URL (s3://, ssh://, …), mlflow:RUN_ID, "
        "databricks:job/RUN_ID",
    )
    parser.add_argument(
        "--to",
        metavar="STORE",
        required=True,
        help="the store, a folder or a URL (s3://bucket/runs); or mlflow:RUN_ID, to upload logs there",
    )
    parser.add_argument(
        "--hosts",
        metavar="HOSTFILE",
        type=Path,
        help="fetch SOURCE from every host of this hostfile (horovodrun's format) over ssh",
    )
    parser.add_argument(
        "--follow", action="store_true", help="collect from a running job until it ends"
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="seconds between two looks (default: %(default)g)",
    )
    add_read_as(parser)
    add_engine(parser)


def run(options: argparse.Namespace) -> int:
    if options.to.startswith("mlflow:"):
        return _upload(options.sources, options.to.removeprefix("mlflow:"))
    starting = collecting_engine(options.engine, follow=options.follow)
    with _store(options.to) as store, starting as engine:
        return _collect(options, store, engine)


@contextmanager
def _store(to: str) -> Iterator[Path]:
    """Return the folder to collect into; for a URL, a temporary mirror of the store."""
    if "://" not in to:
        yield Path(to)
        return
    with temporary_mirrors() as folder:
        yield Mirror.create(folder / "store", to).folder


def _collect(options: argparse.Namespace, store: Path, engine: Engine) -> int:
    jobs = _jobs(options.sources, options.hosts)
    done: dict[int, Collected] = {}
    while True:
        start = time.monotonic()
        failed = _round(jobs, store, options.read_as, done, engine)
        if not options.follow or (len(done) == len(jobs) and all(map(_has_ended, done.values()))):
            return FAILED if failed else SUCCESS
        took = time.monotonic() - start
        time.sleep(max(options.every, took * (1 - _MOST_TIME_SHARE) / _MOST_TIME_SHARE))


def _round(
    jobs: Sequence[Sequence[Source]],
    store: Path,
    read_as: str | None,
    done: dict[int, Collected],
    engine: Engine,
) -> bool:
    """Collect every job once; return whether a job failed."""
    failed = False
    # Several jobs may be one run, of which only the last state is in the store.
    new: dict[Path, Run] = {}
    for number, places in enumerate(jobs):
        try:
            with show_bytes("fetching") as progress:
                collected = collect(
                    places, store, read_as=read_as, progress=progress, engine=engine
                )
        except StallscopeError as error:
            failed = True
            print(f"stallscope: {error}", file=sys.stderr)
            continue
        if not collected.unchanged or number not in done:
            _print_collected(collected)
        if not collected.unchanged:
            new |= {folder: run for run, folder in collected.runs}
        done[number] = collected
    if new:
        engine.list_runs([(run, folder) for folder, run in new.items()], store)
    return failed


def _jobs(sources: Sequence[str], hosts: Path | None) -> list[list[Source]]:
    """Return the sources of every job: one each, or all hosts of one job."""
    if hosts is not None:
        return [[open_source(url) for url in expand_hosts(source, hosts)] for source in sources]
    remote = [source for source in sources if source.startswith(("ssh://", "sftp://"))]
    if len(remote) > 1:
        # Hosts without a shared disk form one job.
        rest = [[open_source(source)] for source in sources if source not in remote]
        return [[open_source(source) for source in remote], *rest]
    return [[open_source(source)] for source in sources]


def _print_collected(collected: Collected) -> None:
    for run, folder in collected.runs:
        size = counted(run.size, "rank") if run.size_known else "an unknown number of ranks"
        state = "unchanged" if collected.unchanged else "collected"
        print(
            f"{where_is(folder)}: {state}, {len(run.ranks)} of {size}, {counted(run.rows, 'row')}, "
            f"{run.status}"
        )
        for problem in run.problems[:_PROBLEMS_SHOWN]:
            print(f"  {problem}", file=sys.stderr)
        if len(run.problems) > _PROBLEMS_SHOWN:
            print(f"  … and {len(run.problems) - _PROBLEMS_SHOWN} more", file=sys.stderr)


def _has_ended(collected: Collected) -> bool:
    newest, _ = collected.runs[0]
    return newest.status == "completed" and not newest.missing_ranks


def _upload(sources: Sequence[str], run_id: str) -> int:
    from stallscope.collector.mlflow.upload import upload_logs

    for source in sources:
        place = open_source(source)
        done = upload_logs(place, run_id)
        for warning in done.warnings:
            print(f"stallscope: warning: {warning}; left out", file=sys.stderr)
        print(
            f"{place.where}: {counted(done.logs, 'log')}, {done.unchanged} of them already collected, "
            f"{counted(done.size, 'byte')} uploaded to mlflow:{run_id}"
        )
    return SUCCESS


# -- Expand a path to one URL per host of a horovodrun hostfile -----------------------------------


def expand_hosts(path: str, hostfile: Path) -> list[str]:
    """Return an ``ssh://`` URL of the path on every host, in the order of the file.

    Args:
        path: an absolute path, or a URL such as ``ssh://train@{host}:2222/logs``; ``{host}`` is
            replaced by the host's name.
        hostfile: one host per line, ``host1 slots=2`` or ``host1:2``; comments start with ``#``.

    Raises:
        UsageError: if the path is neither.
        NotFoundError: if the file does not exist.
        UnreadableError: if a line has no host, or there are no hosts.
    """
    template = _template(path)
    hosts = dict.fromkeys(_hosts(hostfile))
    if not hosts:
        raise UnreadableError(f"{hostfile}: has no hosts; write one per line: host1 slots=2")
    return [template.replace(_HOST, host) for host in hosts]


def _template(path: str) -> str:
    if path.startswith("/"):
        return f"ssh://{_HOST}{path}"
    parts = urlsplit(path)
    if parts.scheme not in ("ssh", "sftp"):
        raise UsageError(
            f"{path}: with a hostfile, give an absolute path on every host, or a URL such as "
            f"ssh://user@{_HOST}/path"
        )
    if _HOST not in parts.netloc:
        raise UsageError(
            f"{path}: write {_HOST} in place of the host's name: ssh://user@{_HOST}/path"
        )
    return path


def _hosts(hostfile: Path) -> Iterator[str]:
    for number, line in enumerate(_lines(hostfile), start=1):
        entries = line.partition("#")[0].strip()
        for entry in entries.split(",") if entries else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match is None:
                raise UnreadableError(
                    f"{hostfile}, line {number}: {entry.strip()!r} is not a valid host; "
                    "write 'host1 slots=2' or 'host1:2'"
                )
            yield match["host"]


def _lines(hostfile: Path) -> list[str]:
    try:
        return hostfile.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise NotFoundError(f"{hostfile}: no such hostfile") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{hostfile}: cannot be read as a hostfile: {error}") from error
