"""What the page of baselines says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from support.step_logs import run_of_job

from stallscope.catalogue.entry import AnalysisSummary
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.run_head import baseline_facts, grouped_baselines
from stallscope.run import Run
from stallscope.text.vocabulary import TITLES
from stallscope.words import CAUSES

from .browsing import NARROW, WIDE, Open
from .cases import JOBS, ONE_RANK, REAL, SCRIPT, SLOW_RANK, SYNTHETIC
from .content import assert_known_components, charts, of_type, table_rows, texts


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A run on real data, the same on synthetic data, and that on one rank."""
    jobs = (REAL, SYNTHETIC, ONE_RANK)
    return RunStore([run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs])


def _page(store: RunStore, run_id: str, search: str = "") -> Any:
    return view_at(store, f"/run/{run_id}/baseline", search).content


def test_the_first_sentence_says_what_is_lost_and_how_sure_that_is(three: RunStore) -> None:
    said = texts(_page(three, "real", "?baseline=synthetic"))
    title = next(text for text in said if text.startswith("A step takes"))
    assert re.fullmatch(
        r"A step takes 8\.\d+ ± 0\.\d+ ms longer than in the synthetic baseline", title
    )
    detail = said[said.index(title) + 1]
    assert re.search(r"2[56]\.\d% of the baseline's throughput is lost \(95% interval: ", detail)


def test_the_runs_stand_side_by_side_stage_by_stage(three: RunStore) -> None:
    drawn = charts(_page(three, "real", "?baseline=synthetic"))["stages"]
    labels = list(drawn.layout.yaxis.ticktext)
    assert labels == [
        text
        for name in (*CAUSES, "imbalance")
        for text in (f"<b>{TITLES[name]}</b>", "this run", "baseline", "one rank")
    ]
    assert len(drawn.data) == 15
    whiskers = [trace.error_x.array for trace in drawn.data if trace.error_x.array is not None]
    assert len(whiskers) >= 12
    assert all(array[0] >= 0 for array in whiskers)


def test_the_loss_is_taken_apart_in_a_chart_and_a_sentence(three: RunStore) -> None:
    content = _page(three, "real", "?baseline=synthetic")
    drawn = charts(content)["decomposition"]
    assert list(drawn.layout.yaxis.ticktext) == [
        "<b>one rank</b>",
        "Scale",
        "Input stall",
        "Compute",
        "Other",
        "Exposed allreduce",
        "<b>this run</b>",
    ]
    ends = [row.base[0] + row.x[0] for row in drawn.data]
    assert ends[-2] == pytest.approx(ends[-1])
    said = next(text for text in texts(content) if text.startswith("Of the 8."))
    assert re.search(r"8\.\d+ ± \S+ ms are input stall", said)
    assert re.search(r"step is 3\.\d+ ± \S+ ms longer than on one rank", said)


def test_the_page_says_the_loss_once_and_folds_its_tables(three: RunStore) -> None:
    content = _page(three, "real", "?baseline=synthetic")
    said = [text for text in texts(content) if "of the" in text.lower() and "difference" in text]
    assert len([text for text in said if text.startswith("Of the 8.")]) == 1
    folds = {
        next(iter(texts(details))): getattr(details, "open", False)
        for details in of_type(content, "Details")
    }
    assert folds == {"As a table": False, "Parts of the job": False, "11 facts": False}


def test_parts_that_no_job_has_are_in_neither_chart_nor_table(three: RunStore) -> None:
    content = _page(three, "real", "?baseline=synthetic")
    rare = {TITLES[name] for name in ("restart", "repeated", "stopped")}
    assert not rare & {trace.name for trace in charts(content)["jobs"].data}
    assert not rare & set(texts(content))


def test_without_a_run_on_one_rank_scale_is_not_mentioned(store: RunStore) -> None:
    content = _page(store, "real", "?baseline=synthetic")
    assert "Scale" not in charts(content)["decomposition"].layout.yaxis.ticktext
    assert not any("longer than on one rank" in text for text in texts(content))
    assert "Scaling efficiency" not in texts(content)


def test_throughput_has_its_interval_and_the_loader_alone_was_not_measured(
    three: RunStore,
) -> None:
    content = _page(three, "real", "?baseline=synthetic")
    head, *rows = table_rows(content, "Throughput")
    assert head[-1] == "Scaling efficiency"
    assert [row[0].partition(":")[0] for row in rows] == ["this run", "baseline", "one rank"]
    assert rows[2][-1] == "100%"
    for row in rows:
        low, high = (float(end.split()[0].replace(",", "")) for end in row[4].split(" to "))
        assert low < float(row[3].split()[0].replace(",", "")) < high
    assert any(
        "The loader alone, without training, was not measured" in text for text in texts(content)
    )


