"""The kinds of runs that every report is tested with: made-up logs, damaged on purpose, really read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import simulator
from support.network_checks import pair, write_network_check
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.what_if_queries import ask, parse
from stallscope.parsers import read
from stallscope.run import Run

TWO = Job(ranks=2, steps=200, epochs=2, validation_ms=400, checkpoint_ms=100)
FOUR = replace(TWO, ranks=4, slow={(2, "input"): 12.0})
SYNTHETIC = replace(TWO, ranks=4, input_ms=0.5, seed=2, run_id="base", facts={"synthetic": True})
MANY = replace(TWO, ranks=1000, steps=60, slow={(17, "compute"): 20.0})
TWO_HOSTS = {"hosts": ("alpha", "beta"), "clock_offset_ms": (0.0, 7000.0)}

#: 100 MB in a ring of 8 ranks: 14 ms at 12.5 GB/s and 14 × 10 µs of latency, nothing hidden.
RING = simulator.Job(
    ranks=8,
    steps=400,
    ranks_per_host=4,
    input_ms=9.0,
    communication=simulator.Ring(100_000_000, 12.5),
    facts={"run_name": "ring"},
)
SLOW_HOSTS = tuple(f"host-{host:02d}" for host in range(0, 16, 3))
LATE_NOW_AND_THEN = simulator.Fault("compute", 120, ranks=(3,), when=simulator.Bursts(25, 3))
LATE_IN_TURN = simulator.Fault("compute", 90, rotating=1, when=simulator.EveryNth(2))

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
UNSEEN = "\u202eevil\u202c \u200bzero \x1b[31m red\x07"
HOSTILE = replace(
    TWO,
    stamps=False,
    run_id=f"=HYPERLINK('{SCRIPT}')",
    facts={
        "run_name": f"{SCRIPT}{IMAGE}{UNSEEN}",
        "host": f"=cmd|'{IMAGE}\u202e\n",
        "framework": f"{SCRIPT}\ud800",
        "model": f"a|b `c` *d* {IMAGE} @everyone https://evil.example",
        "versions": {SCRIPT: IMAGE},
        "settings": {f"HOROVOD_{IMAGE}": SCRIPT},
        "stamps": {"placed": [], "reason": f"{SCRIPT}\n# heading | {IMAGE}"},
    },
)


@dataclass(frozen=True)
class Printed:
    """A job of which only Keras's output is left."""

    text: str


BAR = "=" * 30


def _fit(epochs: int, rank: str = "", line: str = "78/78 - {} - 218ms/step - loss: 1.9") -> str:
    return "".join(
        f"{rank}Epoch {epoch}/{epochs}\n{rank}{line.format(f'{17 + epoch % 3}s')}\n"
        for epoch in range(1, epochs + 1)
    )


def _meters(ranks: int, epochs: int = 4, steps: int = 200) -> str:
    """Print meters of ranks that wait for data, with slow starts of epochs and a change for good."""
    lines = ["world_size: 8, batch_size: 64"]
    waited = took = 0.0
    for epoch in range(epochs):
        for step in range(steps):
            data = 2.0 if step == 0 else 0.06 * (step % 4 == 0)
            time = data + (0.1 if epoch < 2 else 0.13) + step % 7 / 1000
            waited, took = (waited, took) if step else (0.0, 0.0)
            waited, took = waited + data, took + time
            means = took / (step + 1), waited / (step + 1)
            values = f"Time {time:.4f} ({means[0]:.4f})\tData {data:.4f} ({means[1]:.4f})"
            if step % 10 == 0:
                place = f"Epoch: [{epoch}][{step:3d}/{steps}]\t{values}"
                lines += [f"[{rank}]<stdout>:{place}\tLoss 6.9 (6.9)" for rank in range(ranks)]
    return "\n".join(lines) + "\n"


def _with_evaluations() -> str:
    """Print steps of a job that evaluates, restarts, grows within epochs and waits every fourth step."""
    lines, now = [], datetime(2026, 9, 6, 2, 52, 5)
    for step in (*range(400), *range(360, 600)):
        took = (0.2 + step % 100 / 500) * (5 if step % 4 == 3 else 1)
        now += timedelta(seconds=took + 60 * (step % 100 == 50))
        lines += [f"step {step}: val loss 2.1"] if step % 100 == 50 else []
        stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
        lines.append(
            f"{stamp} epoch {step // 100} step {step} loss 2.{step:03} step_time {took:.4f} s"
        )
    return "\n".join(lines) + "\n"


