"""Logs find their run without communication between the ranks."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, TextIO

import pytest

from stallscope.collector.recorder.job.world import (
    World,
    job_start_ns,
    launch_name,
    launch_of_training,
    process_start_ns,
    rejoins,
    run_id_of_training,
    world_from_environment,
    world_of_training,
)
from stallscope.collector.recorder.step_log import run_identity
from stallscope.collector.recorder.step_log.line_format import file_name, header
from stallscope.collector.recorder.step_log.run_identity import RunIdentity, join_run, write_new

NOON = 1_700_000_000_000_000_000
MINUTE = 60 * 1_000_000_000


def join(
    folder: Path,
    rank: int = 0,
    *,
    size: int = 2,
    run_id: str | None = None,
    launch: str | None = "job-1",
    wall_ns: int = NOON,
    elastic: bool = False,
) -> RunIdentity:
    return join_run(folder, World(rank, size, rank), run_id, launch, wall_ns, elastic)


def leave_log(folder: Path, rank: int, of: RunIdentity, part: int = 0) -> None:
    text = header({"run_id": of.run_id, "generation": of.generation})
    (folder / file_name(rank, of.generation, part)).write_text(text)


def refuse(*_names: object) -> NoReturn:
    raise PermissionError(errno.EPERM, "not on this file system")


def test_the_first_rank_founds_the_run_and_the_others_join_it(tmp_path: Path) -> None:
    founded = join(tmp_path, 0)
    assert join(tmp_path, 1) == founded
    assert founded.generation == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["run_id"] == founded.run_id


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_rank_that_comes_while_the_first_writes_joins_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    joined: list[RunIdentity] = []

    class BetweenJson:
        """Lets the other rank join at the moment when this one writes what it found out."""

        loads = staticmethod(json.loads)

        @staticmethod
        def dumps(content: object) -> str:
            monkeypatch.setattr(run_identity, "json", json)
            joined.append(join(tmp_path, 1))
            return json.dumps(content)

        @staticmethod
        def dump(content: object, file: TextIO) -> None:
            file.write(BetweenJson.dumps(content))

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(run_identity, "json", BetweenJson)
    assert join(tmp_path, 0) == joined[0]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_later_job_in_the_same_folder_is_a_new_run(tmp_path: Path) -> None:
    first = join(tmp_path, launch="job-1")
    later = join(tmp_path, launch="job-2")
    assert later.run_id != first.run_id
    assert later.generation == 0
    assert join(tmp_path, 1, launch="job-2") == later
    assert join(tmp_path, 1, launch="job-1") == first
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "run-1.json"}


def test_a_later_job_with_the_same_launch_name_is_a_new_run(tmp_path: Path) -> None:
    """The port of a rendezvous often repeats; a rank that has a log there already does not."""
    first = join(tmp_path, 0)
    leave_log(tmp_path, 0, first)
    leave_log(tmp_path, 1, join(tmp_path, 1))
    later = join(tmp_path, 1)
    assert later.run_id != first.run_id
    leave_log(tmp_path, 1, later, part=1)
    assert join(tmp_path, 0) == later


def test_a_replaced_rank_of_an_elastic_job_comes_back_to_its_run(tmp_path: Path) -> None:
    first = join(tmp_path, 0)
    leave_log(tmp_path, 0, first)
    assert join(tmp_path, 0, elastic=True) == first


def test_another_log_of_the_rank_has_no_effect(tmp_path: Path) -> None:
    first = join(tmp_path, 0)
    leave_log(tmp_path, 1, RunIdentity("another run", 0))
    (tmp_path / file_name(1, 0, 1)).write_text("torn")
    assert join(tmp_path, 1) == first


def test_a_rank_never_lists_a_folder_that_it_shares_with_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = join(tmp_path, 0)
    leave_log(tmp_path, 0, first)

    def listed(*_: object) -> NoReturn:
        raise AssertionError("the folder was listed")

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, listed)
    assert join(tmp_path, 1) == first
    assert join(tmp_path, 0) != first


def test_the_same_run_id_is_the_same_run_and_another_generation(tmp_path: Path) -> None:
    assert join(tmp_path, run_id="mine", launch="job-1") == RunIdentity("mine", 0)
    assert join(tmp_path, 1, run_id="mine", launch="job-1") == RunIdentity("mine", 0)
    assert join(tmp_path, run_id="mine", launch="job-2") == RunIdentity("mine", 1)
    assert join(tmp_path, run_id="other", launch="job-3") == RunIdentity("other", 0)
    # Also with another run in between.
    assert join(tmp_path, run_id="mine", launch="job-4") == RunIdentity("mine", 2)


def test_without_a_launchers_name_ranks_that_start_together_are_one_job(tmp_path: Path) -> None:
    first = join(tmp_path, 0, launch=None)
    assert join(tmp_path, 1, launch=None, wall_ns=NOON + 9 * MINUTE) == first
    assert join(tmp_path, 1, launch=None, wall_ns=NOON + 11 * MINUTE) != first


def test_without_a_launchers_name_another_number_of_ranks_is_another_job(tmp_path: Path) -> None:
    assert join(tmp_path, size=2, launch=None) != join(tmp_path, size=4, launch=None)


def test_a_rank_waits_until_the_founder_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.touch()
    content = {"run_id": "slow", "generation": 0, "launch": "job-1", "size": 2, "wall_ns": NOON}
    monkeypatch.setattr(run_identity.time, "sleep", lambda _: path.write_text(json.dumps(content)))
    assert join(tmp_path, 1) == RunIdentity("slow", 0)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": 3, "generation": 0, "wall_ns": 1}'])
def test_a_run_file_that_stays_unreadable_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "run.json").write_text(content)
    monkeypatch.setattr(run_identity.time, "sleep", lambda _: None)
    founded = join(tmp_path)
    assert (tmp_path / "run.json").read_text() == content
    assert json.loads((tmp_path / "run-1.json").read_text())["run_id"] == founded.run_id


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        join(tmp_path / "file")


@dataclass
class RayContext:
    """Ray Train's context of a worker; real workers are in tests/training/test_ray.py."""

    rank: int
    run_id: str = "5f0c"

    def get_world_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return 2

    def get_local_rank(self) -> int:
        return 0

    def get_experiment_name(self) -> str:
        return "nightly"


