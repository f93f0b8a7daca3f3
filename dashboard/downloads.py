"""A run out of the dashboard: its report, its figures and its trace, each at an address of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, cast
from urllib.parse import quote

from dash import Dash
from flask import Response, request, send_file

from stallscope.analysis import Analysis
from stallscope.collector.safe_names import safe_name
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.exports.registry import by_name as export_named
from stallscope.exports.selection import Selection
from stallscope.exports.worlds import worlds_of
from stallscope.reports.base import ReportOptions
from stallscope.reports.registry import render
from stallscope.reports.run import parts

from .addresses import root, with_baseline
from .store import RunStore

_log = logging.getLogger(__name__)

#: Where downloads are; the run's id and what is wanted follow.
ADDRESS = "/download/"
# Traces beyond this are kept on disk until they are sent.
_IN_MEMORY = 16 << 20


@dataclass(frozen=True)
class Download:
    """What can be had of a run."""

    #: The last part of its address, and how the names of its files end.
    name: str
    suffix: str
    #: What the link is called, and what it leads to.
    words: str
    title: str
    mimetype: str
    write: Callable[[Analysis, BinaryIO], None]
    #: Whether the browser shows it; otherwise it is kept as a file.
    shown: bool = False


def _report(name: str) -> Callable[[Analysis, BinaryIO], None]:
    def write(analysis: Analysis, file: BinaryIO) -> None:
        options = ReportOptions(generated_at=datetime.now(UTC))
        file.write(render(name, parts(analysis), options).encode())

    return write


def _trace(analysis: Analysis, file: BinaryIO) -> None:
    export = export_named("perfetto")
    export.check()
    export.write(worlds_of(analysis.run, Selection()), file)


DOWNLOADS = (
    Download(
        "report",
        ".html",
        "Report",
        "This run as one page that needs nothing else, in a new tab",
        "text/html",
        _report("html"),
        shown=True,
    ),
    Download(
        "trace",
        ".pftrace",
        "Perfetto",
        "Save this run's steps as a trace for ui.perfetto.dev",
        "application/octet-stream",
        _trace,
    ),
    Download(
        "json",
        ".json",
        "JSON",
        "Save this run's figures as JSON",
        "application/json",
        _report("json"),
    ),
)


def download_address(run_id: str, baseline_id: str | None, one: Download) -> str:
    """Where a download of a run is, held against a baseline."""
    path = f"{root()}{ADDRESS}{quote(run_id, safe='')}/{one.name}"
    return path + with_baseline("", baseline_id)


def add_download_routes(app: Dash, store: RunStore) -> None:
    """Let an app's server answer at the addresses of downloads."""
    by_name = {one.name: one for one in DOWNLOADS}

    def download(run_id: str, name: str) -> Response:
        try:
            if name not in by_name:
                raise NotFoundError(f"there is no download {name!r}: {', '.join(by_name)}")
            analysis = store.analysis(run_id, request.args.get("baseline") or None)
            return _sent(by_name[name], analysis)
        except NotFoundError as error:
            return _refused(str(error), 404)
        except StallscopeError as error:
            return _refused(str(error), 500)
        except Exception:
            _log.exception("the download %r of run %r failed", name, run_id)
            return _refused("Stallscope failed here; the terminal that it runs in shows where", 500)

    app.server.add_url_rule(f"{ADDRESS}<run_id>/<name>", "download", download, methods=["GET"])


def _sent(one: Download, analysis: Analysis) -> Response:
    file = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 (Flask closes it)
    try:
        one.write(analysis, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    response = send_file(
        file,
        mimetype=one.mimetype,
        as_attachment=not one.shown,
        download_name=f"{safe_name(analysis.run.name)}{one.suffix}",
        etag=False,
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def _refused(why: str, status: int) -> Response:
    return Response(f"{why}\n", status=status, mimetype="text/plain")
