"""The sentences between the tables of the scorecard's pages; they contain no results."""

SUMMARY = """\
# Scorecard: how often attribution is right

This page compares the analysis with the truth. Runs get faults of known size: {pairs:,} pairs of
trainings with a fault and without it, {real:,} trainings on real Horovod ranks, and {simulated:,}
simulated runs.

![Runs with the cause and the rank right, by size of the fault](scorecard/power.svg)

Simulated faults in {stage} on {ranks} ranks, noise {picture_cv:g} %. The other two lines are
[readings of separate logs](scorecard/simulated.md#comparison-with-separate-logs).

{groups}

Faults of {percent} % of the step or more. Simulated runs have {steps} steps and noise up to {cv:g} %.
[All targets](scorecard/targets.md) have a page, and so have four more checks: [an independent
witness](scorecard/witness.md), the Horovod Timeline; [late timestamps](scorecard/late-timestamps.md)
of the recorder; how soon [a rise of the step time](scorecard/rise.md) is found; and
[projections](scorecard/projections.md) to more ranks.

## Missed targets

{missed}

Each page gives the reasons of its misses.

## Limits

- Simulated noise is lognormal, has one correlation for all stages, and is independent between ranks.
  Real noise has more shapes. The real half is small: few ranks, one machine, no GPU, no fast network.
- A rank that is late only for an early bucket of gradients looks like a slow network. No rank is named
  for it, and the time counts as allreduce.
- Baselines are of the same job. Comparisons with another batch size, model or machine are not scored;
  the report lists such differences.
"""

#: Titles of the pages, by file name.
GROUPS = {
    "fixes": "Fixes",
    "ranks": "Real ranks",
    "frameworks": "Frameworks",
    "hangs": "Hangs",
    "hosts": "Slow hosts",
    "simulated": "Simulated runs",
}

TARGETS = """\
# Scorecard: all targets

This page lists every target of the [scorecard](../scorecard.md) and its result. Faults of {percent} %
of the step or more. Simulated runs have {steps} steps and noise up to {cv:g} %.

{bars}

## How to make these pages

`make scorecard` trains and simulates everything (hours of one core), then writes these pages. It
continues where it was interrupted, and repeats only what a change of the code affects. `make
scorecard ARGS=--quick` prints a small simulated grid in a few minutes and leaves the pages unchanged.
The JSON files here have the figures of all cells. Seeds are fixed: the simulated half is the same on
every machine.

Made with {versions}.
"""

SIMULATED = """\
# Scorecard: simulated runs

This page shows how often the analysis is right on {runs:,} simulated runs with faults of known size.
The [summary](../scorecard.md) has the targets.

*Noise* is the coefficient of variation of every stage from step to step; each step's noise is
correlated with that of the step before (φ = .5 unless stated otherwise). A *cell* is one kind of run,
simulated many times. A target is met if every cell meets it. For false alarms and intervals, a cell
fails if it misses the target by more than chance (1 %).
"""

COMPARISON = """\
## Comparison with separate logs

Faults of {percent} % of the step or more, {steps} steps, noise up to {cv:g} %. The same runs, read
without joining the ranks' logs:

{summary}

- **Own log**: each rank's log is compared with the same rank's baseline; the stage that has grown
  most is the cause. In the log of a rank that waits for another, waiting looks like a slow network. So
  only the slow rank's log is right, and nothing shows which log that is.
- **Latest arrival**: the rank that is last most often, in more than twice its share of steps, is the
  straggler. But every step of a healthy run has a last rank, too, and a fault on all ranks has no
  straggler.

Both readings are made for this scorecard, from the same aligned logs and baselines as the analysis. A
careful reader of single logs does better.
"""

MISSES = "## Missed targets, and why"

POWER = """\
## Detection by size, noise and ranks

The share of runs with cause and rank right, by size of the fault in % of the clean step. An answer is
right in these cases:

- One rank: exactly that rank is named, with its stage.
- All ranks: no rank is named, and the injected stage exceeds its baseline most, by more than chance.
- Another rank in every step, drawn at random: no rank is named, and that stage is reported as varying
  from step to step.
"""

POWER_KINDS = {
    "one": "**One rank**, all stages",
    "all": "**All ranks**, all stages",
    "compute": "**Another rank in every step**, compute, which is 150 of 180 ms and as noisy",
    "rest": "**Another rank in every step**, input and other, which are 4 and 6 ms",
}

SIZES = "**Size**, found / injected: the range of the cells' medians, noise up to {cv:g} %"

VERDICTS = """\
**Verdict**: how often it names the fault, if the fault costs at least 1.25 times as much as exposed
allreduce (20 ms). For smaller faults another verdict, or `balanced`, is right."""

LENGTHS = """\
## Length of the run, and correlated noise

8 ranks, noise 10 %, faults in input and compute. φ is the correlation of a step's noise with that of
the step before: the autocorrelation time is 3 steps at .5 and 19 steps at .9.
"""

CLEAN = """\
## Clean runs

No rank should be named.
"""

PATTERNS = """\
## Bursts, ramps, hosts, two at once, uneven work

*Ranks right*: exactly the ranks and hosts that were made slow are named. The next columns also require
their stages and their pattern.
"""

HIDDEN = """\
Of two slow ranks, the less slow one hides behind the other if it is hardly ever last: in under 2 % of
the steps. The analysis told that right in {right} of the runs with two.
"""

REAL = """\
# Scorecard: real Horovod ranks

This page shows how often the analysis is right on TensorFlow-Keras and PyTorch under `horovodrun`
over Gloo, on {cores} cores. A rank sleeps or spins in one of its stages and measures how long; that
is the truth. The baseline is the same training on synthetic data, minutes before. The noise comes
from the machine. The [summary](../scorecard.md) has the targets.
"""

