"""Access to a dashboard that other programs can reach: only with its token.

The token comes in the address once, and is a cookie from then on; scripts send it as a bearer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from urllib.parse import urlencode

from flask import Flask, Response, make_response, redirect, request
from werkzeug.wrappers import Response as Answer

from stallscope.errors import UsageError

#: The name under which the token stands in an address.
IN_ADDRESS = "token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_NEEDED = (
    "This dashboard needs its token: open the address that the terminal shows, with ?token=…\n"
)


def new_token() -> str:
    """A token that cannot be guessed: 192 bits."""
    return secrets.token_urlsafe(24)


def checked_token(token: str) -> str:
    """The token.

    Raises:
        UsageError: if it is too short, or does not fit into an address.
    """
    if _TOKEN.fullmatch(token):
        return token
    raise UsageError(
        "a token has 16 to 200 letters, digits, - and _: leave out its value, and one is made for you"
    )


def ask_for_token(server: Flask, token: str, port: int) -> None:
    """Answer only requests that know the token."""
    # Cookies know no ports: two dashboards on one machine would take each other's.
    cookie = f"stallscope-{port}"
    proof = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def check() -> Answer | None:
        given = request.args.get(IN_ADDRESS)
        if given is not None and request.method == "GET" and _same(given, token):
            return _let_in(cookie, proof)
        if _same(request.cookies.get(cookie, ""), proof) or _same(_bearer(), token):
            return None
        return Response(_NEEDED, status=401, mimetype="text/plain")

    server.before_request(check)


def _let_in(cookie: str, proof: str) -> Answer:
    """On to the same address without the token, which is not to stay in histories and logs."""
    rest = [(name, value) for name, value in request.args.items(multi=True) if name != IN_ADDRESS]
    # One slash: two of them would lead to another host.
    path = "/" + (request.script_root + request.path).lstrip("/")
    answer = make_response(redirect(path + (f"?{urlencode(rest)}" if rest else "")))
    answer.set_cookie(
        cookie,
        proof,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
        path=f"{request.script_root}/",
    )
    return answer


def _bearer() -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _same(given: str, expected: str) -> bool:
    # Takes as long for a nearly right one as for any other.
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
