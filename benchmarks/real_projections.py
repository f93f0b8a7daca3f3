"""Compare projections with real Horovod on 1 to 4 ranks, for docs/scorecard/projections.md.

    python benchmarks/real_projections.py [--steps 400]

The job trains on 1, 2, 3 and 4 ranks (real_projections_training.py); each larger number is then
projected from the smaller ones. Other load on the machine adds noise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from peers import ROOT, TRAINING, output_of

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.scaling import scaling
from stallscope.analysis.scaling.projection import projected_rate
from stallscope.opening import open_run

PROGRAM = ROOT / "benchmarks" / "real_projections_training.py"
_FROM = ((1, 2), (1, 2, 3))
_RANKS = (1, 2, 3, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trained = {ranks: _trained(Path(folder), ranks, options.steps) for ranks in _RANKS}
    print("| fitted to | projected to | samples/s projected | measured | off by | |")
    print("| --- | ---: | --- | ---: | ---: | --- |")
    for sizes in _FROM:
        for ranks in range(sizes[-1] + 1, _RANKS[-1] + 1):
            print(_row([trained[size] for size in sizes], trained[ranks]))


def _trained(folder: Path, ranks: int, steps: int) -> Analysis:
    logs = str(folder / f"on-{ranks}")
    program = ["python", str(PROGRAM), logs, str(steps)]
    output_of(["horovodrun", "--disable-cache", "-np", str(ranks), *program], TRAINING)
    return analyse(open_run(logs))


def _row(fitted: list[Analysis], real: Analysis) -> str:
    (series,) = scaling(fitted)
    points = [entry.point for entry in series.points]
    ledger = points[-1].runs[-1].steady
    if ledger is None or series.model is None or real.samples_per_second is None:
        raise SystemExit("too few steps were measured: raise --steps")
    rate = projected_rate(real.run.size, points, ledger, series.model)
    if rate.ci95 is None:
        raise SystemExit("too few steps were measured for an interval: raise --steps")
    low, high = rate.ci95
    measured = real.samples_per_second
    sizes = ", ".join(str(point.ranks) for point in points)
    word = "inside" if low <= measured <= high else "outside"
    return (
        f"| {sizes} | {real.run.size} | {rate.value:.0f} ({low:.0f} to {high:.0f}) | {measured:.0f} | "
        f"{rate.value / measured - 1:+.0%} | {word} |"
    )


if __name__ == "__main__":
    main()
