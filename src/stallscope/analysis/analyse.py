"""Analyse a run: align its ranks, build the ledger, find stragglers and gains, reach a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stallscope.arrays.stats import Mean
from stallscope.run import Run

from .advice import advise
from .findings import by_severity, find
from .findings.clocks import clock_findings
from .findings.finding import Finding
from .findings.input_imbalance import ranks_starve_in_turn
from .findings.loader_rates import input_too_slow_alone, loader_rate_sentence, stage_times
from .findings.rank_0 import rank_0_extra_work
from .findings.slow_steps import step_findings
from .gains.attribution import Attribution, attribute
from .gains.baseline import (
    BaselineMatch,
    Decomposition,
    decompose,
    match_baseline,
    match_single,
)
from .gains.bottleneck import Bottleneck
from .gains.input_times import InputRates, input_rates
from .gains.verdict import ComparableRuns, decide, without_steps
from .ledger.change_points import ChangePoint, change_points
from .ledger.entries import CauseEntry, LedgerEntry, cause_entries, ledger_entries
from .ledger.epochs import EpochTimes, epoch_times, samples_of_all_ranks
from .ledger.figures import (
    Coverage,
    StepTime,
    clock_summary,
    count_epochs,
    coverage,
    lacks_most,
    rank_summaries,
    step_time,
    throughput,
    throughput_gap,
)
from .ledger.generations import Generations
from .ledger.job_time import job_time
from .ledger.ledger import Ledger
from .ledger.sampled import unlike_the_rest
from .network.communication import Communication, communication
from .result import Analysis
from .settings.cores import CoreUse
from .settings.setup import Setup
from .steps.clocks import ClockSummary


def analyse(
    run: Run,
    baseline: Run | Analysis | None = None,
    single: Run | Analysis | None = None,
    network_bandwidth: float | None = None,
) -> Analysis:
    """Analyse a run.

    Args:
        run: the run.
        baseline: the same job on synthetic data; an analysis of it can be shared by many runs.
        single: the same job on synthetic data and one rank, likewise.
        network_bandwidth: the network's known bus bandwidth, GB/s.
    """
    # Align the ranks' clocks and build the ledger of steady steps.
    generations = Generations.of(run)
    steady = generations.steady
    references = _References.of(run, steady, baseline, single)
    # Find stragglers and predict the gains of fixes.
    attribution = _attribution(run, generations, references.comparable)
    figures = _Figures.of(run, generations, references, attribution, network_bandwidth)
    # Reach a verdict, and find further problems.
    verdict = _verdict(run, steady, attribution, references.comparable, figures)
    findings = _findings(run, steady, references, attribution, figures, verdict)
    analysis = _result(run, generations, references, attribution, figures, verdict, findings)
    times = epoch_times(run)
    return analysis if times is None else _of_epochs(analysis, times)


@dataclass(frozen=True)
class _References:
    """The analyses of a run's baselines, and how far they are comparable with the run."""

    baseline: Analysis | None
    #: The baseline on one rank.
    single: Analysis | None
    match: BaselineMatch | None
    single_match: BaselineMatch | None
    comparable: ComparableRuns

    @classmethod
    def of(
        cls,
        run: Run,
        steady: Ledger | None,
        baseline: Run | Analysis | None,
        single: Run | Analysis | None,
    ) -> _References:
        """Analyse the baselines, and compare their facts with the run's.

        Only baselines of the same job are comparable: other jobs predict nothing about this one.
        """
        base, one_rank = _analysed(baseline), _analysed(single)
        match = None if base is None else match_baseline(run, base.run)
        single_match = None if one_rank is None else match_single(run, one_rank.run)
        same_job = _steady_if_same_job(base, match)
        if same_job is not None and (steady is None or same_job.ranks != steady.ranks):
            same_job = None
        comparable = ComparableRuns(same_job, _steady_if_same_job(one_rank, single_match))
        return cls(base, one_rank, match, single_match, comparable)


def _analysed(run: Run | Analysis | None) -> Analysis | None:
    return analyse(run) if isinstance(run, Run) else run


def _steady_if_same_job(reference: Analysis | None, match: BaselineMatch | None) -> Ledger | None:
    same = reference is not None and match is not None and not match.differs
    return reference.steady if reference is not None and same else None


def _attribution(
    run: Run, generations: Generations, comparable: ComparableRuns
) -> Attribution | None:
    """Find stragglers and the gains of fixes; None without steady steps."""
    world, steady = generations.last_world, generations.steady
    if world is None or steady is None:
        return None
    # Arrivals on one clock need no completions to align, so they hide no lateness.
    blind_ns = world.clocks.skew if len(world.clocks.names) > 1 else 0.0
    return attribute(steady, world.hosts, comparable.baseline, blind_ns, CoreUse.of(run))