def become_worker(patched: pytest.MonkeyPatch, context: RayContext) -> None:
    of_run = SimpleNamespace(train_run_context=SimpleNamespace(run_id=context.run_id))
    modules = {
        "ray.train": SimpleNamespace(get_context=lambda: context),
        "ray.train.v2._internal.execution.context": SimpleNamespace(_train_context=of_run),
    }
    for name, module in modules.items():
        patched.setitem(sys.modules, name, module)


def test_workers_of_ray_have_one_run_id_on_all_hosts_and_after_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    ids = []
    for rank in (0, 1, 1, 0):
        become_worker(monkeypatch, RayContext(rank))
        # Ray's own ranks count, not those of what started Ray.
        assert world_of_training() == World(rank, 2, 0)
        assert launch_of_training(2) == "RAY_TRAIN:nightly:5f0c"
        assert rejoins({})
        ids.append(run_id_of_training(tmp_path / "logs"))
    assert len(set(ids)) == 1
    assert run_id_of_training(tmp_path / "other") not in ids
    become_worker(monkeypatch, RayContext(0, run_id="a9d1"))
    assert run_id_of_training(tmp_path / "logs") not in ids
    monkeypatch.setenv("STALLSCOPE_RUN_ID", "mine")
    assert run_id_of_training(tmp_path / "logs") == "mine"


def test_a_driver_of_ray_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    become_worker(monkeypatch, RayContext(1))
    context = sys.modules["ray.train.v2._internal.execution.context"]
    monkeypatch.setattr(context, "_train_context", None)
    assert world_of_training() == World(0, 1, None)
    assert not rejoins({})
    assert job_start_ns() is None


