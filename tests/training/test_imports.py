"""Besides the user's framework, a recorder imports only the standard library and itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from training.environments import KERAS3, MXNET, ROOT, needs
from training.launching import ENVIRONMENT

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

PROGRAM = """
import importlib, json, sys, sysconfig
for name in sys.argv[2].split(","):
    importlib.import_module(name)
before = set(sys.modules)
module, *_ = [importlib.import_module(name) for name in sys.argv[1].split(",")]
paths = sysconfig.get_paths()
print(json.dumps({
    "new": {
        name: getattr(sys.modules[name], "__file__", None)
        for name in set(sys.modules) - before
    },
    "recorder": module.StepLogger.__module__,
    "standard": [paths["stdlib"], paths["platstdlib"]],
    "third": [paths["purelib"], paths["platlib"]],
}))
"""


def imported(environment: Path, module: str, framework: str, **settings: str) -> dict[str, str]:
    """Return the modules and files that a recorder imports besides those of the framework."""
    python = environment / "bin" / "python"
    done = subprocess.run(
        [python, "-c", PROGRAM, module, framework],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3", **settings},
    )
    assert done.returncode == 0, done.stderr
    imports = json.loads(done.stdout.splitlines()[-1])
    for name, file in imports["new"].items():
        if file is None:
            continue
        ours = file.startswith((f"{ROOT / 'src'}/", f"{ROOT / 'collector'}/"))
        third = any(file.startswith(path) for path in imports["third"])
        standard = not third and any(file.startswith(path) for path in imports["standard"])
        assert ours or standard, f"{module} imports {name} from {file}"
    return imports


def test_recorders_of_keras_3_lightning_and_transformers_import_nothing_else() -> None:
    needs(KERAS3)
    # The recorder of a backend is imported with the first recording, after its framework.
    recorders = ("keras3_recording", "on_jax", "on_tensorflow", "on_torch", "stages")
    names = ",".join(f"stallscope.collector.recorder.keras3.{name}" for name in recorders)
    doors = "stallscope.lightning,stallscope.transformers"
    frameworks = "keras,torch,jax,tensorflow,numpy,lightning.pytorch,transformers.trainer"
    imports = imported(KERAS3, f"stallscope.keras,{names},{doors}", frameworks)
    assert ".keras3." in imports["recorder"]


def test_the_recorder_of_jax_imports_nothing_else() -> None:
    needs(KERAS3)
    imported(KERAS3, "stallscope.jax", "jax")


def test_keras_2_gets_its_own_recorder(training_side: None) -> None:
    imports = imported(ENVIRONMENT, "stallscope.keras", "tensorflow,tensorflow.keras")
    assert ".tf_keras." in imports["recorder"]


def test_the_recorder_of_mxnet_imports_nothing_else() -> None:
    needs(MXNET)
    imported(MXNET, "stallscope.mxnet", "mxnet")
