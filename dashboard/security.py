"""What a browser may do with the pages, and who may ask for them."""

from __future__ import annotations

from dash import Dash
from flask import Flask, Response, request

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def add_security_headers(app: Dash) -> None:
    """Forbid on every response whatever the pages do not need.

    To be called when all callbacks are there: their inline scripts are allowed by hash.
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


class OwnHosts:
    """Which Host headers are a dashboard's own.

    Args:
        host: the name or address that it listens on, as it stands in its address.
        port: the port that it listens on.
    """

    def __init__(self, host: str, port: int) -> None:
        names = {*_LOOPBACK, host.lower()}
        self._own = {f"{name}:{port}" for name in names} | (names if port == 80 else set())

    def __contains__(self, header: str) -> bool:
        return header.lower() in self._own


def answer_only(server: Flask, hosts: OwnHosts, advice: str) -> None:
    """Refuse requests whose Host header is not one of ours, with a line of advice.

    A page from elsewhere can let its own name point to this machine (DNS rebinding) and would then
    read what is shown here; its name is in the Host header.
    """

    def check() -> Response | None:
        if request.headers.get("Host", "") in hosts:
            return None
        return Response(f"{advice}\n", status=403, mimetype="text/plain")

    server.before_request(check)