@dataclass(frozen=True)
class _Figures:
    """Figures of the steps from which the verdict and findings are derived; None if unknown."""

    step: StepTime | None
    samples_per_second: float | None
    communication: Communication | None
    input_rates: InputRates | None
    clocks: ClockSummary | None
    changes: tuple[ChangePoint, ...]

    @classmethod
    def of(
        cls,
        run: Run,
        generations: Generations,
        references: _References,
        attribution: Attribution | None,
        network_bandwidth: float | None,
    ) -> _Figures:
        steady, step = generations.steady, step_time(generations)
        samples_per_second = throughput(run, steady, step)
        return cls(
            step,
            samples_per_second,
            _communication(run, steady, network_bandwidth),
            _input_rates(run, samples_per_second, references.baseline, attribution),
            clock_summary(generations.last_world),
            () if steady is None else change_points(steady),
        )


def _communication(
    run: Run, steady: Ledger | None, network_bandwidth: float | None
) -> Communication | None:
    if steady is None or run.missing_ranks:
        return None
    return communication(steady, run.size, run.fact("gradient_bytes"), network_bandwidth)


def _input_rates(
    run: Run,
    samples_per_second: float | None,
    baseline: Analysis | None,
    attribution: Attribution | None,
) -> InputRates | None:
    same_size = baseline is not None and baseline.run.size == run.size
    synthetic = baseline.samples_per_second if baseline is not None and same_size else None
    gains = () if attribution is None else attribution.gains
    return input_rates(run, samples_per_second, synthetic, gains)


def _verdict(
    run: Run,
    steady: Ledger | None,
    attribution: Attribution | None,
    comparable: ComparableRuns,
    figures: _Figures,
) -> Bottleneck:
    """Return the verdict with its advice."""
    if steady is None or attribution is None:
        return Bottleneck(
            "insufficient_data",
            None,
            f"The stages of the steps were not measured: {_why_not_measured(run)}.",
        )
    if run.one_log_of_many:
        return Bottleneck(
            "insufficient_data",
            None,
            f"Only rank {run.ranks[0]}'s log is here; {run.size} ranks trained. The other logs were not "
            "recorded or not collected. Waiting for another rank and slow communication look the same "
            "in one log.",
        )
    verdict = decide(steady, attribution, run, comparable)
    rates = figures.input_rates
    if verdict.kind == "input" and rates is not None:
        evidence = f"{verdict.evidence} {loader_rate_sentence(rates)}".rstrip()
        verdict = replace(verdict, evidence=evidence)
    times = stage_times(rates)
    advice = advise(run, verdict, steady, attribution, figures.communication, times)
    return replace(verdict, advice=advice)


def _why_not_measured(run: Run) -> str:
    if not run.rows:
        return "no step was recorded"
    timestamps = run.fact("stamps") or {}
    return timestamps.get("reason") or "no step has all of its timestamps on every rank"


def _findings(
    run: Run,
    steady: Ledger | None,
    references: _References,
    attribution: Attribution | None,
    figures: _Figures,
    verdict: Bottleneck,
) -> tuple[Finding, ...]:
    """Run all checks, on the logs and on the results of the analysis."""
    single = None if references.single is None else references.single.run
    found = [*find(run, references.baseline is not None, single=single)]
    if figures.clocks is not None:
        found += clock_findings(figures.clocks)
    if steady is not None:
        found += step_findings(steady, figures.changes, Setup.of(run))
    if attribution is not None and steady is not None and not run.one_log_of_many:
        found += rank_0_extra_work(attribution.stragglers)
        found += ranks_starve_in_turn(attribution.imbalance_from_input_ms, steady)
    found += input_too_slow_alone(figures.input_rates, Setup.of(run), verdict)
    return by_severity(found)


