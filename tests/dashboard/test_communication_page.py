"""What the page of communication says: from step logs, a Timeline and an autotune log beside them."""

from __future__ import annotations

import gzip
import lzma
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from support.links import run_with_links
from support.network_checks import pair, write_network_check
from support.step_logs import write_job

from stallscope.analysis import analyse
from stallscope.charts import COLOURS
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.companion_files import (
    LoadedTimeline,
    LoadingTimeline,
    companion_autotune,
    companion_timeline,
)
from stallscope.dashboard.components.tensor_cards import reading_card
from stallscope.dashboard.pages.communication_page import timeline_update
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, served
from .cases import IMAGE, JOBS, REAL, SCRIPT
from .content import assert_known_components, charts, of_type, table_rows, texts

JOB = replace(
    REAL,
    ranks=2,
    facts={"run_name": "two", "gradient_tensors": 162, "gradient_bytes": 12_000_000},
)
AUTOTUNE = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
    "cycle_time_ms,tensor_fusion_threshold,score\n"
    "0,0,0, 0,5,4,54.0453\n"
    "0,0,0, 0,50,32,10.722\n"
)


def timeline_of(steps: int, names: tuple[str, ...] = ("a", "b")) -> str:
    """A timeline as Horovod writes it: all tensors fused, ticks in the first step only."""
    tensors = list(enumerate(names, start=1))
    events = [
        "[\n"
        '{"name": "process_name", "ph": "M", "pid": 0, "args": '
        '{"start_time_since_epoch_in_micros":1600000000000000}},\n'
        '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
    ]
    for number, name in tensors:
        events.append(
            f'{{"name": "process_name", "ph": "M", "pid": {number}, "args": {{"name": "{name}"}}}},\n'
            f'{{"name": "process_sort_index", "ph": "M", "pid": {number}, '
            f'"args": {{"sort_index": {number}}}}},\n'
        )
    body = []
    for step in range(steps):
        at = 20_000 * step
        for number, _ in tensors:
            body.append(
                f'{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {at}, "pid": {number}}}'
            )
            for rank, late in ((0, 0), (1, 5000)) if step == 0 else ():
                body.append(
                    f'{{"ph": "X", "name": "{rank}", "ts": {at + late}, "pid": {number}, "dur": 0}}'
                )
            body.append(f'{{"ph": "E", "ts": {at + 5000}, "pid": {number}}}')
        for name, begin in (("ALLREDUCE", 5010), ("NCCL_ALLREDUCE", 5020)):
            for number, _ in tensors:
                body.append(f'{{"ph": "B", "name": "{name}", "ts": {at + begin}, "pid": {number}}}')
        for number, _ in tensors:
            body.append(f'{{"ph": "E", "ts": {at + 7020}, "pid": {number}}}')
        for number, _ in tensors:
            body.append(
                f'{{"ph": "E", "ts": {at + 7030}, "pid": {number}, '
                '"args": {"dtype": "float32", "shape": "[1000, 1000]"}}'
            )
    return "".join(events) + ",".join(body) + "]"


def _content(run: Run) -> Any:
    store = RunStore([run])
    return view_at(store, f"/run/{store.runs()[0].id}/communication", "").content


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_job(folder, JOB)
    return folder


@pytest.fixture
def folder(logs: Path, tmp_path: Path) -> Path:
    """A folder with the logs of a run, to put something beside them."""
    for log in logs.iterdir():
        (tmp_path / log.name).hardlink_to(log)
    return tmp_path


