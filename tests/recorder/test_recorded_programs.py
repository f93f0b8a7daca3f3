"""Programs under ``python -m stallscope.record`` do what they do without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    # Spawned processes look up the classes of the program, and the program those that they return.
    "pool": """
        import multiprocessing, pickle

        class Work:
            def __init__(self, value):
                self.value = value

        def double(work):
            return Work(2 * work.value)

        if __name__ == "__main__":
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, [work.value for work in pool.map(double, [Work(1), Work(2)])])
            print(pickle.loads(pickle.dumps(Work(3))).value, __package__, __file__)
    """,
    "process": """
        import multiprocessing, sys

        class Worker(multiprocessing.get_context("spawn").Process):
            def run(self):
                raise ValueError("in a spawned process")

        if __name__ == "__main__":
            worker = Worker()
            worker.start()
            worker.join()
            sys.exit(worker.exitcode + 4)
    """,
    "failure": """
        import sys

        def fail():
            raise ValueError(sys.argv[1:])

        fail()
    """,
    "syntax": """
        def fail(:
    """,
    "message": """
        import sys

        sys.exit("no such data")
    """,
    "interrupted": """
        import os, signal

        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            print("cleaned up")
    """,
    "terminated": """
        import os, signal

        os.kill(os.getpid(), signal.SIGTERM)
    """,
    "loader": """
        print(type(__loader__).__name__, __spec__ is None, __cached__)
    """,
}
#: Arguments that are like those of the command.
ARGUMENTS = ["--to", "x", "-m", "y", "--probe-input", "--"]


class Ended(tuple[int, str, str]):
    """Exit status, standard output and standard error of a program."""


def ended(folder: Path, *words: str) -> Ended:
    done = subprocess.run(
        [sys.executable, *words, *ARGUMENTS], cwd=folder, capture_output=True, text=True
    )
    lines = done.stderr.splitlines()
    # A program that trains nothing is told so.
    errors = [line for line in lines if not line.startswith("stallscope: found no training")]
    return Ended((done.returncode, done.stdout, "\n".join(errors)))


@pytest.mark.parametrize("how", ["script", "module"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_without_a_recording(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    lines = PROGRAMS[name].splitlines()
    (tmp_path / "package" / f"{name}.py").write_text("\n".join(line[8:] for line in lines))
    words = ["-m", f"package.{name}"] if how == "module" else [f"package/{name}.py"]
    plain = ended(tmp_path, *words)
    assert plain[1] or plain[2] or plain[0] < 0
    assert ended(tmp_path, "-m", "stallscope.record", *words) == plain


@pytest.mark.parametrize("module", ["missing", "package"])
def test_a_module_that_cannot_run_is_explained_by_python(tmp_path: Path, module: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    plain = ended(tmp_path, "-m", module)
    assert "No module named" in plain[2]
    assert ended(tmp_path, "-m", "stallscope.record", "-m", module) == plain


def test_a_failed_program_is_not_searched_for_a_training(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit(3)\n")
    words = [sys.executable, "-m", "stallscope.record", "fails.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_launcher_in_the_wrong_place_is_explained(tmp_path: Path) -> None:
    status, printed, errors = ended(tmp_path, "-m", "stallscope.record", "sh", "train.py")
    assert (status, printed) == (2, "")
    assert errors == (
        "stallscope: cannot open sh: No such file or directory; launchers come first: "
        "sh ... -m stallscope.record SCRIPT"
    )


def test_the_first_folder_of_the_path_stays_where_python_adds_none(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print(sys.path)\n")
    plain = ended(tmp_path, "-I", "program.py")
    assert ended(tmp_path, "-I", "-m", "stallscope.record", "program.py") == plain
