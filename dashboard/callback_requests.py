"""Refuse requests to Dash's callbacks that no page of the dashboard has sent."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

from dash import Dash
from dash.exceptions import CallbackException, DependencyException
from flask import Response, request

_log = logging.getLogger(__name__)

_ADDRESS = "/_dash-update-component"
# The kinds of values that properties of the dashboard's components have, apart from none.
_KINDS: dict[object, type | tuple[type, ...]] = {
    "pathname": str,
    "search": str,
    "runs-search.value": str,
    "value": (str, int, float),
    "getRowsRequest": dict,
    "selectedRows": list,
    "n_intervals": int,
    "horovod-timeline-run.data": str,
    "data": dict,
}
#: The values of requests by this page, or by the user.
_OWN_SITES = ("same-origin", "none")


def refuse_malformed_requests(app: Dash, *, behind_proxy: bool) -> None:
    """Answer malformed requests to callbacks with 400, those of other sites with 403, and scripts that
    Dash does not have with 404.

    Dash would raise arbitrary errors. Each refusal is one line of the log. Call it after all callbacks
    are added.

    Args:
        behind_proxy: whether browsers may know the dashboard by another name.
    """

    def check() -> Response | None:
        if request.path != _ADDRESS:
            return None
        if _is_of_another_site(behind_proxy):
            return _refused("it comes from another site", 403)
        try:
            reason = _malformed(app, request.get_json(silent=True))
        except RecursionError:
            reason = "its body is nested too deeply"
        return _refused(reason, 400) if reason else None

    def refuse_script(_: DependencyException) -> Response:
        return _refused("there is no such script", 404)

    def refuse_outputs(_: CallbackException) -> Response:
        return _refused("its outputs are not those of the callback", 400)

    app.server.before_request(check)
    app.server.register_error_handler(DependencyException, refuse_script)
    app.server.register_error_handler(CallbackException, refuse_outputs)


def _is_of_another_site(behind_proxy: bool) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in _OWN_SITES
    # Without TLS, browsers send that header only to this machine.
    origin = request.headers.get("Origin")
    return origin is not None and not behind_proxy and urlsplit(origin).netloc != request.host


def _malformed(app: Dash, body: object) -> str:
    """Return the error in the body of a request; empty if Dash can answer it."""
    if not isinstance(body, dict):
        return "its body is no JSON object"
    output = body.get("output")
    if not isinstance(output, str) or "callback" not in app.callback_map.get(output, {}):
        return "it names no callback"
    callback = app.callback_map[output]
    if not _are_outputs(body.get("outputs"), output):
        return "its outputs are not those of the callback"
    for name in ("inputs", "state"):
        values = body.get(name, [])
        if not isinstance(values, list) or not all(map(_is_property, values)):
            return f"its {name} are no properties of components"
        if not _are_those_of(callback[name], values):
            return f"its {name} are not those of the callback"
        if not all(map(_has_a_value_of_its_kind, values)):
            return f"its {name} have values of another kind"
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(name, str) for name in changed):
        return "its changedPropIds are no list of names"
    return ""


def _has_a_value_of_its_kind(entry: Any) -> bool:
    if isinstance(entry, list):
        return all(map(_has_a_value_of_its_kind, entry))
    value: Any = entry.get("value")
    name = entry["property"]
    if name == "id":
        return bool(value == entry["id"])
    kind = _KINDS.get(f"{entry['id']}.{name}") or _KINDS.get(name, object)
    if value is None or not isinstance(value, kind):
        return value is None
    return not isinstance(value, list) or all(map(_is_row, value))


def _is_row(row: object) -> bool:
    """Return whether a value may be a row of the table of runs."""
    return isinstance(row, dict) and isinstance(row.get("id"), str)


def _are_outputs(outputs: object, output: str) -> bool:
    """Compare outputs with a callback's name: ``id.property``, or ``..id.property...id.property..``."""
    several = output.startswith("..")
    names = output[2:-2].split("...") if several else [output]
    declared = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
    entries: Any = outputs if several else [outputs]
    return (
        isinstance(entries, list)
        and all(map(_is_property, entries))
        and _are_those_of(declared, entries)
    )


def _are_those_of(declared: list[Any], entries: list[Any]) -> bool:
    return len(declared) == len(entries) and all(map(_is_that_of, declared, entries))


def _is_that_of(declared: dict[str, str], entry: Any) -> bool:
    """Return whether an entry, or a list for a pattern, is the property that a callback declares."""
    component, name = declared["id"], declared["property"].partition("@")[0]
    if isinstance(entry, list):
        return component.startswith("{") and all(_is_that_of(declared, part) for part in entry)
    if entry["property"].partition("@")[0] != name:
        return False
    if not component.startswith("{"):
        return bool(entry["id"] == component)
    pattern = json.loads(component)
    # Lists stand for wildcards.
    if not isinstance(entry["id"], dict) or entry["id"].keys() != pattern.keys():
        return False
    return all(isinstance(part, list) or entry["id"][key] == part for key, part in pattern.items())


def _is_property(value: object) -> bool:
    if isinstance(value, list):  # of components that match a pattern
        return all(map(_is_property, value))
    return (
        isinstance(value, dict)
        and _is_id(value.get("id"))
        and isinstance(value.get("property"), str)
    )


def _is_id(component: object) -> bool:
    if isinstance(component, dict):
        return all(isinstance(part, (str, int)) for part in component.values())
    return isinstance(component, str)


def _refused(reason: str, status: int) -> Response:
    _log.warning("a request to %s is refused: %s", request.path, reason)
    return Response(f"{reason}\n", status=status, mimetype="text/plain")