def test_from_step_logs_alone(folder: Path) -> None:
    content = _content(read(str(folder))[0])
    said = texts(content)
    title = next(text for text in said if text.startswith("Exposed allreduce takes"))
    assert re.fullmatch(
        r"Exposed allreduce takes \d+\.\d% of a step: (3\.0|2\.99)\d* ± \S+ ms", title
    )
    assert said[said.index(title) + 1].startswith(
        "A step reduces 162 gradient tensors, 12.0 MB. Exposed is the time that the step waits"
    )
    rows = dict(table_rows(content, "Reduced per step")[1:])
    assert rows["Gradient tensors"] == "162"
    # 12 MB in about 3 ms.
    assert re.fullmatch(r"[34]\.\d+ GB/s", rows["Effective bus bandwidth"])
    assert rows["Hidden"] == "not known without stallscope netcheck, or the network's own bandwidth"
    (layer,) = charts(content)["exposed"].data
    assert layer.y.mean() == pytest.approx(3, rel=0.1)


def test_what_would_be_recorded_stands_there_with_what_it_costs(folder: Path) -> None:
    content = _content(read(str(folder))[0])
    code = [component.children for component in of_type(content, "Code")]
    assert code == [
        f"HOROVOD_TIMELINE={folder}/timeline.json\nHOROVOD_TIMELINE_MARK_CYCLES=1",
        "HOROVOD_CACHE_CAPACITY=0",
        f"HOROVOD_AUTOTUNE=1\nHOROVOD_AUTOTUNE_LOG={folder}/autotune.csv",
    ]
    assert any("took 39–43 ms" in text for text in texts(content))


def test_without_horovod_its_files_are_not_recommended(tmp_path: Path) -> None:
    facts = {"versions": {"torch": "2.1", "horovod": None}}
    write_job(tmp_path, replace(JOB, facts=facts))
    assert of_type(_content(read(str(tmp_path))[0]), "Code") == []


@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_the_page(name: str, named_run: Callable[[str], Run]) -> None:
    content = _content(named_run(name))
    said = texts(content)
    assert "This page cannot be shown" not in said
    known = name not in ("one rank", "without stamps", "no steps")
    assert any(text.startswith("Exposed allreduce takes") for text in said) is known
    assert ("exposed" in charts(content)) is known


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one rank", "A single rank has no allreduce"),
        ("without stamps", "These logs cannot show what allreduce costs"),
        ("no steps", "These logs cannot show what allreduce costs"),
    ],
)
def test_an_unknown_result_is_reported(
    name: str, sentence: str, named_run: Callable[[str], Run]
) -> None:
    assert sentence in texts(_content(named_run(name)))


def test_a_printed_log_of_unknown_ranks_is_no_single_rank(tmp_path: Path) -> None:
    lines = [f"step {step} took 0.{300 + step % 7} s" for step in range(60)]
    (tmp_path / "train.log").write_text("\n".join(lines))
    pattern = "pattern:step {step} took {seconds}"
    (run,) = read(str(tmp_path / "train.log"), read_as=pattern)
    text = texts(_content(run))
    assert "These logs cannot show what allreduce costs" in text
    assert "No step was recorded." not in text
    assert any(
        "how long steps took, and nothing known of their stages" in sentence for sentence in text
    )


def test_a_timeline_next_to_the_logs_is_found_and_no_problem(folder: Path) -> None:
    (folder / "any-name.json").write_text(timeline_of(40))
    (run,) = read(str(folder))
    assert run.problems == ()
    content = _content(run)
    rows = dict(table_rows(content, "Horovod Timeline")[1:])
    assert rows["File"] == "any-name.json"
    assert rows["Read"].startswith("all of its ")
    assert rows["Begins"].endswith("maybe of another run")
    assert rows["Cycles"].startswith("not marked")
    assert rows["Steps"] == "40"
    head, *tensors = table_rows(content, "Tensors")
    assert head[-1] == "NCCL_ALLREDUCE, ms"
    assert [row[:4] for row in tensors] == [
        ["a", "allreduce", "4.00 MB", "40"],
        ["b", "allreduce", "4.00 MB", "40"],
    ]
    assert [float(cell) for cell in tensors[0][4:]] == [5.0, 2.02, 2.0]
    (bar,) = charts(content)["fusion"].data
    layout = charts(content)["fusion"].layout
    assert layout.xaxis.title.text == "tensors in one allreduce"
    assert layout.yaxis.title.text == "allreduces"
    assert (list(bar.x), list(bar.y)) == (["1", "2"], [0, 40])
    (size,) = table_rows(content, "Allreduces by size")[1:]
    # Two ranks move 8 MB in 2 ms.
    assert size[1:5] == ["40", "100%", "2.00", "4.00"]
    late = table_rows(content, "Last in negotiation")
    assert late[1][:3] == ["rank 1", "1", "100%"]
    assert any("In 2 of 80 negotiations" in text for text in texts(content))
    assert not any(
        "HOROVOD_TIMELINE=" in component.children for component in of_type(content, "Code")
    )


