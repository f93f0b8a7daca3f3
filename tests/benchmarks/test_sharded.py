"""Models that ranks share on the scorecard: plan, slow ranks, and that scores tell right from wrong."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import links
from support.benchmarks import benchmark
from support.links import HOSTS
from support.step_logs import Job, write_job

cells = benchmark("cells", "scorecard")
driver = benchmark("chapter", "scorecard")
injection = benchmark("injection", "scorecard")
plan = benchmark("sharded_plan", "scorecard")
scores = benchmark("sharded_scores", "scorecard")
sharded = benchmark("sharded", "scorecard")

CHAPTER = sharded.Sharded()
RANKS, STEPS = 8, 240
FAULT_MS = 20.0
CLEAN = Job(ranks=RANKS, steps=STEPS, allreduce_ms=1.0)
OWN_WORK = {"placed": ["data", "ready", "reduced"], "reason": None, "ready": "own work"}


def planned(*words: str) -> list[list[Any]]:
    return list(CHAPTER.launches(driver.parser(CHAPTER).parse_args(words)))


def cell_of(framework: str, stage: str | None = None, who: str = "none") -> Any:
    percent = 30 if stage else 0
    return cells.Cell(framework, RANKS, 0, 0, stage, who, percent, "sleep" if stage else None)


def test_the_usual_plan_has_every_kind_of_fault_on_many_ranks() -> None:
    launches = planned()
    every = [cell for launch in launches for cell in launch]
    assert len({cell.name for cell in every}) == len(every) >= 120
    assert {launch[0].ranks for launch in launches} == {4, 8, 16}
    assert all(launch[0].synthetic for launch in launches)
    kinds = Counter(plan.kind_of(cell) for cell in every)
    assert set(kinds) == {"clean", *scores.KINDS, *scores.OTHER_KINDS}
    # One false alarm among fifty runs is as much as the target allows.
    assert kinds["clean"] >= 50


@pytest.mark.parametrize(
    ("framework", "who", "ranks"),
    [
        ("hybrid", "replicate", [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        ("tensor", "dp", [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        ("pipeline", "dp", [{0, 2, 4, 6}, {1, 3, 5, 7}]),
        ("pipeline", "pp", [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        ("jax_mesh", "replica", [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
    ],
)
def test_all_ranks_of_a_place_have_its_fault(
    framework: str, who: str, ranks: list[set[int]]
) -> None:
    cell = cell_of(framework, "compute", who)
    assert set(cell.slow) == ranks[cell.place]
    assert cell.turns(3) == [cell.slow] * 3
    faults = [injection.Injection(cell, rank, 1, 1e6, warm_up=0) for rank in range(RANKS)]
    for fault in faults:
        fault.here("compute")
    assert {rank for rank, fault in enumerate(faults) if fault.injected[0]} == set(cell.slow)


def trained(out: Path, cell: Any, slow: tuple[int, ...], slow_link: str | None = None) -> None:
    """Pretend that a cell has been trained, and that these ranks, or the link of a host, were slow."""
    folder = out / cell.name
    (folder / "logs").mkdir(parents=True)
    stage = cell.stage if cell.stage in cells.STAGES else "compute"
    delays = {(rank, stage): FAULT_MS for rank in slow}
    job = replace(CLEAN, run_id=cell.name, slow=delays)
    hosts = HOSTS[: cells.HOSTS.get(cell.framework, 0)]
    if hosts:
        job = replace(job, hosts=hosts, allreduce_ms=40.0 if slow_link else 1.0)
    write_job(folder / "logs", job)
    cells.write_cell(folder, cell)
    rows, columns = cells.mesh_shape(cell.framework, RANKS)
    for path in (folder / "logs").glob("*.steps.csv"):
        first, _, rest = path.read_text().partition("\n")
        start, _, facts = first.partition("{")
        header = json.loads("{" + facts)
        row, column = divmod(header["rank"], columns)
        if cell.framework in cells.DIMENSIONS:
            across, within = cells.DIMENSIONS[cell.framework]
            header["groups"] = [
                {"name": across, "first": column, "stride": columns, "size": rows},
                {"name": within, "first": row * columns, "stride": 1, "size": columns},
            ]
        if hosts:
            pair = header["host"], hosts[(row + 1) % len(hosts)]
            header["connections"] = [links.row(*pair, **(links.SLOW if slow_link in pair else {}))]
        if cell.framework == "pipeline":
            schedule = {"schedule": "Schedule1F1B", "micro_batches": 4, "stages": [row], "of": rows}
            header |= {"pipeline_schedule": schedule, "stamps": OWN_WORK}
        path.write_text(f"{start}{json.dumps(header)}\n{rest}")
    for rank in range(RANKS):
        injected = FAULT_MS * 1e6 if rank in cell.slow else 0
        content = {"step_ns": 2e7, "cpu_wait_ns": 0, "injected_ns": [injected] * STEPS}
        cells.truth_path(folder, rank).write_text(json.dumps(content))


CELLS = [
    cell_of("fsdp", "input", "one"),
    cell_of("hybrid", "compute", "replicate"),
    cell_of("tensor", "compute", "dp"),
    cell_of("pipeline", "compute", "pp"),
    cell_of("pipeline", "compute", "dp"),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_slow_ranks_are_right_and_others_are_wrong(tmp_path: Path, cell: Any) -> None:
    trained(tmp_path, cell, cell.slow)
    score = scores.score_cell(tmp_path, cell)
    assert score["right"]
    if plan.kind_of(cell) == "stage":
        assert (score["longer_stage"], score["named"]) == (cell.place, [])
    else:
        assert score["named"] == list(cell.slow)
        assert score["size"] == pytest.approx(1, abs=0.05)
    trained(tmp_path / "wrong", cell, ((cell.slow[0] + 1) % RANKS,))
    assert not scores.score_cell(tmp_path / "wrong", cell)["right"]


@pytest.mark.parametrize("framework", ["ddp_4_hosts", "fsdp_4_hosts", "hybrid_4_hosts"])
def test_the_host_with_the_slow_link_is_right(tmp_path: Path, framework: str) -> None:
    cell = cells.Cell(framework, RANKS, 0, 0, "link", "host", 100, "rate")
    assert (cell.slow, cell.turns(2)) == ((), [(), ()])
    right, wrong = (HOSTS[(cell.host + more) % 4] for more in (0, 1))
    for out, link, expected in (
        (tmp_path / "right", right, True),
        (tmp_path / "wrong", wrong, False),
        (tmp_path / "silent", None, False),
    ):
        trained(out, cell.baseline_cell, ())
        trained(out, cell, (), link)
        score = scores.score_cell(out, cell)
        assert (score["host"], score["right"]) == (right, expected)


@pytest.mark.parametrize(
    ("framework", "stage", "who"),
    [("fsdp_2_hosts", "link", "host"), ("jax", "device", "one")],
)
def test_no_rank_or_host_is_right_where_nothing_tells(
    tmp_path: Path, framework: str, stage: str, who: str
) -> None:
    cell = cells.Cell(framework, RANKS, 0, 0, stage, who, 30, "sleep")
    assert plan.is_unknowable(plan.kind_of(cell), framework)
    for out, slow in ((tmp_path / "silent", ()), (tmp_path / "named", (2,))):
        trained(out, cell.baseline_cell, ())
        trained(out, cell, slow)
        score = scores.score_cell(out, cell)
        assert score["right"] == (not slow)


def test_a_rate_sends_in_the_time_of_the_fault(tmp_path: Path) -> None:
    cell = cells.Cell("ddp_4_hosts", RANKS, 0, 0, "link", "host", 30, "rate")
    trained(tmp_path, cell.baseline_cell, ())
    plan.sent_path(tmp_path, cell).write_text(json.dumps({"bytes": 750_000}))
    # Six million bits in 30 % of 20 ms.
    assert plan.link_mbit_s(tmp_path, cell) == pytest.approx(1000)


def test_runs_that_determine_the_size_of_faults_are_scored_as_well(tmp_path: Path) -> None:
    first = cells.Cell("ddp", RANKS, 0, 0, synthetic=True)
    trained(tmp_path, first, ())
    driver.run(CHAPTER, ["score", str(tmp_path)])
    (score,) = driver.read_scores(tmp_path / driver.SCORES)
    assert (score["kind"], score["right"], score["named"]) == ("clean", True, [])


def run(**changed: Any) -> dict[str, Any]:
    known = {
        "framework": "hybrid",
        "ranks": 8,
        "kind": "replica",
        "percent": 10,
        "place": 1,
        "slow": [4, 5, 6, 7],
        "named": [4, 5, 6, 7],
        "right": True,
        "host": None,
        "slow_links": [],
        "longer_stage": None,
        "injected_ms": 5.0,
        "size": 1.0,
        "step_ms": 70.0,
        "evidence": "All of replicate 1 is last.",
    }
    return {**known, **changed}


def test_the_page_has_results_and_misses() -> None:
    clean = run(kind="clean", percent=0, place=None, slow=[], named=[], size=None)
    stage = run(framework="pipeline", kind="stage", place=2, slow=[4, 5], named=[], size=None)
    link = {**clean, "framework": "ddp_4_hosts", "kind": "link", "percent": 100, "host": "h3"}
    link["injected_ms"] = 20.0
    device = {**clean, "framework": "jax", "kind": "device", "percent": 30, "slow": [5]}
    good = [run(), stage, clean, {**link, "slow_links": ["h3"]}, device]
    bad = [
        run(right=False, named=[], size=None),
        {**clean, "right": False, "named": [3]},
        {**link, "right": False, "slow_links": ["h2"]},
        {**device, "right": False, "named": [5]},
    ]
    assert [bar.passed for bar in scores.sharded_bars(good)] == [True, True, True]
    assert [bar.passed for bar in scores.sharded_bars(good + bad)] == [False, False, False]
    text = scores.page({"made_on": {"cores": 2}, "runs": good + bad})
    assert "HSDP, 2 × 4 ranks, backward of replica 1 +10 %. Found: no rank." in text
    assert "HSDP, 2 × 4 ranks, no fault. Found: ranks [3]." in text
    assert "| pipelines of four stages, 4 × 2 ranks | – | – | – | – | 1 of 1 | – |" in text
    assert (
        "DDP on four hosts, 4 × 2 ranks, link of host h3 +100 %. Found: no rank, the link of h2."
        in text
    )
    assert (
        "| DDP on four hosts, 4 × 2 ranks | slow link | – | – | – | 1 of 2 | 40 % to 40 % |" in text
    )
    assert "JAX, one process per rank, 8 ranks, device of rank 5 +30 %. Found: ranks [5]." in text
    assert "make sharded" in scores.page({"made_on": {}, "runs": []})