def test_the_whole_jobs_add_up_side_by_side(three: RunStore) -> None:
    content = _page(three, "real", "?baseline=synthetic")
    bars = charts(content)["jobs"]
    assert list(bars.layout.yaxis.ticktext) == ["this run", "baseline", "one rank"]
    for position, run_id in enumerate(("real", "synthetic", "one-synthetic")):
        total = sum(trace.x[position] for trace in bars.data)
        assert total == pytest.approx(three.analysis(run_id).job.total)
    rows = table_rows(content, "Parts of the job")
    assert [row[0] for row in rows[1:]] == [
        "Start-up",
        "Warm-up",
        "Steps",
        "Validation",
        "Checkpoints",
        "Between epochs",
        "Job",
        "Rank time",
    ]


def test_facts_that_differ_come_first(tmp_path: Path) -> None:
    different = replace(SYNTHETIC, batch_size=64, ranks=2)
    jobs = {"real": REAL, "other": different}
    store = RunStore([run_of_job(tmp_path / name, job) for name, job in jobs.items()])
    content = _page(store, "real", "?baseline=synthetic")
    head, *rows = table_rows(content, "Are they the same job?")
    assert head == ["Fact", "this run", "baseline", "Against the baseline"]
    assert rows[:2] == [
        ["Ranks", "4", "2", "differs"],
        ["Batch size per rank", "32", "64", "differs"],
    ]
    assert ["Model", "made", "made", "same"] in rows
    assert rows[-1][-1] == "not recorded"
    (facts,) = (
        component for component in of_type(content, "Details") if "11 facts" in texts(component)
    )
    assert facts.open is True
    assert any("2 of them differ from the baseline's" in text for text in texts(content))


def test_without_a_baseline_the_page_says_what_one_is_and_how_to_record_one(
    store: RunStore,
) -> None:
    content = _page(store, "real")
    said = texts(content)
    assert "No baseline is chosen" in said
    (code,) = of_type(content, "Code")
    assert "from stallscope.keras import StepLogger, synthetic_like" in code.children
    assert "model.fit(synthetic_like(data)" in code.children
    assert "synthetic=True" in code.children
    links = [anchor for anchor in of_type(content, "Anchor") if "?baseline=" in anchor.href]
    assert links[0].href == "/run/real/baseline?baseline=synthetic"
    assert any(text.startswith(": same job on synthetic data, 4 ranks") for text in said)
    assert len(links) == len(store.runs()) - 1


def _unread_store(folder: Path) -> RunStore:
    """Return a store of a run, its baseline and one with a slow rank; nothing is analysed yet."""
    jobs = (REAL, SYNTHETIC, SLOW_RANK)
    return RunStore([run_of_job(folder / job.run_id, job) for job in jobs])


def _menu(content: Any) -> dict[str, str]:
    """The labels of the menu of baselines, by the runs' ids."""
    (menu,) = (select for select in of_type(content, "Select") if select.id == "baseline")
    return {item["value"]: item["label"] for group in menu.data for item in group["items"]}


def test_only_runs_that_no_page_has_analysed_are_called_not_analysed_yet(tmp_path: Path) -> None:
    store = _unread_store(tmp_path)
    content = _page(store, "real")
    assert ": same job on synthetic data, 4 ranks, not analysed yet" in texts(content)
    assert _menu(content) == {
        "synthetic": "resnet on noise: 4 ranks, not analysed yet",
        "slow": "resnet with a slow rank: 8 ranks, not analysed yet",
    }
    # The page of a run has its verdict, and so has the menu of another run from then on.
    _page(store, "slow")
    assert _menu(_page(store, "real"))["slow"] == "resnet with a slow rank: 8 ranks, slow rank 2"
    _page(store, "synthetic")
    content = _page(store, "real")
    assert ": same job on synthetic data, 4 ranks" in texts(content)
    assert _menu(content)["synthetic"] == "resnet on noise: 4 ranks"


@pytest.mark.parametrize(
    ("baseline_id", "label"),
    [
        ("synthetic", "resnet on noise: 4 ranks"),
        ("slow", "resnet with a slow rank: 8 ranks, slow rank 2"),
    ],
)
@pytest.mark.parametrize(
    "page", ["", "/baseline", "/timeline", "/stragglers", "/step/7", "/health"]
)
def test_the_chosen_baseline_is_analysed_on_every_page_that_names_it(
    tmp_path: Path, page: str, baseline_id: str, label: str
) -> None:
    store = _unread_store(tmp_path)
    content = view_at(store, f"/run/real{page}", f"?baseline={baseline_id}").content
    assert _menu(content)[baseline_id] == label
    # The list and the menus of other runs say the same.
    assert baseline_facts(store.listing()[baseline_id]) == label.partition(": ")[2]


@pytest.mark.parametrize(("framework", "name"), [("pytorch", "torch"), ("unheard-of", "keras")])
def test_the_lines_are_those_of_the_runs_framework(
    tmp_path: Path, framework: str, name: str
) -> None:
    job = replace(REAL, facts={"framework": framework})
    content = _page(RunStore([run_of_job(tmp_path, job)]), "real")
    first, *others = of_type(content, "Code")
    assert f"from stallscope.{name} import StepLogger, synthetic_like" in first.children
    assert bool(others) is (framework == "unheard-of")