NOT_REAL = """\
# Scorecard: real Horovod ranks

Not trained yet. `make scorecard` trains them where there is a training environment.
"""

COVERAGE = """\
## Coverage of intervals

The share of runs whose 95 % interval contains the job's mean step. *Without*: runs without an
interval, because they have too few independent steps.
"""

GAINS = """\
## Predicted gains in simulated runs

The truth is the same job without the fault, simulated again from the same random numbers. The bound
for allreduce is compared with the true transfer. Coverage of the interval:
"""

GAIN_ERRORS = """\
Errors of gains, in % of step time: median / 95th percentile of runs.
"""

ROBUSTNESS = """\
## Bad clocks, lost rows, uneven rings

Noise 5 %. *Right*: no rank named without a fault, cause and rank right with one. *Off by*: mean
error of exposed allreduce.

{table}

Allreduce comes out too large in two cases. Skew of a ring between hosts cannot be told from an
offset of their clocks. Where the slow rank's rows are missing, waiting for it cannot be told from the
transfer.
"""

NO_HANGS = """\
# Scorecard: hangs

No job that hangs has been scored yet: run `make hangs`.
"""

HANGS = """\
# Scorecard: hangs

This page shows how a job that hangs is found, in {runs} trainings on 2 and 4 ranks that share {cores}
cores. Some run on one host, and some on a host per rank. These hosts are namespaces of one machine:
each has its own network, processes and clocks, and they reach each other by real ssh. In most runs
something happens to one rank: the rank, the step and what happens are random. The logs and the
launcher's output are read twice a second, as `stallscope watch` does. The [summary](../scorecard.md)
has the other targets.
"""

HOW_HANGS = """\
## How it is scored

Time counts from the moment before the rank hangs, as that rank notes it. *Seen*: the report says
that the job hangs. *Named*: the rank is among those that the others wait for. A run is right if that
rank alone is named at the end, in its stage, and no other rank at any time. A rank that is killed or
suspended, or loses its host, describes no stage; the report says that its log has stopped.

The recorder reports a step that has taken 5 s and ten times as long as usual. It writes once a second.

`make hangs` trains all of this, in about 40 minutes of two cores. It continues where it was
interrupted. [hangs.json](hangs.json) has every run.
"""

NO_HOSTS = """\
# Scorecard: slow hosts

No slow host has been scored yet: run `make hosts`.
"""

HOSTS = """\
# Scorecard: slow hosts

This page shows how a slow host is found and explained, in {runs} trainings with a rank on each of 2
to 4 hosts. These are namespaces of one machine with {cores} cores: each has its own network,
processes, clocks and control groups, and they reach each other by real ssh. In most runs something is
wrong with one host: which host, what and how much are random. The [summary](../scorecard.md) has the
other targets.
"""

HOW_HOSTS = """\
## How it is scored

A slow host is right if its rank (or the host) is the verdict's, and no other one. The first reason in
`bottleneck.why` must be what was done to the host: throttling, cores that other processes take, the
disk, or memory. A slow link is right if the verdict's cause is `network` and its host is named. The
clocks of hosts are a day apart. If one of them is also wrong and too fast, by `faketime`, its ranks
read the true clock by a system call before and after training, and the error is the mean over the
steps. Hosts share this machine's disk and cores, so figures of whole hosts are the same for all of
them and explain nothing here. The tests for bursts and for reasons of short runs were changed after
misses of these very runs: before, 97.0 % of ranks and 92.5 % of first reasons were right.

`make hosts` trains all of this, in about 70 minutes. It continues where it was interrupted.
[hosts.json](hosts.json) has every run.
"""

NO_FRAMEWORKS = """\
# Scorecard: frameworks

No framework has been scored yet: run `make frameworks`.
"""

FRAMEWORKS = """\
# Scorecard: frameworks

This page shows how each recorder finds a slow rank, in {runs} trainings on 2 and 4 ranks that share
{cores} cores, with gloo. In most of them one rank has a slow loader or a slow backward pass, by 30 or
100 % of the clean step. The rank is random, and measures the fault itself. A step computes little and
waits for a simulated device. The baseline is the same training without a fault. The
[summary](../scorecard.md) has the other targets.
"""

FRAMEWORK_COLUMNS = """\
*Right*: this rank alone is named, with this stage. *Size*: the median of found / injected. *Verdict
right*: that rank and stage are the report's first answer; only runs whose fault costs clearly more
than allreduce count.

With JAX no rank is named, by design: its compiled step hides where a rank's compute ends and where
its waiting begins. There, a run is right if no rank is named, and the slow rank's input is within
10 % of the truth.

The two clean runs of a launch differ by {drift}, because of other work on the machine.
"""

FRAMEWORK_GAINS = """\
## Step time after the fix

The step time without the fault, as predicted from the faulty run and its baseline, against the clean
run of the same launch. *Error* and *holds* are as for [fixes](fixes.md), but these trainings do not
take turns: the changes of the machine are in the errors. No prediction can be closer than the clean
runs are to each other.
"""

OTHER_VERDICTS = """\
Runs with the rank and stage right, but another first answer:
"""

HOW_FRAMEWORKS = """\
## How it is scored

The rules are those of [real ranks](ranks.md). `make frameworks` trains all of this, in about 40
minutes, in the environments of `make keras3-env` and `make ray-env`. It continues where it was
interrupted. [frameworks.json](frameworks.json) has every run.
"""