Damage = Callable[[Path], None]


def _without(*ranks: int) -> Damage:
    def lose(folder: Path) -> None:
        for rank in ranks:
            (folder / f"rank-{rank:05d}.0.0.steps.csv").unlink()

    return lose


def _torn(folder: Path) -> None:
    log = folder / "rank-00001.0.0.steps.csv"
    log.write_bytes(log.read_bytes()[:-9])


def _torn_in_a_hostile_file(folder: Path) -> None:
    _torn(folder)
    log = folder / "rank-00001.0.0.steps.csv"
    log.rename(log.with_name("<img src=x onerror=alert(2)>.steps.csv"))


def _with_measured_network(folder: Path) -> None:
    pairs = [pair("alpha", "beta", 900), pair("alpha", SCRIPT, 40), pair("beta", "gamma", 880)]
    write_network_check(folder, pairs=pairs, left_out=[f"{IMAGE}: no time was left"])


AnyJob = Job | simulator.Job | Printed


@dataclass(frozen=True)
class Case:
    job: AnyJob
    baseline: AnyJob | None = None
    damage: Damage | None = None
    single: AnyJob | None = None
    network_bandwidth: float | None = None
    questions: tuple[str, ...] = ()


def _simulated(**changes: object) -> Case:
    return Case(replace(RING, **changes))  # type: ignore[arg-type]


CASES = {
    "one rank": Case(replace(TWO, ranks=1)),
    "two ranks": Case(TWO),
    "two hosts": Case(replace(TWO, **TWO_HOSTS)),
    "a slow rank": Case(FOUR),
    "a slow rank and a baseline": Case(FOUR, SYNTHETIC),
    "a baseline without stages": Case(FOUR, replace(SYNTHETIC, stamps=False)),
    "a slow host": Case(
        replace(TWO, ranks=8, hosts=("a", "b", "c", "d"), slow={(r, "compute"): 9 for r in (2, 3)})
    ),
    "a thousand ranks": Case(MANY),
    "host stamps only": Case(replace(TWO, stamps=False)),
    "host stamps only, and a baseline": Case(replace(TWO, stamps=False), SYNTHETIC),
    "host stamps only, on two hosts": Case(replace(TWO, stamps=False, **TWO_HOSTS)),
    "few steps": Case(replace(TWO, steps=12)),
    "one step": Case(replace(TWO, steps=1, epochs=1)),
    "no steps": Case(replace(TWO, steps=0)),
    "a missing rank": Case(FOUR, damage=_without(1)),
    "rank 0 only": Case(TWO, damage=_without(1)),
    "a measured network": Case(replace(TWO, hosts=("alpha",)), damage=_with_measured_network),
    "another network": Case(replace(TWO, ranks=3), damage=_with_measured_network),
    "a torn line": Case(TWO, damage=_torn),
    "hostile names": Case(HOSTILE, damage=_torn_in_a_hostile_file),
    "hostile names with stages": Case(
        replace(HOSTILE, ranks=4, stamps=True, slow={(2, "input"): 12.0}),
        damage=_torn_in_a_hostile_file,
    ),
    "everything": Case(
        RING,
        RING.baseline(input_ms=1.0),
        single=RING.baseline(ranks=1, input_ms=1.0),
        network_bandwidth=6.25,
        questions=("bandwidth:2", "ranks:64"),
    ),
    "one rank beside it": Case(RING.baseline(), single=RING.baseline(ranks=1)),
    "a slow host and a slow rank": _simulated(
        faults=[
            simulator.Fault("compute", 40, hosts=("host-1",)),
            simulator.Fault("input", 60, ranks=(2,)),
        ]
    ),
    "a rank late now and then": _simulated(faults=[LATE_NOW_AND_THEN]),
    "a rank ever slower": _simulated(
        faults=[simulator.Fault("compute", 40, ranks=(3,), when=simulator.Ramp())]
    ),
    "lateness that moves around": _simulated(faults=[LATE_IN_TURN]),
    "a slow rank and lateness that moves around": _simulated(
        faults=[simulator.Fault("compute", 40, ranks=(2,)), LATE_IN_TURN]
    ),
    "uneven work": _simulated(samples_factor={2: 1.5}),
    "compute slower than the baseline's": Case(
        replace(RING, input_ms=1.0, faults=[simulator.Fault("compute", 30)]), RING.baseline()
    ),
    "slower from a step on": _simulated(
        faults=[simulator.Fault("compute", 30, when=simulator.Between(200, 399))]
    ),
    "rows lost": _simulated(lost_rows=0.01),
    "half of the rows lost": _simulated(lost_rows=0.5),
    "a log cut early": _simulated(
        cut_ranks={5: 60}, faults=[simulator.Fault("compute", 60, ranks=(2,))]
    ),
    "input that dwarfs the step": Case(replace(RING, steps=120, input_ms=5000.0), RING.baseline()),
    "a rank that dwarfs the step": _simulated(
        steps=200, faults=[simulator.Fault("compute", 9000, ranks=(3,))]
    ),
    "twenty slow ranks": _simulated(
        ranks=64, steps=200, faults=[simulator.Fault("compute", 60, ranks=tuple(range(0, 40, 2)))]
    ),
    "slow hosts": _simulated(
        ranks=64, steps=200, faults=[simulator.Fault("compute", 60, hosts=SLOW_HOSTS)]
    ),
    "many missing ranks": Case(
        replace(RING, ranks=64, steps=100), damage=_without(*range(3, 60, 2))
    ),
    "one step of one rank": Case(replace(TWO, ranks=1, steps=1, epochs=1)),
    "printed steps": Case(Printed(_meters(2))),
    "printed evaluations": Case(Printed(_with_evaluations())),
    "epochs only": Case(Printed(_fit(3))),
    "many epochs only": Case(Printed(_fit(300))),
    "epochs of two ranks only": Case(Printed(_fit(2, "[0]<stdout>:") + _fit(2, "[1]<stdout>:"))),
    "epochs that are shorter than a second": Case(
        Printed(_fit(2, line=f"9/9 [{BAR}] - 0s 2ms/step - loss: 1.9"))
    ),
    "samples of epochs only": Case(
        Printed(_fit(2, line=f"60000/60000 [{BAR}] - {{}} 70us/sample - loss: 1.9"))
    ),
    "a clock that was set": _simulated(
        clocks=simulator.Clocks(jumps=[simulator.Jump(1, 200, 50.0)])
    ),
}

