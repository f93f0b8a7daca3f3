"""Start processes in new Linux namespaces that end with the program that started them."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

#: What makes a host: its own network, name, mounts and processes.
NAMESPACES = ("--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_ENTERED = ("net", "uts", "mount", "pid", "time")


class Namespaces:
    """Namespaces in which a script runs; it starts when ``go`` is called.

    Args:
        options: of ``unshare``.
        script: lines of a shell script. All of them must succeed.
    """

    def __init__(self, options: Sequence[str], script: Sequence[str]) -> None:
        waiting = ["set -e", "echo", "read -r go", *script]
        # Nothing outlives the program that started it, even if that is killed.
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", *options, "sh", "-c"]
        self._process = subprocess.Popen(
            [*words, "\n".join(waiting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.await_line()
        #: The id of the process with the namespaces, outside of them.
        self.pid = _child(self._process.pid) if "--fork" in options else self._process.pid
        self._entered = [f"--{name}" for name in _ENTERED if f"--{name}" in options]

    def go(self) -> None:
        """Start the script."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()

    def await_line(self) -> None:
        """Wait until the script prints a line.

        Raises:
            OSError: if it ends before.
        """
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise OSError(f"unshare ended with status {self._process.wait()}")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in these namespaces."""
        return ["nsenter", "--target", str(self.pid), *self._entered, f"--wd={Path.cwd()}", *words]

    def processes(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield each process of the namespaces: its ids inside and outside, and its command line."""
        namespace = _namespace(self.pid)
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if _namespace(int(folder.name)) == namespace:
                    status = (folder / "status").read_text()
                    (inside,) = (
                        s.split()[-1] for s in status.splitlines() if s.startswith("NSpid")
                    )
                    yield int(inside), int(folder.name), (folder / "cmdline").read_bytes()

    def end(self) -> None:
        """Kill all processes of the namespaces."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def run(words: Sequence[str]) -> None:
    """Run a command.

    Raises:
        OSError: with the command and its message if it fails.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{shlex.join(words)}: {done.stderr.strip() or done.returncode}")


def quoted(path: object) -> str:
    return shlex.quote(str(path))