def test_sizes_of_every_class_have_names(folder: Path) -> None:
    for shape, name in (
        ("1", "up to 1.00 kB"),
        ("1000", "1.00 kB – 10.0 kB"),
        ("90, 1000, 1000", "more than 100 MB"),
    ):
        text = timeline_of(1).replace("[1000, 1000]", f"[{shape}]")
        (folder / "timeline.json").write_text(text)
        (size,) = table_rows(_content(read(str(folder))[0]), "Allreduces by size")[1:]
        assert size[0] == name


def test_of_several_timelines_the_newest_counts_also_in_a_subfolder(folder: Path) -> None:
    (run,) = read(str(folder))
    below = folder / "timelines-of-today"
    below.mkdir()
    for number, path in enumerate((folder / "old.json", below / "new.json", folder / "x.json")):
        path.write_text(timeline_of(1 + number))
        os.utime(path, (1000 + number % 2, 1000 + number % 2))
    seen = companion_timeline(run)
    assert seen is not None
    assert seen.path.name == "new.json"
    assert companion_timeline(run) is seen
    (below / "new.json").write_text(timeline_of(9))
    again = companion_timeline(run)
    assert again is not None
    assert again.tensors.negotiations == 18


def test_logs_in_folders_below_have_their_own_timeline_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_job(tmp_path / name / "logs", replace(JOB, run_id=name, steps=20, epochs=1))
    (tmp_path / "one" / "timeline.json").write_text(timeline_of(1))
    (tmp_path / "two" / "logs" / "timeline.json").write_text(timeline_of(2))
    runs = {run.id: run for run in read(str(tmp_path))}
    timelines = {name: companion_timeline(run) for name, run in runs.items()}
    assert {name: seen and seen.tensors.negotiations for name, seen in timelines.items()} == {
        "one": 2,
        "two": 4,
    }


def test_a_long_timeline_is_read_whole_while_the_page_is_there(folder: Path) -> None:
    (folder / "timeline.json").write_text(timeline_of(400))
    (run,) = read(str(folder))
    assert run.problems == ()
    seen = companion_timeline(run, blocking_bytes=0)
    if isinstance(seen, LoadingTimeline):
        assert 0 <= seen.read <= seen.size
        card = reading_card(seen)
        assert any("Reading timeline.json" in text for text in texts(card))
    while isinstance(seen, LoadingTimeline):
        seen = companion_timeline(run, blocking_bytes=0, reload=False)
    assert seen is not None
    assert (seen.damaged, seen.tensors.negotiations) == (0, 800)
    parts, all_there = timeline_update(analyse(run))
    assert all_there
    assert "Allreduces of each step" in [text for part in parts for text in texts(part)]


