"""Measured networks: the run that they belong to, and damaged files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.network_checks import network_check, write_network_check
from support.step_logs import Job, run_of_job, write_job

from stallscope.collector.store.layout import MANIFEST
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import NotFoundError, UnknownVersionError, UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.measurements import parse_network_check

JOB = Job(ranks=2, steps=20)


def test_a_measurement_belongs_to_the_run_that_it_names(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    write_job(tmp_path, replace(JOB, run_id="run-b", generation=1))
    write_network_check(tmp_path, run_id="run-a")
    counts = {run.id: len(run.network_checks) for run in read(str(tmp_path))}
    assert counts == {"run-a": 1, "run-b": 0}


def test_a_measurement_without_a_run_belongs_to_the_newest_one_in_its_folder(
    tmp_path: Path,
) -> None:
    write_job(tmp_path / "one", JOB)
    write_job(tmp_path / "two", replace(JOB, run_id="run-b"))
    write_network_check(tmp_path / "two", gradients=None)
    counts = {run.id: len(run.network_checks) for run in read(str(tmp_path))}
    assert counts == {"run-a": 0, "run-b": 1}


def test_a_measurement_without_any_run_says_where_it_belongs(tmp_path: Path) -> None:
    write_network_check(tmp_path / "alone")
    with pytest.raises(
        NotFoundError, match="a measurement of a network, and no logs of a run; put"
    ):
        read(str(tmp_path / "alone"))
    write_job(tmp_path / "run", JOB)
    (run,) = read(str(tmp_path))
    assert run.network_checks == ()
    (problem,) = run.problems
    assert problem.where.endswith(".netcheck.json")
    assert problem.what == "measured a network, and no run is in its folder; left alone"


def test_it_is_read_as_it_was_measured(tmp_path: Path) -> None:
    data = json.dumps(network_check(left_out=["64 MiB"])).encode()
    check = parse_network_check("x.netcheck.json", data)
    assert check.as_run is not None
    assert (check.as_run.bytes, check.as_run.messages) == (9_640_000, 20)
    assert check.together is not None
    assert (check.together.bytes, check.together.messages) == (9_640_000, 1)
    assert [rounds.messages for rounds in check.tiny] == [1, 8]
    assert [rounds.bytes for rounds in check.sweep] == [4096, 8 << 20]
    assert (check.left_out, check.gradients_from) == (("64 MiB",), "sizes")


def test_credentials_are_masked() -> None:
    recorded = {"TF_VAR_conn": "db", "NCCL_NET": "https://ada:pw@host", "NCCL_ALGO": "Ring"}
    check = parse_network_check("a", json.dumps(network_check(settings=recorded)).encode())
    assert check.settings == {**recorded, "TF_VAR_conn": "***", "NCCL_NET": "***"}


def test_what_was_left_out_is_missing() -> None:
    changes = {"tiny": [{"messages": 1, "us": []}], "sweep": [], "gradients": None}
    check = parse_network_check("x", json.dumps(network_check(**changes)).encode())
    assert (check.tiny, check.sweep, check.as_run) == ((), (), None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"stallscope_netcheck": "1"}',
        json.dumps(network_check()).encode()[:-40],
        json.dumps(network_check(size=0)).encode(),
        json.dumps(network_check(pairs=[{"hosts": ["one"]}])).encode(),
        json.dumps(network_check(tiny=[{"messages": 1, "us": [-1.0]}])).encode(),
        json.dumps(network_check(seconds="NaN")).encode(),
        json.dumps(network_check(began_wall_ns=10**30)).encode(),
        json.dumps(network_check(reduced_by="pigeons")).encode(),
        json.dumps(network_check(gradients={"from": "sizes", "sizes": [[-1, 2]]})).encode(),
    ],
)
def test_a_damaged_file_affects_no_other(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^x: not a measurement of a network"):
        parse_network_check("x", data)
    write_job(tmp_path, JOB)
    (tmp_path / "1.netcheck.json").write_bytes(data)
    (run,) = read(str(tmp_path))
    assert run.network_checks == ()
    assert [problem.where for problem in run.problems] == ["1.netcheck.json"]


def test_a_newer_measurement_is_refused_by_name() -> None:
    data = json.dumps(network_check(stallscope_netcheck=2)).encode()
    with pytest.raises(UnknownVersionError, match=r"^x: measured by a newer Stallscope \(format 2"):
        parse_network_check("x", data)


def test_collected_runs_keep_measurements(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    run = run_of_job(logs, JOB)
    write_network_check(logs)
    (run,) = read(str(logs))
    folder = save_run(run, tmp_path / "store")
    assert load_run(folder).network_checks == run.network_checks != ()
    write_network_check(logs, began_wall_ns=1_700_000_100_000_000_000)
    (again,) = read(str(logs))
    save_run(again, tmp_path / "store")
    assert len(load_run(folder).network_checks) == 2


def test_a_store_of_an_older_version_has_none(tmp_path: Path) -> None:
    folder = save_run(run_of_job(tmp_path / "logs", JOB), tmp_path / "store")
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["network_checks"]
    path.write_text(json.dumps(manifest))
    assert load_run(folder).network_checks == ()
