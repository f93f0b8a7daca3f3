"""Import every module that must work in a clean environment with a release.

python release_imports.py worker    without extras: the recorder
python release_imports.py app       with the app: everything except the recorders of frameworks
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import stallscope

#: The entry modules that import a framework, which is not installed here.
FRAMEWORKS = ("jax", "keras", "lightning", "mxnet", "torch", "transformers")
RECORDER = "stallscope.collector.recorder"
#: The recorder's packages that import a framework or NumPy.
RECORDERS_OF_FRAMEWORKS = (
    "jax",
    "keras3",
    "keras_common",
    "mxnet",
    "pytorch",
    "tf_keras",
)


def worker_modules() -> list[str]:
    """List the modules that need the standard library only."""
    recorder = importlib.import_module(RECORDER)
    recorder_modules = [
        module.name
        for module in pkgutil.walk_packages(recorder.__path__, f"{RECORDER}.")
        if module.name.split(".")[3] not in RECORDERS_OF_FRAMEWORKS
    ]
    return ["stallscope", "stallscope.errors", RECORDER, *recorder_modules]


def app_modules() -> list[str]:
    """List the entry modules and every package below them that needs no framework."""
    entries = [
        f"stallscope.{module.name}"
        for module in pkgutil.iter_modules(stallscope.__path__)
        if module.name not in (*FRAMEWORKS, "__main__")
    ]
    return [*worker_modules(), *entries]


def main() -> None:
    names = {"worker": worker_modules, "app": app_modules}[sys.argv[1]]()
    assert len(names) > 20, names
    for name in names:
        importlib.import_module(name)
    origin = stallscope.__file__
    assert origin is not None
    assert origin.startswith(sys.prefix), f"{origin} is not the installed package"
    print(f"{len(names)} modules of {stallscope.__version__} imported")


if __name__ == "__main__":
    main()
