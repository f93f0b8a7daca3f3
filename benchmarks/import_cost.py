"""Measure the time of importing the recorder after its framework, in fresh processes.

It is measured inside each process: the difference of two whole processes, which take seconds each, would
mostly measure how busy the machine is.
"""

from __future__ import annotations

import random
from statistics import median

import numpy as np
from figures import Figure, at_most
from peers import TRAINING, output_of

# Keras loads its modules lazily; every training program loads these.
FRAMEWORKS = {
    "stallscope.torch": "import torch",
    "stallscope.keras": "import tensorflow; tensorflow.keras.callbacks.Callback, tensorflow.keras.Model",
}
# A garbage collection of the framework's objects takes 60 ms, and may start within this import or after
# it: freezing the objects excludes it.
PROGRAM = """
import gc
import time
{framework}
gc.freeze()
begun = time.perf_counter()
import {module}
print((time.perf_counter() - begun) * 1e3)
"""


def figures(quick: bool) -> list[Figure]:
    order = random.Random(7)
    times: dict[str, list[float]] = {module: [] for module in FRAMEWORKS}
    for _ in range(3 if quick else 7):
        for module in order.sample(sorted(FRAMEWORKS), len(FRAMEWORKS)):
            times[module].append(imported_ms(module))
    return [import_figure(module, samples) for module, samples in times.items()]


def imported_ms(module: str) -> float:
    program = PROGRAM.format(framework=FRAMEWORKS[module], module=module)
    printed = output_of(["python", "-c", program], TRAINING, {"TF_CPP_MIN_LOG_LEVEL": "3"})
    return float(printed.split()[-1])


def import_figure(module: str, times: list[float]) -> Figure:
    low, high = interval_of_median(times)
    name = f"import {module}, after its framework"
    return at_most(name, median(times), "ms", 20, interval=(low, high))


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval, by the bootstrap with a fixed seed."""
    random_ = np.random.default_rng(1)
    drawn = np.median(random_.choice(values, (10_000, len(values))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
