"""Restrict what browsers and requests may do, and answer errors in one line."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from urllib.parse import urlencode

from dash import Dash
from flask import Flask, Response, make_response, redirect, request

from stallscope.errors import NotFoundError, StallscopeError, UsageError

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HEALTH = "/health"
_log = logging.getLogger(__name__)

#: The name of the token in a query.
TOKEN_PARAMETER = "token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_REFUSAL = (
    "This dashboard needs its token: open the address that the terminal shows, with ?token=…\n"
)


def add_security_headers(app: Dash) -> None:
    """Forbid, on every response, everything that the pages do not need.

    To be called after all callbacks are added: their inline scripts are allowed by hash.
    """
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' {' '.join(app.csp_hashes())}",
            # Mantine and Plotly write style elements when they start.
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )

    def harden(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    app.server.after_request(harden)


def answer_health_checks(server: Flask) -> None:
    """Answer ``/health`` to all, without a token and under any name; to be called before those checks.

    Whoever checks that the dashboard runs, such as Kubernetes, learns no more.
    """

    def answer() -> Response | None:
        if request.path != _HEALTH:
            return None
        return Response("ok\n", mimetype="text/plain")

    server.before_request(answer)


def require_host(server: Flask, host: str, port: int, advice: str) -> None:
    """Refuse requests with another Host header than the dashboard's, with a line of advice.

    Another website can point its own name to this machine (DNS rebinding) and could then read the
    dashboard; the Host header contains that name.

    Args:
        server: answers the requests.
        host: the name or IP address in the dashboard's address.
        port: the port that it listens on.
        advice: what to do instead.
    """
    names = {*_LOOPBACK, host.lower()}
    allowed = {f"{name}:{port}" for name in names} | (names if port == 80 else set())

    def check() -> Response | None:
        if request.headers.get("Host", "").lower() in allowed:
            return None
        return Response(f"{advice}\n", status=403, mimetype="text/plain")

    server.before_request(check)


# -- Map errors to HTTP responses, for addresses that return data instead of a page ---------------


def message_and_status(error: Exception, subject: str) -> tuple[str, int]:
    """Return the message and the HTTP status of an error; log those that should not happen.

    Args:
        subject: the missing response, for the log.
    """
    if isinstance(error, StallscopeError):
        missing, invalid = isinstance(error, NotFoundError), isinstance(error, UsageError)
        return str(error), 404 if missing else 400 if invalid else 500
    _log.error("%s failed", subject, exc_info=error)
    return "Stallscope failed here; the terminal that it runs in shows where", 500


# -- Protect a dashboard that other machines can reach with a token -------------------------------
#
# A browser sends the token once, in the address, and a cookie from then on. Scripts send it as a
# bearer token.


def new_token() -> str:
    """Return a random token of 192 bits."""
    return secrets.token_urlsafe(24)


def checked_token(token: str) -> str:
    """Return the token if it is long enough and safe in an address.

    Raises:
        UsageError: if it is not.
    """
    if _TOKEN.fullmatch(token):
        return token
    raise UsageError(
        "a token has 16 to 200 letters, digits, - and _; give --token without a value to have one "
        "generated"
    )


def require_token(server: Flask, token: str, port: int) -> None:
    """Refuse requests without the token or the cookie that proves it."""
    # Cookies ignore ports: without the port in its name, two dashboards on one machine would share it.
    cookie = f"stallscope-{port}"
    proof = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def check() -> Response | None:
        in_query = request.args.get(TOKEN_PARAMETER)
        if in_query is not None and request.method == "GET" and _equal(in_query, token):
            return _set_cookie(cookie, proof)
        if _equal(request.cookies.get(cookie, ""), proof) or _equal(_bearer_token(), token):
            return None
        return Response(_REFUSAL, status=401, mimetype="text/plain")

    server.before_request(check)


def _set_cookie(cookie: str, proof: str) -> Response:
    """Redirect to the same address without the token, so that it stays out of histories and logs."""
    query = [
        (name, value) for name, value in request.args.items(multi=True) if name != TOKEN_PARAMETER
    ]
    # Two slashes would lead to another host.
    path = "/" + (request.script_root + request.path).lstrip("/")
    response = make_response(redirect(path + (f"?{urlencode(query)}" if query else "")))
    response.set_cookie(
        cookie,
        proof,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
        path=f"{request.script_root}/",
    )
    return response


def _bearer_token() -> str:
    header = request.authorization
    return (header.token or "") if header is not None and header.type == "bearer" else ""


def _equal(value: str, secret: str) -> bool:
    # Takes the same time however many characters match.
    return hmac.compare_digest(value.encode("utf-8", "surrogateescape"), secret.encode())
