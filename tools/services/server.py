"""Run a server as a separate process: start it, wait until it answers, end it with its children."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from processes import end, identity

ENVIRONMENT = Path(__file__).parents[2] / ".venv-services"
# Long enough for busy machines.
_PATIENCE_SECONDS = 900.0
_LAST_LINES = 15


class ServerError(Exception):
    """A server did not start."""


@contextmanager
def running(
    command: Sequence[str | Path],
    folder: Path,
    answers: Callable[[], bool],
    settings: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server for the duration of the block; its output is in ``folder/log``.

    Args:
        command: the program, which stays in the foreground, and its arguments.
        folder: the server's folder; its name is the server's.
        answers: returns whether the server works.
        settings: environment variables in addition to the inherited ones.

    Yields:
        Its process id, which is also in ``folder/pid``.

    Raises:
        ServerError: if it ends or does not answer, with the last lines of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_inherited() | dict(settings or {}),
            start_new_session=True,
        )
    noted = folder / "pid"
    try:
        noted.write_text(identity(process.pid) or "")
        _wait_until(answers, process, folder)
        yield process.pid
    finally:
        end(process.pid)
        process.wait()
        noted.unlink(missing_ok=True)


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers_http(url: str) -> bool:
    """Tell whether a page exists."""
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def accepts(port: int) -> bool:
    """Tell whether a port of 127.0.0.1 accepts connections."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _wait_until(
    answers: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path
) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not answers():
        if process.poll() is not None:
            raise ServerError(_failure(folder, f"ended with status {process.returncode}"))
        if time.monotonic() > deadline:
            raise ServerError(_failure(folder, f"did not answer within {_PATIENCE_SECONDS:.0f} s"))
        time.sleep(0.1)


def _failure(folder: Path, what: str) -> str:
    lines = (folder / "log").read_text(errors="replace").splitlines()[-_LAST_LINES:]
    printed = "\n".join(f"    {line}" for line in lines) or "    nothing"
    return f"the server {folder.name} {what}; it last printed:\n{printed}"


def _inherited() -> dict[str, str]:
    """Return the environment without settings of Python and of the servers' clients."""
    ours = ("PYTHON", "MLFLOW_", "AWS_", "AZURE_", "AZURITE_", "STORAGE_", "SPARK_", "SSH_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
