"""Draw the charts of docs/attribution.md from simulated and sample logs.

python tools/attribution_pictures.py

Prints the figures that the page quotes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from simulator import (
    Bursts,
    Clocks,
    Fault,
    Fixed,
    Job,
    Jump,
    Noise,
    Ramp,
    Slew,
    simulate,
)
from svg_file import svg_file

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.network.communication import expected_imbalance
from stallscope.analysis.steps.alignment import align
from stallscope.charts.chart_kinds import Bar, Segment, StackedBars, Waterfall
from stallscope.charts.charts import decomposition_chart
from stallscope.charts.compared_bars import cause_bar
from stallscope.charts.svg import WIDE, draw
from stallscope.opening import open_run
from stallscope.run import Run
from stallscope.text.step_figures import StepFigures

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "attribution"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    charts: dict[str, StackedBars | Waterfall] = {
        "one-rank": one_rank_and_all(),
        "by-cause": samples_by_cause(),
        "by-chance": slowest_by_chance(),
        "clocks": clock_estimators(),
        "what-if": what_if_estimators(),
        "baselines": one_and_thirty_two(),
    }
    for name, chart in charts.items():
        (FOLDER / f"{name}.svg").write_text(svg_file(draw(chart, name, WIDE)))
        print(f"{name}: {chart.sentence}")
        for bar in getattr(chart, "bars", ()):
            print("   ", bar.label, {s.name: round(s.value, 2) for s in bar.segments})


def one_rank_and_all() -> StackedBars:
    """Compare the separate logs of a sample run's ranks with both together."""
    analysis = analyse(open_run(str(ROOT / "sample_logs" / "slow-input-one-rank")))
    bars = [
        Bar(
            f"rank {rank.rank} alone",
            (
                Segment("input", rank.input_ms or 0.0),
                Segment("compute", rank.compute_ms or 0.0),
                Segment("other", rank.other_ms or 0.0),
                # In one log alone, waiting and transferring cannot be separated.
                Segment("allreduce", (rank.wait_ms or 0.0) + (rank.allreduce_ms or 0.0)),
            ),
        )
        for rank in analysis.ranks
    ]
    bars.append(replace(_by_cause("together", analysis), emphasised=True))
    return StackedBars(
        "Each rank's log alone, and all of them together",
        "Rank 1's loader is slow. Rank 0's log alone shows a slow network; together the logs show that "
        "rank 0 waits for rank 1.",
        "ms",
        tuple(bars),
    )


def samples_by_cause() -> StackedBars:
    """Chart the sample runs by cause: the fault of each is in its stage."""
    names = (
        *("synthetic", "clean", "slow-input-one-rank", "slow-input-all-ranks"),
        *("slow-compute-rank", "busy-rank-0"),
    )
    runs = {name: analyse(open_run(str(ROOT / "sample_logs" / name))) for name in names}
    return StackedBars(
        "The sample runs by cause",
        "Input costs the same whether one rank waits for data or all do. The pale part of a stage is "
        "the time that the other rank waits for it.",
        "ms",
        tuple(_by_cause(name, analysis) for name, analysis in runs.items()),
    )


def _by_cause(label: str, analysis: Analysis) -> Bar:
    figures = StepFigures.of(analysis)
    assert figures is not None
    return cause_bar(label, analysis, figures)


def slowest_by_chance() -> StackedBars:
    """Chart the imbalance of clean runs over the number of ranks."""
    bars = []
    for ranks in (2, 8, 64, 512):
        job = Job(ranks=ranks, steps=500, noise=Noise(cv=0.1), ranks_per_host=ranks)
        analysis = analyse(simulate(job).run)
        assert not any(straggler.ranks for straggler in analysis.stragglers)
        bars.append(Bar(f"{ranks} ranks", _segments(analysis)))
        expected = expected_imbalance(ranks) * 150 * 0.1
        print(f"    {ranks} ranks: imbalance expected of normal noise {expected:.1f} ms")
    return StackedBars(
        "The slowest of many is slow by chance",
        "Clean runs with 10 % noise in every stage: imbalance grows with the number of ranks, without "
        "any fault.",
        "ms",
        tuple(bars),
    )


