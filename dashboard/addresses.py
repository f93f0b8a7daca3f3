"""Build and parse the addresses of pages. Everything in an address is untrusted text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from flask import has_request_context, request

from stallscope.errors import UsageError

#: The id of the component that holds the browser's address.
ADDRESS = "address"

#: The path of the list of runs.
RUNS = "/"
#: The path of the comparison of runs.
COMPARE = "/compare"
#: The path of the comparison of runs on different numbers of ranks.
SCALING = "/scaling"
_PREFIX = re.compile(r"/([A-Za-z0-9._~@:%+-]+/)*")
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Address:
    """The parsed address of a page: the values in its path, and its query."""

    path_values: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


def root_path() -> str:
    """Return the path below which a proxy serves the dashboard; empty without one."""
    return request.script_root if has_request_context() else ""


def runs_address() -> str:
    """Return the address of the list of runs."""
    return root_path() + RUNS


def compare_address(*run_ids: str) -> str:
    """Return the address that compares runs: two side by side, more of them over time."""
    return root_path() + COMPARE + _runs_query(run_ids)


def scaling_address(run_ids: Sequence[str] = ()) -> str:
    """Return the address that compares numbers of ranks; without ids, those of all runs."""
    return root_path() + SCALING + (_runs_query(run_ids) if run_ids else "")


def run_address(run_id: str, baseline_id: str | None = None, page: str = "") -> str:
    """Return the address of a run's page, by default its overview."""
    path = f"{root_path()}/run/{quote(run_id, safe='')}" + (f"/{page}" if page else "")
    return path + baseline_query(baseline_id)


def baseline_query(baseline_id: str | None) -> str:
    """Return the query that names a baseline; empty without one."""
    return f"?{urlencode({'baseline': baseline_id})}" if baseline_id else ""


def query_of(search: str) -> dict[str, str]:
    """Parse an address's query (``?baseline=…``)."""
    return dict(parse_qsl(search.removeprefix("?")))


def _runs_query(run_ids: Sequence[str]) -> str:
    return f"?runs={','.join(quote(run_id, safe='') for run_id in run_ids)}"


def checked_prefix(prefix: str) -> str:
    """Return the path with a slash at both ends.

    Raises:
        UsageError: if it is not a path.
    """
    path = f"/{prefix.strip('/')}/" if prefix.strip("/") else "/"
    if _PREFIX.fullmatch(path) and not {".", ".."} & set(path.split("/")):
        return path
    raise UsageError(f"{prefix!r} is not a path: write it like --prefix /stallscope/")


def below(prefix: str, app: Wsgi) -> Wsgi:
    """Mount the app below a path, whether or not the proxy removes that path from requests."""

    def mounted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith(prefix):
            environ["PATH_INFO"] = "/" + path[len(prefix) :]
        environ["SCRIPT_NAME"] = prefix.rstrip("/")
        return app(environ, start_response)

    return mounted
