"""JSON: the keys that scripts rely on, valid by the schema, null if not measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, get_args

import pytest
from simulator import Job
from support.reports import rendered
from support.schemas import errors_in, schema, validator
from support.simulated import analysis_of_job

from stallscope.analysis import Analysis
from stallscope.catalogue.entry import AnalysisSummary
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.json_content import json_content
from stallscope.words import CAUSES, ENTRIES, PATTERNS, STAGES, VERDICT_CAUSES, VERDICTS, HangPlace

from .cases import NAMES

LEDGER = ["input", "compute", "other", "imbalance", "allreduce"]
KEYS = {
    "": "schema_version run baseline job_s goodput generations step_ms ledger by_cause ranks steps "
    "epoch_times printed_steps clocks communication collectives links network_check input probe "
    "loaders causes explained padding bottleneck stopped stragglers what_if predicted_from changes "
    "findings events machines warnings",
    "run": "id name source framework size hosts epochs steps synthetic status samples_per_second "
    "tokens_per_second started_at",
    "baseline": "id match gap gap_ci95 single decomposition",
    "baseline.match": "same differs slower faulty itself",
    "baseline.single": "id match",
    "baseline.single.match": "same differs slower faulty itself",
    "baseline.decomposition": "loss input_stall compute other allreduce communication scale",
    "baseline.decomposition.loss": "ms ci95_ms",
    "job_s": "startup warmup steps restart repeated stopped validation checkpoint epoch_gap "
    "unrecorded total",
    "goodput": "fraction compute_fraction compute_s lost_s total_s rank_s",
    "goodput.lost_s": "startup warmup restart repeated stopped validation checkpoint epoch_gap input "
    "other imbalance allreduce",
    "generations": "number size hosts started_at ended_at steps repeated_steps ended_by",
    "step_ms": "mean p50 p95 p99 ci95",
    "ledger": "name ms share ci95_ms baseline_ms excess_ms excess_ci95_ms single_ms",
    "by_cause": "name ms share ci95_ms baseline_ms excess_ms excess_ci95_ms single_ms waiting_ms",
    "ranks": "rank host input_ms compute_ms wait_ms allreduce_ms other_ms critical_share "
    "clock_offset_ms clock_uncertainty_ms validation_s checkpoint_s",
    "steps": "total complete partial unused sampled_out incomplete_ranks",
    "epoch_times": "known_from precision epochs mean_s precision_s step_ms step_precision_ms "
    "metric_step_ms samples_per_second_per_rank",
    "epoch_times.epochs": "rank fit epoch s precision_s",
    "printed_steps": "found precision_ms warm_up_steps input_ms input_ci95_ms input_share "
    "input_share_ci95 epoch_starts period bursts growth pauses repeated ranks",
    "printed_steps.epoch_starts": "windows of longer_ms cost waiting_share alone",
    "printed_steps.period": "windows of longer_ms cost waiting_share alone every every_windows",
    "printed_steps.growth": "epochs longer_share",
    "printed_steps.pauses": (
        "kind number seconds share with_start start_s steps with_first_steps lower_bound"
    ),
    "printed_steps.repeated": "steps restarts seconds with_restarts",
    "printed_steps.ranks": "rank lines mean_ms step steps ms input_ms",
    "clocks": "method skew_ms skew_bound_ms jumps violations late late_ms late_by_rank",
    "clocks.jumps": "clock step ms",
    "communication": "gradient_bytes exposed_ms exposed_ci95_ms bus_bandwidth_gb_s "
    "network_bandwidth_gb_s whole_ms hidden_ms",
    "network_check": "measured_at seconds framework reduced_by reduces_with device size hosts "
    "gradients_from gradient_bytes gradient_tensors differs gradients_ms gradients_ci95_ms exposed_ms "
    "exposed_ci95_ms excess_ms excess_ci95_ms parts sweep pairs left_out",
    "network_check.parts": "bandwidth latency negotiation fusion",
    "network_check.sweep": "bytes ms ci95_ms bus_bandwidth_gb_s",
    "network_check.pairs": "hosts mbit_s ci95_mbit_s is_slow small_ms small_ci95_ms",
    "bottleneck": "kind cause ranks hosts evidence advice fault links why loss since_step",
    "stragglers": "pattern ranks hosts place stage excess_ms excess_ci95_ms late_share cost_ms "
    "cost_ci95_ms work",
    "what_if": "fix speedup ci95 saved_ms saved_ci95_ms extrapolated bound estimate measured "
    "overlaps",
    "changes": "step before_ms after_ms entry by_ms rank between",
    "findings": "code severity title evidence advice",
    "events": "total listed",
}

#: The runs that have something under a key, if not all have.
SHOWN_BY = {
    "epoch_times": "epochs only",
    "printed_steps": "printed steps",
    "printed_steps.epoch_starts": "printed steps",
    **dict.fromkeys(
        ("printed_steps.period", "printed_steps.growth", "printed_steps.pauses"),
        "printed evaluations",
    ),
    "printed_steps.repeated": "printed evaluations",
    "printed_steps.ranks": "printed steps",
    "epoch_times.epochs": "epochs only",
    "network_check": "a measured network",
    "network_check.parts": "a measured network",
    "network_check.sweep": "a measured network",
    "network_check.pairs": "a measured network",
    "clocks.jumps": "a clock that was set",
    "stragglers": "uneven work",
    "changes": "slower from a step on",
    "findings": "two ranks",
}


def shown(key: str, case: Callable[[str], Analysis]) -> dict[str, Any]:
    """Return a document that has something under the key."""
    document = json_content(case(SHOWN_BY.get(key, "everything")))
    loaded = json.loads(json.dumps(document))
    assert isinstance(loaded, dict)
    return loaded


def under(key: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the object under a key, the first one of several; ``a.b`` is the key b of the object a."""
    inner: Any = document
    for name in key.split(".") if key else ():
        inner = inner[name]
        inner = inner[0] if isinstance(inner, list) else inner
    assert isinstance(inner, dict)
    return inner


