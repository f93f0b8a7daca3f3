"""The data of the pairs' trainings, and the sizes of their models; numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: 42 tensors, 5.3 MB of gradients, and 20 to 40 ms of one core per step. In shorter steps the fixed
#: overhead, about a millisecond, would decide how well gains are predicted.
BATCH = 640
WIDTH = 256
LAYERS = 20
CLASSES = 10

_SAMPLES = 4096


class Samples:
    """Samples in memory as bytes, and batches of them like a usual loader's."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pixels = self._random.integers(0, 256, (_SAMPLES, WIDTH), np.uint8)
        self._labels = self._random.integers(0, CLASSES, _SAMPLES)

    def batch(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return random samples, scaled to −1 to 1, half of them mirrored; with their labels."""
        chosen = self._random.integers(0, _SAMPLES, BATCH)
        x = self._pixels[chosen].astype(np.float32) / 127.5 - 1
        mirrored = self._random.random(BATCH) < 0.5
        x[mirrored] = x[mirrored, ::-1]
        return x, self._labels[chosen]
