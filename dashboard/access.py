"""Protect a dashboard that other machines can reach with a token.

A browser sends the token once, in the address, and a cookie from then on. Scripts send it as a bearer
token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from urllib.parse import urlencode

from flask import Flask, make_response, redirect, request
from werkzeug.wrappers import Response

from stallscope.errors import UsageError

#: The name of the token in a query.
TOKEN_PARAMETER = "token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_REFUSAL = (
    "This dashboard needs its token: open the address that the terminal shows, with ?token=…\n"
)


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