def clock_estimators() -> StackedBars:
    """Chart the error of exposed allreduce under three ways to align two hosts' clocks."""
    apart = Clocks(offset_s=100, drift_ppm=20)
    jobs = {
        "drift": apart,
        "drift, slewed": replace(apart, slews=(Slew(1, 200, 400, 500),)),
        "drift, set": replace(apart, jumps=(Jump(1, 300, 30),)),
    }
    bars = []
    for name, clocks in jobs.items():
        job = Job(ranks=16, steps=600, noise=Noise(cv=0.02), clocks=clocks)
        simulated = simulate(job)
        stamps = {n: _dense(simulated.run, n, job) for n in ("ready", "reduced")}
        host = np.repeat([0, 1], 8)
        aligned = align(simulated.run, 0).clocks
        ready, reduced = stamps["ready"], stamps["reduced"]
        difference = np.median(reduced[:, 8:], axis=1) - np.median(reduced[:, :8], axis=1)
        for label, offset in {
            "one median": np.full(len(ready), np.median(difference)),
            "one line": np.polyval(
                np.polyfit(np.arange(len(ready)), difference, 1), np.arange(len(ready))
            ),
            "running median": aligned.offset[:, 1].astype(float),
        }.items():
            shift = np.where(host == 1, offset[:, None], 0)
            error = (reduced - shift).min(axis=1) - (ready - shift).max(axis=1)
            bias = np.abs(error - simulated.truth.allreduce)[1:].mean() / 1e6
            bars.append(Bar(f"{name}: {label}", (Segment("allreduce", float(bias)),)))
    return StackedBars(
        "Mean error of exposed allreduce, by how clocks are aligned",
        "True transfer 20 ms, 16 ranks on 2 hosts. One median or one line over the whole run fails if a "
        "clock does not run evenly; a running median follows it.",
        "ms",
        tuple(bars),
    )


def _dense(run: Run, name: str, job: Job) -> npt.NDArray[np.float64]:
    stamps = run.steps[name].to_numpy().reshape(job.ranks, job.steps)
    return np.asarray(stamps.T, np.float64)


def what_if_estimators() -> StackedBars:
    """Compare the predicted gain of fixing a rank with the gain of the same job without the fault."""
    bars = []
    for name, fault in {
        "slow": Fault("compute", 30, ranks=(1,)),
        "in bursts": Fault("compute", 120, ranks=(1,), when=Bursts(every=20, length=3)),
        "ever slower": Fault("compute", 30, ranks=(1,), when=Ramp()),
    }.items():
        job = Job(ranks=16, steps=1000, noise=Noise(cv=0.1), faults=(fault,))
        simulated = simulate(job)
        analysis = analyse(simulated.run)
        saved = next(gain.saved_ms.value for gain in analysis.what_if if str(gain.fix) == "rank:1")
        truth = simulated.truth.step_ms(1) - simulate(job.healthy()).truth.step_ms(1)
        imbalance = analysis.entry("imbalance")
        assert imbalance is not None
        bars.append(Bar(f"{name}: step − imbalance", (Segment("imbalance", imbalance.ms),)))
        bars.append(Bar(f"{name}: replayed", (Segment("imbalance", saved),)))
        bars.append(Bar(f"{name}: run again", (Segment("imbalance", truth),), emphasised=True))
    return StackedBars(
        "Gain of fixing rank 1, per step",
        "Subtracting the whole imbalance promises more than any fix achieves. The replay is compared "
        "with the same job simulated again without its fault.",
        "ms",
        tuple(bars),
    )


def one_and_thirty_two() -> Waterfall:
    """Compare a loader that costs 5 % on one rank and 42 % on 32, with the synthetic baselines."""
    one_rank = Job(
        ranks=1, steps=600, input_ms=11.8, compute_ms=200, other_ms=5, noise=Noise(cv=0.03)
    )
    many = replace(
        one_rank, ranks=32, input_ms=174.0, communication=Fixed(22.0), noise=Noise(cv=0.03)
    )
    single = simulate(one_rank.baseline(input_ms=1.0)).run
    alone = analyse(simulate(one_rank).run, single)
    baseline = simulate(many.baseline(input_ms=1.0)).run
    analysis = analyse(simulate(many).run, baseline, single)
    assert alone.gap is not None
    assert analysis.gap is not None
    assert analysis.gap_ci95 is not None
    chart = decomposition_chart(analysis)
    assert chart is not None
    print(f"    gap on 1 rank {alone.gap:.1%}, on 32 {analysis.gap:.1%} {analysis.gap_ci95}")
    return replace(
        chart,
        title="From one rank on synthetic data to 32 on real data",
        sentence=f"On 1 rank real data costs {alone.gap:.0%} of the throughput, on 32 ranks "
        f"{analysis.gap:.0%}: the loader does not scale, the network does.",
    )


def _segments(analysis: Analysis) -> tuple[Segment, ...]:
    return tuple(
        Segment(entry.name, entry.ms) for entry in analysis.entries if entry.name in ENTRIES
    )


if __name__ == "__main__":
    main()
