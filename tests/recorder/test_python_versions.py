"""The recorder runs on every Python used for training, with the standard library only."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorder.processes import interpreter

ROOT = Path(__file__).parents[2]
RECORDER = ROOT / "collector" / "recorder"
FILES = sorted(RECORDER.rglob("*.py"))
#: Folders that are not of one framework.
SHARED = ("input", "job", "keras_common", "machine", "step_log")
#: Modules that import no framework.
MODULES = [
    f"stallscope.collector.recorder.{'.'.join(path.relative_to(RECORDER).with_suffix('').parts)}"
    for folder in (".", *SHARED)
    for path in (RECORDER / folder).glob("[!_]*.py")
    if path.stem != "random_arrays"  # makes NumPy arrays
]

#: What the recorders of a folder may import in addition.
FRAMEWORKS = {
    "jax": {"jax", "numpy"},
    "keras3": {"keras", "numpy"},
    "keras_common": {"numpy"},
    "mxnet": {"mxnet"},
    "pytorch": {"torch"},
    "tf_keras": {"tensorflow", "numpy"},
}
#: And those of trainers, which drive another recorder.
TRAINERS = {
    "lightning_callback": {"lightning", "pytorch_lightning"},
    "trainer_callback": {"transformers"},
}

PROGRAM = """
import importlib, json, sys, sysconfig
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
paths = sysconfig.get_paths()
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "files": [file for file in files if file],
    "standard": [paths["stdlib"], paths["platstdlib"]],
    "modules": sorted(sys.modules),
}))
"""


class RunTime(ast.NodeTransformer):
    """Removes the imports that only type checkers need."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        only_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if only_types else self.generic_visit(node)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_recorder_imports_the_standard_library_and_nothing_else(version: str) -> None:
    python = interpreter(version)
    if python is None:
        assert version != "3.11", "Horovod's own Python must be tested"
        pytest.skip(f"there is no python{version} here to import the recorder with")
    command = [python, "-I", "-S", "-c", PROGRAM, str(ROOT / "src"), *MODULES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert ".".join(map(str, document["version"])) == version
    assert set(MODULES) <= set(document["modules"])
    allowed = tuple(f"{path}{os.sep}" for path in [*document["standard"], str(ROOT)])
    assert [file for file in document["files"] if not file.startswith(allowed)] == []
    assert [file for file in document["files"] if "site-packages" in file] == []
    ours = [name for name in document["modules"] if name.startswith("stallscope.")]
    folders = {name.rpartition(".")[0] for name in MODULES}
    assert set(ours) == {"stallscope.collector", *folders, *MODULES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RECORDER)))
def test_every_file_imports_the_standard_library_and_the_users_framework_only(path: Path) -> None:
    framework = FRAMEWORKS.get(path.parent.name, set()) | TRAINERS.get(path.stem, set())
    imported = set()
    for node in ast.walk(RunTime().visit(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(str(node.module).partition(".")[0])
    assert imported - set(sys.stdlib_module_names) <= {"stallscope", *framework}


def test_there_is_something_to_test() -> None:
    folders = {path.parent.name for path in RECORDER.glob("*/__init__.py")}
    assert folders == {*FRAMEWORKS, *SHARED}
    assert {"session", "line_format", "run_identity"} <= {
        name.rsplit(".", 1)[1] for name in MODULES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RECORDER)))
def test_every_file_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))