def _result(
    run: Run,
    generations: Generations,
    references: _References,
    attribution: Attribution | None,
    figures: _Figures,
    verdict: Bottleneck,
    findings: tuple[Finding, ...],
) -> Analysis:
    """Collect everything in an Analysis, with the tables that need no further computation."""
    steady, baseline, single = generations.steady, references.baseline, references.single
    # A single rank's log of many cannot show waiting for other ranks.
    waiting_known = not run.one_log_of_many
    shown = attribution if waiting_known else None
    entries, by_cause = _entries(steady, baseline, single, waiting_known)
    gap = _gap(run, figures, baseline)
    covered = coverage(run, generations)
    return Analysis(
        run=run,
        job=job_time(run, generations.worlds, generations.ledgers, generations.warm),
        step=figures.step,
        entries=entries,
        by_cause=by_cause,
        ranks=rank_summaries(generations, waiting_known),
        bottleneck=verdict,
        stragglers=() if shown is None else shown.stragglers,
        what_if=() if shown is None else shown.gains,
        predicted_from="run" if references.comparable.baseline is None else "baseline",
        findings=findings,
        warnings=_warnings(run, generations, covered, references),
        samples_per_second=figures.samples_per_second,
        epochs=count_epochs(generations.worlds),
        coverage=covered,
        clocks=figures.clocks,
        changes=figures.changes,
        communication=figures.communication,
        ledger=generations.ledger,
        warm_up=generations.warm_up,
        steady=steady,
        baseline=baseline,
        match=references.match,
        gap=None if gap is None else gap.value,
        gap_ci95=None if gap is None else gap.ci95,
        single=single,
        input_rates=figures.input_rates,
        decomposition=_decomposition(steady, baseline, single),
    )


def _entries(
    steady: Ledger | None,
    baseline: Analysis | None,
    single: Analysis | None,
    waiting_known: bool,
) -> tuple[tuple[LedgerEntry, ...], tuple[CauseEntry, ...]]:
    """Make the entries of both ledgers, compared with the baseline and the run on one rank."""
    if steady is None:
        return (), ()
    both = (baseline, single)
    of_base, of_single = (() if one is None else one.entries for one in both)
    causes_of_base, causes_of_single = (() if one is None else one.by_cause for one in both)
    return (
        ledger_entries(steady, of_base, of_single, waiting_known),
        cause_entries(steady, causes_of_base, causes_of_single, waiting_known),
    )


def _gap(run: Run, figures: _Figures, baseline: Analysis | None) -> Mean | None:
    """Return the fraction of the baseline's throughput that is lost; None between different sizes."""
    rate, step = figures.samples_per_second, figures.step
    if rate is None or step is None or baseline is None or baseline.step is None:
        return None
    if not baseline.samples_per_second or run.size != baseline.run.size:
        return None
    return throughput_gap(rate, step, baseline.samples_per_second, baseline.step)


def _decomposition(
    steady: Ledger | None, baseline: Analysis | None, single: Analysis | None
) -> Decomposition | None:
    if steady is None or baseline is None or baseline.steady is None:
        return None
    return decompose(steady, baseline.steady, None if single is None else single.steady)


def _warnings(
    run: Run, generations: Generations, covered: Coverage, references: _References
) -> tuple[str, ...]:
    """Return the run's problems, and everything that limits the analysis."""
    return (
        *map(str, run.problems),
        *_coverage_warnings(run, generations, covered),
        *_reference_warnings(references),
    )


def _coverage_warnings(run: Run, generations: Generations, covered: Coverage) -> Iterator[str]:
    if covered.complete + covered.partial and covered.unused:
        yield (
            f"{covered.unused} of {covered.steps} steps are not in the ledger: too many ranks lack "
            "timestamps in them, or the previous step is missing"
        )
    if covered.partial:
        rank, lacking = lacks_most(generations.ledgers)
        yield (
            f"in {covered.partial} of {covered.steps} steps a few ranks' timestamps are missing (rank "
            f"{rank}'s in {lacking}): waiting for these ranks counts as allreduce there"
        )
    if len(generations.worlds) > 1:
        yield (
            f"the run has {len(generations.worlds)} generations (restarts, or repeated steps); figures "
            "per rank are over those with the last one's ranks"
        )
    steady = generations.steady
    unlike = None if steady is None else unlike_the_rest(run, steady)
    if unlike is not None:
        yield unlike


def _reference_warnings(references: _References) -> Iterator[str]:
    match, single_match = references.match, references.single_match
    if match is not None and match.differs:
        yield "the baseline is another kind of run: " + "; ".join(match.differs)
    if references.baseline is not None and not references.baseline.run.synthetic:
        yield "the baseline was not recorded with synthetic=True"
    if single_match is not None and single_match.differs:
        yield "the run on one rank is another kind of run: " + "; ".join(single_match.differs)


def _of_epochs(analysis: Analysis, times: EpochTimes) -> Analysis:
    """Return the analysis of a run without steps; findings about steps do not apply."""
    return replace(
        analysis,
        bottleneck=without_steps(times),
        findings=(),
        samples_per_second=samples_of_all_ranks(analysis.run, times),
        epochs=len({(one.fit, one.epoch) for one in times.epochs}),
        epoch_times=times,
    )
