"""What the scorecard's page says between its tables. There is no result in it."""

INTRODUCTION = """\
# Scorecard: how often attribution is right

Faults of known size are put into runs, the logs are analysed as anybody's are, and the answer is
held against what was put in: {simulated:,} simulated runs and {real:,} trainings on real Horovod
ranks. The numbers on this page are made by `make scorecard`; [attribution.md](attribution.md) says
how the analysis works.
"""

FIRST = """\
## What is asked, and what came of it

Faults of {percent} % of the step or more, {steps} steps, noise up to {cv:g} %:

{bars}

*Noise* is the coefficient of variation of every stage from step to step; each step's is correlated
with the one's before (φ = .5 unless said otherwise). A *cell* is one kind of run, simulated many
times. A bar is passed if every cell passes it. With false alarms and intervals, a cell fails if it
lies beyond the bar by more than chance (1 %).

## Against logs that are not joined

The same runs, read naively:

{summary}

- **Own log**: each rank's log against the same rank's baseline; the stage that has grown most is
  the cause. A rank that waits for another cannot tell that from a slow network, so only the
  culprit's own log is right, and nothing says whose that is.
- **Latest arrival**: whoever is last most often, in more than twice its share of steps, is the
  straggler. Somebody is last in every step of a healthy run, too, and a fault on all ranks has no
  last one.

![Runs with the cause and the rank right, by size of the fault](scorecard/power.svg)

Faults in {stage} on {ranks} ranks, noise {picture_cv:g} %.
"""

MISSES = "## Where bars are missed, and why"

POWER = """\
## What is found: size, noise, ranks

The share of runs with cause and rank right, by size of the fault in % of the clean step.

- One rank: exactly that rank is named, with its stage.
- All ranks: nobody is named, and the injected stage exceeds its baseline most, by more than chance.
- Another rank in every step, drawn at random: nobody is named, and moving lateness of that stage is
  found.
"""

POWER_KINDS = {
    "one": "**One rank**, all stages",
    "all": "**All ranks**, all stages",
    "compute": "**Another rank in every step**, compute, which is 150 of 180 ms and as noisy",
    "rest": "**Another rank in every step**, input and other, which are 4 and 6 ms",
}

SIZES = "**Size**, found / injected: the range of the cells' medians, noise up to {cv:g} %"

VERDICTS = """\
**Verdict**: how often it is the fault, where that costs at least 1.25 times as much as exposed
allreduce (20 ms). Of smaller ones another verdict, or an undecided one, is right."""

LENGTHS = """\
## Shorter and longer runs, noise with a longer memory

8 ranks, noise 10 %, faults in input and compute. φ is how far a step's noise is that of the step
before: with .5 it is forgotten after 3 steps, with .9 after 19.
"""

CLEAN = """\
## Clean runs

Nobody is to be named.
"""

PATTERNS = """\
## Bursts, ramps, hosts, two at once, uneven work

*Who*: exactly the ranks and hosts that were made slow, and nobody else; then also their stages;
then also the pattern.
"""

REAL = """\
## Real Horovod ranks

TensorFlow-Keras and PyTorch under `horovodrun` over Gloo on {cores} cores. A rank sleeps or spins
in one of its stages and measures for how long; that is the truth. The baseline is the same training
on synthetic data, minutes before. The noise is the machine's own.
"""

NOT_REAL = """\
## Real Horovod ranks

Not trained yet. `make scorecard` does so where there is a training environment.
"""

WITNESS = """\
## An independent witness

The Horovod Timeline, recorded in the same training, against what Stallscope books as wait and
allreduce.
"""

COVERAGE = """\
## Do intervals hold the truth?

The share of runs whose 95 % interval holds what the job's step is on average, over all runs of the
row. *Without*: runs that got no interval, for too few independent steps.
"""

GAINS = """\
## Do fixes gain what is said?

The truth is the same job simulated again, from the same random numbers, without what is fixed; the
bound for allreduce is held against the true transfer. Coverage of the interval:
"""

GAIN_ERRORS = """\
By how much gains are off, in % of step time: median / 95th percentile of runs.
"""

ROBUSTNESS = """\
## Bad clocks, lost rows, uneven rings

Noise 5 %. *Right*: nobody named without a fault, cause and rank right with one. *Off by*: mean
error of exposed allreduce.

{table}

Allreduce comes out too large in two cases. Skew of a ring between hosts cannot be told from an
offset of their clocks. And where the slow rank's own rows are missing, nothing tells waiting for it
from the transfer.
"""

LIMITS = """\
## What this page does not show

- Simulated noise is lognormal, has one memory for all stages, and is independent between ranks.
  Real noise has more shapes. That is what the real half is for, and it is small: few ranks, one
  machine, no GPU, no fast network.
- A rank that is late for an early bucket of gradients only cannot be told from a slow network. The
  table above has it: nobody is named, and the time is booked as allreduce.
- The naive readings are this scorecard's own, given the same aligned logs and baselines as the
  analysis. A careful reader of single logs does better.
- Baselines here are of the same job. What another batch size, model or machine does to a comparison
  is not scored; the report lists such differences.
"""

MADE = """\
## How it was made

`make scorecard` simulates {simulated:,} runs (hours of one core), trains {real:,} and
{pairs:,} pairs, and writes this page. It goes on where it was interrupted, and runs again what the
code has changed for.
`make scorecard ARGS=--quick` prints a small simulated grid in a few minutes and leaves the page as
it is. The figures of all cells are in [simulated.json](scorecard/simulated.json){trained}. Seeds
are fixed: the simulated half comes out the same everywhere.

Made with {versions}.
"""
