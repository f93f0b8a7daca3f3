"""Train models that many ranks share, with slow ranks, replicas, stages, links or uneven experts.

One launch trains many cells one after the other. Each leaves a folder with its logs and every rank's
measurements of the injected fault. sharded_scores.py scores what reports name.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sharded_scores
from cells import HOSTS, Cell, is_trained, trained_cells, write_cells
from chapter import Score, at_least, numbers, words
from lab import Lab, why_impossible
from launching import HERE, ROOT, settings_on_hosts, torchrun, torchrun_on
from real import CellChapter, train_cells
from sharded_plan import (
    JAX,
    PERCENTS,
    RANKS,
    TRAININGS,
    WARM_UP,
    asking,
    cells_of,
    device_seconds,
    link_mbit_s,
    links_are_set,
    ranks_of,
    sent_path,
)

from stallscope.errors import StallscopeError

# For the estimate, in seconds of a core: a rank's start, and a step of a rank beside its device.
_START_SECONDS = 4.0
_STEP_SECONDS = {
    **dict.fromkeys(TRAININGS, 0.011),
    "ddp": 0.005,
    "pipeline": 0.008,
    "zero_3": 0.045,
}
# Steps take so much longer than the device: stages wait for each other, and experts work as well.
_LONGER = {"pipeline": 1.75, "experts": 1.7}
# How often ranks that ask for links are looked for, and how long hosts may take to end.
_POLL_SECONDS, _PATIENCE_SECONDS = 0.02, 60.0

# -- the chapter ---------------------------------------------------------------------------------


class Sharded(CellChapter):
    name = "sharded"
    about = (
        "Train models that many ranks share, and score which ranks, replicas and stages are named."
    )
    section = sharded_scores.SECTION

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=RANKS)
        parser.add_argument("--framework", type=words(TRAININGS), default=tuple(TRAININGS))
        parser.add_argument(
            "--sizes", type=numbers(float), default=PERCENTS, help="%% of the clean step"
        )
        parser.add_argument("--steps", type=at_least(100), default=100)

    def launches(self, options: argparse.Namespace) -> list[list[Cell]]:
        return [
            cells_of(framework, ranks, options.sizes)
            for framework in options.framework
            for ranks in ranks_of(framework)
            if ranks in options.ranks
        ]

    def seconds(self, work: list[Cell], options: argparse.Namespace) -> float:
        framework, ranks = work[0].framework, work[0].ranks
        device = device_seconds(framework, ranks) * _LONGER.get(framework, 1.0)
        shared = ranks / (os.cpu_count() or 1)
        steps = 2 * WARM_UP + options.steps * sum(1 + cell.percent / 100 for cell in work)
        return _START_SECONDS * shared + steps * (device + _STEP_SECONDS[framework] * shared)

    def train(self, out: Path, work: list[Cell], options: argparse.Namespace) -> list[Score]:
        framework, ranks = work[0].framework, work[0].ranks
        name = "keras3" if framework in JAX else "deepspeed"
        folder = ROOT / f".venv-{name}"
        if not (folder / ".ready").exists():
            sys.exit(f"there is no {folder.name} to train in: make {name}-env")
        if framework in HOSTS:
            train_on_hosts(out, work, options.steps, folder)
            return []
        if framework in JAX:
            command = ["python", "-u", str(HERE / "train_sharded_jax.py")]
        else:
            command = [*torchrun(ranks), str(HERE / "train_sharded_torch.py")]
        return train_cells(out, work, options.steps, command, folder)

    def score_cell(self, out: Path, cell: Cell) -> Score:
        return sharded_scores.score_cell(out, cell)

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        """Score all cells, also those that determine the size of faults: they are without one."""
        for cell in trained_cells(out):
            if is_trained(out, cell):
                try:
                    yield self.score_cell(out, cell)
                except StallscopeError as error:
                    print(f"{cell.name}: not scored: {error}")


# -- trainings on hosts of the lab ------------------------------------------------------------------


def train_on_hosts(out: Path, cells: list[Cell], steps: int, environment: Path) -> None:
    """Train cells of one framework in one launch, on hosts that it starts.

    Args:
        out: the folder of the cells' folders.
        cells: the cells.
        steps: of each cell.
        environment: the virtual environment.

    Raises:
        SystemExit: if the training fails, or this machine cannot have hosts.
    """
    reason = why_impossible()
    if reason is not None:
        sys.exit(f"no hosts to train on: {reason}")
    framework, ranks = cells[0].framework, cells[0].ranks
    for cell in cells:
        # The partial data of an interrupted launch is not a run.
        shutil.rmtree(out / cell.name, ignore_errors=True)
    name = f"{framework}-{ranks}"
    plan, printed = out / f"cells-{name}.json", out / f"printed-{name}.txt"
    write_cells(plan, cells, steps)
    # An interrupted launch may have asked.
    links_are_set(out)
    program = [str(HERE / "train_sharded_torch.py"), str(plan), str(out)]
    with tempfile.TemporaryDirectory() as folder, printed.open("wb") as log:
        settings = settings_on_hosts(environment)
        with Lab(Path(folder) / "lab", HOSTS[framework], settings) as lab:
            names = [host.name for host in lab.hosts]
            each = ranks // len(names)
            processes = [
                subprocess.Popen(
                    lab.ssh(name, [*torchrun_on(names, place, each), *program]),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                for place, name in enumerate(names)
            ]
            try:
                _set_links(lab, out, {cell.name: cell for cell in cells}, steps, processes)
            finally:
                for process in processes:
                    process.kill()
    if any(process.returncode for process in processes):
        sys.exit(f"the training failed; its output is in {printed}")


def _set_links(
    lab: Lab,
    out: Path,
    cells: dict[str, Cell],
    steps: int,
    processes: list[subprocess.Popen[bytes]],
) -> None:
    """Limit the link of each cell's host before its ranks start, until the training has ended."""
    limited, baseline, sent_before = None, None, 0.0
    while all(process.poll() is None for process in processes):
        name = asking(out)
        if name is None:
            time.sleep(_POLL_SECONDS)
            continue
        if baseline is not None:
            sent = (_sent(lab) - sent_before) / steps
            sent_path(out, baseline).write_text(json.dumps({"bytes": sent}))
        if limited is not None:
            lab.lift_limit(limited)
        cell = cells.get(name)
        limited = None if cell is None or cell.host is None else lab.hosts[cell.host].name
        if cell is not None and limited is not None:
            lab.limit_link(limited, link_mbit_s(out, cell))
        baseline = cell if cell is not None and cell.synthetic else None
        sent_before = _sent(lab)
        links_are_set(out)
    # If ranks of a host have failed, those of others may wait for ever.
    with contextlib.suppress(subprocess.TimeoutExpired):
        for process in processes:
            process.wait(_PATIENCE_SECONDS)


def _sent(lab: Lab) -> float:
    """Return the bytes that a host has sent so far, the mean of all."""
    words = ["ip", "-json", "-statistics", "link", "show", "eth0"]
    sent = []
    for host in lab.hosts:
        (link,) = json.loads(subprocess.check_output(host.words(words)))
        sent.append(link["stats64"]["tx"]["bytes"])
    return sum(sent) / len(sent)