# Links are refused as by file systems that have none, links and moves of folders as by mounted buckets.
@pytest.mark.broad
@pytest.mark.parametrize("refused", [(), ("link",), ("link", "rename")])
def test_many_processes_at_once_agree_on_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...]
) -> None:
    for name in refused:
        monkeypatch.setattr(os, name, refuse)
    # On busy cores the first rank may write its file for longer than the others would wait.
    monkeypatch.setattr(run_identity, "_READ_ATTEMPTS", 10_000)
    folders = [tmp_path / str(number) for number in range(25)]
    for folder in folders:
        folder.mkdir()
    ranks = 8
    # Ranks of one folder one after the other, so that the workers get them at the same time.
    tasks = [
        (folder, World(rank, ranks, None), None, "job-1", NOON)
        for folder in folders
        for rank in range(ranks)
    ]
    # Forked processes inherit what is refused.
    with multiprocessing.get_context("fork").Pool(ranks) as pool:
        joined = pool.starmap(join_run, tasks, chunksize=1)
    for number, folder in enumerate(folders):
        assert len(set(joined[number * ranks : (number + 1) * ranks])) == 1
        assert [path.name for path in folder.iterdir()] == ["run.json"]
    assert len(set(joined)) == len(folders)


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_rank_that_ends_while_it_writes_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """The others join one run, whether its text was published or not."""
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    child = os.fork()
    if child == 0:
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, lambda *_: os._exit(0))
        join(tmp_path, 0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    joined = {join(tmp_path, rank) for rank in (1, 2, 3)}
    assert len(joined) == 1
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["run_id"] == joined.pop().run_id


@pytest.mark.broad
@pytest.mark.parametrize("refused", [(), ("link",), ("link", "rename")])
def test_new_files_never_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...]
) -> None:
    for name in refused:
        monkeypatch.setattr(os, name, refuse)
    tasks = [(tmp_path, "rank-00000", ".csv", f"text {number}") for number in range(40)]
    with multiprocessing.get_context("fork").Pool(8) as pool:
        paths = pool.starmap(write_new, tasks, chunksize=1)
    assert [path.read_text() for path in paths] == [text for *_, text in tasks]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


