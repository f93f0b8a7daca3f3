"""Figures of a benchmark: measured values against their targets."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from support.benchmarks import FOLDER, benchmark

figures, paired, run, readme = map(benchmark, ("figures", "paired", "run", "readme"))
ROOT = FOLDER.parent


def test_a_limit_within_the_interval_is_neither_met_nor_missed() -> None:
    assert figures.at_most("cost", 4.0, "µs", 5).met
    assert figures.at_most("cost", 4.0, "µs", 5, interval=(3.0, 5.0)).met
    assert figures.at_most("cost", 6.0, "µs", 5, interval=(5.1, 7.0)).met is False
    noisy = figures.at_most("cost", 4.0, "µs", 5, interval=(3.0, 5.1))
    assert (noisy.met, run.cells(noisy)[-1]) == (None, "too noisy to tell")


def test_a_share_of_an_alternative_that_costs_nothing_is_unknown() -> None:
    figure = figures.share_of(
        "cost", 4.0, "µs", "Timeline", -1.0, most=0.02, alternative_interval=(-500.0, 400.0)
    )
    assert (figure.ratio, figure.met) == (None, None)
    assert run.cells(figure)[4:] == ("", "at most 0.02 of it", "too noisy to tell")


def test_a_share_is_met_or_missed() -> None:
    assert figures.share_of("cost", 1.0, "µs", "other", 100.0, most=0.02).met
    assert figures.share_of("cost", 3.0, "µs", "other", 100.0, most=0.02).met is False


def test_a_share_is_only_met_if_both_intervals_agree() -> None:
    sure, unsure = (90.0, 110.0), (10.0, 190.0)
    for alternative, met in ((sure, True), (unsure, None)):
        figure = figures.share_of(
            "cost",
            1.0,
            "µs",
            "other",
            100.0,
            most=0.02,
            interval=(0.5, 1.5),
            alternative_interval=alternative,
        )
        assert figure.met is met


def test_faster_is_a_multiple_of_the_alternative() -> None:
    figure = figures.times_faster("ledger", 0.5, "s", "pandas", 4.0, least=10)
    assert (figure.ratio, figure.met) == (8.0, False)


def test_a_multiple_is_judged_by_the_interval_of_the_ratio() -> None:
    def times(low: float, high: float) -> object:
        ratio = paired.Difference((low + high) / 2, low, high)
        return figures.times_as_much("time", 8.0, "µs", "a bare tool", 5.0, ratio, 2)

    met, noisy, missed = times(1.5, 1.9), times(1.5, 2.1), times(2.1, 2.5)
    assert [figure.met for figure in (met, noisy, missed)] == [True, None, False]
    assert run.cells(met)[4:] == ("1.7 (1.5 to 1.9)", "at most 2 times as much", "met")


def test_figures_survive_json_and_keys_of_later_versions() -> None:
    ratio = paired.Difference(0.8, 0.7, 0.9)
    figure = figures.times_as_much("cost", 4.0, "µs", "other", 5.0, ratio, 2)
    content = json.loads(json.dumps(asdict(figure))) | {"later": 1}
    assert figures.Figure.of(content) == figure


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.012345, "0.0123"), (4.5, "4.5"), (99.44, "99.4"), (1234.5, "1,234")],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert figures.number(value) == shown


def test_what_an_arm_adds_is_found_despite_noise_that_both_share() -> None:
    shared = [10.0, 50.0, 12.0, 90.0, 11.0, 13.0, 70.0, 10.5]
    difference = paired.difference([time + 2.0 for time in shared], shared)
    assert difference.value == pytest.approx(2.0)
    assert difference.interval == pytest.approx((2.0, 2.0))


def test_differences_between_processes_widen_the_interval() -> None:
    alike = paired.over_processes([[-1.0, 0.0, 1.0], [-0.9, 0.1, 1.1], [-1.1, -0.1, 0.9]])
    shifted = paired.over_processes([[by - 1.0, by, by + 1.0] for by in (-8.0, -3.0, 3.0, 8.0)])
    assert -1.0 <= alike.low < 0 < alike.high <= 1.0
    assert shifted.low < -8.0
    assert shifted.high > 8.0


@pytest.mark.broad
def test_four_processes_that_agree_by_chance_are_distinguished_from_ones_that_differ() -> None:
    """Processes draw their own offset: at most one of twenty intervals excludes 0."""
    random = np.random.default_rng(3)
    runs = [
        paired.over_processes((random.normal(0, 1, (4, 1)) + random.normal(0, 1, (4, 16))).tolist())
        for _ in range(1000)
    ]
    assert sum(not run.low <= 0 <= run.high for run in runs) <= 65


def test_intervals_that_must_hold_together_are_wider() -> None:
    rounds = [[float(value) for value in range(by, by + 9)] for by in (-5, -4, -4, -3)]
    alone, with_two_more = paired.over_processes(rounds), paired.over_processes(rounds, together=3)
    assert with_two_more.value == alone.value
    assert with_two_more.low < alone.low
    assert with_two_more.high > alone.high


def test_the_interval_of_a_single_process_is_over_its_rounds() -> None:
    rounds = [-1.0, 0.0, 1.0]
    assert paired.over_processes([rounds]) == paired.over_rounds(rounds)


def test_arms_with_unequal_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds of one arm and 1 of the other"):
        paired.difference([1.0, 2.0], [1.0])


def test_every_benchmark_is_found_and_described() -> None:
    names = run.benchmarks()
    assert {"keras_overhead", "torch_overhead", "import_cost", "ledger_pandas"} <= set(names)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


def test_an_unknown_benchmark_is_refused_with_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 2
    assert "no benchmark nonsense; there are: " in capsys.readouterr().err


def test_partial_results_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--keep", "--quick"])
    with pytest.raises(SystemExit):
        run.main()
    assert "leave out --quick and --only" in capsys.readouterr().err


def test_readme_and_page_have_the_figures_that_were_kept_last() -> None:
    content = readme.last(run.HISTORY)
    for page, section in ((readme.README, readme.costs), (readme.PAGE, readme.quoted)):
        text = page.read_text()
        assert readme.with_figures(text, section(content)) == text


def test_missed_targets_are_named_in_kinds_in_the_readme_and_one_by_one_on_the_page() -> None:
    content = readme.last(run.HISTORY)
    missed = [
        figure
        for measured in content["benchmarks"]
        for figure in measured["figures"]
        if figure["met"] is False
    ]
    text = readme.costs(content)
    assert f"**Targets missed**: {len(missed)} of " in text
    assert all(figure["name"].rpartition(": ")[2] in text for figure in missed)
    assert all(
        figure["name"].partition(readme.AGAINST)[0] in readme.quoted(content) for figure in missed
    )


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- figures -->"):
        readme.with_figures("# Stallscope\n", "figures")


def test_a_figure_that_was_not_kept_is_named() -> None:
    content = {**readme.last(run.HISTORY), "benchmarks": []}
    with pytest.raises(ValueError, match="no such figure"):
        readme.costs(content)
    with pytest.raises(ValueError, match="no such figure"):
        readme.quoted(content)


def test_every_line_of_the_history_has_its_machine_and_commit() -> None:
    for line in Path(run.HISTORY).read_text().splitlines():
        content = json.loads(line)
        assert content["machine"]["cores"] >= 1
        assert re.fullmatch(r"[0-9a-f]{12}\+?", content["commit"])
        assert not content["quick"]
