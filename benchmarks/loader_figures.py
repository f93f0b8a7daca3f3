"""Measure what figures of the loader cost: on the training thread, and in its workers.

    python benchmarks/loader_figures.py [--turns 12] [--batches 400]

Passes over a bare ``DataLoader`` and over one that is followed take turns in the same process, so that
both have the same machine. Samples are as cheap as they can be: real ones make the ratios smaller.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from peers import TRAINING, output_of

BATCH = 32
#: A name, the workers of the loader, and what is timed: the training thread, or the worker.
KINDS = {
    "training thread, 1 worker": 1,
    "worker": 1,
    "training thread that makes batches itself": 0,
}


# -- One process ------------------------------------------------------------------------------------


def measure(turns: int, batches: int) -> dict[str, list[list[float]]]:
    """Return microseconds per batch of each turn, bare and followed, for each kind."""
    import torch

    from stallscope.collector.recorder.pytorch.loader_figures import LoaderFigures

    class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]  # not installed with the app
        def __len__(self) -> int:
            return BATCH * batches

        def __getitem__(self, index: int) -> Any:
            # The clock of the process that makes the batch.
            return torch.tensor([time.thread_time()], dtype=torch.float64)

    torch.set_num_threads(1)

    def microseconds(name: str, figures: LoaderFigures | None) -> float:
        loader: Any = torch.utils.data.DataLoader(Samples(), BATCH, num_workers=KINDS[name])
        if figures is not None:
            figures.follow(loader)
        iterator = iter(loader)
        last = first = next(iterator)
        began = time.thread_time()
        for batch in iterator:
            last = batch
        spent = time.thread_time() - began
        if name == "worker":
            # From a sample of the first batch to the same sample of the last one.
            spent = float(last[0, 0] - first[0, 0])
        if figures is not None:
            # The thread that writes the log does this.
            figures.read()
        return 1e6 * spent / (batches - 1)

    results: dict[str, list[list[float]]] = {name: [] for name in KINDS}
    for _ in range(turns + 1):
        for name in KINDS:
            results[name].append([microseconds(name, None), microseconds(name, LoaderFigures())])
    # The first turn warms up.
    return {name: pairs[1:] for name, pairs in results.items()}


# -- The comparison ---------------------------------------------------------------------------------


def row(name: str, pairs: list[list[float]]) -> str:
    """Return a row: CPU time per batch without figures, what they add, and the ratio of both.

    The last two are the least of all turns, which other load on the machine disturbs least.
    """
    import numpy as np
    from paired import difference

    bare, followed = map(list, zip(*pairs, strict=True))
    added = difference(followed, bare)
    usual = float(np.median(bare))
    low, high = (1 + bound / usual for bound in added.interval)
    ratio = f"{1 + added.value / usual:.3f} ({low:.3f} to {high:.3f})"
    cells = (
        f"{usual:.1f}",
        f"{added.value:+.1f}",
        ratio,
        f"{min(bare):.1f}",
        f"{min(followed):.1f}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.turns, options.batches)))
        return
    words = ["--inside", "--turns", str(options.turns), "--batches", str(options.batches)]
    output = output_of(["python", str(Path(__file__).resolve()), *words], TRAINING)
    print("| CPU time of the | µs per batch | figures add | ratio | least | least with figures |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, pairs in json.loads(output.splitlines()[-1]).items():
        print(row(name, pairs))


if __name__ == "__main__":
    sys.exit(main())
