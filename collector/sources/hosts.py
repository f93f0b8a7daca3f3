"""One place per host of a job: a path on every host that a hostfile of horovodrun names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from stallscope.errors import NotFoundError, UnreadableError, UsageError

# Where a host's name belongs in a path or URL.
_HOST = "{host}"
# As in a hostfile, "host1 slots=2", or as after -H, "host1:2"; how many slots does not matter here.
_ENTRY = re.compile(r"(?P<host>\w[\w.-]*)(?:\s+slots\s*=\s*\d+|:\d+)?", re.ASCII)


def expand_hosts(path: str, hostfile: Path) -> list[str]:
    """The same path on every host, as ``ssh://`` URLs in the order of the file.

    Args:
        path: an absolute path, or a URL as ``ssh://train@{host}:2222/logs``; ``{host}`` stands for
            the host's name in either.
        hostfile: one host per line, ``host1 slots=2`` or ``host1:2``, with ``#`` before comments.

    Raises:
        UsageError: if the path is neither.
        NotFoundError: if there is no such file.
        UnreadableError: if a line of it names no host, or none does.
    """
    template = _template(path)
    hosts = dict.fromkeys(_hosts(hostfile))
    if not hosts:
        raise UnreadableError(f"{hostfile}: names no host; write one per line: host1 slots=2")
    return [template.replace(_HOST, host) for host in hosts]


def _template(path: str) -> str:
    if path.startswith("/"):
        return f"ssh://{_HOST}{path}"
    parts = urlsplit(path)
    if parts.scheme not in ("ssh", "sftp"):
        raise UsageError(
            f"{path}: with a hostfile the place is an absolute path on every host, or a URL "
            f"as ssh://user@{_HOST}/path"
        )
    if _HOST not in parts.netloc:
        raise UsageError(
            f"{path}: write {_HOST} where the name of each host belongs: ssh://user@{_HOST}/path"
        )
    return path


def _hosts(hostfile: Path) -> Iterator[str]:
    for number, line in enumerate(_lines(hostfile), start=1):
        entries = line.partition("#")[0].strip()
        for entry in entries.split(",") if entries else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match is None:
                raise UnreadableError(
                    f"{hostfile}, line {number}: {entry.strip()!r} is no host of a hostfile; "
                    "write 'host1 slots=2' or 'host1:2'"
                )
            yield match["host"]


def _lines(hostfile: Path) -> list[str]:
    try:
        return hostfile.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise NotFoundError(f"{hostfile}: there is no such hostfile") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{hostfile}: cannot be read as a hostfile: {error}") from error
