"""Train public examples of the frameworks on two CPU ranks, with the recorder added as users add it.

    python tools/public_examples.py [--only PART-OF-A-NAME] [--from URL] [--to FOLDER]

Needs the network and ``make training-env keras3-env deepspeed-env``. Data sets are random, and slow on
rank 1 where an example loads sample by sample. The exit status is 1 if an example fails or lacks
timestamps, or if its verdict is not rank 1.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
import types
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
TIMESTAMPS = ["data", "ready", "reduced"]
SECONDS = 600
SAMPLES = 4000

HOROVOD = ("horovod/horovod", "2626dc87a3a8eb8fb7d2216198ce45bce0f9e65a")
LIGHTNING = ("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")
DEEPSPEED = ("deepspeedai/DeepSpeedExamples", "45b4b7156c8794a3452a5a7d03dbd8d797068569")

HOROVODRUN = (".venv-horovod", "horovodrun", "--disable-cache", "-np", "2")
# Horovod wants two hosts there.
ELASTIC = (
    *HOROVODRUN,
    "--min-np",
    "2",
    "-H",
    "localhost:1,127.0.0.1:1",
    "--network-interfaces",
    "lo",
)
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")

# What users add: a logger that closes at the end, and for loops of Keras 2 the steps of a data set.
TORCH = """
import atexit, os
from stallscope.torch import StepLogger
def logger(**trained):
    log = StepLogger(os.environ["LOGS"], **trained)
    atexit.register(log.close)
    return log
"""
KERAS = (
    TORCH.replace("stallscope.torch", "stallscope.keras")
    + """
def steps(log, data):
    batches = iter(data)
    try:
        while True:
            with log.step():
                batch = next(batches)
                log.mark("data", batch[0])
                yield batch
    except StopIteration:
        pass
