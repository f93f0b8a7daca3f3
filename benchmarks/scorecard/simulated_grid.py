"""The grid of all simulated cells, with fewer runs where a run takes longer.

The clocks of several hosts differ and drift.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from simulated_cells import Cell, Configuration, Who, clean_step_ms
from simulator import Bursts, Clocks, Fault, Job, Jump, Noise, Ramp, Slew, simulate

from stallscope.analysis.ledger.ledger import STAGES

PERCENTS = (5, 10, 30, 100, 200)
CVS = (0.02, 0.05, 0.1, 0.3)

_APART = Clocks(offset_s=100.0, drift_ppm=20.0)
# Making a batch takes longer than training on it.
_TOO_SLOW_MS = 250.0
# In the jobs whose intervals are compared with the truth.
_FAULT = 0.15


def job(ranks: int, cv: float, steps: int = 500, phi: float = 0.5, **more: Any) -> Job:
    """Return a healthy job; on several hosts, the clocks differ."""
    like = Job(ranks=ranks, steps=steps, noise=Noise(cv=cv, phi=phi), **more)
    return replace(like, clocks=_APART) if like.host_count > 1 and "clocks" not in more else like


def power(
    ranks: int,
    runs: int,
    *,
    who: Iterable[Who] = ("one", "all", "rotating"),
    stages: Iterable[str] = STAGES,
    percents: Iterable[float] = PERCENTS,
    cvs: Iterable[float] = CVS,
    steps: int = 500,
    phi: float = 0.5,
) -> list[Cell]:
    """Return faults of every kind that real runs have, too."""
    cells = []
    for on, stage, percent, cv in itertools.product(who, stages, percents, cvs):
        name = f"{ranks}-{on}-{stage}-{percent:g}-cv{cv * 100:g}"
        name += f"-phi{phi:g}" if phi != 0.5 else ""
        name += f"-{steps}steps" if steps != 500 else ""
        cells.append(Cell("power", name, runs, job(ranks, cv, steps, phi), on, stage, percent))
    return cells


def clean(ranks: int, runs: int, cvs: Sequence[float] = CVS, more: bool = True) -> list[Cell]:
    """Return runs without a fault: equal ranks, then healthy runs that look faulty."""
    cells = [_clean(f"cv{cv * 100:g}", "equal ranks", runs, job(ranks, cv)) for cv in cvs]
    for cv in (0.02, 0.1) if more else ():
        for spread in (0.005, 0.01):
            cells.append(
                _clean(
                    f"cv{cv * 100:g}-spread{spread * 100:g}",
                    f"speeds of ranks differ by {spread:.1%} (SD)",
                    runs,
                    job(ranks, cv, rank_spread=spread),
                )
            )
        noisy = job(ranks, cv)
        tail = replace(noisy, noise=replace(noisy.noise, tail_share=0.01))
        cells += [
            _clean(f"cv{cv * 100:g}-tail1", "heavy tail: 1 % of computes 50 % longer", runs, tail),
            _clean(f"cv{cv * 100:g}-phi0.9", "slow noise (φ = .9)", runs, job(ranks, cv, phi=0.9)),
        ]
    return cells


def starving(ranks: int, runs: int) -> list[Cell]:
    """Return runs in which every rank waits for its batches, and all loaders are equally slow."""
    about = "all ranks starve, their loaders run ahead"
    like = {cv: job(ranks, cv, prefetch=2, input_ms=_TOO_SLOW_MS) for cv in (0.02, 0.1)}
    return [
        _clean(f"cv{cv * 100:g}-starving", about, runs, starving_job)
        for cv, starving_job in like.items()
    ]


def _clean(name: str, about: str, runs: int, like: Job) -> Cell:
    return Cell("clean", f"{like.ranks}-clean-{name}", runs, like, about=about)


def patterns(ranks: int, runs: int, cvs: Sequence[float] = (0.02, 0.1)) -> list[Cell]:
    """Return faults that come and go, grow, affect a host, or occur twice."""
    cells = []
    for cv in cvs:
        like, end = job(ranks, cv), f"cv{cv * 100:g}"

        def cell(name: str, about: str, like: Job = like, end: str = end, **more: Any) -> Cell:
            name = f"{like.ranks}-{name}-{end}"
            return Cell("pattern", name, runs, like, about=about, **more)

        bursts = Bursts(every=25, length=3)
        for stage, percent in itertools.product(STAGES, (30, 100)):
            about = f"{stage} in bursts of 3 steps, 1 in 9 steps, +{percent} % while they last"
            cells.append(
                cell(
                    f"bursts-{stage}-{percent}",
                    about,
                    who="one",
                    stage=stage,
                    percent=percent,
                    when=bursts,
                )
            )
        for percent in (10, 30):
            size = f"+{percent} %"
            common = {"stage": "compute", "percent": percent}
            cells.append(
                cell(
                    f"ramp-{percent}",
                    f"compute from 0 to +{2 * percent} % over the run",
                    who="one",
                    when=Ramp(),
                    **common,
                )
            )
            cells.append(
                cell(
                    f"two-{percent}",
                    f"two ranks at once: compute {size}, other {size}",
                    who="two",
                    **common,
                )
            )
            for second in (0.5, 0.8):
                less = second * percent
                cells.append(
                    cell(
                        f"behind-{percent}-{less:g}",
                        f"a slow rank behind a slower one: compute {size}, other +{less:g} %",
                        who="two",
                        second_percent=less,
                        **common,
                    )
                )
            if like.host_count > 2:
                cells.append(
                    cell(f"host-{percent}", f"all ranks of one host: {size}", who="host", **common)
                )
        cells.append(cell("work", "one rank gets 1.3 times the samples", who="one", work=1.3))
    return cells


def robustness(runs: int) -> list[Cell]:
    """Return disturbances of logs and clocks, without a fault and with one on one rank."""
    many, few = job(64, 0.05), job(8, 0.05)
    conditions = {
        "plain": ("nothing else", many),
        "jump": (
            "a clock is set forward by 30 ms",
            replace(many, clocks=replace(_APART, jumps=(Jump(1, 300, 30.0),))),
        ),
        "slew": (
            "a clock is slewed by 500 ppm for 200 steps",
            replace(many, clocks=replace(_APART, slews=(Slew(1, 200, 400, 500.0),))),
        ),
        "skew": (
            "ring over uneven links: the last host completes 10 % of the transfer later",
            replace(many, skew=0.1),
        ),
        "lost": ("1 % of the rows are lost", replace(many, lost_rows=0.01)),
        "lost-few": ("1 % of the rows are lost", replace(few, lost_rows=0.01)),
        "cut": ("one rank's log breaks off at step 200", replace(many, cut_ranks={5: 200})),
        "cut-few": ("one rank's log breaks off at step 200", replace(few, cut_ranks={5: 200})),
    }
    cells = []
    for name, (about, like) in conditions.items():
        for who, percent in (("none", 0), ("one", 30)):
            cells.append(
                Cell(
                    "robustness",
                    f"{like.ranks}-robust-{name}-{who}",
                    runs,
                    like,
                    who,  # type: ignore[arg-type]
                    "compute" if who == "one" else None,
                    percent,
                    about=about,
                )
            )
    late = "one rank is late for an early bucket of gradients only, by 10 % of the step"
    for like in (many, few):
        name = f"{like.ranks}-robust-bucket-one"
        cells.append(
            Cell("robustness", name, runs, like, "one", "compute", 10, bucket=True, about=late)
        )
    return cells


def full_grid() -> list[Cell]:
    """Return everything; fewer cells and runs where a run takes longer.

    Clean cells have many runs, because false alarms are rare. Faults need fewer.
    """
    some = {"stages": ("input", "compute"), "percents": (10, 30), "cvs": (0.1,)}
    return [
        *clean(2, 1000, (0.02, 0.1), more=False),
        *clean(4, 1000, (0.02, 0.1), more=False),
        *clean(8, 1000),
        *clean(64, 400),
        *clean(512, 200, (0.02, 0.1), more=False),
        *clean(4096, 100, (0.1,), more=False),
        *starving(2, 1000),
        *starving(8, 1000),
        *starving(64, 200),
        *power(8, 100),
        *power(64, 100, percents=(10, 30), cvs=(0.02, 0.1)),
        *power(64, 100, stages=("compute",), percents=(5, 100, 200), cvs=(0.1,)),
        *power(64, 100, stages=("compute",), percents=(10, 30), cvs=(0.05, 0.3)),
        *power(512, 60, **some),
        *power(4096, 40, stages=("compute",), percents=(10,), cvs=(0.1,)),
        *power(8, 100, **some, phi=0.9),
        *power(8, 100, **some, steps=200),
        *power(8, 100, **some, steps=2000),
        *patterns(8, 100),
        *patterns(64, 100),
        *robustness(100),
    ]


def quick_grid() -> list[Cell]:
    """Return a small grid that takes about two minutes."""
    return [
        *clean(8, 60, more=False),
        *power(8, 16, percents=(10, 30), cvs=(0.02, 0.1)),
        *power(64, 8, stages=("compute",), percents=(10, 30), cvs=(0.1,)),
        *patterns(8, 8, (0.1,)),
        *robustness(4),
    ]


def configurations(runs: int) -> list[Configuration]:
    """Return two, 8 and 64 ranks; quiet and noisy; independent steps or not; shared CPU cores."""
    return [
        *_of(runs, (2,), (0.1,), (0.5,), ("clean", "one", "all")),
        *_of(runs, (8,), (0.02,), (0.0, 0.9), ("clean",)),
        *_of(runs, (8,), (0.02,), (0.5,), ("one", "all")),
        *_of(runs, (8,), (0.1,), (0.0, 0.5, 0.9), ("clean", "one", "all")),
        *_of(runs, (64,), (0.02,), (0.5,), ("one",)),
        *_of(runs, (64,), (0.1,), (0.5,), ("clean", "one", "all")),
        *_on_shared_cores(runs),
    ]


def _on_shared_cores(runs: int) -> Iterator[Configuration]:
    """Return jobs whose ranks share CPU cores, with faults that sleep or keep all cores busy."""
    for (ranks, cores), burns, who in itertools.product(
        ((4, 2), (8, 4)), (False, True), ("one", "all")
    ):
        like = job(ranks, 0.05, cores_per_host=cores)
        ms = _FAULT * simulate(like).truth.step_ms()
        on = (1,) if who == "one" else ()
        fault = Fault("input", ms, ranks=on, burns=cores if burns else 0)
        kind = "burns" if burns else "sleeps"
        on_ranks = "one rank" if who == "one" else "all ranks"
        about = (
            f"gains on shared cores: {ranks} ranks on {cores}, input of {on_ranks} +15 %, {kind}"
        )
        name = f"{ranks}-coverage-on-{cores}-cores-{who}-{kind}"
        yield Configuration(name, runs, replace(like, faults=(fault,)), about)


def _of(
    runs: int,
    ranks: tuple[int, ...],
    cvs: tuple[float, ...],
    phis: tuple[float, ...],
    faults: tuple[str, ...],
) -> Iterator[Configuration]:
    for count, cv, phi, fault in itertools.product(ranks, cvs, phis, faults):
        like = job(count, cv, phi=phi)
        ms = _FAULT * clean_step_ms(count, like.noise)
        cases = {
            "clean": ((), "no fault"),
            "one": ((Fault("compute", ms, ranks=(1,)),), "compute of one rank +15 %"),
            "all": ((Fault("input", ms),), "input of all ranks +15 %"),
        }
        faults_of, about = cases[fault]
        name = f"{count}-coverage-{fault}-cv{cv * 100:g}-phi{phi:g}"
        yield Configuration(name, runs, replace(like, faults=faults_of), about)
