"""``make test`` leaves out variants, and does not train for them; ``make test-all`` runs them."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from training.case_runner import Cases, run_cases
from training.pages import contracts
from training.recorder_contract import Case, parameters, variants

pytestmark = pytest.mark.any_versions

ROOT = Path(__file__).parents[1]
TARGETS = ("test-app", "test-unmeasured", "test-measured", "test-asleep")


def commands(target: str, *settings: str) -> list[str]:
    """Return the calls of pytest that a target of the Makefile makes."""
    words = ["make", "--dry-run", "--no-print-directory", target, *settings]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "bin/pytest" in line]


@pytest.mark.parametrize("target", TARGETS)
def test_only_all_tests_have_variants(target: str) -> None:
    [usual] = commands(target)
    assert "not variant" in usual
    [whole] = commands(target, "SELECTED=variant or not variant")
    assert whole == usual.replace("not variant", "variant or not variant")


def test_all_tests_run_nightly_and_before_a_release() -> None:
    workflows = ROOT / ".github" / "workflows"
    nightly = yaml.safe_load((workflows / "all-tests.yml").read_text())
    # YAML reads the key "on" as true.
    assert {"schedule", "workflow_call"} <= set(nightly[True])
    [job] = nightly["jobs"].values()
    assert "make test-all" in [step.get("run") for step in job["steps"]]
    release = yaml.safe_load((workflows / "release.yml").read_text())["jobs"]
    assert release["test"]["uses"] == "./.github/workflows/all-tests.yml"
    assert "test" in release["publish"]["needs"]


def test_the_first_case_and_named_ones_are_no_variants() -> None:
    cases = tuple(Case(name) for name in ("its_plain", "its_slow_input", "its_raises"))
    assert [case.variant for case in variants(cases)] == [False, True, True]
    assert [case.variant for case in variants(cases, "raises", "plain")] == [False, True, False]


def test_the_marker_of_a_variant_names_its_case() -> None:
    case, variant = Case("kept"), Case("variant", variant=True)
    assert parameters(case, case, name="kept").marks == []
    [marker] = parameters(variant, variant, name="variant").marks
    assert (marker.name, marker.args) == ("variant", ("variant",))


def test_cases_that_are_left_out_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = Cases({name: lambda folder: {} for name in ("one", "two", "three")})
    monkeypatch.setenv("LEFT_OUT", "two four")
    run_cases(cases, tmp_path, (), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "three"]
    run_cases(cases, tmp_path / "named", ("one", "two"), 0)
    assert [path.name for path in (tmp_path / "named").iterdir()] == ["one"]


#: Frameworks whose ranks share a model, recorded by the same code as FSDP2, and their own promises.
SHARING = ("expert parallelism", "FSDP 1", "HSDP", "tensor parallelism", "Megatron-Core")
OWN = {"steps", "stopwatch", "weights", "facts", "validation", "checkpoint", "resume", "fault"}


def test_every_promise_of_a_framework_is_shown_without_variants() -> None:
    every: dict[str, set[str]] = defaultdict(set)
    usual: dict[str, set[str]] = defaultdict(set)
    for contract in contracts():
        for promise, case in contract.kept():
            every[contract.framework].add(promise.name)
            if not case.variant:
                usual[contract.framework].add(promise.name)
    assert any(name in framework for name in SHARING for framework in every)
    for framework, promises in every.items():
        shares = any(name in framework for name in SHARING)
        assert usual[framework] >= (promises & OWN if shares else promises), framework
