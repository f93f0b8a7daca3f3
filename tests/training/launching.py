"""Start training programs in their environments."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent
#: With this folder on Python's path, ranks search for garbage rarely.
STARTUP = str(PROGRAMS / "startup")
#: The variables of ranks on hosts.
ON_HOSTS = {"PYTHONPATH": STARTUP, "OMP_NUM_THREADS": "1"}
ENVIRONMENT = PROGRAMS.parents[1] / ".venv-horovod"
# A faster ``horovodrun``.
_LAUNCHERS = PROGRAMS / "bin"
#: Several times what the longest launch takes on two cores, for machines with other work.
PATIENCE_SECONDS = 900.0
#: In the environment of each launch; no log may contain it.
SECRET = "abc-that-no-log-may-hold"


def programs_of(environment: Path) -> tuple[Path, ...]:
    """Return the folders in which a launch looks for programs first."""
    return _LAUNCHERS, environment / "bin"


@dataclass
class Launch:
    """A running program, alone or as ranks of Horovod, which prints into a file."""

    process: subprocess.Popen[bytes]
    printed: Path

    @property
    def output(self) -> str:
        return self.printed.read_text(errors="replace")

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return the exit status; end a launch that takes longer, and fail the test."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"no end after {seconds} s; printed:\n{self.output}") from None

    def succeed(self, seconds: float = PATIENCE_SECONDS) -> None:
        status = self.wait(seconds)
        assert status == 0, f"exit status {status}; printed:\n{self.output}"

    def end(self) -> None:
        """End the launch with all its ranks: horovodrun passes the first signal on to them."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=10)


def launch(
    printed: Path,
    program: str,
    *arguments: str,
    ranks: int = 0,
    environment: Path = ENVIRONMENT,
    **settings: str,
) -> Launch:
    """Start a program of this folder, under horovodrun if it has ranks."""
    horovodrun = ["horovodrun", "--disable-cache", "-np", str(ranks)]
    words = [*(horovodrun if ranks else []), "python"]
    return launch_words(printed, words, program, *arguments, environment=environment, **settings)


def launch_words(
    printed: Path,
    words: list[str],
    program: str,
    *arguments: str,
    environment: Path = ENVIRONMENT,
    **settings: str,
) -> Launch:
    """Start a program of this folder with the words of a launcher before it."""
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [*words, str(PROGRAMS / program), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment_of(environment, **settings),
            start_new_session=True,
        )
    return Launch(process, printed)


def environment_of(environment: Path, **settings: str) -> dict[str, str]:
    """Return the variables of a launch: those of the tests, without those of an outer training.

    Args:
        environment: programs are looked for there.
        settings: more variables. Python searches the folders of its ``PYTHONPATH`` after ``STARTUP``.
    """
    python_path = filter(None, (STARTUP, settings.get("PYTHONPATH")))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOROVOD_", "STALLSCOPE_", "PYTHON"))
    }
    return {
        **kept,
        "PATH": os.pathsep.join([*map(str, programs_of(environment)), os.environ["PATH"]]),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "HOROVOD_SECRET_TOKEN": SECRET,
        **settings,
        "PYTHONPATH": os.pathsep.join(python_path),
    }
