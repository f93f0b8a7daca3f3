"""Compare the step ledger with an independent witness, the Horovod Timeline, step by step.

    python benchmarks/witness.py --out TABLE.md [--steps N] [--keep FOLDER]

Two real Horovod ranks train with the callback and the Timeline on at once (witness_training.py): clean,
with slow compute on rank 1, and with slow input on rank 1. witness_comparison.py compares both records.
A last training has the starts of Horovod's cycles in its timeline: the first cycle after our *ready*
must take up the last gradient.

Writes the tables as Markdown, and all figures as JSON in the same folder.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from typing import Any

import numpy as np
from peers import ROOT
from two_ranks import arguments, folder_for, train, write
from witness_comparison import SKIPPED, Agreement, Comparison, compare

PROGRAM = ROOT / "benchmarks" / "witness_training.py"
# The training's arguments by condition.
CONDITIONS = {
    "clean": [],
    "compute +15 ms on rank 1": ["--fault", "slow-compute-rank"],
    "input 90 ms a batch on rank 1": ["--fault", "slow-input-one-rank"],
    "compute +15 ms, cycles marked": ["--fault", "slow-compute-rank", "--mark-cycles"],
}

_MEASURES = {
    "whole": "whole union",
    "exposed": "exposed union",
    "span": "span",
    "alone": "alone, rank 0 first",
}
_PARTS = ("lead", "gaps", "tail")


def result(condition: str, comparison: Comparison) -> dict[str, Any]:
    """Return everything about one training, for JSON."""
    figures = {name: getattr(comparison, name) for name in ("ours", *_MEASURES, *_PARTS)}
    return {
        "condition": condition,
        "gradients": comparison.gradients,
        "matched": comparison.matched,
        "clocks": asdict(comparison.clocks) | {"correction_ms": comparison.clocks.correction_ms},
        "agreement": {name: asdict(comparison.agreement(name)) for name in _MEASURES},
        "mean_ms": {name: float(figures[name].mean()) for name in ("ours", "exposed", *_PARTS)},
        "median_ms": {name: float(np.median(value)) for name, value in figures.items()},
        "per_step_ms": {name: value.round(3).tolist() for name, value in figures.items()},
        "rank_0_first": comparison.rank_0_first.tolist(),
        "next_cycle": next_cycle(comparison),
    }


def next_cycle(comparison: Comparison) -> dict[str, float] | None:
    """Return, for steps in which rank 0 was ready first, when Horovod took up its last gradient."""
    if comparison.cycles is None:
        return None
    cycles = comparison.cycles[comparison.rank_0_first]
    return {
        "steps": len(cycles),
        "before": float(np.mean(cycles < 1)),
        "next": float(np.mean(cycles == 1)),
        "later": float(np.mean(cycles > 1)),
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """Return the page: the tables, and the result of each condition."""
    return "\n".join(
        [
            _INTRODUCTION,
            "| condition | against the Timeline's | steps | ours, median ms | Timeline, median ms "
            "| difference, median ms | 5–95 % of differences, ms | correlation | rank correlation "
            "| within 10 % | within 1 ms |",
            "| --- | --- |" + " ---: |" * 9,
            *(_agreement_row(training, name) for training in results for name in _MEASURES),
            "",
            "Ours consists of the exposed union and three parts; means over all steps, in ms:",
            "",
            "| condition | exposed union | + lead | + gaps | + tail | = ours |",
            "| --- |" + " ---: |" * 5,
            *(_parts_row(training) for training in results),
            "",
            *(_sentence(training) for training in results),
            "",
            _MEANINGS,
            "",
        ]
    )


_INTRODUCTION = """\
# Scorecard: an independent witness

Two real Horovod ranks train with StepLogger and the Horovod Timeline at the same time. This page
compares what both report of rank 0's waiting and allreduce, step by step. *Ours* is what the ledger
books there: from its last gradient ready until the reduced gradients are back.
"""

_MEANINGS = """\
- **Whole union**: all intervals of a step's gradients. It starts with the first gradient, while backward
  still computes the others. What backward hides costs nothing, so ours does not count it.
