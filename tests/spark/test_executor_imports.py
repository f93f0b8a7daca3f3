"""Executors need stallscope, numpy and pyarrow, and no other package of the app."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.step_logs import Job, write_job

# A program in an interpreter that can import these and the standard library only.
ALONE = """
import importlib.abc, pickle, sys

class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("stallscope", "numpy", "pyarrow") or top.startswith("_"):
            return
        if top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Only())
from functools import partial
from pathlib import Path
from stallscope import __version__
from stallscope.collector.sources.source import SourceFile
from stallscope.spark import arranging, each, parsing

logs, folder = Path(sys.argv[1]), sys.argv[2]

def on_executor(function, task):
    batch = each.run_task(0, function, pickle.dumps(task), pickle.dumps(()), __version__)
    return pickle.loads(batch.column(1)[0].as_py())

files = [
    SourceFile(path.name, str(path), path.stat().st_size, "", partial(parsing._bytes_of, str(path)))
    for path in sorted(logs.glob("rank*"))
]
parts = on_executor(parsing._read, parsing._Task([0, 1], files, None, folder))
fragments = [log.fragment for _, looked in parts for log in looked.reading.parsed]
pieces = [arranging._Piece(log, log, 0, fragment, (), ()) for log, fragment in enumerate(fragments)]
print(on_executor(arranging._arrange, arranging._Task(pieces, folder)).rows)
"""


def test_executors_read_and_write_with_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", Job(ranks=2, steps=20))
    (tmp_path / "rows").mkdir()
    words = [sys.executable, "-c", ALONE, str(tmp_path / "logs"), str(tmp_path / "rows")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("40\n", "")
