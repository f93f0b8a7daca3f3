"""Analyse a run: align its ranks, build the ledger, find stragglers and gains, reach a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from stallscope.arrays.stats import Mean
from stallscope.run import Run

from .advice.advise import advise, with_busy_cores, with_loader_reasons, with_slower_hosts
from .findings import by_severity, find
from .findings.finding import Finding
from .findings.imbalance import (
    input_too_slow_alone,
    loader_rate_sentence,
    longest_stage,
    rank_0_extra_work,
    ranks_starve_in_turn,
)
from .findings.log_quality import clock_findings
from .findings.slow_steps import step_findings
from .findings.step_causes import StepCauses, cause_findings, step_causes, with_step_causes
from .gains.attribution import Attribution, attribute
from .gains.baseline import (
    BaselineMatch,
    Decomposition,
    InputRates,
    baseline_warnings,
    decompose,
    input_rates,
    match_single,
    match_with_steps,
)
from .gains.input_probe import InputProbe, input_probe, with_measured_advice, with_measured_gains
from .gains.verdict import ComparableRuns, decide, fault_as_baseline, insufficient
from .gains.what_if import Bottleneck
from .ledger.by_generation import Generations
from .ledger.change_points import ChangePoint, change_points, since_last_rise
from .ledger.job_time import JobTime, generation_times, goodput, sum_of
from .ledger.ledger import CauseEntry, Ledger, LedgerEntry, cause_entries, ledger_entries
from .ledger.ledger_figures import (
    Coverage,
    StepTime,
    clock_summary,
    count_epochs,
    coverage,
    coverage_warnings,
    rank_summaries,
    step_time,
    throughput,
    throughput_gap,
    why_not_measured,
    why_one_log,
)
from .ledger.sampled import sampling_bias_warning
from .network.communication import Communication, communication
from .network.network_check import NetworkUse, network_sentence, network_use
from .other_logs import with_other_logs
from .reasons import may_have_reasons, with_reasons, with_slow_links
from .result import (
    Analysis,
    GenerationSummary,
    ended_by,
    lifetime,
    repeated_steps,
    run_of_generation,
    with_amounts,
)
from .setup import CoreUse, Setup
from .steps.clocks import ClockSummary
from .steps.links import slow_links
from .stopped.stopped import Stopped, find_stopped, stopped_verdict
from .symptoms import count


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
    base, one_rank = (
        analyse(reference) if isinstance(reference, Run) else reference
        for reference in (baseline, single)
    )
    analyser = _Analyser(run, base, one_rank, network_bandwidth)
    return with_amounts(with_other_logs(analyser.result()))


class _Judged(NamedTuple):
    """The steps on which the verdict rests, their stragglers and gains, and the verdict."""

    steps: Ledger
    attribution: Attribution
    verdict: Bottleneck


@dataclass(frozen=True)
class _Analyser:
    """The stages of one analysis, each computed once: figures, stragglers, gains, verdict, findings."""

    run: Run
    #: The analyses of the baselines: on as many ranks, and on one.
    baseline: Analysis | None
    single: Analysis | None
    network_bandwidth: float | None

    @cached_property
    def generations(self) -> Generations:
        """Align the ranks' clocks, and build the ledgers."""
        return Generations.of(self.run)

    @property
    def steady(self) -> Ledger | None:
        return self.generations.steady

    @cached_property
    def cores(self) -> CoreUse:
        return CoreUse.of(self.run)

    @cached_property
    def match(self) -> BaselineMatch | None:
        base = self.baseline
        if base is None:
            return None
        fault = fault_as_baseline(
            base.bottleneck, base.stragglers, base.step_ms, base.run.synthetic
        )
        return match_with_steps(
            self.run, self.steady, base.run, base.steady, fault, self.cores.shared
        )

    @cached_property
    def single_match(self) -> BaselineMatch | None:
        return None if self.single is None else match_single(self.run, self.single.run)

    @cached_property
    def comparable(self) -> ComparableRuns:
        """Select the baselines of the same job: others predict nothing about this one."""
        same, alone = (
            None if analysis is None or match is None or match.reasons else analysis.steady
            for analysis, match in ((self.baseline, self.match), (self.single, self.single_match))
        )
        if same is not None and (self.steady is None or same.ranks != self.steady.ranks):
            same = None
        return ComparableRuns(same, alone)

    @cached_property
    def attribution(self) -> Attribution | None:
        """Find stragglers and the gains of fixes; None without steady steps."""
        return None if self.steady is None else self._attribution_of(self.steady)

    def _attribution_of(self, steps: Ledger) -> Attribution | None:
        aligned = self.generations.last_aligned
        if aligned is None:
            return None
        blind_ns, base = aligned.clocks.blind, self.comparable.baseline
        which = aligned.stages, aligned.places, self.run.times_host_work
        predicted = attribute(steps, aligned.hosts, base, blind_ns, self.cores, *which)
        if self.input_probe is None or base is not None:
            return predicted
        return with_measured_gains(predicted, self.input_probe)

    @cached_property
    def input_probe(self) -> InputProbe | None:
        """Return what batches that were fetched ahead show; None without such batches."""
        return input_probe(self.run, self.generations)

    @cached_property
    def step(self) -> StepTime | None:
        return step_time(self.generations)

    @cached_property
    def samples_per_second(self) -> float | None:
        return throughput(self.run, self.steady, self.step)

    @cached_property
    def communication(self) -> Communication | None:
        if self.steady is None or self.run.unknown_ranks:
            return None
        size, gradient_bytes = self.run.size, self.run.fact("gradient_bytes")
        return communication(self.steady, size, gradient_bytes, self.network_bandwidth)

    @cached_property
    def network_use(self) -> NetworkUse | None:
        """Compare exposed allreduce with the speed of the network without training."""
        if not self.run.network_checks:
            return None
        known = not (self.run.unknown_ranks or self.run.times_host_work) and self.run.size > 1
        exposed_ms = self.steady.mean_ms("allreduce") if self.steady is not None and known else None
        return network_use(self.run, exposed_ms)

    @cached_property
    def input_rates(self) -> InputRates | None:
        base = self.baseline
        same_size = base is not None and base.run.size == self.run.size
        synthetic = base.samples_per_second if base is not None and same_size else None
        gains = () if self.attribution is None else self.attribution.gains_in_turn
        return input_rates(self.run, self.samples_per_second, synthetic, gains)

    @cached_property
    def step_causes(self) -> StepCauses:
        return step_causes(self.run, self.generations) if self.waiting_known else StepCauses()

    @cached_property
    def clocks(self) -> ClockSummary | None:
        return clock_summary(self.generations.last_aligned)

    @cached_property
    def changes(self) -> tuple[ChangePoint, ...]:
        return () if self.steady is None else change_points(self.steady)

    @cached_property
    def coverage(self) -> Coverage:
        return coverage(self.run, self.generations)

    @cached_property
    def times(self) -> list[JobTime]:
        """Split the time of the job by generation."""
        stands_still = 0.0 if self.stopped is None else self.stopped.seconds
        return generation_times(self.run, self.generations, stands_still)

    @cached_property
    def stopped(self) -> Stopped | None:
        return find_stopped(self.run)

    @cached_property
    def judged(self) -> _Judged | None:
        """Decide on all steady steps; where they show no fault, on those since they became slower."""
        steady, attribution = self.steady, self.attribution
        if steady is None or attribution is None:
            return None
        verdict = decide(steady, attribution, self.run, self.comparable)
        lately = None if verdict.fault else since_last_rise(steady, self.changes)
        of_lately = None if lately is None else self._attribution_of(lately)
        if lately is not None and of_lately is not None:
            since = decide(lately, of_lately, self.run, self.comparable)
            if since.fault:
                step = int(lately.steps[0])
                evidence = f"Since step {step}: {since.evidence}"
                since = replace(since, evidence=evidence, since_step=step)
                return _Judged(lately, of_lately, since)
        return _Judged(steady, attribution, verdict)

    @cached_property
    def verdict(self) -> Bottleneck:
        """Return the verdict, with advice and reasons."""
        if self.stopped is not None and self.stopped.is_fault:
            return stopped_verdict(self.stopped)
        run, rates = self.run, self.input_rates
        if self.steady is None or self.judged is None:
            return insufficient(
                f"the stages of the steps were not measured: {why_not_measured(run)}"
            )
        if run.one_log_of_many:
            return insufficient(why_one_log(run, self.steady))
        steady, attribution, verdict = self.judged
        if verdict.kind == "input" and rates is not None:
            evidence = f"{verdict.evidence} {loader_rate_sentence(rates)}".rstrip()
            verdict = replace(verdict, evidence=evidence)
        if verdict.kind == "allreduce" and self.network_use is not None:
            evidence = f"{verdict.evidence} {network_sentence(self.network_use)}"
            verdict = replace(verdict, evidence=evidence)
        proposed = None if rates is None else rates.proposed
        known = self.communication, self.network_use, longest_stage(rates), proposed
        advice = advise(run, verdict, steady, attribution, *known)
        verdict = replace(verdict, advice=advice)
        verdict = with_loader_reasons(verdict, run, steady, proposed)
        verdict = with_busy_cores(verdict, run, steady)
        verdict = with_slower_hosts(verdict, run, self.steady, self.changes)
        if self.input_probe is not None:
            verdict = with_measured_advice(verdict, attribution, self.input_probe.real_ms)
        verdict = with_slow_links(verdict, slow_links(self.generations.links))
        aligned = self.generations.last_aligned
        events = count(run, aligned, steady) if aligned and may_have_reasons(verdict) else None
        if events is not None:
            verdict = with_reasons(verdict, events, attribution.stragglers, steady)
        return with_step_causes(verdict, self.step_causes)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Run all checks, on the logs and on the results of the analysis."""
        run, steady, setup = self.run, self.steady, Setup.of(self.run)
        single = None if self.single is None else self.single.run
        is_measured = self.input_probe is not None and not self.input_probe.is_unsure
        findings = list(find(run, self.baseline is not None, is_measured, single=single))
        if self.clocks is not None:
            findings += clock_findings(self.clocks)
        if steady is not None:
            findings += step_findings(steady, self.changes, setup)
        if self.judged is not None and not run.one_log_of_many:
            attribution = self.judged.attribution
            findings += rank_0_extra_work(attribution.stragglers)
            findings += ranks_starve_in_turn(attribution.imbalance_from_input_ms, self.judged.steps)
        findings += input_too_slow_alone(self.input_rates, setup, self.verdict)
        findings += cause_findings(self.step_causes, self.verdict)
        return by_severity(findings)

    def summaries(self) -> tuple[GenerationSummary, ...]:
        """Summarise each generation; one of several is analysed on its own."""
        aligned = self.generations.aligned
        return tuple(
            self._summary(
                index, self._of_generation(steps.generation) if len(aligned) > 1 else self
            )
            for index, steps in enumerate(aligned)
        )

    def _of_generation(self, number: int) -> _Analyser:
        run = run_of_generation(self.run, number)
        return _Analyser(run, self.baseline, self.single, self.network_bandwidth)

    def _summary(self, index: int, analyser: _Analyser) -> GenerationSummary:
        generations, judged = self.generations, analyser.judged
        aligned = generations.aligned[index]
        began, ended = lifetime(generations, index)
        entries, by_cause = analyser.entries
        return GenerationSummary(
            number=aligned.generation,
            size=self.run.size_of(aligned.generation),
            hosts=aligned.hosts,
            started_at=began,
            ended_at=ended,
            steps=len(aligned.steps),
            repeated_steps=repeated_steps(generations, index),
            ended_by=ended_by(self.run, generations.aligned, index, self.stopped is not None),
            step=analyser.step,
            entries=entries,
            by_cause=by_cause,
            bottleneck=analyser.verdict,
            stragglers=judged.attribution.stragglers
            if judged is not None and analyser.waiting_known
            else (),
            findings=analyser.findings,
            changes=analyser.changes,
        )

    def result(self) -> Analysis:
        """Collect everything in an Analysis, with the tables that need no further computation."""
        run, generations, steady = self.run, self.generations, self.steady
        judged = self.judged if self.waiting_known else None
        shown = None if judged is None else judged.attribution
        entries, by_cause = self.entries
        gap = self._gap()
        return Analysis(
            run=run,
            job=sum_of(self.times),
            goodput=goodput(run, generations, self.times),
            generations=self.summaries(),
            step=self.step,
            entries=entries,
            by_cause=by_cause,
            ranks=rank_summaries(generations, self.waiting_known),
            bottleneck=self.verdict,
            stopped=self.stopped,
            stragglers=() if shown is None else shown.stragglers,
            what_if=() if shown is None else shown.gains,
            predicted_from="run" if self.comparable.baseline is None else "baseline",
            findings=self.findings,
            warnings=(*map(str, run.problems), *self._warnings()),
            samples_per_second=self.samples_per_second,
            epochs=count_epochs(generations.aligned),
            coverage=self.coverage,
            clocks=self.clocks,
            changes=self.changes,
            communication=self.communication,
            links=generations.links,
            network_use=self.network_use,
            ledger=generations.ledger,
            warm_up=generations.warm_up,
            steady=steady,
            baseline=self.baseline,
            match=self.match,
            gap=None if gap is None else gap.value,
            gap_ci95=None if gap is None else gap.ci95,
            single=self.single,
            input_rates=self.input_rates,
            input_probe=self.input_probe,
            step_causes=self.step_causes,
            decomposition=self._decomposition(),
        )

    @property
    def waiting_known(self) -> bool:
        """Whether waiting shows: it does not in a single rank's log of many."""
        return not self.run.one_log_of_many

    @cached_property
    def entries(self) -> tuple[tuple[LedgerEntry, ...], tuple[CauseEntry, ...]]:
        """Make the entries of both ledgers, compared with the baseline and the run on one rank."""
        if self.steady is None:
            return (), ()
        baselines = (self.baseline, self.single)
        of_base, of_single = (
            () if baseline is None else baseline.entries for baseline in baselines
        )
        causes_of_base, causes_of_single = (
            () if baseline is None else baseline.by_cause for baseline in baselines
        )
        return (
            ledger_entries(self.steady, of_base, of_single, self.waiting_known),
            cause_entries(self.steady, causes_of_base, causes_of_single, self.waiting_known),
        )

    def _gap(self) -> Mean | None:
        """Return the fraction of the baseline's throughput that is lost; None between sizes."""
        base, rate = self.baseline, self.samples_per_second
        if base is None or self.run.size != base.run.size:
            return None
        return throughput_gap(rate, self.step, base.samples_per_second, base.step)

    def _decomposition(self) -> Decomposition | None:
        base, single = self.baseline, self.single
        if self.steady is None or base is None or base.steady is None:
            return None
        return decompose(self.steady, base.steady, None if single is None else single.steady)

    def _warnings(self) -> Iterator[str]:
        """Warn about everything that limits the analysis."""
        steady = self.steady
        yield from coverage_warnings(self.run, self.coverage, self.generations)
        if self.verdict.since_step is not None:
            yield (
                "the verdict, slow ranks and gains are those of the steps since step "
                f"{self.verdict.since_step}, at which steps became slower for good"
            )
        bias = None if steady is None else sampling_bias_warning(self.run, steady)
        if bias is not None:
            yield bias
        base = None if self.baseline is None else self.baseline.run
        yield from baseline_warnings(base, self.match, self.single_match)
