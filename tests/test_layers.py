"""Data flows one way: each layer imports only layers before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Longer files are divided.
MOST_LINES = 450
FOLDERS = {
    "stallscope": ROOT / "src" / "stallscope",
    "stallscope.collector": ROOT / "collector",
    "stallscope.parsers": ROOT / "parsers",
    "stallscope.dashboard": ROOT / "dashboard",
}
#: From the lowest layer, which imports none, to the highest.
LAYERS = (
    "errors",
    "config",
    "plugins",
    "words",
    "arrays",
    "formatting",
    "run",
    "collector",
    "parsers",
    "opening",
    "analysis",
    "conditions",
    "catalogue",
    "text",
    "charts",
    "reports",
    "exports",
    "api",
    "notebook",
    "batch",
    "spark",
    "watch",
    "dashboard",
    "cli",
    "__main__",
)
#: Users import these in their training: they import the recorder only.
ENTRY_MODULES = ("jax", "keras", "lightning", "mxnet", "record", "torch", "transformers")
#: The steps of an analysis, in order.
ANALYSIS = (
    "steps",
    "ledger",
    "stragglers",
    "setup",
    "gains",
    "symptoms",
    "reasons",
    "network",
    "advice",
    "findings",
    "stopped",
    "result",
    "scaling",
    "comparison",
    "regression",
    "tuning",
    "views",
    "other_logs",
    "analyse",
)
COLLECTOR = (
    "recorder",
    "run_names",
    "netcheck",
    "sources",
    "mlflow",
    "source_kinds",
    "store",
)
#: What records any training, and then the recorders of the frameworks.
RECORDER = (
    "guards",
    "subprocesses",
    "job",
    "step_log",
    "machine",
    "hangs",
    "input",
    "options",
    "lock_looks",
    "lock_waits",
    "interruptions",
    "row_lines",
    "end_summary",
    "gathering",
    "session",
    "base_recording",
    "loop_steps",
    "loop_recording",
    "keras_common",
    "pytorch",
    "mxnet",
    "jax",
    "tf_keras",
    "keras3",
    "unedited_loops",
    "unedited",
)
#: From the bytes of files to runs.
PARSERS = (
    "lines",
    "files",
    "launcher_output",
    "log_records",
    "base",
    "rank_names",
    "work_lines",
    "window_lines",
    "epochs_only",
    "window_durations",
    "window_meaning",
    "formats",
    "registry",
    "runs",
    "reader",
    "growing",
    "inspection",
)
#: The contract names the type of one format's contents.
TYPES_ONLY = {
    "stallscope.parsers.base imports stallscope.parsers.formats.flight_recorder.dump",
}


def modules() -> dict[str, Path]:
    """Return all modules of the package by name, with packages among them."""
    paths = {}
    for base, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder)
            # The symlinks are for editors; their modules are counted at their real place.
            if not (folder / inner.parts[0]).is_symlink():
                parts = [base, *inner.with_suffix("").parts]
                paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


MODULES = modules()


@cache
def imports_of(name: str) -> tuple[str, ...]:
    """Return the modules of this package that a module imports, at its top or within functions."""
    return tuple(_imports_of(name))


def _imports_of(name: str) -> Iterator[str]:
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(above) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                imported = f"{source}.{alias.name}"
                if imported in MODULES or source in MODULES:
                    yield imported if imported in MODULES else source


def layer_of(name: str, below: str) -> str:
    """Return the layer of a module, below a package; empty for the package itself."""
    return name.removeprefix(below).removeprefix(".").partition(".")[0]


def wrong_way(below: str, order: tuple[str, ...]) -> list[str]:
    """Return imports from a layer into a later one."""
    imports = []
    for name in MODULES:
        own_layer = layer_of(name, below)
        if not name.startswith(f"{below}.") or own_layer not in order:
            continue
        for imported in imports_of(name):
            layer = layer_of(imported, below)
            if imported.startswith(f"{below}.") and order.index(layer) > order.index(own_layer):
                imports.append(f"{name} imports {imported}")
    return imports


@pytest.mark.parametrize(
    ("below", "order"),
    [
        ("stallscope", LAYERS),
        ("stallscope.analysis", ANALYSIS),
        ("stallscope.collector", COLLECTOR),
        ("stallscope.collector.recorder", RECORDER),
        ("stallscope.parsers", PARSERS),
    ],
)
def test_each_layer_imports_only_layers_before_it(below: str, order: tuple[str, ...]) -> None:
    layers = {layer_of(name, below) for name in MODULES if name.startswith(f"{below}.")}
    entries = ENTRY_MODULES if below == "stallscope" else ()
    assert layers == {*order, *entries}
    assert set(wrong_way(below, order)) <= TYPES_ONLY


@pytest.mark.parametrize("module", ENTRY_MODULES)
def test_modules_for_training_import_the_recorder_only(module: str) -> None:
    imported = imports_of(f"stallscope.{module}")
    assert imported
    assert all(name.startswith("stallscope.collector.recorder.") for name in imported)


def test_the_recorder_imports_itself_only() -> None:
    recorder = "stallscope.collector.recorder"
    inside = [name for name in MODULES if name.startswith(recorder)]
    outside = {
        imported
        for name in inside
        for imported in imports_of(name)
        if not imported.startswith(recorder)
    }
    # Its version, which imports nothing.
    assert outside <= {"stallscope"}
    assert len(inside) > 50


def test_the_check_of_names_finds_pronouns(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "def found(one, *, own=1):\n"
        "    for other in one:\n"
        "        both = [made for made in other]\n"
        "class Stages:\n"
        "    other: int\n"
        "    one: int\n"
    )
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "names.py", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 1
    words = [line.split(": ")[1] for line in done.stdout.splitlines()]
    assert sorted(words) == ["both", "found", "made", "one", "one", "other", "own"]


def test_the_root_of_the_package_has_entry_modules_only() -> None:
    files = {path.stem for path in FOLDERS["stallscope"].glob("*.py")}
    assert files == {
        "__init__",
        "__main__",
        "config",
        "errors",
        "notebook",
        "opening",
        "plugins",
        "words",
        *ENTRY_MODULES,
    }


def test_the_root_of_the_analysis_has_its_pipeline_only() -> None:
    files = {path.stem for path in (FOLDERS["stallscope"] / "analysis").glob("*.py")}
    assert files == {
        "__init__",
        "analyse",
        "comparison",
        "other_logs",
        "reasons",
        "regression",
        "result",
        "setup",
        "symptoms",
    }


def test_no_module_is_long() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
