"""Dashboards that stand below a path of another server, such as ``/user/ada/proxy/8050/``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from stallscope.errors import UsageError

_PREFIX = re.compile(r"/([A-Za-z0-9._~@:%+-]+/)*")
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def checked_prefix(prefix: str) -> str:
    """The path with a slash at both ends.

    Raises:
        UsageError: if it is no path.
    """
    whole = f"/{prefix.strip('/')}/" if prefix.strip("/") else "/"
    if _PREFIX.fullmatch(whole) and not {".", ".."} & set(whole.split("/")):
        return whole
    raise UsageError(f"{prefix!r} is no path: write it like --prefix /stallscope/")


def below(prefix: str, app: Wsgi) -> Wsgi:
    """The app as it is asked for below a path, whether the proxy takes that path off or leaves it."""

    def asked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith(prefix):
            environ["PATH_INFO"] = "/" + path[len(prefix) :]
        environ["SCRIPT_NAME"] = prefix.rstrip("/")
        return app(environ, start_response)

    return asked
