"""Conditions as users type them, evaluated on runs."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import simulator
from simulator import Fault, Job, Noise

from stallscope.analysis import Analysis, analyse
from stallscope.conditions.condition import Outcome, parse
from stallscope.conditions.quantities import LogProgress
from stallscope.parsers import read

#: Its input takes 44 ms in a step of about 225 ms, the baseline's 1 ms.
SLOW_INPUT = Job(ranks=2, steps=300, faults=[Fault("input", 40)], noise=Noise(cv=0.05))


@cache
def slow_input(baseline: bool = True, baseline_ranks: int = 2) -> Analysis:
    base = simulator.simulate(SLOW_INPUT.baseline(baseline_ranks)).run if baseline else None
    return analyse(simulator.simulate(SLOW_INPUT).run, base)


@cache
def without_timestamps() -> Analysis:
    return analyse(simulator.simulate(replace(SLOW_INPUT, stamps=False)).run)


def check(text: str, analysis: Analysis | None = None) -> Outcome:
    return parse(text).check(analysis or slow_input())


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("input.excess>10%", True),
        ("input.excess > 40 %", False),
        ("10%<input.excess", True),
        ("samples_per_second<0.9*baseline", True),
        ("0.9*baseline>samples_per_second", True),
        ("samples_per_second<0.5*baseline", False),
        ("step_ms.p99>2*step_ms.p50", False),
        ("step_ms.p99>step_ms.p50", True),
        ("step_ms.mean > 110 % * baseline", True),
        ("imbalance.share>=0.5", False),
        ("gap>10%", True),
        ("what_if.input.speedup>1.1", True),
        ("what_if.input.saved_ms>10", True),
        ("what_if.imbalance.speedup>1.1", False),
        ("what_if.rank:1.speedup>1.1", False),
        ("what_if.'host:host-0'.speedup>1.1", False),
        ("bottleneck=='input'", True),
        ('bottleneck!="input"', False),
        ("bottleneck.cause=='input'", True),
        ("bottleneck=input and fault=yes", True),
        ("bottleneck.fault=no", False),
        ("by_cause.input.ms>20", True),
        ("bottleneck.cause=network or bottleneck.cause=cores", False),
        ("findings.error>0", False),
        ("size==2 and steps.total==300", True),
        ("not size==2 or gap>10%", True),
        ("not (size==2 and gap>10%)", False),
        ("input.ms>0.03s", True),
        ("input.excess_ms>0.1*step_ms.mean", True),
        ("2*input.excess>10*gap", False),
        ("-1*input.excess<-10%", True),
        ("job_s.total>1", True),
        ("job_s.total>1h", False),
        ("status=='completed'", True),
        ("bottleneck=input and status != open", True),
        ("input==bottleneck", True),
        ("bottleneck!=bottleneck.cause", False),
        ("bottleneck~NPU", True),
        ("bottleneck~'compute'", False),
        ("verdict=input and cause=input", True),
        ("ranks=2 and steps=300 and not baseline.ranks=3", True),
        ("input>10% and compute<90%", True),
        ("step_ms>1.1*baseline", True),
        ("job_s.total<1d", True),
        ("stopped", False),
        ("not stopped and size=2", True),
        ("stopped.seconds>60", False),
        ("stopped.seconds=0", True),
    ],
)
def test_conditions_hold_or_not(text: str, held: bool) -> None:
    assert check(text).held is held


def test_the_outcome_shows_the_numbers() -> None:
    explanation = check("input.excess>10%").why
    entry, step = slow_input().cause("input"), slow_input().step
    assert entry is not None
    assert entry.excess_ms is not None
    assert step is not None
    share = f"{entry.excess_ms / step.mean:.1%}"
    assert explanation.startswith(f"input.excess is {share} (")
    assert explanation.endswith("), over 10%")
    assert check("job_s.total>1000").why.endswith("not over 1000 s")
    assert check("bottleneck=='imbalance'").why == "bottleneck is 'input', not 'imbalance'"
    assert check("verdict~put").why == "verdict is 'input', with 'put'"
    assert check("verdict~balance").why == "verdict is 'input', without 'balance'"
    times = check("samples_per_second<0.9*baseline").why
    assert "under 0.9*baseline.samples_per_second, which is " in times


def test_the_largest_part_of_a_healthy_step_is_no_fault() -> None:
    healthy = analyse(simulator.simulate(replace(SLOW_INPUT, faults=[])).run)
    kind = healthy.bottleneck.kind
    assert check(f"bottleneck={kind}", healthy).held is True
    assert check(f"bottleneck={kind} and fault=yes", healthy).held is False
    assert check("fault=no", healthy).held is True


def _stopped() -> Analysis:
    fact = {
        "step": 300,
        "since_us": 0,
        "seen_us": 90_000_000,
        "usual_us": 225_000,
        "reached": "ready",
    }
    run = simulator.simulate(SLOW_INPUT).run
    logs = (replace(log, facts={**log.facts, "in_flight": fact}, ended=False) for log in run.logs)
    return analyse(replace(run, logs=tuple(logs)))


def test_a_stop_is_a_condition_by_itself() -> None:
    outcome = check("stopped", _stopped())
    assert outcome.held is True
    assert outcome.why.startswith("No step has finished for 90 s, since step 300. All ranks")
    assert not outcome.why.endswith(".")
    assert check("surely(stopped) and bottleneck=stopped", _stopped()).held is True
    assert check("stopped.seconds>60", _stopped()).why == "stopped.seconds is 90.0 s, over 60 s"
    assert check("stopped.seconds>2min", _stopped()).held is False


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("stopped", True),
        ("not stopped or stopped.seconds>1", True),
        ("stopped and size>1", False),
        ("bottleneck=stopped", False),
    ],
)
def test_conditions_report_whether_they_need_the_analysis(text: str, alone: bool) -> None:
    assert parse(text).needs_analysis is not alone


def test_without_an_analysis_its_figures_are_unknown() -> None:
    outcome = parse("size>1 and not stopped").check_progress(LogProgress(None))
    assert (outcome.held, outcome.why) == (
        None,
        "size is not known: it needs the analysis of the run",
    )


def test_input_of_one_slow_rank_is_input_although_the_others_only_wait() -> None:
    job = Job(ranks=4, steps=300, faults=[Fault("input", 100, ranks=[2])], noise=Noise(cv=0.05))
    analysis = analyse(simulator.simulate(job).run, simulator.simulate(job.baseline()).run)
    cause, reference, waiting = (
        analysis.cause("input"),
        analysis.entry("input"),
        analysis.entry("imbalance"),
    )
    assert cause is not None
    assert reference is not None
    assert waiting is not None
    assert cause.share > 0.3 > 0.05 > reference.share
    for name, share in (("input", cause.share), ("imbalance", waiting.share)):
        says = check(f"{name}.share>0.2", analysis).why
        assert says.startswith(f"{name}.share is {share:.1%} "), says
    assert check("surely(input.excess>20%)", analysis).held
    assert check("input.excess_ms>90", analysis).held


def test_the_outcome_shows_the_deciding_parts() -> None:
    why = check("size==2 and size>5").why
    assert why == "size is 2, not over 5"
    assert check("size==2 and size>1").why == "size is 2, as much as 2; size is 2, over 1"
    assert check("size==2 or size>5").why == "size is 2, as much as 2"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("input.excess>20%", "there is no baseline; --baseline names one"),
        ("gap>20%", "there is no baseline; --baseline names one"),
        ("samples_per_second<0.9*baseline", "there is no baseline; --baseline names one"),
        ("what_if.rank:9.speedup>1", "the run has no log of rank 9"),
        ("what_if.'host:no.where'.speedup>1", "the run has no log of host no.where"),
        ("what_if.ranks:64.speedup>1", "it was not computed; add --what-if ranks:64"),
        ("what_if.compute.speedup>1", "it needs a baseline of the same job (--baseline)"),
        ("epoch_times.mean_s>1", "only logs that know epochs and no steps have it"),
    ],
)
def test_the_outcome_says_what_is_missing_and_why(text: str, why: str) -> None:
    outcome = check(text, slow_input(baseline=False))
    assert outcome.held is None
    assert outcome.why.endswith(f"is not known: {why}")


def test_stages_that_were_not_measured_decide_nothing() -> None:
    for text in ("input.share>0", "what_if.input.speedup>0", "bottleneck=='input'", "changes>0"):
        outcome = check(text, without_timestamps())
        assert outcome.held is None, text
        assert "the stages of the steps were not measured" in outcome.why, text
    assert check("bottleneck=='insufficient_data'", without_timestamps()).held
    assert check("step_ms.mean>100ms", without_timestamps()).held


def test_logs_of_epochs_decide_conditions_on_epochs() -> None:
    (run,) = read(str(Path(__file__).parents[1] / "parsers" / "printed" / "tf-2.15-verbose-2.txt"))
    epochs = analyse(run)
    assert check("epoch_times.mean_s<1 and epochs>1", epochs).held is True
    for text in (
        "size>0",
        "job_s.total>0",
        "input.share>0",
        "step_ms.mean>0",
        "bottleneck=='input'",
    ):
        assert check(text, epochs).held is None, text


def test_throughput_of_a_baseline_of_another_size_is_not_compared() -> None:
    outcome = check("samples_per_second<0.9*baseline", slow_input(baseline_ranks=4))
    assert outcome.held is None
    assert outcome.why.endswith("the baseline ran on 4 ranks and this run on 2")


def test_logic_with_unknown_values() -> None:
    alone = slow_input(baseline=False)
    assert check("gap>10% and size==3", alone).held is False
    assert check("gap>10% and size==2", alone).held is None
    assert check("gap>10% or size==2", alone).held is True
    assert check("gap>10% or size==3", alone).held is None
    assert check("not gap>10%", alone).held is None


def test_a_product_that_is_too_large_is_unknown() -> None:
    outcome = check("1e308*step_ms.mean>1")
    assert (outcome.held, outcome.why) == (None, "1e+308*step_ms.mean is too large")


def _with_step(low: float, mean: float, high: float) -> Analysis:
    analysis = slow_input()
    assert analysis.step is not None
    return replace(analysis, step=replace(analysis.step, mean=mean, ci95=(low, high)))


def test_a_condition_within_the_interval_is_marked_and_holds_by_the_estimate() -> None:
    outcome = check("step_ms.mean>200ms", _with_step(180.0, 210.0, 240.0))
    assert outcome.held is True
    assert outcome.why.endswith("over 200ms; the interval 180–240 ms includes the limit")
    outside = check("step_ms.mean>170ms", _with_step(180.0, 210.0, 240.0))
    assert "includes" not in outside.why


@pytest.mark.parametrize(
    ("limit", "surely", "surely_not"),
    [(170, True, False), (200, False, False), (230, False, False), (250, False, True)],
)
def test_surely_requires_the_whole_interval(limit: int, surely: bool, surely_not: bool) -> None:
    analysis = _with_step(180.0, 210.0, 240.0)
    assert check(f"surely(step_ms.mean>{limit})", analysis).held is surely
    assert check(f"surely(not step_ms.mean>{limit})", analysis).held is surely_not
    assert check(f"surely(step_ms.mean<={limit})", analysis).held is surely_not
    assert check(f"not surely(step_ms.mean>{limit})", analysis).held is not surely


def test_surely_is_unknown_without_an_interval() -> None:
    outcome = check("surely(step_ms.p99>1)")
    assert outcome.held is None
    assert outcome.why.endswith("it has no interval: percentiles have none")
    assert check("surely(size==2)").held is True
    assert check("surely(step_ms.p99>1 or size==2)").held is True


def test_intervals_of_two_runs_add_in_quadrature_and_those_of_one_run_add_up() -> None:
    analysis = _with_step(197.0, 200.0, 203.0)
    base = _with_step(196.0, 200.0, 204.0)
    against = replace(analysis, baseline=base)
    assert check("surely(step_ms.mean>0.97*baseline)", against).held is True
    assert check("surely(step_ms.mean>0.98*baseline)", against).held is False
    assert check("surely(step_ms.mean>0.97*step_ms.mean)", against).held is True
    assert check("surely(step_ms.mean>0.971*step_ms.mean)", against).held is False


@pytest.mark.any_versions
@pytest.mark.slow
def test_the_interval_of_a_share_is_about_as_wide_as_its_estimates_scatter() -> None:
    shares, hits = [], 0
    for seed in range(40):
        job = replace(SLOW_INPUT, seed=seed)
        analysis = analyse(simulator.simulate(job).run, simulator.simulate(job.baseline()).run)
        entry = analysis.cause("input")
        assert entry is not None
        shares.append(entry.share)
    mean = sum(shares) / len(shares)
    for seed in range(40):
        analysis = analyse(simulator.simulate(replace(SLOW_INPUT, seed=seed)).run)
        low = check(f"surely(input.share<{mean})", analysis).held
        high = check(f"surely(input.share>{mean})", analysis).held
        hits += not low and not high
    assert hits >= 35


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "column 1: the text ends where a figure or a number is missing"),
        (
            "inptu.excess>20%",
            "column 1: there is no figure 'inptu.excess'; did you mean input.excess?",
        ),
        ("gap>1 and step>3", "column 11: there is no figure 'step'; did you mean"),
        ("what_if.inputs.speedup>1", "column 1: there is no figure 'what_if.inputs.speedup'"),
        ("input.excess", "column 1: input.excess is no condition"),
        ("verdcit=input", "column 1: there is no figure 'verdcit'; did you mean verdict?"),
        ("bottleneck=imblance", "column 12: bottleneck is never 'imblance'; did you mean"),
        ("bottleneck=gap", "column 12: bottleneck is a word and gap a share"),
        ("gap~20%", "column 1: ~ looks into words, and gap is a share"),
        ("gap>3MB", "column 5: gap is a share and 3MB a size"),
        ("1<size<3", "column 7: a second comparison: join the two with and"),
        ("gap>1 && size>2", "column 7: '&' means nothing here; say and"),
        ("(gap>1", "column 7: the ( of column 1 is not closed"),
        ("gap>1)", "column 6: this ) closes nothing"),
        ("gap>", "column 5: the text ends where a figure or a number is missing"),
        ("surely gap>1", "column 8: ( is missing after surely"),
        ("step_ms.p50>20%", "column 13: step_ms.p50 is a time and 20% a share"),
        ("step_ms.p50*step_ms.p50>1", "column 12: '*' does not work here: write a factor times a "),
        (
            "1/step_ms.p50>1",
            "column 2: '/' does not work here: write a factor times a figure, as in ",
        ),
        (
            "step_ms>baseline+20ms",
            "column 17: '+' does not work here: write a factor times a figure",
        ),
        ("-input.excess<-10%", "column 1: '-' does not work here: write a factor times a figure"),
        ("2*step_ms.p50*3>1", "column 14: '*' does not work here"),
        ("what_if.host:node-7.speedup>1", "column 1: put a name with - in quotes, as in what_if.'"),
        ("size>+-5", "column 6: '+' does not work here"),
        ("2*3*size>1", "column 2: '*' does not work here"),
        ("2*bottleneck==input", "column 3: bottleneck is a word: no number multiplies it"),
        ("10>2", "column 1: 10 is no figure: begin with one"),
        ("bottleneck=='imblance'", "column 13: bottleneck is never 'imblance'; did you mean"),
        ("bottleneck>'input'", "column 1: words are compared with == and !=, not with >"),
        ("bottleneck==3", "column 13: bottleneck is a word and 3 a plain number"),
        ("-bottleneck=='x'", "column 1: '-' does not work here"),
        ("bottleneck=='input", "column 13: a text begins with ' and does not end"),
        ("gap>baseline", "column 5: a baseline has no gap of its own"),
        ("baseline.gap>1", "column 1: a baseline has no gap of its own"),
        ("size>baseline*gap", "column 14: '*' does not work here"),
        ("2>0.9*baseline", "column 7: which figure of the baseline?"),
        ("gap>1e999", "column 5: 1e999 is too large a number"),
        ("gap>1 gap>2", "column 7: 'gap' joins nothing"),
        ("(" * 40 + "gap>1" + ")" * 40, "column 31: more than 30 levels within each other"),
        ("gap>1" + " and gap>1" * 60, "column 501: a condition has at most 200 words"),
        ("x" * 1001, "a condition has at most 1,000 characters, and this one 1,001"),
    ],
)
def test_an_error_is_one_sentence_with_its_position(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}[^\n]*$"):
        parse(text)


def test_invisible_characters_from_logs_are_written_out() -> None:
    outcome = check("what_if.'host:\u202eevil'.speedup>1", slow_input())
    assert "\u202e" not in outcome.why


def test_what_is_not_a_number_is_unknown() -> None:
    for nothing in (float("nan"), float("inf")):
        outcome = check("step_ms.mean>1", _with_step(1.0, nothing, 2.0))
        assert outcome.held is None
        assert outcome.why == "step_ms.mean is not known: it was not measured"


def test_an_unknown_verdict_equals_no_other_verdict() -> None:
    assert check("bottleneck!='compute'", without_timestamps()).held is None
    assert check("bottleneck!='insufficient_data'", without_timestamps()).held is False


def test_too_few_steps_leave_no_interval() -> None:
    analysis = _with_step(1.0, 200.0, 300.0)
    assert analysis.step is not None
    few = replace(analysis, step=replace(analysis.step, ci95=None))
    assert check("step_ms.mean>100", few).held is True
    explanation = check("surely(step_ms.mean>100)", few).why
    assert explanation.endswith("it has no interval: too few independent steps")