#: What other cases contain as well, with other numbers.
VARIANTS = {
    *("two hosts", "a slow rank", "few steps", "a missing rank", "another network"),
    *("host stamps only, and a baseline", "host stamps only, on two hosts", "uneven work"),
    *("a slow host and a slow rank", "a rank late now and then", "a rank ever slower"),
    *("lateness that moves around", "rows lost", "a log cut early", "a rank that dwarfs the step"),
    *("twenty slow ranks", "many missing ranks", "one step of one rank", "one rank beside it"),
    *("many epochs only", "epochs of two ranks only", "epochs that are shorter than a second"),
    *("samples of epochs only", "slower from a step on"),
}
#: All names of cases, as parameters.
NAMES = [
    pytest.param(name, marks=[pytest.mark.variant] if name in VARIANTS else []) for name in CASES
]


def analysis_of(folder: Path, case: Case) -> Analysis:
    """Return the analysis of the case's logs after writing, damaging and reading them, with its
    questions.
    """
    run = run_of_case(folder / "run", case.job, case.damage)
    analysis = analyse(
        run,
        case.baseline and run_of_case(folder / "baseline", case.baseline),
        case.single and run_of_case(folder / "single", case.single),
        case.network_bandwidth,
    )
    answers = [ask(parse(question), analysis) for question in case.questions]
    return replace(analysis, what_if=(*analysis.what_if, *filter(None, answers)))


def run_of_case(folder: Path, job: AnyJob, damage: Damage | None = None) -> Run:
    """Write the logs of a case's job, damage them and read them."""
    if isinstance(job, Printed):
        folder.mkdir(parents=True)
        (folder / "stdout.txt").write_text(job.text)
    elif isinstance(job, Job):
        write_job(folder, job)
    else:
        simulator.write_logs(simulator.simulate(job), folder)
    if damage is not None:
        damage(folder)
    return read(str(folder))[0]
