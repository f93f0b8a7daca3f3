"""Train public examples of the frameworks on two CPU ranks, with the recorder added as users add it.

    python tools/public_examples.py [--only PART-OF-A-NAME] [--from URL] [--to FOLDER]

Needs the network and ``make training-env ray-env examples-env``. Models are small, and data sets,
weights and tokenizers random. Each example trains three times: without the recorder, with it, and
with it while rank 1 loads slowly. It fails if

- the recorder changes the final weights of a rank,
- a rank lacks timestamps, or its steps are not the updates of the weights that a stopwatch saw,
- the verdict on the slow training is not rank 1's input.

The exit status is then 1.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import importlib.machinery
import json
import os
import random
import re
import runpy
import subprocess
import sys
import tempfile
import time
import types
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Iterator
from urllib.parse import urljoin
from urllib.request import urlopen

from processes import end

TOOLS = Path(__file__).resolve().parent
TIMESTAMPS = ["data", "ready", "reduced"]
SECONDS = 600
SAMPLES = 2400
SLOW_RANK = 1

HOROVOD = ("horovod/horovod", "2626dc87a3a8eb8fb7d2216198ce45bce0f9e65a")
LIGHTNING = ("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")
DEEPSPEED = ("deepspeedai/DeepSpeedExamples", "45b4b7156c8794a3452a5a7d03dbd8d797068569")
ACCELERATE = ("huggingface/accelerate", "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83")
PYTORCH = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
TIMM = ("huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d")
RAY_LINEAR = ("ray-project/ray", "1b0239505cf1c9c1e6f799c76c404d8ee841a2ca")
RAY_TRAINER = ("ray-project/ray", "046d64d9f048ffbd60ed3765aef61fe48e30e532")

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
# Horovod's optimizer calls the step of the class that it wraps, and both count.
HOROVOD_UPDATES = 2
TORCHRUN = (".venv-examples", "torchrun", "--standalone", "--nproc-per-node", "2")
# Ray starts the ranks itself. Its workers import transformers before the example can help, and
# transformers imports an installed torchvision, which may be built for another torch: this
# environment has none.
RAY = (".venv-ray",)
RAY_SETTINGS = (
    ("RAY_AUTH_MODE", "disabled"),
    ("RAY_USAGE_STATS_ENABLED", "0"),
    ("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0"),
)

# What the trainings share: the stopwatch, and what makes a rank slow.
ADAPTED = """
import os
from public_examples import begin_rank, end_rank, keras_stopwatch, no_metrics, slowly, timed
from public_examples import wait_for_sample, without_downloads
"""
# What users add: a logger that closes at the end, and for loops of Keras 2 the steps of a data set.
TORCH = """
import atexit
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
CALLBACK = """
from stallscope.{} import StepLogger
"""
WATCHED_TAPE = (
    r"hvd\.DistributedGradientTape\(tape\)",
    "log.watch(hvd.DistributedGradientTape(tape))",
)
LOGGED_STEP = (
    r"\n    (@tf\.function)",
    r"\n    log = logger(model=mnist_model, optimizer=opt)\n    \1",
)
WATCHED_STEPS = (r"timed\((dataset\..*), mnist_model\)", r"timed(steps(log, \1), mnist_model)")
IN_CALLBACKS = (r"callbacks = \[", 'callbacks = [StepLogger(os.environ["LOGS"]), ')
WATCHED_LOADER = (r"enumerate\(train_loader\)", "enumerate(log.watch(train_loader))")

NO_METRICS = (r"import evaluate", "evaluate = no_metrics()")
SMALL_BATCHES = (r"\.batch\(128\)", ".batch(32)")
TIMED_FIT = (r"callbacks = \[", "callbacks = [keras_stopwatch(), ")
# A model that has trained before gets a new training function with the recorder, and its dropout draws
# other numbers. Without dropout the weights must be equal.
NO_DROPOUT = (r"Dropout\(0\.\d+\)", "Dropout(0.0)")
SHORT_FIT = (SMALL_BATCHES, TIMED_FIT, (r"500 // hvd", "100 // hvd"), (r"epochs=24", "epochs=2"))

