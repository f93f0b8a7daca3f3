"""What becomes of the gradients: whether they are reduced, and the rate that is fit for it."""

from __future__ import annotations

from collections.abc import Iterator

from ..advice import in_words, scaled_rate
from ..result import Finding
from .records import Records


def gradients_not_reduced(records: Records) -> Iterator[Finding]:
    run = records.run
    if run.fact("gradients_reduced") is False:
        yield Finding(
            "gradients_not_reduced",
            "error",
            "Gradients are not reduced",
            f"{run.size} ranks trained, and the traced train step holds no allreduce: every rank "
            "trained a model of its own.",
            "Let a custom train_step reduce its gradients, with hvd.DistributedGradientTape or "
            "optimizer.minimize(); apply_gradients alone does not.",
        )


def learning_rate_not_scaled(records: Records) -> Iterator[Finding]:
    run = records.run
    rate = run.fact("learning_rate")
    if run.fact("learning_rate_scaled") is False and isinstance(rate, (int, float)):
        yield Finding(
            "learning_rate_not_scaled",
            "info",
            "The learning rate is the optimizer's default",
            f"{rate:g} on {run.size} ranks, the same as on one.",
            in_words(*scaled_rate(records.setup, float(rate))),
        )
