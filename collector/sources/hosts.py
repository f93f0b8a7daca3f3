"""Expand a path to one URL per host of a horovodrun hostfile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from stallscope.errors import NotFoundError, UnreadableError, UsageError

# The placeholder for a host's name in a URL.
_HOST = "{host}"
# "host1 slots=2" of a hostfile, or "host1:2" of the option -H; slots are ignored.
_ENTRY = re.compile(r"(?P<host>\w[\w.-]*)(?:\s+slots\s*=\s*\d+|:\d+)?", re.ASCII)


def expand_hosts(path: str, hostfile: Path) -> list[str]:
    """Return an ``ssh://`` URL of the path on every host, in the order of the file.

    Args:
        path: an absolute path, or a URL such as ``ssh://train@{host}:2222/logs``; ``{host}`` is
            replaced by the host's name.
        hostfile: one host per line, ``host1 slots=2`` or ``host1:2``; comments start with ``#``.

    Raises:
        UsageError: if the path is neither.
        NotFoundError: if the file does not exist.
        UnreadableError: if a line has no host, or there are no hosts.
    """
    template = _template(path)
    hosts = dict.fromkeys(_hosts(hostfile))
    if not hosts:
        raise UnreadableError(f"{hostfile}: has no hosts; write one per line: host1 slots=2")
    return [template.replace(_HOST, host) for host in hosts]


def _template(path: str) -> str:
    if path.startswith("/"):
        return f"ssh://{_HOST}{path}"
    parts = urlsplit(path)
    if parts.scheme not in ("ssh", "sftp"):
        raise UsageError(
            f"{path}: with a hostfile, give an absolute path on every host, or a URL such as "
            f"ssh://user@{_HOST}/path"
        )
    if _HOST not in parts.netloc:
        raise UsageError(
            f"{path}: write {_HOST} in place of the host's name: ssh://user@{_HOST}/path"
        )
    return path


def _hosts(hostfile: Path) -> Iterator[str]:
    for number, line in enumerate(_lines(hostfile), start=1):
        entries = line.partition("#")[0].strip()
        for entry in entries.split(",") if entries else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match is None:
                raise UnreadableError(
                    f"{hostfile}, line {number}: {entry.strip()!r} is not a valid host; "
                    "write 'host1 slots=2' or 'host1:2'"
                )
            yield match["host"]


def _lines(hostfile: Path) -> list[str]:
    try:
        return hostfile.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise NotFoundError(f"{hostfile}: no such hostfile") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{hostfile}: cannot be read as a hostfile: {error}") from error
