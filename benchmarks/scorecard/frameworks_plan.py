"""The frameworks of the scorecard: their programs, environments, and batches per step.

Standard library only: the trainings import it as well, in their own environments.
"""

from __future__ import annotations

#: The frameworks, with their titles on the page.
FRAMEWORKS = {
    "transformers": "Hugging Face Trainer",
    "accelerate": "Accelerate",
    "accumulate": "Accelerate, two batches per step",
    "no_sync": "PyTorch DDP, two batches per step (`no_sync`)",
    "compiled": "PyTorch DDP, `torch.compile`",
    "fsdp": "PyTorch FSDP2",
    "ray": "Ray Train",
    "jax": "JAX",
}
#: In JAX's compiled step, compute, waiting and allreduce cannot be separated: no rank is named.
NAMES_NO_RANK = ("jax",)
STAGES = ("input", "compute")

_TWO_BATCHES = ("accumulate", "no_sync")


def batches_per_step(framework: str) -> int:
    return 2 if framework in _TWO_BATCHES else 1


def program(framework: str) -> str:
    """Return the file name of the program that trains with a framework."""
    kind = framework if framework in ("ray", "jax") else "torch"
    return f"train_frameworks_{kind}.py"


def environment(framework: str) -> str:
    """Return the name of the folder with the framework's Python."""
    return ".venv-ray" if framework == "ray" else ".venv-keras3"


def make_target(framework: str) -> str:
    """Return what makes that environment."""
    return "make ray-env" if framework == "ray" else "make keras3-env"
