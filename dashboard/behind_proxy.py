"""Serve the dashboard below a path of another server, such as ``/user/ada/proxy/8050/``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from stallscope.errors import UsageError

_PREFIX = re.compile(r"/([A-Za-z0-9._~@:%+-]+/)*")
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


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