INSTRUCTIONS = [
    {
        "instruction": f"word{number % 190}",
        "output": " ".join(f"word{number % 7 + i}" for i in range(6)),
    }
    for number in range(SAMPLES // 2)
]
ZERO_STAGE_2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 2},
}

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Example:
    """A public example, how it is launched, and its changes: patterns and replacements."""

    source: tuple[str, str]
    path: str
    launcher: tuple[str, ...]
    #: What a user writes before the program, and changes in it.
    recorder: str
    recorded: Changes
    #: What makes the training short, needs no download, and slows down a rank.
    adapted: Changes = ()
    arguments: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    #: Seconds that the slow rank waits for a sample, or for a batch.
    slow_seconds: float = 0.005
    #: Files in the current folder: names and texts.
    files: tuple[tuple[str, str], ...] = ()
    #: Modules of the example that lie next to it.
    modules: tuple[str, ...] = ()
    #: Updates of the weights that the stopwatch counts per step.
    updates_per_step: int = 1
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.source[0]}/{self.path}{self.variant}"


EXAMPLES = (
    Example(
        HOROVOD,
        "examples/pytorch/pytorch_mnist.py",
        HOROVODRUN,
        TORCH,
        (
            WATCHED_LOADER,
            (r"\n    for epoch in", "\n    log = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        arguments=("--epochs", "2", "--batch-size", "32"),
        updates_per_step=HOROVOD_UPDATES,
    ),
    Example(
        HOROVOD,
        "examples/elastic/pytorch/pytorch_mnist_elastic.py",
        ELASTIC,
        TORCH,
        (
            WATCHED_LOADER,
            (r"\nstate = ", "\nlog = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        arguments=("--epochs", "2", "--batch-size", "32"),
        updates_per_step=HOROVOD_UPDATES,
    ),
    Example(
        HOROVOD,
        "examples/tensorflow2/tensorflow2_mnist.py",
        HOROVODRUN,
        KERAS,
        (WATCHED_TAPE, LOGGED_STEP, WATCHED_STEPS),
        (
            SMALL_BATCHES,
            (r"enumerate\((dataset\.take.*)\):", r"enumerate(timed(\1, mnist_model)):"),
            (r"10000 // hvd", "200 // hvd"),
        ),
        slow_seconds=0.15,
    ),
    Example(
        HOROVOD,
        "examples/elastic/tensorflow2/tensorflow2_mnist_elastic.py",
        ELASTIC,
        KERAS,
        (WATCHED_TAPE, LOGGED_STEP, WATCHED_STEPS),
        (
            SMALL_BATCHES,
            (r"enumerate\((dataset\.skip.*)\):", r"enumerate(timed(\1, mnist_model)):"),
            (r"100 // hvd", "200 // hvd"),
        ),
        slow_seconds=0.15,
    ),
    Example(
        HOROVOD,
        "examples/tensorflow2/tensorflow2_keras_mnist.py",
        HOROVODRUN,
        CALLBACK.format("keras"),
        (IN_CALLBACKS,),
        SHORT_FIT,
        slow_seconds=0.15,
    ),
    Example(
        HOROVOD,
        "examples/elastic/tensorflow2/tensorflow2_keras_mnist_elastic.py",
        ELASTIC,
        CALLBACK.format("keras"),
        (IN_CALLBACKS,),
        (*SHORT_FIT, NO_DROPOUT),
        slow_seconds=0.15,
    ),
    Example(
        PYTORCH,
        "distributed/ddp-tutorial-series/multigpu_torchrun.py",
        TORCHRUN,
        TORCH,
        (
            (r"in self\.train_data:", "in self.log.watch(self.train_data):"),
            (
                r"\n +self\.model = DDP\(.*\)",
                "\\g<0>\n        self.log = logger(optimizer=self.optimizer, model=self.model)",
            ),
        ),
        (
            (r"\n    torch\.cuda\.set_device\(.*\)", ""),
            (r'"nccl"', '"gloo"'),
            (r"\.to\(self\.gpu_id\)", '.to("cpu")'),
            (r"device_ids=\[self\.gpu_id\]", "device_ids=None"),
            (
                r"pin_memory=True,",
                "collate_fn=slowly(torch.utils.data.default_collate),",
            ),
            # For a single class, cross entropy and its gradients are 0.
            (r"F\.cross_entropy", "F.mse_loss"),
        ),
        ("3", "10"),
        slow_seconds=0.05,
        modules=("datautils.py",),
    ),
    Example(
        LIGHTNING,
        "examples/fabric/image_classifier/train_fabric.py",
        TORCHRUN,
        TORCH,
        (
            WATCHED_LOADER,
            (r"\n    scheduler = ", "\n    log = logger(optimizer=optimizer, model=model)\\g<0>"),
        ),
        arguments=("--epochs", "2", "--batch-size", "32"),
        # As `fabric run` does.
        settings=(
            ("LT_CLI_USED", "1"),
            ("LT_ACCELERATOR", "cpu"),
            ("LT_STRATEGY", "ddp"),
            ("LT_DEVICES", "2"),
        ),
    ),
    Example(
        LIGHTNING,
        "examples/pytorch/bug_report/bug_report_model.py",
        TORCHRUN,
        CALLBACK.format("lightning"),
        ((r'strategy="ddp",', '\\g<0> callbacks=[StepLogger(os.environ["LOGS"])],'),),
        (
            (r"limit_train_batches=1,", 'accelerator="cpu", strategy="ddp", devices=2,'),
            (r"RandomDataset\(32, 64\)", "RandomDataset(32, 400)"),
            (r"return self\.data\[index\]", "wait_for_sample()\n        \\g<0>"),
        ),
        slow_seconds=0.05,
    ),
    Example(
        DEEPSPEED,
        "training/cifar/cifar10_deepspeed.py",
        TORCHRUN,
        TORCH,
        (
            (r"enumerate\(trainloader\)", "enumerate(log.watch(trainloader))"),
            (
                r"\n    for epoch in",
                "\n    log = logger(optimizer=optimizer, model=model_engine)\\g<0>",
            ),
        ),
        # Its own Adam is compiled.
        ((r'"lr": 0.001,', '"lr": 0.001, "torch_adam": True,'),),
        ("--epochs", "1", "--dtype", "fp32"),
        (("DS_ACCELERATOR", "cpu"),),
        # Several workers load.
        slow_seconds=0.04,
    ),
    *(
        Example(
            ACCELERATE,
            f"examples/{path}",
            TORCHRUN,
            TORCH,
            (
                (r"enumerate\(train_dataloader\)", "enumerate(log.watch(train_dataloader))"),
                (
                    r"\n    for epoch in",
                    "\n    log = logger(optimizer=optimizer, model=model)\\g<0>",
                ),
            ),
            (
                (
                    r"shuffle=True, collate_fn=collate_fn",
                    "shuffle=True, collate_fn=slowly(collate_fn)",
                ),
                (r'"num_epochs": 3', '"num_epochs": 2'),
                NO_METRICS,
                *adapted,
            ),
            arguments,
            settings,
            slow_seconds=0.15,
            variant=variant,
        )
        for path, variant, adapted, arguments, settings in (
            ("nlp_example.py", "", (), ("--cpu",), ()),
            (
                "nlp_example.py",
                " with DeepSpeed",
                # Accelerate makes no engine of DeepSpeed with --cpu.
                (
                    (
                        r"\n    accelerator = ",
                        "\n    __import__('accelerate').PartialState(cpu=True)\\g<0>",
                    ),
                ),
                (),
                (
                    ("DS_ACCELERATOR", "cpu"),
                    ("ACCELERATE_USE_DEEPSPEED", "true"),
                    ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"),
                ),
            ),
            (
                "by_feature/gradient_accumulation.py",
                "",
                (),
                ("--cpu", "--gradient_accumulation_steps", "2"),
                (),
            ),
            ("by_feature/ddp_comm_hook.py", "", (), ("--cpu", "--ddp_comm_hook", "fp16"), ()),
        )
    ),
    *(
        Example(
            DEEPSPEED,
            "training/tensor_parallel/hf_integration/train.py",
            TORCHRUN,
            CALLBACK.format("transformers"),
            ((r"callbacks=\[", '\\g<0>StepLogger(os.environ["LOGS"]), '),),
            (
                (r"data_collator=data_collator", "data_collator=slowly(data_collator)"),
                # It collects garbage on rank 0, which is slow.
                (r"callbacks=\[MemoryCallback\]", "callbacks=[]"),
            ),
            (
                *("--data_path", "instructions.json", "--output_dir", "saved", "--use_cpu", "True"),
                *("--ddp_backend", "gloo", "--save_strategy", "no", "--report_to", "none"),
                *("--num_train_epochs", "1", "--logging_steps", "1000", *deepspeed),
            ),
            (("DS_ACCELERATOR", "cpu"),),
            slow_seconds=0.15,
            files=(
                ("instructions.json", json.dumps(INSTRUCTIONS)),
                ("deepspeed.json", json.dumps(ZERO_STAGE_2)),
            ),
            variant=variant,
            updates_per_step=updates,
        )
        for variant, deepspeed, updates in (
            ("", (), 1),
            # ZeRO updates parameters with weight decay and those without it one after the other.
            (" with DeepSpeed", ("--deepspeed", "deepspeed.json"), 2),
        )
    ),
    Example(
        RAY_LINEAR,
        "python/ray/train/examples/pytorch/torch_linear_example.py",
        RAY,
        TORCH,
        (
            (r"in dataloader:\n        # Compute", "in log.watch(dataloader):\n        # Compute"),
            (r"train_epoch\(", "\\g<0>log, "),
            (r"def train_epoch\(log, ", "def train_epoch(log, "),
            (
                r"\n    results = \[\]",
                "\n    log = logger(optimizer=optimizer, model=model)\\g<0>",
            ),
            (r"\n    return results", "\n    log.close()\\g<0>"),
        ),
        (
            (r"def train_func\(config\):", "\\g<0>\n    begin_rank()"),
            (r"\n    return results", "\n    end_rank()\\g<0>"),
            (r"return self\.x\[index", "wait_for_sample()\n        \\g<0>"),
            # An argument that Ray 2.60 has no more.
            (r"num_workers=num_workers, use_acc=use_acc", "num_workers=num_workers"),
            (r"        train_linear\(\)", '        train_linear(storage_path=os.environ["RANKS"])'),
        ),
        ("--smoke-test",),
        RAY_SETTINGS,
        slow_seconds=0.03,
    ),
    Example(
        RAY_TRAINER,
        "python/ray/train/examples/transformers/transformers_torch_trainer_basic.py",
        RAY,
        CALLBACK.format("transformers"),
        (
            (
                r"    trainer\.add_callback\(",
                '    trainer.add_callback(StepLogger(os.environ["LOGS"]))\n\\g<0>',
            ),
        ),
        (
            (r"def train_func\(config\):", "\\g<0>\n    begin_rank()\n    without_downloads()"),
            (r"    trainer\.train\(\)", "\\g<0>\n    end_rank()"),
            # The name of today's versions.
            (r"evaluation_strategy", "use_cpu=True, num_train_epochs=1, eval_strategy"),
            (
                r"model=model,",
                "\\g<0> data_collator=slowly(transformers.default_data_collator),",
            ),
            (r"import numpy", "import ray.train, transformers\n\\g<0>"),
            NO_METRICS,
            (
                r"num_workers=4, use_gpu=True\)",
                'num_workers=2), run_config=ray.train.RunConfig(storage_path=os.environ["RANKS"])',
            ),
        ),
        settings=RAY_SETTINGS,
        slow_seconds=0.15,
    ),
    Example(
        TIMM,
        "train.py",
        TORCHRUN,
        TORCH,
        (
            (
                r"enumerate\(loader\)(?=:\n        last_batch)",
                "enumerate(log.watch(loader))",
            ),
            (
                r"\n    results = \[\]\n",
                "\n    global log\n    log = logger(optimizer=optimizer, model=model)\\g<0>",
            ),
        ),
        # On CPUs DistributedDataParallel wants none.
        ((r"device_ids=\[device\]", "device_ids=None"),),
        arguments=(
            *("--data-dir", "images", "--model", "resnet18", "--num-classes", "2"),
            *("--input-size", "3", "32", "32", "--batch-size", "16", "--epochs", "3"),
            *("--device", "cpu", "--workers", "1"),
        ),
        slow_seconds=0.01,
    ),
)

# -- trainings and what they show ------------------------------------------------------------------


def main() -> int:
    from stallscope.errors import StallscopeError

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
    out = (arguments.to or Path(tempfile.mkdtemp(prefix="public-examples-"))).resolve()
    folders = [out / re.sub(r"\W+", "-", example.name) for example in chosen]
    for folder in folders:
        if folder.exists():
            print(f"{folder} exists: name another folder with --to, or remove it", file=sys.stderr)
            return 2
    faults = 0
    for example, folder in zip(chosen, folders):
        began = time.monotonic()
        try:
            text, fault = check(example, folder, arguments.url), None
        except (OSError, ValueError, StallscopeError) as error:
            text, fault = f"{error}", error
        faults += fault is not None
        seconds = time.monotonic() - began
        print(
            f"{'FAILED' if fault else 'ok'} in {seconds:.0f} s: {example.name}\n    {text}",
            flush=True,
        )
    print(f"{len(chosen) - faults} of {len(chosen)} examples are recorded; output and logs: {out}")
    return 1 if faults else 0


def check(example: Example, folder: Path, url: str) -> str:
    """Train an example three times, and return what the recorder saw.

    Raises:
        ValueError: if that is not what happened.
    """
    source_url = "/".join((url, *example.source, example.path))
    source = text_of(source_url)
    modules = [(name, text_of(urljoin(source_url, name))) for name in example.modules]
    example = replace(example, files=(*example.files, *modules))
    unrecorded = train(example, source, folder / "unrecorded", recorder=False)
    seen = []
    for name, seconds in (("recorded", 0.0), ("slow", example.slow_seconds)):
        ranks = train(example, source, folder / name, slow_seconds=seconds)
        for rank, (before, after) in enumerate(zip(unrecorded, ranks)):
            if before["weights"] != after["weights"]:
                raise ValueError(f"{name}: with the recorder, rank {rank} ends with other weights")
        seen.append(f"{name}: {judge(example, folder / name / 'logs', ranks, slow=seconds > 0)}")
    return "; ".join(seen)


def train(
    example: Example,
    source: str,
    folder: Path,
    recorder: bool = True,
    slow_seconds: float = 0.0,
) -> list[Any]:
    """Train an example, and return the weights and the stopwatch of each rank.

    Raises:
        ValueError: if the training fails, or the example has no place for a change.
    """
    folder.mkdir(parents=True)
    program = folder / Path(example.path).name
    program.write_text(changed(example, source, recorder))
    for name, text in example.files:
        (folder / name).write_text(text)
    environment, *words = example.launcher
    programs = TOOLS.parent / environment / "bin"
    if not programs.exists():
        raise ValueError(f"{programs.parent} is missing: make public-examples makes it")
    python = [] if words[:1] == ["torchrun"] else [str(programs / "python")]
    settings = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(TOOLS),
        "RANKS": str(folder),
        "LOGS": str(folder / "logs"),
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": str(folder / "hugging-face"),
        "HF_HUB_OFFLINE": "1",
        # DeepSpeed compiles an allreduce. A compilation that was interrupted leaves a lock behind, and
        # later ones wait for it: each example has its folder.
        "TORCH_EXTENSIONS_DIR": str(folder.parent / "torch-extensions"),
        "SLOW_SECONDS": str(slow_seconds),
        **dict(example.settings),
    }
    printed = folder / "printed.txt"
    with printed.open("wb") as file:
        launched = subprocess.Popen(
            [*words, *python, __file__, "--rank", str(program), *example.arguments],
            cwd=folder,
            env=settings,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        status = launched.wait(SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"training takes over {SECONDS} seconds: see {printed}") from error
    finally:
        # Launchers that are killed leave ranks behind.
        end(launched.pid)
    results = sorted(folder.glob("rank-*.json"))
    if status or len(results) != 2:
        raise ValueError(f"exit status {status} and {len(results)} ranks: see {printed}")
    return [json.loads(result.read_text()) for result in results]


def text_of(url: str) -> str:
    """Return the text at a URL.

    Raises:
        ValueError: if the URL cannot be read.
    """
    try:
        with urlopen(url, timeout=60) as answer:
            text: bytes = answer.read()
    except OSError as error:
        raise ValueError(f"{url} cannot be read: {error}") from error
    return text.decode()


def changed(example: Example, text: str, recorder: bool) -> str:
    """Return the text as it is trained here.

    Raises:
        ValueError: if the text has no place for a change.
    """
    for pattern, replacement in (*example.adapted, *(example.recorded if recorder else ())):
        text, places = re.subn(pattern, replacement, text)
        if not places:
            raise ValueError(f"the example has no {pattern!r}")
    return ADAPTED + (example.recorder if recorder else "") + text


def judge(example: Example, logs: Path, ranks: list[Any], slow: bool) -> str:
    """Return what the logs show.

    Raises:
        ValueError: if timestamps or steps are missing or wrong, or the slow rank is not found.
    """
    from stallscope.analysis import analyse
    from stallscope.opening import open_run

    run = open_run(str(logs))
    if run.ranks != [0, 1]:
        raise ValueError(f"logs of ranks {run.ranks}")
    for log in run.logs:
        stamps = log.facts["stamps"]
        if stamps["placed"] != TIMESTAMPS:
            raise ValueError(f"rank {log.rank} has only {stamps['placed']}: {stamps['reason']}")
    missing = sum(run.steps.column(name).null_count for name in TIMESTAMPS)
    if missing:
        raise ValueError(f"{missing} timestamps of {run.rows} rows are missing")
    rows = run.steps.select(["rank", "begin"]).to_pydict()
    for rank, result in enumerate(ranks):
        begins = [begin for row_rank, begin in zip(rows["rank"], rows["begin"]) if row_rank == rank]
        compare_with_stopwatch(rank, sorted(begins), result["updates"], example.updates_per_step)
    verdict = analyse(run).bottleneck
    if slow and (verdict.cause, verdict.ranks) != ("input", (SLOW_RANK,)):
        raise ValueError(
            f"rank {SLOW_RANK} has slow input, and the verdict is"
            f" {verdict.kind}, cause {verdict.cause}, ranks {list(verdict.ranks)}"
        )
    return f"{run.rows} rows, {verdict.kind}, cause {verdict.cause}, ranks {list(verdict.ranks)}"


def compare_with_stopwatch(
    rank: int, begins: list[int], updates: list[int], updates_per_step: int
) -> None:
    """Check that each step has its updates of the weights, and each update a step.

    Raises:
        ValueError: if a step lacks an update or has too many, or an update has no step.
    """
    places = Counter(bisect_right(begins, update) for update in updates)
    # Horovod updates once before training, with zeros, to have an optimizer's state to broadcast.
    early_updates = places[0]
    wrong_steps = sum(places[step] != updates_per_step for step in range(1, len(begins) + 1))
    if early_updates > 1 or wrong_steps or not begins:
        raise ValueError(
            f"rank {rank}: {wrong_steps} of {len(begins)} steps do not have {updates_per_step}"
            f" updates of the weights, and {early_updates} of {len(updates)} updates are before"
            " the first step"
        )


# -- in a rank -------------------------------------------------------------------------------------

# When the weights were updated.
_updates: list[int] = []
# What returns the weights.
_weights: list[Callable[[], list[Any]]] = []


def be_rank(program: str, arguments: list[str]) -> None:
    """Run an example with random data."""
    text = Path(program).read_text()
    random.seed(7)
    if "import tensorflow" in text:
        random_mnist()
    else:
        begin_rank()
        if "timm" in text:
            random_images()
        elif "torchvision" in text:
            random_torchvision()
        if "transformers" in text:
            without_downloads()
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    runpy.run_path(program, run_name="__main__")
    if _weights:
        end_rank()


def begin_rank() -> None:
    """Seed torch, and start the stopwatch for updates of its optimizers."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    destroy_process_group_at_rest()
    torch.manual_seed(7)
    load_torchvision()

    def updated(optimizer: Any, *_: Any) -> None:
        _updates.append(time.monotonic_ns())
        groups = optimizer.param_groups
        _weights[:] = [lambda: [tensor.detach() for group in groups for tensor in group["params"]]]

    register_optimizer_step_post_hook(updated)


def destroy_process_group_at_rest() -> None:
    """Let process groups end when their threads rest, whether or not an example destroys them."""
    from torch import distributed

    # Last, as packages of tests have common names.
    sys.path.append(str(TOOLS.parent / "tests"))
    from training.process_group import end_process_group, wait_for_threads

    destroy = distributed.destroy_process_group

    def destroy_at_rest(*args: Any, **kwargs: Any) -> None:
        wait_for_threads()
        destroy(*args, **kwargs)

    distributed.destroy_process_group = destroy_at_rest
    # After the recorder's end: what is registered first runs last.
    atexit.register(end_process_group)


def end_rank() -> None:
    """Write the weights, and when they were updated."""
    digest = hashlib.sha256()
    for tensor in _weights[0]():
        digest.update(tensor.numpy().tobytes())
    result = {"weights": digest.hexdigest(), "updates": _updates}
    rank = rank_of_training()
    (Path(os.environ["RANKS"]) / f"rank-{rank}.json").write_text(json.dumps(result))


def rank_of_training() -> int:
    """Return this process's rank, which elastic ranks learn late."""
    from stallscope.collector.recorder.job.world import world_of_training

    return int(world_of_training().rank)


def wait_for_sample() -> None:
    """Wait on the slow rank."""
    seconds = float(os.environ["SLOW_SECONDS"])
    if seconds and rank_of_training() == SLOW_RANK:
        time.sleep(seconds)


def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that first waits on the slow rank."""

    def slow(*args: Any, **kwargs: Any) -> Any:
        wait_for_sample()
        return function(*args, **kwargs)

    return slow


def no_metrics() -> Any:
    """Return what takes the place of ``evaluate``, which downloads its metrics."""
    metric = types.SimpleNamespace(add_batch=lambda **_: None, compute=lambda **_: {})
    return types.SimpleNamespace(load=lambda *_: metric)


def timed(data: Any, model: Any) -> Iterator[Any]:
    """Yield the batches of a loop that updates a Keras model once per batch."""
    _weights[:] = [lambda: model.weights]
    for batch in data:
        yield batch
        _updates.append(time.monotonic_ns())


def keras_stopwatch() -> Any:
    """Return a callback that notes the updates of ``model.fit``."""
    import tensorflow as tf

    class Stopwatch(tf.keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
        def on_train_begin(self, logs: Any = None) -> None:
            _weights[:] = [lambda: self.model.weights]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            _updates.append(time.monotonic_ns())

    return Stopwatch()


def random_mnist() -> None:
    """Let Keras load random images, batches of which the slow rank waits for."""
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(7)

    def load_data(**_: Any) -> Any:
        generator = np.random.default_rng(7)
        images = generator.integers(0, 255, (SAMPLES, 28, 28), np.uint8)
        labels = generator.integers(0, 10, SAMPLES).astype(np.uint8)
        return (images, labels), (images, labels)

    tf.keras.datasets.mnist.load_data = load_data
    whole = tf.data.Dataset.batch
    # Otherwise batches wait in the background, where they take a thread from training.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False

    def batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        def wait(images: Any, labels: Any) -> Any:
            late = tf.py_function(slowly(tf.identity), [images], images.dtype)
            late.set_shape(images.shape)
            return late, labels

        return whole(self, *args, **kwargs).map(wait).with_options(options)

    tf.data.Dataset.batch = batch


def random_torchvision() -> None:
    """Put a torchvision with random images in place of an installed one."""
    import torch

    # It would look for all of an installed torchvision.
    with suppress(ImportError):
        import torchmetrics  # noqa: F401

    def images_of(*shape: int) -> type:
        class Images(torch.utils.data.Dataset):  # type: ignore[misc,unused-ignore,type-arg]
            def __init__(self, *_: Any, train: bool = True, **__: Any) -> None:
                self._samples, self._wait = (
                    (SAMPLES, wait_for_sample) if train else (SAMPLES // 10, _no_wait)
                )

            def __len__(self) -> int:
                return self._samples

            def __getitem__(self, index: int) -> Any:
                self._wait()
                generator = torch.Generator().manual_seed(int(index))
                return torch.rand(*shape, generator=generator), index % 10

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


def _no_wait() -> None:
    """Load a sample of validation."""


def load_torchvision() -> None:
    """Import an installed torchvision, also one that was built for another torch.

    The operators that it then lacks are those of detection.
    """
    import torch

    register = torch.library.register_fake

    def register_known(name: Any, *args: Any, **kwargs: Any) -> Any:
        if str(name).startswith("torchvision::"):
            return lambda function: function
        return register(name, *args, **kwargs)

    torch.library.register_fake = register_known  # type: ignore[assignment]
    with suppress(ImportError):
        import torchvision  # noqa: F401
    torch.library.register_fake = register


def random_images() -> None:
    """Write random images into folders, which timm's data set reads."""
    import numpy as np
    from PIL import Image
    from timm.data.dataset import ImageDataset

    generator = np.random.default_rng(7)
    for split, count in (("train", SAMPLES // 2), ("validation", 32)):
        for number in range(count):
            folder = Path("images") / split / f"class-{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number}.png"
            pixels = generator.integers(0, 255, (32, 32, 3), np.uint8)
            if not path.exists():
                part = path.with_suffix(f".{os.getpid()}.part")
                Image.fromarray(pixels).save(part, "png")
                part.rename(path)
    whole = ImageDataset.__getitem__

    def load(self: Any, index: int) -> Any:
        wait_for_sample()
        return whole(self, index)

    ImageDataset.__getitem__ = load


def without_downloads() -> None:
    """Put small random models, tokenizers and data sets in place of those of Hugging Face's hub."""
    import datasets
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = [f"word{number}" for number in range(200)]
    special = ["[UNK]", "[PAD]", "<s>", "</s>", "[CLS]", "[SEP]"]

    def sentence() -> str:
        return " ".join(random.choices(names, k=12))

    def tokenizer(*_: Any, **__: Any) -> Any:
        words = Tokenizer(
            models.WordLevel({word: i for i, word in enumerate(special + names)}, "[UNK]")
        )
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=words,
            model_max_length=32,
            unk_token="[UNK]",
            pad_token="[PAD]",
            bos_token="<s>",
            eos_token="</s>",
        )

    sizes = {"vocab_size": 256, "max_position_embeddings": 64, "hidden_size": 32}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}

    def classifier(*_: Any, num_labels: int = 2, **__: Any) -> Any:
        config = transformers.BertConfig(**sizes, **heads, num_labels=num_labels)
        return transformers.BertForSequenceClassification(config)

    def language_model(*_: Any, **__: Any) -> Any:
        config = transformers.GPT2Config(
            vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2
        )
        return transformers.GPT2LMHeadModel(config)

    def load_dataset(name: str, *_: Any, **__: Any) -> Any:
        random.seed(7)
        texts = ("sentence1", "sentence2", "idx") if "glue" in name else ("text",)
        splits = {}
        for split, count in (("train", SAMPLES), ("validation", 64), ("test", 1000)):
            columns = {text: [sentence() for _ in range(count)] for text in texts}
            columns["label"] = [number % 2 for number in range(count)]
            splits[split] = datasets.Dataset.from_dict(columns)
        return datasets.DatasetDict(splits)

    transformers.AutoTokenizer.from_pretrained = tokenizer
    transformers.AutoModelForSequenceClassification.from_pretrained = classifier
    transformers.AutoModelForCausalLM.from_pretrained = language_model
    datasets.load_dataset = load_dataset


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        # The module that examples import has the stopwatch.
        import public_examples

        public_examples.be_rank(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
