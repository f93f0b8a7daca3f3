"""The package has exactly the contents that pyproject.toml lists."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from setuptools import find_packages

import stallscope

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_packages_on_disk_are_those_that_are_installed() -> None:
    on_disk = {"stallscope"}
    for base, folder in {
        "stallscope": ROOT / "src" / "stallscope",
        "stallscope.collector": ROOT / "collector",
        "stallscope.parsers": ROOT / "parsers",
        "stallscope.dashboard": ROOT / "dashboard",
        "stallscope.sample_logs": ROOT / "sample_logs",
    }.items():
        on_disk.add(base)
        for init in folder.rglob("__init__.py"):
            inner = init.parent.relative_to(folder)
            # The symlinks are for editors; their packages are counted at their real place.
            if not any((folder / part).is_symlink() for part in inner.parts[:1]):
                on_disk.add(".".join([base, *inner.parts]))
    assert set(find_packages(ROOT / "src")) == on_disk


_NEEDS_A_FRAMEWORK = (
    "stallscope.jax",
    "stallscope.keras",
    "stallscope.lightning",
    "stallscope.mxnet",
    "stallscope.torch",
    "stallscope.transformers",
    "stallscope.collector.recorder.jax",
    "stallscope.collector.recorder.keras3",
    "stallscope.collector.recorder.mxnet",
    "stallscope.collector.recorder.pytorch",
    "stallscope.collector.recorder.tf_keras",
)


@pytest.mark.broad
def test_no_package_is_imported_by_its_bare_name() -> None:
    names = [
        name
        for _, name, _ in pkgutil.walk_packages(stallscope.__path__, "stallscope.")
        # Recorders import the framework they record, which is not in the app's environment.
        if not name.startswith(_NEEDS_A_FRAMEWORK) and not name.endswith("__main__")
    ]
    program = (
        f"import importlib, sys\n[importlib.import_module(n) for n in {names!r}]\n"
        "bare = {'collector', 'parsers', 'dashboard', 'sample_logs'} & set(sys.modules)\n"
        "sys.exit(', '.join(bare) or 0)"
    )
    assert len(names) > 30
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_defined_once() -> None:
    assert PROJECT["project"]["version"] == stallscope.__version__


def test_the_base_install_has_no_dependencies() -> None:
    assert PROJECT["project"]["dependencies"] == []


def test_importing_the_package_does_not_import_the_app() -> None:
    program = (
        "import sys, stallscope; dir(stallscope); stallscope.StallscopeError; "
        "heavy = {'numpy', 'pandas', 'pyarrow', 'plotly', 'scipy', 'stallscope.api'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.broad
def test_without_the_app_names_can_be_looked_up_and_not_called() -> None:
    program = (
        "import sys, stallscope\n"
        "sys.modules['plotly'] = None\n"
        "names = [getattr(stallscope, name) for name in stallscope.__all__]\n"
        "try:\n    stallscope.open_run('logs')\n"
        "except stallscope.StallscopeError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == "this needs plotly.graph_objects, which is not installed: pip install 'stallscope[app]'\n"
    )