def as_loaded(analysis: Analysis, options: ReportOptions) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    loaded = json.loads(rendered("json", analysis, options), parse_constant=refuse)
    assert isinstance(loaded, dict)
    return loaded


def _enums(schema: Any, key: str) -> Iterator[set[str]]:
    """Return the words that properties of this name may have, anywhere in a schema."""
    if isinstance(schema, dict):
        words = schema.get("properties", {}).get(key, {}).get("enum")
        if words:
            yield {*words} - {None}
        for part in schema.values():
            yield from _enums(part, key)
    elif isinstance(schema, list):
        for part in schema:
            yield from _enums(part, key)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        *(("kind", VERDICTS), ("cause", VERDICT_CAUSES), ("pattern", PATTERNS), ("stage", STAGES)),
        *(("stage", get_args(HangPlace)), ("name", ENTRIES), ("name", CAUSES), ("entry", ENTRIES)),
    ],
)
def test_the_schema_has_the_declared_words(key: str, words: Sequence[str]) -> None:
    assert {*words} in [*_enums(schema("report"), key)]


@pytest.mark.broad
@pytest.mark.parametrize("name", NAMES)
def test_every_document_is_valid(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    assert errors_in("report", as_loaded(case(name), options)) == []


@pytest.mark.broad
def test_the_schema_refuses_missing_keys_and_other_types(
    case: Callable[[str], Analysis],
) -> None:
    is_valid = validator("report").is_valid
    for key, names in KEYS.items():
        document = shown(key, case)
        assert is_valid(document)
        for name in names.split():
            changed = deepcopy(document)
            inner = under(key, changed)
            del inner[name]
            assert not is_valid(changed), (key, name)
            inner[name] = {"an": "object"} if name != "match" else "text"
            assert not is_valid(changed), (key, name)


@pytest.mark.parametrize("key", KEYS)
def test_the_keys_are_those_that_scripts_rely_on(key: str, case: Callable[[str], Analysis]) -> None:
    assert set(under(key, shown(key, case))) == set(KEYS[key].split())


@pytest.mark.parametrize("name", ["two ranks", "a slow rank and a baseline", "a thousand ranks"])
def test_the_ledger_adds_up_to_the_step(name: str, case: Callable[[str], Analysis]) -> None:
    document = json_content(case(name))
    assert [entry["name"] for entry in document["ledger"]] == LEDGER
    assert sum(entry["ms"] for entry in document["ledger"]) == pytest.approx(
        document["step_ms"]["mean"]
    )
    assert sum(entry["share"] for entry in document["ledger"]) == pytest.approx(1)


def test_the_slow_rank_is_named_with_its_gain(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("a slow rank and a baseline"))
    assert document["bottleneck"]["kind"] == "imbalance"
    assert document["bottleneck"]["cause"] == "input"
    assert document["bottleneck"]["ranks"] == [2]
    (gain,) = [gain for gain in document["what_if"] if gain["fix"] == "rank:2"]
    assert gain["ci95"][0] < gain["speedup"] < gain["ci95"][1]
    assert gain["speedup"] > 1.2


def test_a_baseline_gives_excess_and_gap(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("a slow rank and a baseline"))
    for entry in document["ledger"]:
        assert entry["excess_ms"] == pytest.approx(entry["ms"] - entry["baseline_ms"])
    assert 0.2 < document["baseline"]["gap"] < 0.5
    without = json_content(case("a slow rank"))
    assert without["baseline"] is None
    assert {entry["baseline_ms"] for entry in without["ledger"]} == {None}
    assert {entry["excess_ms"] for entry in without["ledger"]} == {None}


def test_stages_that_were_not_measured_are_null(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("host stamps only"))
    assert [entry["name"] for entry in document["ledger"]] == LEDGER
    for entry in document["ledger"]:
        assert {value for name, value in entry.items() if name != "name"} == {None}
    assert document["step_ms"]["mean"] > 0
    assert document["job_s"]["total"] > 0
    assert {value for name, value in document["job_s"].items() if name != "total"} == {None}
    assert {document["ranks"][0][f"{name}_ms"] for name in ("input", "compute", "wait")} == {None}
    assert document["what_if"] == []


def test_a_baseline_is_included_even_if_the_run_has_no_stages(
    case: Callable[[str], Analysis],
) -> None:
    first = json_content(case("host stamps only, and a baseline"))["ledger"][0]
    assert first["ms"] is None
    assert first["baseline_ms"] == pytest.approx(0.5, rel=0.05)


def test_the_uncertainty_of_incomparable_clocks_is_null(
    case: Callable[[str], Analysis],
) -> None:
    document = json_content(case("host stamps only, on two hosts"))
    assert [rank["clock_uncertainty_ms"] for rank in document["ranks"]] == [0.0, None]


def test_a_run_without_steps_has_no_step_time(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("no steps"))
    assert set(document["step_ms"].values()) == {None}
    assert document["run"]["steps"] == 0
    assert document["bottleneck"]["kind"] == "insufficient_data"


def test_epochs_are_included_if_there_are_no_steps(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("epochs only"))
    known = document["epoch_times"]
    # 78 steps of 218 ms, rounded to half a millisecond.
    assert [epoch["s"] for epoch in known["epochs"]] == pytest.approx([17.004] * 3)
    assert known["epochs"][0]["precision_s"] == pytest.approx(0.039)
    assert (known["step_ms"], known["step_precision_ms"]) == (218, 0.5)
    assert known["samples_per_second_per_rank"] is None
    assert (document["run"]["epochs"], document["run"]["steps"], document["run"]["hosts"]) == (
        3,
        0,
        [],
    )
    assert document["bottleneck"]["kind"] == "insufficient_data"
    assert {entry["ms"] for entry in document["ledger"]} == {None}
    assert document["job_s"]["steps"] is None
    assert json_content(case("two ranks"))["epoch_times"] is None


def test_one_log_of_many_has_no_waiting_times(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("rank 0 only")
    document = json_content(analysis)
    ledger = {entry["name"]: entry["ms"] for entry in document["ledger"]}
    assert ledger.pop("imbalance") is None
    assert sum(ledger.values()) == pytest.approx(document["step_ms"]["mean"])
    assert {entry["waiting_ms"] for entry in document["by_cause"]} == {None}
    (rank,) = document["ranks"]
    assert {rank[name] for name in ("wait_ms", "allreduce_ms", "critical_share")} == {None}
    assert rank["input_ms"] == ledger["input"]
    assert "imbalance" not in AnalysisSummary.of(analysis).shares


def test_throughput_of_epochs_is_of_one_rank_if_their_number_is_unknown(
    case: Callable[[str], Analysis],
) -> None:
    document = json_content(case("samples of epochs only"))
    assert document["epoch_times"]["samples_per_second_per_rank"] == pytest.approx(60000 / 19)
    assert document["run"]["samples_per_second"] is None
    short = json_content(case("epochs that are shorter than a second"))["epoch_times"]
    assert (short["mean_s"], short["precision_s"], short["step_ms"]) == (0, 0.5, 2)


def test_too_few_steps_give_no_interval(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("few steps"))
    assert document["ledger"][0]["ms"] is not None
    assert document["bottleneck"]["kind"] == "insufficient_data"


def test_the_start_is_in_utc(case: Callable[[str], Analysis]) -> None:
    assert json_content(case("two ranks"))["run"]["started_at"] == "2026-09-21T14:13:20.000Z"


def test_counts_are_those_of_recorded_steps(case: Callable[[str], Analysis]) -> None:
    run = json_content(case("a missing rank"))["run"]
    assert (run["size"], run["epochs"], run["steps"]) == (4, 2, 200)


def test_text_from_logs_is_kept_and_can_be_encoded(case: Callable[[str], Analysis]) -> None:
    run = json_content(case("hostile names"))["run"]
    assert "<script>alert(1)</script>" in run["name"]
    assert "\u202e" in run["name"]
    assert run["framework"].endswith("\ufffd")


def test_the_cost_of_all_ranks_is_broken_down(case: Callable[[str], Analysis]) -> None:
    document = json_content(case("everything"))
    parts = document["baseline"]["decomposition"]
    assert parts["input_stall"]["ms"] == pytest.approx(8, rel=0.05)
    assert parts["loss"]["ms"] == pytest.approx(
        sum(parts[name]["ms"] for name in ("input_stall", "compute", "other", "allreduce"))
    )
    assert parts["loss"]["ci95_ms"][0] < 8 < parts["loss"]["ci95_ms"][1]
    # On one rank there is no waiting and nothing to reduce.
    assert parts["scale"]["ms"] == pytest.approx(parts["communication"]["ms"], rel=0.1)
    assert document["baseline"]["single"]["match"]["differs"] == []
    single = {entry["name"]: entry["single_ms"] for entry in document["ledger"]}
    assert single["compute"] == pytest.approx(150, rel=0.02)
    assert (single["imbalance"], single["allreduce"]) == (0, 0)
    low, high = document["baseline"]["gap_ci95"]
    assert low < document["baseline"]["gap"] < high
    assert high - low < 0.02
    for entry in document["ledger"]:
        low, high = entry["excess_ci95_ms"]
        assert low <= entry["excess_ms"] <= high


def test_without_a_run_on_one_rank_scale_is_null(case: Callable[[str], Analysis]) -> None:
    base = json_content(case("a slow rank and a baseline"))["baseline"]
    assert base["single"] is None
    assert base["decomposition"]["scale"] is None
    assert base["decomposition"]["loss"]["ms"] > 10
    assert json_content(case("a baseline without stages"))["baseline"]["decomposition"] is None


def test_communicated_bytes_and_their_speed(case: Callable[[str], Analysis]) -> None:
    communication = json_content(case("everything"))["communication"]
    assert communication["gradient_bytes"] == 100_000_000
    # 2 · 7/8 · 100 MB at 12.5 GB/s, and 14 messages of 10 µs.
    assert communication["exposed_ms"] == pytest.approx(14.14, rel=0.02)
    assert communication["bus_bandwidth_gb_s"] == pytest.approx(175 / 14.14, rel=0.02)
    assert communication["network_bandwidth_gb_s"] == 6.25
    assert communication["whole_ms"] == pytest.approx(28)
    assert communication["hidden_ms"] == pytest.approx(28 - 14.14, rel=0.02)
    assert json_content(case("one rank"))["communication"] is None


def test_answers_are_among_the_gains_and_marked_as_extrapolated(
    case: Callable[[str], Analysis],
) -> None:
    document = json_content(case("everything"))
    gains = {gain["fix"]: gain for gain in document["what_if"]}
    assert gains["bandwidth:2"]["extrapolated"] is True
    assert gains["bandwidth:2"]["saved_ms"] == pytest.approx(7.07, rel=0.02)
    assert gains["ranks:64"]["extrapolated"] is True
    assert gains["ranks:64"]["saved_ms"] is None
    # 8 times the ranks, less the cost if all were bandwidth or all latency.
    assert 4 < gains["ranks:64"]["ci95"][0] < gains["ranks:64"]["speedup"] < 8
    assert gains["input"]["extrapolated"] is False
    low, high = gains["input"]["saved_ci95_ms"]
    assert low < gains["input"]["saved_ms"] < high


def test_stragglers_have_pattern_and_cost(case: Callable[[str], Analysis]) -> None:
    (uneven,) = json_content(case("uneven work"))["stragglers"]
    assert (uneven["pattern"], uneven["ranks"], uneven["stage"]) == ("persistent", [2], "compute")
    assert uneven["work"] == pytest.approx(1.5)
    assert uneven["excess_ms"] == pytest.approx(75, rel=0.03)
    assert uneven["cost_ci95_ms"][0] < uneven["cost_ms"] < uneven["cost_ci95_ms"][1]
    (late,) = json_content(case("a rank late now and then"))["stragglers"]
    assert (late["pattern"], late["ranks"], late["work"]) == ("bursts", [3], None)
    assert late["excess_ms"] == pytest.approx(120, rel=0.05)
    assert 0.05 < late["late_share"] < 0.2
    (ramp,) = json_content(case("a rank ever slower"))["stragglers"]
    assert (ramp["pattern"], ramp["ranks"]) == ("ramp", [3])
    (moving,) = json_content(case("lateness that moves around"))["stragglers"]
    assert (moving["pattern"], moving["ranks"], moving["hosts"]) == ("rotating", [], [])
    assert moving["late_share"] == pytest.approx(0.5, abs=0.02)
    first, _ = json_content(case("a slow host and a slow rank"))["stragglers"]
    assert {tuple(first["hosts"]), *[tuple(first["ranks"])]} & {("host-1",), (2,)}
    assert json_content(case("everything"))["stragglers"] == []


def test_incomplete_steps_are_counted(case: Callable[[str], Analysis]) -> None:
    whole = json_content(case("everything"))["steps"]
    assert whole == {
        "total": 400,
        "complete": 400,
        "partial": 0,
        "unused": 0,
        "sampled_out": 0,
        "incomplete_ranks": [],
    }
    lost = json_content(case("rows lost"))["steps"]
    assert lost["complete"] + lost["partial"] + lost["unused"] == lost["total"] == 400
    assert lost["partial"] > 10
    assert json_content(case("host stamps only"))["steps"]["unused"] == 200


def test_clocks_have_their_alignment(case: Callable[[str], Analysis]) -> None:
    assert json_content(case("two ranks"))["clocks"]["method"] == "one clock"
    clocks = json_content(case("a clock that was set"))["clocks"]
    assert clocks["method"] == "completions"
    (jump,) = clocks["jumps"]
    assert (jump["clock"], jump["step"]) == ("clock of host-1", 200)
    assert jump["ms"] == pytest.approx(50, abs=1)
    assert clocks["violations"] == 0
    assert clocks["skew_bound_ms"] > clocks["skew_ms"]
    assert json_content(case("no steps"))["clocks"] is None


def test_changes_of_the_step_time_name_the_stage(case: Callable[[str], Analysis]) -> None:
    (change,) = json_content(case("slower from a step on"))["changes"]
    assert change["step"] == pytest.approx(200, abs=15)
    assert change["after_ms"] - change["before_ms"] == pytest.approx(30, rel=0.1)
    assert (change["entry"], change["rank"]) == ("compute", None)
    assert change["by_ms"] == pytest.approx(30, rel=0.1)


def test_ranks_with_a_cut_log_are_listed() -> None:
    analysis = analysis_of_job(Job(ranks=8, steps=400, cut_ranks={5: 60, 6: 3, 7: 0}))
    content = json.loads(json.dumps(json_content(analysis)))
    assert errors_in("report", content) == []
    assert content["steps"]["incomplete_ranks"] == [
        {"generation": 0, "rank": 5, "steps": 60, "first": 0, "last": 59, "left_out": False},
        {"generation": 0, "rank": 6, "steps": 3, "first": 0, "last": 2, "left_out": True},
        {"generation": 0, "rank": 7, "steps": 0, "first": None, "last": None, "left_out": True},
    ]
