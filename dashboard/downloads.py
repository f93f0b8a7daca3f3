"""Serve a run's report, figures and trace as downloads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, cast
from urllib.parse import quote

from dash import Dash
from flask import Response, request, send_file

from stallscope.analysis import Analysis
from stallscope.collector.run_names import safe_name
from stallscope.errors import NotFoundError
from stallscope.exports.export_formats import PERFETTO
from stallscope.exports.exported_run import Selection, exported_run
from stallscope.reports.report_formats import ReportOptions, render
from stallscope.reports.run import parts

from .addresses import baseline_query, root_path
from .security import message_and_status
from .store import RunStore

#: The path of downloads; the run's id and the download's name follow.
ADDRESS = "/download/"
# Larger traces are written to a temporary file before they are sent.
_MOST_BYTES_IN_MEMORY = 16 << 20


@dataclass(frozen=True)
class Download:
    """A file that users can get of a run."""

    #: The last part of its address, and the suffix of its files.
    name: str
    suffix: str
    #: The text and the tooltip of the link.
    words: str
    title: str
    mimetype: str
    write: Callable[[Analysis, BinaryIO], None]
    #: Whether the browser shows the file instead of saving it.
    inline: bool = False
    #: Whether it needs recorded steps.
    of_steps: bool = False


def _report(name: str) -> Callable[[Analysis, BinaryIO], None]:
    def write(analysis: Analysis, file: BinaryIO) -> None:
        options = ReportOptions(generated_at=datetime.now(UTC))
        file.write(render(name, parts(analysis), options).encode())

    return write


def _trace(analysis: Analysis, file: BinaryIO) -> None:
    PERFETTO.check()
    PERFETTO.write(exported_run(analysis.run, Selection()), file)


DOWNLOADS = (
    Download(
        "report",
        ".html",
        "Report",
        "This run as one page that needs nothing else, in a new tab",
        "text/html",
        _report("html"),
        inline=True,
    ),
    Download(
        "trace",
        ".pftrace",
        "Perfetto",
        "Save this run's steps as a trace for ui.perfetto.dev",
        "application/octet-stream",
        _trace,
        of_steps=True,
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


def download_address(run_id: str, baseline_id: str | None, download: Download) -> str:
    """Return the address of a download of a run, compared with a baseline if there is one."""
    path = f"{root_path()}{ADDRESS}{quote(run_id, safe='')}/{download.name}"
    return path + baseline_query(baseline_id)


def add_download_routes(app: Dash, store: RunStore) -> None:
    """Serve the downloads of runs."""
    by_name = {download.name: download for download in DOWNLOADS}

    def download(run_id: str, name: str) -> Response:
        try:
            if name not in by_name:
                names = ", ".join(by_name)
                raise NotFoundError(f"there is no download {name!r}; choose one of {names}")
            analysis = store.analysis(run_id, request.args.get("baseline") or None)
            return _response(by_name[name], analysis)
        except Exception as error:
            text, status = message_and_status(error, f"the download {name!r} of run {run_id!r}")
            return Response(f"{text}\n", status=status, mimetype="text/plain")

    app.server.add_url_rule(f"{ADDRESS}<run_id>/<name>", "download", download, methods=["GET"])


def _response(download: Download, analysis: Analysis) -> Response:
    # Flask closes it.
    file = cast(BinaryIO, tempfile.SpooledTemporaryFile(_MOST_BYTES_IN_MEMORY))  # noqa: SIM115
    try:
        download.write(analysis, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    response = send_file(
        file,
        mimetype=download.mimetype,
        as_attachment=not download.inline,
        download_name=f"{safe_name(analysis.run.name)}{download.suffix}",
        etag=False,
    )
    response.headers["Cache-Control"] = "no-store"
    return response
