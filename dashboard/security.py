"""Restrict what browsers may do with the pages, and which hosts requests may name."""

from __future__ import annotations

from dash import Dash
from flask import Flask, Response, request

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


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
