"""Addresses of pages: how they are built and what they say. Everything in them is untrusted text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

from flask import has_request_context, request

#: The id of the component that is the browser's address.
ADDRESS = "address"

#: The path of the list of runs.
RUNS = "/"
#: The path of runs of one job on several numbers of ranks.
SCALING = "/scaling"
_PLACE = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Address:
    """A page's address, taken apart: what stands in its path's places, and its query."""

    places: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


def root() -> str:
    """What stands before every path: where the dashboard is served below a path, that path."""
    return request.script_root if has_request_context() else ""


def runs_address() -> str:
    """The address of the list of runs."""
    return root() + RUNS


def scaling_address(run_ids: Sequence[str] = ()) -> str:
    """The address of these runs held against each other; of all runs where there are few."""
    path = root() + SCALING
    return f"{path}?runs={','.join(quote(one, safe='') for one in run_ids)}" if run_ids else path


def run_address(run_id: str, baseline_id: str | None = None, page: str = "") -> str:
    """Return the address of a run's page, by default its overview."""
    path = f"{root()}/run/{quote(run_id, safe='')}" + (f"/{page}" if page else "")
    return path + with_baseline("", baseline_id)


def with_baseline(search: str, baseline_id: str | None) -> str:
    """A query that names this baseline, or none, and is otherwise as ``search``."""
    query = query_of(search)
    query.pop("baseline", None)
    if baseline_id:
        query["baseline"] = baseline_id
    return f"?{urlencode(query)}" if query else ""


def read_address(pattern: str, pathname: str, search: str) -> Address | None:
    """Return the values in an address that has the pattern (``/run/<run_id>``), or else None."""
    expected = pattern.strip("/").split("/")
    found = pathname.removeprefix(root()).strip("/").split("/")
    if len(expected) != len(found):
        return None
    places = {}
    for want, have in zip(expected, found, strict=True):
        place = _PLACE.fullmatch(want)
        if place:
            places[place[1]] = unquote(have)
        elif want != have:
            return None
    return Address(places, query_of(search))


def query_of(search: str) -> dict[str, str]:
    """Return an address's query (``?baseline=…``) by name."""
    return dict(parse_qsl(search.removeprefix("?")))
