"""Refuse requests to Dash's callbacks that no page of the dashboard has sent."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from dash import Dash
from flask import Response, request

_log = logging.getLogger(__name__)

_ADDRESS = "/_dash-update-component"
#: The values of requests by this page, or by the user.
_OWN_SITES = ("same-origin", "none")


def refuse_malformed_requests(app: Dash, *, behind_proxy: bool) -> None:
    """Answer malformed requests to callbacks with 400, and those of other sites with 403.

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
        reason = _malformed(app, request.get_json(silent=True))
        return _refused(reason, 400) if reason else None

    app.server.before_request(check)


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
    if not isinstance(output, str) or output not in app.callback_map:
        return "it names no callback"
    if not _are_outputs(body.get("outputs"), output):
        return "its outputs are not those of the callback"
    for name in ("inputs", "state"):
        values = body.get(name, [])
        if not isinstance(values, list) or not all(map(_is_property, values)):
            return f"its {name} are no properties of components"
    if not isinstance(body.get("changedPropIds", []), list):
        return "its changedPropIds are no list"
    return ""


def _are_outputs(outputs: object, output: str) -> bool:
    """Compare outputs with a callback's name: ``id.property``, or ``..id.property...id.property..``."""
    if not output.startswith(".."):
        return isinstance(outputs, dict) and _is_property(outputs)
    count = output.count("...") + 1
    return isinstance(outputs, list) and len(outputs) == count and _is_property(outputs)


def _is_property(value: object) -> bool:
    if isinstance(value, list):  # of components that match a pattern
        return all(map(_is_property, value))
    return isinstance(value, dict) and "id" in value and "property" in value


def _refused(reason: str, status: int) -> Response:
    _log.warning("a request to %s is refused: %s", _ADDRESS, reason)
    return Response(f"{reason}\n", status=status, mimetype="text/plain")