def test_baselines_that_fit_come_first_and_the_others_are_named_for_what_they_are(
    tmp_path: Path,
) -> None:
    late = {(rank, "input"): 40.0 for rank in range(4)}
    jobs = {
        "real": REAL,
        "fit": SYNTHETIC,
        "slow-rank": replace(SYNTHETIC, slow={(1, "compute"): 40.0}),
        "slow-loaders": replace(SYNTHETIC, slow=late),
        "versions": replace(SYNTHETIC, facts={**SYNTHETIC.facts, "versions": {"horovod": "0.19"}}),
        "two-ranks": replace(SYNTHETIC, ranks=2),
        "again": REAL,
    }
    runs = []
    for name, job in jobs.items():
        named = replace(job, run_id=name, facts={**job.facts, "run_name": name})
        runs.append(run_of_job(tmp_path / name, named))
    store = RunStore(runs)
    assert baseline_facts(store.listing()["fit"]) == "4 ranks, not analysed yet"
    listed = [
        run.with_summary(AnalysisSummary.of(store.analysis(run.id))) for run in store.listing().all
    ]
    groups = grouped_baselines("real", listed)
    assert {title: {run.id for run in group} for title, group in groups.items()} == {
        "Same job on synthetic data": {"fit"},
        "Other runs on synthetic data": {"slow-rank", "slow-loaders", "versions", "two-ranks"},
        "Runs on real data": {"again"},
    }
    facts = {run.id: baseline_facts(run) for run in listed}
    assert facts["fit"] == "4 ranks"
    assert facts["slow-rank"] == "4 ranks, slow rank 1"
    assert facts["slow-loaders"] == "4 ranks, input"
    assert baseline_facts(store.listing()["fit"]) == "4 ranks"


def test_a_run_on_synthetic_data_is_called_a_baseline(store: RunStore) -> None:
    content = _page(store, "synthetic")
    assert "This run is on synthetic data: it is a baseline itself" in texts(content)
    assert of_type(content, "Code") == []


@pytest.mark.parametrize(
    ("seed", "title"),
    [
        (REAL.seed, "This run is compared with itself"),
        (
            REAL.seed + 1,
            "This run is as fast as again, a run on real data, as far as the steps can tell",
        ),
    ],
)
def test_the_same_run_again_is_as_fast(tmp_path: Path, seed: int, title: str) -> None:
    again = replace(REAL, run_id="again", seed=seed, facts={**REAL.facts, "run_name": "again"})
    jobs = {"a": REAL, "b": again}
    store = RunStore([run_of_job(tmp_path / name, job) for name, job in jobs.items()])
    assert title in texts(_page(store, "real", "?baseline=again"))


def test_a_faster_run_has_gained(three: RunStore) -> None:
    said = texts(_page(three, "synthetic", "?baseline=real"))
    assert any(
        re.match(r"A step takes 8\.\d+ ± \S+ ms shorter than in [^,]+, a run on real data", text)
        for text in said
    )
    assert any("of the baseline's throughput is gained" in text for text in said)


@pytest.mark.broad
@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_the_page_with_and_without_a_baseline(
    name: str, named_run: Callable[[str], Run], store: RunStore
) -> None:
    run = named_run(name)
    runs = RunStore([run, *(named_run("four ranks") for _ in range(name != "four ranks"))])
    key = runs.runs()[0].id
    assert "This page cannot be shown" not in texts(_page(runs, key))
    if name != "four ranks":
        content = _page(runs, key, "?baseline=real")
        said = texts(content)
        assert "This page cannot be shown" not in said
        measured = name not in ("without stamps", "no steps")
        assert ("decomposition" in charts(content)) is measured


def test_hostile_names_are_text(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("hostile names"), named_run("four ranks")])
    key = next(run.id for run in store.runs() if run.id != "real")
    for content in (_page(store, key, "?baseline=real"), _page(store, "real", f"?baseline={key}")):
        assert any(SCRIPT in text for text in texts(content))
        assert_known_components(content)
        for drawn in charts(content).values():
            assert "<script" not in drawn.to_json()


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_pictures_are_drawn(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/run/real/baseline?baseline=synthetic", scheme=scheme, width=width)
    stages = page.get_by_role("img", name=re.compile("^Stage by stage"))
    stages.locator(".bars .point").first.wait_for()
    assert len(stages.locator(".errorbar").all()) == 10
    lost = page.get_by_role("img", name=re.compile("^Losses by cause"))
    expect(lost.locator(".ytick")).to_have_text(
        ["baseline", "Input stall", "Compute", "Other", "Exposed allreduce", "this run"]
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_a_baseline_is_chosen_from_the_list(open_page: Open) -> None:
    page = open_page("/run/real/baseline")
    choice = page.get_by_role("main").get_by_role("link", name="resnet on noise")
    choice.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/run/real/baseline\?baseline=synthetic$"))
    expect(page.get_by_role("heading", level=2).first).to_contain_text("A step takes")
