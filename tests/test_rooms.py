"""The data flows one way: each room imports only rooms that come before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "stallscope": ROOT / "src" / "stallscope",
    "stallscope.collector": ROOT / "collector",
    "stallscope.parsers": ROOT / "parsers",
    "stallscope.dashboard": ROOT / "dashboard",
}
#: From the one that knows nothing to the one that knows everything.
ROOMS = (
    "errors",
    "config",
    "arrays",
    "formatting",
    "query",
    "run",
    "collector",
    "parsers",
    "runs",
    "analysis",
    "catalogue",
    "conditions",
    "text",
    "charts",
    "reports",
    "exports",
    "notebook",
    "batch",
    "spark",
    "watch",
    "dashboard",
    "cli",
    "__main__",
)
#: What users import in their training: these know the recorder only.
DOORS = ("keras", "lightning", "mxnet", "torch")
#: The steps of an analysis, in the order in which a run goes through them.
ANALYSIS = (
    "steps",
    "ledger",
    "stragglers",
    "settings",
    "gains",
    "network",
    "advice",
    "findings",
    "stopped",
    "goodput",
    "worlds",
    "result",
    "scaling",
    "history",
    "tuning",
    "views",
    "analyse",
)
COLLECTOR = ("recorder", "safe_names", "sources", "mlflow", "registry", "address", "store")


def modules() -> dict[str, Path]:
    """All modules of the package, by name; packages among them."""
    found = {}
    for base, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder)
            # The symlinks are for editors; their modules are counted where they really are.
            if not (folder / inner.parts[0]).is_symlink():
                parts = [base, *inner.with_suffix("").parts]
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports_of(name: str) -> Iterator[str]:
    """The modules of this package that a module imports, at its top or within functions."""
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


def rooms_of(name: str, below: str) -> str:
    """The room that a module is in, below a package; empty for the package itself."""
    return name.removeprefix(below).removeprefix(".").partition(".")[0]


def wrong_way(below: str, order: tuple[str, ...]) -> list[str]:
    """Imports from a room into one that comes later."""
    found = []
    for name in MODULES:
        own = rooms_of(name, below)
        if not name.startswith(f"{below}.") or own in DOORS:
            continue
        for other in imports_of(name):
            room = rooms_of(other, below)
            if other.startswith(f"{below}.") and order.index(room) > order.index(own):
                found.append(f"{name} imports {other}")
    return found


@pytest.mark.parametrize(
    ("below", "order"),
    [
        ("stallscope", ROOMS),
        ("stallscope.analysis", ANALYSIS),
        ("stallscope.collector", COLLECTOR),
    ],
)
def test_each_room_imports_only_rooms_before_it(below: str, order: tuple[str, ...]) -> None:
    rooms = {rooms_of(name, below) for name in MODULES if name.startswith(f"{below}.")}
    assert rooms - set(DOORS) == set(order)
    assert wrong_way(below, order) == []


@pytest.mark.parametrize("door", DOORS)
def test_what_training_imports_knows_the_recorder_only(door: str) -> None:
    imported = list(imports_of(f"stallscope.{door}"))
    assert imported
    assert all(name.startswith("stallscope.collector.recorder.") for name in imported)


def test_the_recorder_knows_itself_only() -> None:
    recorder = "stallscope.collector.recorder"
    inside = [name for name in MODULES if name.startswith(recorder)]
    outside = {
        imported
        for name in inside
        for imported in imports_of(name)
        if not imported.startswith(recorder)
    }
    # Its version, which needs nothing.
    assert outside <= {"stallscope"}
    assert len(inside) > 50


def test_the_root_of_the_package_holds_doors_only() -> None:
    files = {path.stem for path in FOLDERS["stallscope"].glob("*.py")}
    assert files == {"__init__", "__main__", "config", "errors", "notebook", "run", "runs", *DOORS}


def test_the_analysis_shows_its_pipeline_and_nothing_else() -> None:
    files = {path.stem for path in (FOLDERS["stallscope"] / "analysis").glob("*.py")}
    assert files == {"__init__", "analyse", "goodput", "result", "worlds"}