"""
)
LIGHTNING_CALLBACK = """
import os
from stallscope.lightning import StepLogger
"""
WATCHED_TAPE = (
    r"hvd\.DistributedGradientTape\(tape\)",
    "log.watch(hvd.DistributedGradientTape(tape))",
)
LOGGED_STEP = (
    r"\n    (@tf\.function)",
    r"\n    log = logger(model=mnist_model, optimizer=opt)\n    \1",
)
IN_CALLBACKS = (r"callbacks = \[", 'callbacks = [StepLogger(os.environ["LOGS"]),')
SHORT_FIT = ((r"500 // hvd", "100 // hvd"), (r"epochs=24", "epochs=2"))


@dataclass(frozen=True)
class Example:
    """A public example, how it is launched, and what a user changes: patterns and replacements."""

    source: tuple[str, str]
    path: str
    launcher: tuple[str, ...]
    added: str
    changes: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    #: Seconds that rank 1 takes to load a sample, where the example loads sample by sample.
    slow_seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.source[0]}/{self.path}"


EXAMPLES = (
    Example(
        HOROVOD,
        "examples/pytorch/pytorch_mnist.py",
        HOROVODRUN,
        TORCH,
        (
            (r"enumerate\(train_loader\)", "enumerate(log.watch(train_loader))"),
            (r"\n    for epoch in", "\n    log = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        ("--epochs", "2", "--batch-size", "32"),
        slow_seconds=0.002,
    ),
    Example(
        HOROVOD,
        "examples/elastic/pytorch/pytorch_mnist_elastic.py",
        ELASTIC,
        TORCH,
        (
            (r"enumerate\(train_loader\)", "enumerate(log.watch(train_loader))"),
            (r"\nstate = ", "\nlog = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        ("--epochs", "2", "--batch-size", "32"),
        slow_seconds=0.002,
    ),
    Example(
        HOROVOD,
        "examples/tensorflow2/tensorflow2_mnist.py",
        HOROVODRUN,
        KERAS,
        (
            WATCHED_TAPE,
            LOGGED_STEP,
            (r"enumerate\((dataset\.take.*)\):", r"enumerate(steps(log, \1)):"),
            (r"10000 // hvd", "200 // hvd"),
        ),
    ),
    Example(
        HOROVOD,
        "examples/elastic/tensorflow2/tensorflow2_mnist_elastic.py",
        ELASTIC,
        KERAS,
        (
            WATCHED_TAPE,
            LOGGED_STEP,
            (r"enumerate\((dataset\.skip.*)\):", r"enumerate(steps(log, \1)):"),
        ),
    ),
    Example(
        HOROVOD,
        "examples/tensorflow2/tensorflow2_keras_mnist.py",
        HOROVODRUN,
        KERAS,
        (IN_CALLBACKS, *SHORT_FIT),
    ),
    Example(
        HOROVOD,
        "examples/elastic/tensorflow2/tensorflow2_keras_mnist_elastic.py",
        ELASTIC,
        KERAS,
        (IN_CALLBACKS, *SHORT_FIT),
    ),
    Example(
        LIGHTNING,
        "examples/fabric/image_classifier/train_fabric.py",
        (".venv-keras3", *TORCHRUN),
        TORCH,
        (
            (r"enumerate\(train_loader\)", "enumerate(log.watch(train_loader))"),
            (r"\n    scheduler = ", "\n    log = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        ("--epochs", "2", "--batch-size", "32"),
        # As `fabric run` does.
        (
            ("LT_CLI_USED", "1"),
            ("LT_ACCELERATOR", "cpu"),
            ("LT_STRATEGY", "ddp"),
            ("LT_DEVICES", "2"),
        ),
        slow_seconds=0.002,
    ),
    Example(
        LIGHTNING,
        "examples/pytorch/bug_report/bug_report_model.py",
        (".venv-keras3", *TORCHRUN),
        LIGHTNING_CALLBACK,
        (
            (
                r"limit_train_batches=1,",
                'accelerator="cpu", strategy="ddp", devices=2,'
                ' callbacks=[StepLogger(os.environ["LOGS"])],',
            ),
            (r"RandomDataset\(32, 64\)", "RandomDataset(32, 400)"),
        ),
    ),
    Example(
        DEEPSPEED,
        "training/cifar/cifar10_deepspeed.py",
        (".venv-deepspeed", *TORCHRUN),
        TORCH,
        (
            (r"enumerate\(trainloader\)", "enumerate(log.watch(trainloader))"),
            (
                r"\n    for epoch in",
                "\n    log = logger(optimizer=optimizer, model=model_engine)\\g<0>",
            ),
            # Its own Adam is compiled.
            (r'"lr": 0.001,', '"lr": 0.001, "torch_adam": True,'),
        ),
        ("--epochs", "1", "--dtype", "fp32"),
        (("DS_ACCELERATOR", "cpu"),),
        # Several workers load.
        slow_seconds=0.02,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="train public examples with the recorder")
    parser.add_argument("--only", default="", metavar="PART-OF-A-NAME")
    parser.add_argument(
        "--from", dest="url", default="https://raw.githubusercontent.com", metavar="URL"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="keeps programs, output and logs")
    arguments = parser.parse_args()
    chosen = [example for example in EXAMPLES if arguments.only in example.name]
    if not chosen:
        print(f"no example's name has {arguments.only!r} in it", file=sys.stderr)
        return 2
    out = arguments.to or Path(tempfile.mkdtemp(prefix="public-examples-"))
    faults = 0
    for example in chosen:
        began = time.monotonic()
        folder = out / re.sub(r"\W", "-", example.name)
        try:
            train(example, folder, arguments.url)
            fault, seen = judge(example, folder / "logs")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            fault, seen = f"{error}", ""
        faults += fault is not None
        print(
            f"{'ok' if fault is None else 'FAILED'} in {time.monotonic() - began:.0f} s: {example.name}"
        )
        print(f"    {fault or seen}", flush=True)
    print(f"{len(chosen) - faults} of {len(chosen)} examples are recorded; output and logs: {out}")
    return 1 if faults else 0


def train(example: Example, folder: Path, url: str) -> None:
    """Fetch an example, add the recorder, and train; its output goes to the folder."""
    folder.mkdir(parents=True)
    program = folder / Path(example.path).name
    program.write_text(changed(example, source_of(example, url)))
    environment, launcher, *words = example.launcher
    folder_of_programs = ROOT / environment / "bin"
    python = [] if launcher == "torchrun" else [str(folder_of_programs / "python")]
    command = [str(folder_of_programs / launcher), *words, *python, __file__, "--rank"]
    settings = {
        **os.environ,
        "PATH": f"{folder_of_programs}{os.pathsep}{os.environ['PATH']}",
        "LOGS": str(folder / "logs"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "SLOW_SECONDS": str(example.slow_seconds),
        **dict(example.settings),
    }
    printed = folder / "printed.txt"
    with printed.open("wb") as file:
        subprocess.run(
            [*command, str(program), *example.arguments],
            cwd=folder,
            env=settings,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=True,
        )


def source_of(example: Example, url: str) -> str:
    """Return the text of the example at its commit."""
    repository, commit = example.source
    with urlopen(f"{url}/{repository}/{commit}/{example.path}", timeout=60) as answer:
        text: bytes = answer.read()
    return text.decode()


def changed(example: Example, text: str) -> str:
    """Return the text with the recorder.

    Raises:
        ValueError: if the text has no place for a change.
    """
    for pattern, replacement in example.changes:
        text, places = re.subn(pattern, replacement, text)
        if not places:
            raise ValueError(f"the example has no {pattern!r}")
    return example.added + text


def judge(example: Example, logs: Path) -> tuple[str | None, str]:
    """Return what is missing in the logs, or None, and what was seen."""
    from stallscope.analysis import analyse
    from stallscope.opening import open_run

    run = open_run(str(logs))
    verdict = analyse(run).bottleneck
    if run.ranks != [0, 1]:
        return f"logs of ranks {run.ranks}", ""
    for log in run.logs:
        stamps = log.facts["stamps"]
        if stamps["placed"] != TIMESTAMPS:
            return f"rank {log.rank} has only {stamps['placed']}: {stamps['reason']}", ""
    missing = sum(run.steps.column(name).null_count for name in TIMESTAMPS)
    if not run.rows or missing > run.rows // 10:
        return f"{missing} timestamps of {run.rows} rows are missing", ""
    found = f"{verdict.kind}, cause {verdict.cause}, ranks {list(verdict.ranks)}"
    if example.slow_seconds and (verdict.cause, verdict.ranks) != ("input", (1,)):
        return f"rank 1 has slow input, and the verdict is {found}", ""
    return None, f"{run.rows} rows; {found}"


# -- in a rank -------------------------------------------------------------------------------------


def be_rank(program: str, arguments: list[str]) -> None:
    """Run an example with random data."""
    text = Path(program).read_text()
    if "tensorflow" in text:
        random_mnist()
    elif "torchvision" in text:
        random_torchvision()
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    runpy.run_path(program, run_name="__main__")


def random_mnist() -> None:
    """Let Keras load random images."""
    import numpy as np
    import tensorflow as tf

    def load_data(**_: Any) -> Any:
        random = np.random.default_rng(7)
        images = random.integers(0, 255, (SAMPLES, 28, 28), np.uint8)
        labels = random.integers(0, 10, SAMPLES).astype(np.uint8)
        return (images, labels), (images, labels)

    tf.keras.datasets.mnist.load_data = load_data


def random_torchvision() -> None:
    """Put a torchvision with random images in place of an installed one."""
    import torch

    # It would look for all of an installed torchvision.
    with suppress(ImportError):
        import torchmetrics  # noqa: F401

    from stallscope.collector.recorder.job.world import world_of_training

    seconds = float(os.environ["SLOW_SECONDS"])

    def images_of(*shape: int) -> type:
        class Images(torch.utils.data.Dataset):  # type: ignore[misc,unused-ignore,type-arg]
            def __init__(self, *_: Any, train: bool = True, **__: Any) -> None:
                self._samples, self._seconds = (SAMPLES, seconds) if train else (SAMPLES // 10, 0.0)

            def __len__(self) -> int:
                return self._samples

            def __getitem__(self, index: int) -> Any:
                # Elastic ranks learn theirs late.
                if self._seconds and world_of_training().rank == 1:
                    time.sleep(self._seconds)
                return torch.rand(*shape), index % 10

        return Images

    def transform(*_: Any, **__: Any) -> None:
        """Random images need no transforms."""

    transforms = dict.fromkeys(("Compose", "Normalize", "ToTensor"), transform)
    modules = {
        "torchvision": {},
        "torchvision.datasets": {"MNIST": images_of(1, 28, 28), "CIFAR10": images_of(3, 32, 32)},
        "torchvision.transforms": transforms,
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content, __spec__=importlib.machinery.ModuleSpec(name, None))
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_rank(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
