"""Collected runs are complete, equal to their logs, and stay inside the store."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from simulator import Job as SimulatedJob
from simulator import simulate
from support.step_logs import Job, write_job

from stallscope.catalogue.entry import Entry
from stallscope.collector.sources.files import Files
from stallscope.collector.sources.source import reason
from stallscope.collector.store.layout import MANIFEST
from stallscope.collector.store.loading import RunOnDisk, load_run
from stallscope.collector.store.manifests import collected_runs
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.remote_folder import RemoteFolder
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import (
    NotFoundError,
    UnknownVersionError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from stallscope.opening import open_run, open_runs
from stallscope.parsers import read
from stallscope.run import Event, Series

JOB = Job(ranks=3, steps=20, epochs=2)


def collected(tmp_path: Path, job: Job = JOB) -> Path:
    write_job(tmp_path / "logs", job)
    return save_run(read(str(tmp_path / "logs"))[0], tmp_path / "store")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Return a store at a URL that has conditional writes, as far as its client says."""
    monkeypatch.setattr(Files, "conditional_options", lambda *_: {"IfMatch": "known"})
    yield Mirror.create(tmp_path / "mirror", "memory://runs")
    memory = fsspec.filesystem("memory")
    if memory.exists("/runs"):
        memory.rm("/runs", recursive=True)


