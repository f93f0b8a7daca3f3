"""Define the measured speed of a rank's loader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputStage:
    """A stage of an input pipeline, with the milliseconds that it adds to a batch."""

    #: ``read``, ``decode``, ``augment``, ``shuffle``, ``batch``, ``copy`` or ``other``.
    kind: str
    #: The operation, with the user's function in it.
    name: str
    ms: float
    ci95_ms: tuple[float, float] | None


@dataclass(frozen=True)
class LoaderTrial:
    """A setting of a loader that was tried, with the milliseconds per batch."""

    workers: int
    #: Batches that each worker prepares in advance.
    prefetch: int
    ms: float
    ci95_ms: tuple[float, float] | None
    #: How long each of the last batches was waited for, milliseconds; empty if unknown.
    batches_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeasuredInput:
    """The speed of one rank's loader, measured with ``measure_input``."""

    path: str
    rank: int
    #: The number of ranks that measured.
    size: int
    host: str
    #: The run that it belongs to, and the launch that measured; None if unknown.
    run_id: str | None
    launch: str | None
    #: Wall time in nanoseconds, from the first request for a batch to the last batch.
    began: int
    ended: int
    #: The kind of loader: ``tf.data``, ``DataLoader``, ``Sequence``, ``iterator``, …
    kind: str
    #: The number of batches after the warm-up, and in it.
    batches: int
    warm_up: int
    first_batch_ms: float | None
    #: Milliseconds per batch after the warm-up; None with too few batches.
    ms: float | None
    ci95_ms: tuple[float, float] | None
    samples_per_batch: float | None
    #: Whether the data ended before the requested number of batches.
    data_ended: bool
    #: The error that the data raised, in one sentence.
    error: str | None
    stages: tuple[InputStage, ...]
    #: The reason for missing stages.
    no_stages: str | None
    #: Other settings of the loader.
    trials: tuple[LoaderTrial, ...] = ()