def test_a_timeline_that_grows_is_read_again_by_who_opens_the_page(folder: Path) -> None:
    path = folder / "timeline.json"
    path.write_text(timeline_of(3))
    (run,) = read(str(folder))
    first = companion_timeline(run)
    path.write_text(timeline_of(5))
    assert companion_timeline(run, reload=False) is first
    again = companion_timeline(run)
    assert isinstance(again, LoadedTimeline)
    assert again.tensors.negotiations == 10


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_compressed_timeline_is_read_whole(
    folder: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    (folder / f"timeline.json.{ending}").write_bytes(pack(timeline_of(40).encode()))
    (run,) = read(str(folder))
    seen = companion_timeline(run)
    while isinstance(seen, LoadingTimeline):
        seen = companion_timeline(run, reload=False)
    assert seen is not None
    assert seen.tensors.negotiations == 80
    assert (
        dict(table_rows(_content(run), "Horovod Timeline")[1:])["File"] == f"timeline.json.{ending}"
    )


@pytest.mark.broad
def test_a_damaged_packed_timeline_is_read_up_to_the_damage(folder: Path) -> None:
    whole = lzma.compress(timeline_of(4000).encode())
    (folder / "timeline.json.xz").write_bytes(whole[: len(whole) * 3 // 4])
    (run,) = read(str(folder))
    seen = companion_timeline(run)
    while isinstance(seen, LoadingTimeline):
        seen = companion_timeline(run, reload=False)
    assert seen is not None
    assert 0 < seen.tensors.negotiations < 8000


def test_every_step_has_its_parts_as_lines_and_as_a_table(folder: Path) -> None:
    (folder / "timeline.json").write_text(timeline_of(401))
    (run,) = read(str(folder))
    content = _content(run)
    lines = {line.name: line for line in charts(content)["timeline-steps"].data}
    assert set(lines) == {"negotiation", "transfer"}
    # Two steps and more make one point where there are many.
    assert len(lines["transfer"].x) == 134
    assert set(lines["transfer"].y) == {2.0}
    # Stages' colours would say that the parts are stages.
    stages = {COLOURS[name].light for name in ("input", "compute", "other", "imbalance", "wait")}
    assert not stages & {line.line.color for line in lines.values()}
    assert any("Each point is the mean of 3 steps." in text for text in texts(content))
    (table,) = [
        table
        for table in of_type(content, "Table")
        if getattr(table, "data", {}).get("head", [""])[0] == "Step"
    ]
    assert table.data["body"][0][0] == "0"
    assert len(table.data["body"]) == 134


def test_far_from_any_folder_nothing_is_looked_for(folder: Path) -> None:
    (folder / "timeline.json").write_text(timeline_of(1))
    (run,) = read(str(folder))
    for source in (f"file://{folder}", "s3://bucket/x", str(folder / "gone"), "x\0y"):
        assert companion_timeline(replace(run, source=source)) is None
    outside = replace(run.logs[0], path="../../../etc/passwd")
    assert companion_timeline(replace(run, logs=(outside,))) is None


@pytest.mark.parametrize("cut", [1, 40, 3000, 100_000])
def test_damaged_timelines_leave_the_page_whole(folder: Path, cut: int) -> None:
    text = timeline_of(40)
    (folder / "timeline.json").write_text(text[: max(300, len(text) - cut)])
    content = _content(read(str(folder))[0])
    assert "This page cannot be shown" not in texts(content)
    assert table_rows(content, "Horovod Timeline")


def test_pipes_and_folders_are_no_timelines(folder: Path) -> None:
    (run,) = read(str(folder))
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "nowhere.json").symlink_to("nowhere")
    assert companion_timeline(run) is None


def test_what_cannot_be_read_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Run) -> None:
        raise UnreadableError("timeline.json: cannot be read: Input/output error")

    monkeypatch.setattr("stallscope.dashboard.pages.communication_page.companion_timeline", broken)
    said = texts(_content(read(str(folder))[0]))
    assert "timeline.json: cannot be read: Input/output error" in said


def test_an_autotune_log_tells_the_best_setting(folder: Path) -> None:
    path = folder / "autotune.csv"
    path.write_text(AUTOTUNE)
    (run,) = read(str(folder))
    assert run.problems == ()
    content = _content(run)
    said = next(text for text in texts(content) if text.startswith("autotune.csv: "))
    assert "2 settings tried, tuning had not ended" in said
    assert "The best one reduces 54.0 MB/s" in said
    code = [component.children for component in of_type(content, "Code")]
    assert code[0].splitlines()[:2] == ["HOROVOD_FUSION_THRESHOLD=4194304", "HOROVOD_CYCLE_TIME=5"]
    samples, best = charts(content)["autotune"].data
    assert list(samples.y) == [54.0453, 10.722]
    assert (best.x[0], best.y[0]) == (1, 54.0453)
    rows = table_rows(content, "Settings that were tried")
    assert rows[1] == ["1 (best)", "off", "off", "off", "off", "5.00", "4.00", "54.0"]
    path.write_text(AUTOTUNE + "0,0,0, 0,5,4,54.0453\n0,0,0, 0")
    said = next(text for text in texts(_content(run)) if text.startswith("autotune.csv: "))
    assert "2 settings tried, tuning has converged" in said
    assert "1 line could not be read" in said


def test_an_autotune_log_without_samples(folder: Path) -> None:
    (folder / "tune.log").write_text(AUTOTUNE.splitlines(keepends=True)[0])
    (run,) = read(str(folder))
    assert companion_autotune(run) is not None
    assert "tune.log has no sample yet." in texts(_content(run))


def test_a_thousand_tensors_and_hostile_names_are_text(folder: Path) -> None:
    names = (SCRIPT, IMAGE.replace('"', "'"), *(f"layer/{number}" * 20 for number in range(1000)))
    (folder / "timeline.json").write_text(timeline_of(1, names))
    content = _content(read(str(folder))[0])
    rows = table_rows(content, "Tensors")[1:]
    assert len(rows) == 1002
    assert max(len(row[0]) for row in rows) <= 64
    assert SCRIPT in [row[0] for row in rows]
    assert_known_components(content)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("shown")
    write_job(folder, replace(JOB, run_id="shown"))
    (folder / "timeline.json").write_text(timeline_of(40))
    (folder / "autotune.csv").write_text(AUTOTUNE)
    with served(RunStore(read(str(folder)))) as url:
        yield url


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_pictures_are_drawn_in_a_browser(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/run/shown/communication", scheme=scheme, width=width)
    expect(page.locator("#page h1")).to_contain_text("two")
    for name in ("Fusion", "Autotuning"):
        picture = page.get_by_role("img", name=re.compile(f"^{name}"))
        expect(picture.locator(".main-svg").first).to_be_visible()
    expect(page.get_by_role("link", name="Communication")).to_have_attribute("aria-current", "page")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_links_between_hosts_are_there_the_slow_ones_first() -> None:
    run = run_with_links(slow=True)
    page = view_at(RunStore([run]), f"/run/{run.id}/communication", "").content
    _, *rows = table_rows(page, "Links between hosts")
    assert [row[:3] for row in rows] == [
        ["h1 (rank 0)", "h3", "36.0"],
        ["h3 (rank 2)", "h2", "36.0"],
        ["h2 (rank 1)", "h1", "800"],
    ]


def test_a_measured_network_is_drawn_above_what_the_run_exposes(tmp_path: Path) -> None:
    write_job(tmp_path, replace(JOB, hosts=("alpha",)))
    pairs = [pair("alpha", "beta", 900), pair("alpha", SCRIPT, 40), pair("beta", "gamma", 880)]
    write_network_check(tmp_path, pairs=pairs)
    (run,) = read(str(tmp_path))
    content = _content(run)
    assert "Gradients on this network" in texts(content)
    assert any("These gradients take 12.0 ± 0.5 ms" in text for text in texts(content))
    _, slowest, *others = table_rows(content, "Pairs of hosts while nothing trains")
    assert slowest == [f"alpha and {SCRIPT}", "40.0", "0.800 ms"]
    assert others[-1] == ["alpha and beta", "900", "0.800 ms"]
    rows = dict(table_rows(content, "Reduced per step")[1:])
    assert rows["Hidden"] == "9.00 ms of 12.0 ms, as measured while nothing trains"