@pytest.mark.parametrize(
    ("settings", "world"),
    [
        ({}, World(0, 1, None)),
        (
            {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_RANK": "1"},
            World(3, 8, 1),
        ),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, World(1, 2, None)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}, World(1, 4, 0)),
        ({"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "2"}, World(5, 6, 2)),
        # torchrun's plain names mean something else without the number of ranks.
        ({"RANK": "5"}, World(0, 1, None)),
        ({"RANK": "first", "WORLD_SIZE": "two"}, World(0, 1, None)),
        (
            {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "RANK": "7", "WORLD_SIZE": "9"},
            World(0, 2, None),
        ),
    ],
)
def test_the_rank_comes_from_the_launchers_variables(
    settings: dict[str, str], world: World
) -> None:
    assert world_from_environment(settings) == world


def test_all_ranks_of_a_launch_give_it_the_same_name_and_another_launch_another() -> None:
    launch = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4242"}
    name = launch_name({**launch, "HOROVOD_RANK": "0"}, 2)
    assert name == launch_name({**launch, "HOROVOD_RANK": "1"}, 2)
    assert name != launch_name({**launch, "HOROVOD_GLOO_RENDEZVOUS_PORT": "4243"}, 2)
    assert launch_name({"SLURM_JOB_ID": "7"}, 2) is None
    assert launch_name({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, 2) is not None


def test_tasks_of_slurm_that_train_alone_are_separate_launches() -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    address = {"MASTER_ADDR": "h1", "MASTER_PORT": "29500"}
    alone = launch_name({**step, **address, "SLURM_STEP_NUM_TASKS": "8"}, 1)
    assert alone is not None
    assert alone.startswith("process:")
    assert launch_name({**step, "SLURM_STEP_NUM_TASKS": "1"}, 1) == "SLURM_JOB_ID:7:0"
    assert launch_name({**step, "SLURM_STEP_NUM_TASKS": "8"}, 8) == "SLURM_JOB_ID:7:0"


def test_one_process_is_a_separate_launch() -> None:
    name = launch_name({}, 1)
    assert name is not None
    assert name.startswith("process:")
    assert launch_name({}, 2) is None


def test_the_process_started_before_now_and_less_than_a_day_ago() -> None:
    age_seconds = (time.monotonic_ns() - process_start_ns()) / 1e9
    assert 0 < age_seconds < 86_400


def test_a_system_without_proc_takes_now_as_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", refuse)
    before = time.monotonic_ns()
    assert before <= process_start_ns() <= time.monotonic_ns()


def test_torchruns_name_of_a_job_is_the_launch() -> None:
    address = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    named = launch_name({**address, "TORCHELASTIC_RUN_ID": "job-7"}, 2)
    # A restart may use another port.
    assert named == launch_name({"TORCHELASTIC_RUN_ID": "job-7", "MASTER_PORT": "1"}, 2)
    # torchrun's name if the user gave none, and Spark's name of every job.
    unnamed = launch_name({**address, "TORCHELASTIC_RUN_ID": "none"}, 2)
    assert unnamed == launch_name({**address, "TORCHELASTIC_RUN_ID": "0"}, 2)
    assert unnamed == launch_name(address, 2) != named


def test_a_restarted_process_rejoins_its_run(tmp_path: Path) -> None:
    first = join(tmp_path)
    leave_log(tmp_path, 0, first)
    assert join(tmp_path, elastic=True) == first
    assert rejoins({"TORCHELASTIC_RESTART_COUNT": "1"})
    assert rejoins({"HOROVOD_ELASTIC": "1"})
    assert not rejoins({"TORCHELASTIC_RESTART_COUNT": "0"})


def test_torchruns_job_continues_if_its_logs_are_recent(tmp_path: Path) -> None:
    launch = launch_name({"TORCHELASTIC_RUN_ID": "job-7"}, 2)
    first = join(tmp_path, launch=launch)
    leave_log(tmp_path, 0, first)
    # A host has joined: torchrun restarts all processes and does not count it as a restart.
    assert join(tmp_path, launch=launch) == first
    for log in tmp_path.glob("*.steps.csv"):
        os.utime(log, (0, 0))
    assert join(tmp_path, launch=launch).run_id != first.run_id


@pytest.mark.parametrize(
    ("env", "name"), [({}, "jax.distributed:h1:1234"), (None, "PMIX_NAMESPACE:7")]
)
def test_where_no_launcher_names_the_job_the_processes_of_jax_share_their_coordinator(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str] | None, name: str
) -> None:
    # JAX is not in this environment; real processes are in the tests of training.
    state = SimpleNamespace(global_state=SimpleNamespace(coordinator_address="h1:1234"))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", state)
    monkeypatch.setattr(os, "environ", {"PMIX_NAMESPACE": "7"} if env is None else env)
    assert launch_of_training(2) == name


def test_jax_is_asked_for_its_processes_only_by_those_who_know_that_it_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jax = SimpleNamespace(process_count=lambda: 4, process_index=lambda: 3)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setattr(os, "environ", {})
    assert world_of_training() == World(0, 1, None)
    assert world_of_training(asks_jax=True) == World(3, 4, None)


# With fewer tasks than ranks, a task has started several ranks.
@pytest.mark.parametrize(("tasks", "local_rank"), [("4", 1), ("2", None)])
def test_ranks_that_srun_starts_know_their_number_on_the_host(
    monkeypatch: pytest.MonkeyPatch, tasks: str, local_rank: int | None
) -> None:
    jax = SimpleNamespace(process_count=lambda: 4, process_index=lambda: 3)
    monkeypatch.setitem(sys.modules, "jax", jax)
    task = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": tasks}
    monkeypatch.setattr(os, "environ", task)
    assert world_of_training(asks_jax=True) == World(3, 4, local_rank)
