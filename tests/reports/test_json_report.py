"""JSON: the keys that scripts rely on, valid by the schema, null where nothing was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from stallscope.analysis import Analysis
from stallscope.reports.base import ReportOptions
from stallscope.reports.json_report import JsonReport, document

from .cases import CASES

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "report.schema.json").read_text(encoding="utf-8")
)
LEDGER = ["input", "compute", "other", "imbalance", "allreduce"]
KEYS = {
    "": "schema_version run baseline job_s step_ms ledger ranks bottleneck what_if findings warnings",
    "run": "id name source framework size hosts epochs steps synthetic status samples_per_second "
    "started_at",
    "baseline": "id match gap",
    "job_s": "startup warmup steps validation checkpoint epoch_gap total",
    "step_ms": "mean p50 p95 p99 ci95",
    "ledger": "name ms share ci95_ms baseline_ms excess_ms",
    "ranks": "rank host input_ms compute_ms wait_ms allreduce_ms other_ms critical_share "
    "clock_offset_ms clock_uncertainty_ms",
    "bottleneck": "kind cause ranks hosts evidence advice",
    "what_if": "fix speedup ci95",
    "findings": "code severity title evidence advice",
}


def rendered(analysis: Analysis, options: ReportOptions) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    loaded = json.loads(JsonReport().render(analysis, options), parse_constant=refuse)
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("name", CASES)
def test_every_document_is_valid(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    errors = [
        error.message
        for error in Draft202012Validator(SCHEMA).iter_errors(rendered(case(name), options))
    ]
    assert errors == []


def test_the_schema_refuses_what_is_missing_or_of_another_type(
    case: Callable[[str], Analysis],
) -> None:
    validator = Draft202012Validator(SCHEMA)
    for key, names in KEYS.items():
        for name in names.split():
            # The run without a baseline has a finding: that there is none.
            valid = case("a slow rank" if key == "findings" else "a slow rank and a baseline")
            changed = json.loads(json.dumps(document(valid)))
            inner = changed[key] if key else changed
            inner = inner[0] if isinstance(inner, list) else inner
            assert validator.is_valid(changed)
            del inner[name]
            assert not validator.is_valid(changed), (key, name)
            inner[name] = {"an": "object"} if name != "match" else "text"
            assert not validator.is_valid(changed), (key, name)


def test_the_keys_are_those_that_scripts_rely_on(case: Callable[[str], Analysis]) -> None:
    found = document(case("a slow rank and a baseline"))
    assert set(found) == set(KEYS[""].split())
    assert set(document(case("two ranks"))["findings"][0]) == set(KEYS["findings"].split())
    for key in set(KEYS) - {"", "findings"}:
        inner = found[key][0] if isinstance(found[key], list) else found[key]
        assert set(inner) == set(KEYS[key].split()), key
    assert set(found["baseline"]["match"]) == {"same", "differs"}


@pytest.mark.parametrize("name", ["two ranks", "a slow rank and a baseline", "a thousand ranks"])
def test_the_ledger_adds_up_to_the_step(name: str, case: Callable[[str], Analysis]) -> None:
    found = document(case(name))
    assert [entry["name"] for entry in found["ledger"]] == LEDGER
    assert sum(entry["ms"] for entry in found["ledger"]) == pytest.approx(found["step_ms"]["mean"])
    assert sum(entry["share"] for entry in found["ledger"]) == pytest.approx(1)


def test_the_slow_rank_is_named_with_what_fixing_it_gains(case: Callable[[str], Analysis]) -> None:
    found = document(case("a slow rank and a baseline"))
    assert found["bottleneck"]["kind"] == "imbalance"
    assert found["bottleneck"]["cause"] == "input"
    assert found["bottleneck"]["ranks"] == [2]
    (gain,) = [gain for gain in found["what_if"] if gain["fix"] == "rank:2"]
    assert gain["ci95"][0] < gain["speedup"] < gain["ci95"][1]
    assert gain["speedup"] > 1.2


def test_a_baseline_gives_excess_and_gap(case: Callable[[str], Analysis]) -> None:
    found = document(case("a slow rank and a baseline"))
    for entry in found["ledger"]:
        assert entry["excess_ms"] == pytest.approx(entry["ms"] - entry["baseline_ms"])
    assert 0.2 < found["baseline"]["gap"] < 0.5
    without = document(case("a slow rank"))
    assert without["baseline"] is None
    assert {entry["baseline_ms"] for entry in without["ledger"]} == {None}
    assert {entry["excess_ms"] for entry in without["ledger"]} == {None}


def test_stages_that_were_not_measured_are_null(case: Callable[[str], Analysis]) -> None:
    found = document(case("host stamps only"))
    assert [entry["name"] for entry in found["ledger"]] == LEDGER
    for entry in found["ledger"]:
        assert {value for name, value in entry.items() if name != "name"} == {None}
    assert found["step_ms"]["mean"] > 0
    assert found["job_s"]["total"] > 0
    assert {value for name, value in found["job_s"].items() if name != "total"} == {None}
    assert {found["ranks"][0][f"{name}_ms"] for name in ("input", "compute", "wait")} == {None}
    assert found["what_if"] == []


def test_a_baseline_is_told_even_where_the_run_has_no_stages(
    case: Callable[[str], Analysis],
) -> None:
    first = document(case("host stamps only, and a baseline"))["ledger"][0]
    assert first["ms"] is None
    assert first["baseline_ms"] == pytest.approx(0.5, rel=0.05)


def test_clocks_that_cannot_be_compared_are_uncertain_by_null(
    case: Callable[[str], Analysis],
) -> None:
    found = document(case("host stamps only, on two hosts"))
    assert [rank["clock_uncertainty_ms"] for rank in found["ranks"]] == [0.0, None]


def test_a_run_without_steps_has_no_step_time(case: Callable[[str], Analysis]) -> None:
    found = document(case("no steps"))
    assert set(found["step_ms"].values()) == {None}
    assert found["run"]["steps"] == 0
    assert found["bottleneck"]["kind"] == "insufficient_data"


def test_too_few_steps_give_no_interval(case: Callable[[str], Analysis]) -> None:
    found = document(case("few steps"))
    assert found["ledger"][0]["ms"] is not None
    assert found["bottleneck"]["kind"] == "insufficient_data"


def test_the_start_is_in_utc(case: Callable[[str], Analysis]) -> None:
    assert document(case("two ranks"))["run"]["started_at"] == "2026-09-21T14:13:20.000Z"


def test_counts_are_of_what_was_recorded(case: Callable[[str], Analysis]) -> None:
    run = document(case("a missing rank"))["run"]
    assert (run["size"], run["epochs"], run["steps"]) == (4, 2, 200)


def test_text_from_logs_is_kept_and_can_be_encoded(case: Callable[[str], Analysis]) -> None:
    run = document(case("hostile names"))["run"]
    assert "<script>alert(1)</script>" in run["name"]
    assert "\u202e" in run["name"]
    assert run["framework"].endswith("\ufffd")