- **Exposed union**: the same intervals after rank 0's last gradient was ready. This corresponds to ours.
- **Lead**: Horovod collects gradients once per cycle (1 ms by default), and a cycle ends when all ranks
  have reported theirs. The Timeline writes nothing until then, so it does not show the time that the
  step loses while a cycle waits for the other rank's thread.
- **Gaps** lie between the intervals of gradients that were not reduced together.
- **Tail**: from the end of the last interval until TensorFlow's threads continue with the result.
- **Span** is ours without the tail: it checks the *reduced* timestamp against the Timeline's last end.
- **Alone** also checks the *ready* timestamp. It starts with the last gradient's negotiation, so ours is
  longer by the time until a cycle collects that gradient."""


def _agreement_row(training: dict[str, Any], name: str) -> str:
    agreement = Agreement(**training["agreement"][name])
    return (
        f"| {training['condition']} | {_MEASURES[name]} | {agreement.steps} | {agreement.ours_ms:.2f} "
        f"| {agreement.theirs_ms:.2f} | {agreement.difference_ms:+.2f} "
        f"| {agreement.p5_ms:+.2f} … {agreement.p95_ms:+.2f} | {agreement.correlation:.3f} "
        f"| {agreement.rank_correlation:.3f} | {agreement.within_share:.0%} "
        f"| {agreement.within_ms:.0%} |"
    )


def _parts_row(training: dict[str, Any]) -> str:
    means = training["mean_ms"]
    cells = " | ".join(f"{means[name]:.2f}" for name in ("exposed", *_PARTS, "ours"))
    return f"| {training['condition']} | {cells} |"


def _sentence(training: dict[str, Any]) -> str:
    means, clocks = training["mean_ms"], training["clocks"]
    whole, exposed, span, _ = (Agreement(**training["agreement"][name]) for name in _MEASURES)
    added = means["ours"] - means["exposed"]
    most = max(_PARTS, key=lambda name: means[name])
    residual = (
        "does not show in the probes"
        if clocks["correction_ms"] == 0
        else f"was {clocks['correction_ms']:+.3f} ms and was removed"
    )
    return (
        f"- **{training['condition']}**: {training['matched']:.0%} of steps matched one to one. Ours is "
        f"{exposed.difference_ms:.2f} ms longer than the exposed union in the median and "
        f"{added:.2f} ms in the mean, most of it {most} ({means[most]:.2f} ms), and "
        f"{span.difference_ms:.2f} ms longer than the span; the whole union is "
        f"{abs(whole.difference_ms):.2f} ms {'longer' if whole.difference_ms < 0 else 'shorter'} "
        f"than ours, because it counts what backward hides. A constant error of the clocks {residual}: "
        f"it lies between {clocks['low_ms']:+.2f} and {clocks['high_ms']:+.2f} ms."
        + _next_cycle(training["next_cycle"])
    )


def _next_cycle(shares: dict[str, float] | None) -> str:
    if shares is None:
        return ""
    return (
        f" Of the {shares['steps']} steps in which rank 0 was ready first, the next cycle that began "
        f"after our *ready* collected the last gradient in {shares['next']:.0%}, an earlier one in "
        f"{shares['before']:.0%} and a later one in {shares['later']:.0%}."
    )


def main() -> None:
    options = arguments(__doc__, steps=400)
    results = []
    with folder_for(options.keep) as kept:
        for number, (condition, words) in enumerate(CONDITIONS.items()):
            folder = kept / str(number)
            train(PROGRAM, folder, ["--steps", str(options.steps), *words])
            results.append(result(condition, compare(folder)))
    write(options.out, markdown(results))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, 2 ranks"
    document = {"machine": machine, "skipped_steps": SKIPPED, "conditions": results}
    options.out.with_suffix(".json").write_text(json.dumps(document))
    print(markdown(results))


if __name__ == "__main__":
    main()