@pytest.mark.parametrize(
    ("error", "saved"),
    [
        (ConnectionResetError("connection reset by peer"), False),
        (TimeoutError("no answer"), False),
        (PermissionError("access denied"), False),
        (OSError(errno.ENOSYS, "A header implies functionality that is not implemented"), True),
        (TypeError("unexpected keyword argument 'IfMatch'"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_store_without_conditions_is_written_without_them(
    tmp_path: Path,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    saved: bool,
) -> None:
    write, writes = RemoteFolder.write, []

    def refuse_conditions(
        folder: RemoteFolder, name: str, data: bytes, **conditions: object
    ) -> None:
        writes.append(bool(conditions))
        if conditions:
            raise error
        write(folder, name, data)

    monkeypatch.setattr(RemoteFolder, "write", refuse_conditions)
    write_job(tmp_path / "logs", JOB)
    (run,) = read(str(tmp_path / "logs"))
    if saved:
        save_run(run, mirror.folder)
        assert open_run("memory://runs").steps.equals(run.steps)
        assert "run one collector at a time" in caplog.text
    else:
        with pytest.raises(UnwritableError, match=reason(error)):
            save_run(run, mirror.folder)
    assert writes == ([True, False] if saved else [True])


@pytest.mark.parametrize("pattern", ["logs", "./logs", "lo*"])
def test_the_source_of_a_run_does_not_depend_on_where_it_was_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    write_job(tmp_path / "logs", JOB)
    monkeypatch.chdir(tmp_path)
    place = save_run(read(pattern)[0], tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = load_run(place)
    assert run.source == f"{tmp_path}/{pattern.removeprefix('./')}"
    assert read(run.source)[0].steps.equals(run.steps)


def test_the_source_at_a_url_stays_as_it_is(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    run = read(str(tmp_path / "logs"))[0]
    for source in ("s3://bucket/logs", "mlflow:0123", "databricks:job/12", "dbfs:/logs"):
        place = save_run(replace(run, source=source), tmp_path / "store")
        assert load_run(place).source == source


def test_a_collected_run_equals_its_logs(tmp_path: Path) -> None:
    place = collected(tmp_path)
    original, back = read(str(tmp_path / "logs"))[0], load_run(place)
    assert back.steps.equals(original.steps)
    assert back.intervals.equals(original.intervals)
    assert back.logs == original.logs
    assert (back.id, back.name, back.size) == (original.id, original.name, original.size)


def test_credentials_in_runs_that_were_collected_earlier_are_masked(tmp_path: Path) -> None:
    place = collected(tmp_path, replace(JOB, facts={"settings": {"NCCL_ALGO": "Ring"}}))
    manifest = place / MANIFEST
    earlier = '"TF_VAR_db_pass": "hunter2", "NCCL_ALGO": "https://ada:hunter2@host"'
    manifest.write_text(manifest.read_text().replace('"NCCL_ALGO": "Ring"', earlier))
    assert "hunter2" in manifest.read_text()
    for run in (load_run(place), RunOnDisk.open(place)):
        assert run.fact("settings") == {"TF_VAR_db_pass": "***", "NCCL_ALGO": "***"}


def test_a_row_group_has_few_ranks(tmp_path: Path) -> None:
    place = save_run(simulate(SimulatedJob(ranks=5, steps=30_000)).run, tmp_path)
    (path,) = (place / "steps").iterdir()
    file = pq.ParquetFile(path)
    groups = [set(file.read_row_group(i)["rank"].to_pylist()) for i in range(file.num_row_groups)]
    assert groups == [{0, 1}, {2, 3}, {4}]


def test_a_file_has_few_epochs(tmp_path: Path) -> None:
    run = simulate(SimulatedJob(ranks=2, steps=20_480, epochs=20)).run
    place = save_run(run, tmp_path)
    paths = sorted((place / "steps").iterdir())
    assert [path.stem for path in paths][:2] == ["epochs-000000-000003", "epochs-000004-000007"]
    assert set(pq.read_table(paths[1])["epoch"].to_pylist()) == {4, 5, 6, 7}
    back = load_run(place).steps
    order = [("rank", "ascending"), ("step", "ascending")]
    assert back.sort_by(order).equals(run.steps.sort_by(order))


STALL = Event("stall", "logs/stderr", "waited for rank 1", (1,), ("b",), 5, None, 7, 60)


def test_events_are_kept_and_those_of_deleted_logs_as_well(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    run = read(str(tmp_path / "logs"))[0]
    save_run(replace(run, events=(STALL,)), tmp_path / "store")
    place = save_run(replace(run, events=(replace(STALL, where="other"),)), tmp_path / "store")
    assert load_run(place).events == (replace(STALL, where="other"), STALL)
    longer = replace(STALL, waited_ns=120)
    place = save_run(replace(run, events=(longer,)), tmp_path / "store")
    assert load_run(place).events == (longer, replace(STALL, where="other"))


def cpu(*values: float, where: str = "metrics.mlflow.json") -> Series:
    walls = np.arange(len(values), dtype=np.int64) * 10**9
    return Series("cpu_utilization", "%", "node_0", None, where, walls, np.array(values))


def plainly(all_series: Iterable[Series]) -> list[tuple[object, ...]]:
    return [
        (*list(vars(series).values())[:-2], *series.wall_ns, *series.value) for series in all_series
    ]


def test_series_are_kept_and_read_on_request(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    series = (cpu(1.5, 2.5), replace(cpu(7.0), node=None, rank=3, name="x", unit=""))
    place = save_run(replace(read(str(tmp_path / "logs"))[0], series=series), tmp_path / "store")
    assert plainly(load_run(place).series) == plainly(series)
    lazy = RunOnDisk.open(place)
    assert plainly(lazy.series) == plainly(series)
    # Tables are large, and were not requested.
    assert "steps" not in vars(lazy)


def test_series_of_deleted_files_are_kept_as_well(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    run = read(str(tmp_path / "logs"))[0]
    save_run(replace(run, series=(cpu(1.0), cpu(2.0, where="other"))), tmp_path / "store")
    place = save_run(replace(run, series=(cpu(1.0, 3.0),)), tmp_path / "store")
    now = (cpu(1.0, 3.0), cpu(2.0, where="other"))
    assert plainly(load_run(place).series) == plainly(now)
    place = save_run(run, tmp_path / "store")
    assert plainly(load_run(place).series) == plainly(now)


def test_runs_collected_by_older_versions_have_no_series(tmp_path: Path) -> None:
    place = collected(tmp_path)
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["series"]
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert load_run(place).series == RunOnDisk.open(place).series == ()


def test_damaged_series_are_reported(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    run = replace(read(str(tmp_path / "logs"))[0], series=(cpu(1.0, 2.0),))
    place = save_run(run, tmp_path / "store")
    lazy = RunOnDisk.open(place)
    file = place / "series.parquet"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(UnreadableError, match="the collected run is damaged"):
        load_run(place)
    with pytest.raises(UnreadableError, match="the collected run is damaged"):
        assert lazy.series


def test_a_run_without_any_step_is_kept(tmp_path: Path) -> None:
    run = simulate(SimulatedJob(ranks=2, steps=3)).run
    place = save_run(replace(run, steps=run.steps.slice(0, 0)), tmp_path)
    assert load_run(place).steps.num_rows == 0


def test_tables_are_read_on_request(tmp_path: Path) -> None:
    place = collected(tmp_path)
    whole, later = load_run(place), RunOnDisk.open(place)
    assert "steps" not in vars(later)
    assert (later.rows, later.size, later.logs) == (whole.steps.num_rows, whole.size, whole.logs)
    assert later.steps.equals(whole.steps)
    assert later.intervals.equals(whole.intervals)
    assert not hasattr(later, "nothing")


def test_intervals_and_ends_of_steps_are_read_without_all_steps(tmp_path: Path) -> None:
    place = collected(tmp_path)
    whole, later = load_run(place), RunOnDisk.open(place)
    assert later.intervals.equals(whole.intervals)
    ends = later.ends_of(0, (3, 4))
    assert "steps" not in vars(later)
    # Several figures of a page need the same ends: the files are read once.
    assert later.ends_of(0, (3, 4)) is ends
    assert sorted(set(later.ends_of(0, (7,))["step"].to_pylist())) == [7]
    assert sorted(set(ends["step"].to_pylist())) == [3, 4]
    assert ends.sort_by("rank").equals(whole.ends_of(0, (3, 4)).sort_by("rank"))
    assert later.ends_of(1, (3, 4)).num_rows == 0
    later.forget_tables()
    assert later.intervals.equals(whole.intervals)


def test_a_run_on_disk_can_be_copied_with_other_parts(tmp_path: Path) -> None:
    later = RunOnDisk.open(collected(tmp_path))
    named = replace(later, source="elsewhere")
    assert (named.source, named.rows, named.id) == ("elsewhere", JOB.ranks * JOB.steps, later.id)
    assert named.steps.equals(later.steps)


def test_a_run_collected_before_its_rows_were_noted_is_read_at_once(tmp_path: Path) -> None:
    place = collected(tmp_path)
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["rows"]
    (place / "manifest.json").write_text(json.dumps(manifest))
    run = RunOnDisk.open(place)
    assert (run.rows, "steps" in vars(run)) == (JOB.ranks * JOB.steps, True)


def test_tables_of_another_state_are_not_used(tmp_path: Path) -> None:
    place = collected(tmp_path)
    before = RunOnDisk.open(place)
    collected(tmp_path, replace(JOB, steps=30))
    with pytest.raises(UnreadableError, match="collected again meanwhile; open it again"):
        _ = before.steps


def test_collecting_again_replaces_the_run_completely(tmp_path: Path) -> None:
    collected(tmp_path)
    collected(tmp_path, replace(JOB, steps=30))
    (place,) = collected_runs(tmp_path / "store")
    assert load_run(place).steps.num_rows == 90
    left = {path.name for path in (tmp_path / "store").iterdir() if path.name[0] != "."}
    assert left == {"run-a"}


def test_ranks_collected_from_their_hosts_one_after_the_other_are_one_run(tmp_path: Path) -> None:
    paths = write_job(tmp_path / "a", JOB)
    whole = read(str(tmp_path / "a"))[0]
    (tmp_path / "b").mkdir()
    paths[1].rename(tmp_path / "b" / paths[1].name)
    for host in ("a", "b"):
        place = save_run(read(str(tmp_path / host))[0], tmp_path / "store")
    back = load_run(place)
    assert back.ranks == [0, 1, 2]
    assert back.steps.equals(whole.steps)
    assert back.intervals.equals(whole.intervals)


def test_logs_deleted_at_their_source_stay(tmp_path: Path) -> None:
    collected(tmp_path)
    for path in (tmp_path / "logs").glob("rank-00002*"):
        path.unlink()
    place = save_run(read(str(tmp_path / "logs"))[0], tmp_path / "store")
    assert load_run(place).ranks == [0, 1, 2]


def test_another_job_of_the_same_id_does_not_replace_the_first(tmp_path: Path) -> None:
    first = collected(tmp_path)
    later = {"anchor": {"monotonic_ns": 5, "wall_ns": 1_800_000_000_000_000_000}}
    write_job(tmp_path / "again", replace(JOB, steps=10, facts=later))
    second = save_run(read(str(tmp_path / "again"))[0], tmp_path / "store")
    assert second.name == "run-a-2"
    assert load_run(first).steps.num_rows == 3 * JOB.steps
    assert load_run(second).steps.num_rows == 30


def test_ids_that_look_alike_as_names_of_folders_are_kept_apart(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    run = read(str(tmp_path / "logs"))[0]
    places = {save_run(replace(run, id=name), tmp_path / "store") for name in ("a/b", "a-b", "a b")}
    assert len(places) == 3


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "..", "a/b", ".hidden", "\0", ""])
def test_a_hostile_run_id_stays_in_the_store(tmp_path: Path, name: str) -> None:
    write_job(tmp_path / "logs", JOB)
    run = replace(read(str(tmp_path / "logs"))[0], id=name)
    place = save_run(run, tmp_path / "deep" / "store")
    assert place.parent == tmp_path / "deep" / "store"
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "deep"}
    assert load_run(place).id == name


def test_a_damaged_run_is_an_error(tmp_path: Path) -> None:
    place = collected(tmp_path)
    (steps,) = (place / "steps").iterdir()
    steps.write_bytes(steps.read_bytes()[:100])
    with pytest.raises(UnreadableError, match=r"damaged .* collect it again"):
        load_run(place)
    steps.unlink()
    with pytest.raises(UnreadableError, match="damaged"):
        load_run(place)


@pytest.mark.parametrize(
    "harm",
    [
        {"files": []},
        {"files": {"intervals.parquet": {"size": 1}}},
        {"logs": [{"rank": 0}]},
        {"logs": [[]]},
        {"problems": [{"what": 1}]},
        {"events": [7]},
        {"input_times": [{}]},
        {"network_checks": {"a": 1}},
        {"series": [7]},
        {"stallscope_collected": "2"},
    ],
)
def test_a_damaged_manifest_is_an_error_in_lists_and_when_the_run_is_opened(
    tmp_path: Path, harm: dict[str, object]
) -> None:
    place = collected(tmp_path)
    manifest = place / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), **harm}))
    for read_run in (Entry.read, load_run, RunOnDisk.open):
        with pytest.raises(UnreadableError, match=r"damaged.*collect (it|the run) again"):
            read_run(place)


def test_a_folder_with_another_programs_manifest_is_a_folder_of_logs(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    (tmp_path / "logs" / "manifest.json").write_text('{"schema_version": 1, "status": "completed"}')
    (run,) = open_runs(str(tmp_path / "logs"))
    assert run.id == JOB.run_id


def test_a_newer_store_is_refused_by_name(tmp_path: Path) -> None:
    manifest = collected(tmp_path) / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"stallscope_collected": 2', '"stallscope_collected": 9')
    )
    with pytest.raises(UnknownVersionError, match="format 9"):
        load_run(manifest.parent)


def test_a_store_means_all_of_its_runs(tmp_path: Path) -> None:
    for name in ("run-a", "run-b"):
        write_job(tmp_path / name, replace(JOB, run_id=name))
        save_run(read(str(tmp_path / name))[0], tmp_path / "store")
    store = str(tmp_path / "store")
    assert [run.id for run in open_runs(store)] == ["run-a", "run-b"]
    assert open_run(store + "#run-b").id == "run-b"
    with pytest.raises(
        NotFoundError, match=f"{store}: there are 2 runs here; name one: {store}#run-a"
    ):
        open_run(store)
    # The newest first, where the two were not collected in the same second.
    with pytest.raises(
        NotFoundError, match=r'no such run: "nonsense"; there are run-[ab], run-[ab]'
    ):
        open_run(store + "#nonsense")


def test_a_folder_of_two_jobs_means_both_of_them(tmp_path: Path) -> None:
    write_job(tmp_path / "1", JOB)
    later = {"anchor": {"monotonic_ns": 0, "wall_ns": 1_800_000_000_000_000_000}}
    write_job(tmp_path / "2", replace(JOB, run_id="run-b", facts=later))
    assert [run.id for run in open_runs(str(tmp_path))] == ["run-b", "run-a"]
    with pytest.raises(NotFoundError, match=r"there are 2 runs here; name one: .*#run-b"):
        open_run(str(tmp_path))
    assert open_run(f"{tmp_path}#run-a").id == "run-a"


@pytest.mark.parametrize("name", ["exp#3", "#3", "a#b#c", "100% [1]#x"])
def test_a_folder_may_have_a_mark_in_its_name(tmp_path: Path, name: str) -> None:
    logs = tmp_path / name / "logs"
    write_job(logs / "1", JOB)
    write_job(logs / "2", replace(JOB, run_id="run-b"))
    assert {run.id for run in open_runs(str(logs))} == {"run-a", "run-b"}
    assert open_run(f"{logs}#run-b").id == "run-b"
    assert open_run(f"file://{logs}#run-a").id == "run-a"
    save_run(open_run(f"{logs}#run-b"), tmp_path / name / "store")
    assert open_run(f"{tmp_path / name / 'store'}#run-b").id == "run-b"


def test_a_url_is_a_run(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    assert open_run(tmp_path.as_uri()).id == "run-a"
    with pytest.raises(UsageError, match="cannot be opened"):
        open_run("nonsense://bucket/run")
