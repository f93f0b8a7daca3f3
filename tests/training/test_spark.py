"""Ranks that Spark starts record, and their step logs are found in Spark's own folders."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.needing import need
from support.services import tool
from support.spark import JAVA_OPTIONS
from training.launching import ENVIRONMENT, PROGRAMS, Launch, environment_of
from training.recorded import TIMESTAMPS, check_ranks_together

from stallscope.cli.main import main
from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.services, pytest.mark.unmeasured]

STEPS = 12
# Executors' outputs roll over at the smallest size that Spark allows; Java options pass it to workers.
ROLLING = {"strategy": "size", "maxSize": "81920", "enableCompression": "true"}


@dataclass(frozen=True)
class Applications:
    """The files of applications on one cluster."""

    #: A folder with the driver's files for each application.
    out: Path
    #: Spark's folder of executors' outputs.
    work: Path

    def result(self, application: str, case: str) -> Any:
        return json.loads((self.out / application / case / "result.json").read_text())

    def runs(self) -> dict[str | None, Run]:
        """Return the runs in the outputs of all executors, by name."""
        return {run.name: run for run in read(str(self.work))}


@pytest.fixture(scope="module")
def spark_side(training_side: None) -> None:
    """Need Spark in Horovod's environment."""
    installed = (ENVIRONMENT / ".ready-spark").exists()
    need(installed, "there is no Spark in .venv-horovod: tools/spark-env.sh .venv-horovod")


@pytest.fixture(scope="module")
def applications(
    spark_side: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Applications]:
    """Run two applications, one after the other, on one cluster with an executor per rank."""
    out = tmp_path_factory.mktemp("applications")
    rolling = [f"-Dspark.executor.logs.rolling.{name}={value}" for name, value in ROLLING.items()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_TOOL_OPTIONS", " ".join([JAVA_OPTIONS, *rolling]))
        with tool("spark").spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            application(cluster.master, out / "one", "shared_folder", "nothing_shared")
            application(cluster.master, out / "two", "horovod_runner")
            yield Applications(out, cluster.work)


@pytest.fixture(scope="module")
def local(spark_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run an application with its executor in the driver's process, and return its folder."""
    out = tmp_path_factory.mktemp("local") / "three"
    application("local[3]", out, "captured", "distributor", "page")
    return out


def application(master: str, out: Path, *cases: str) -> None:
    """Run cases as one application, and end it with its JVM if it takes too long."""
    out.mkdir()
    printed = out / "printed.txt"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            ["python", str(PROGRAMS / "spark_cases.py"), master, str(out), *cases],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=settings(),
            start_new_session=True,
        )
    Launch(process, printed).succeed()


def settings() -> dict[str, str]:
    """Return the variables of an application, without those of an outer Spark."""
    environment = environment_of(ENVIRONMENT)
    return {
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
        **{
            name: environment[name]
            for name in environment
            if not name.startswith(("PYSPARK_", "SPARK_"))
        },
        "PYSPARK_PYTHON": str(ENVIRONMENT / "bin" / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_ranks_of_spark_record_into_a_shared_folder(applications: Applications) -> None:
    (run,) = read(str(applications.out / "one" / "shared_folder" / "logs"))
    assert run.problems == ()
    assert run.ranks == [0, 1]
    assert run.status == "completed"
    assert run.steps.num_rows == 2 * 2 * STEPS
    assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
    check_ranks_together(run)
    assert applications.result("one", "shared_folder") == [{"rank": 0}, {"rank": 1}]


def test_executors_outputs_hold_the_same_steps(applications: Applications) -> None:
    (written,) = read(str(applications.out / "one" / "shared_folder" / "logs"))
    same = applications.runs()["shared folder"]
    assert same.id == written.id
    assert same.steps.equals(written.steps)
    assert same.intervals.equals(written.intervals)
    assert [log.facts for log in same.logs] == [log.facts for log in written.logs]


def test_ranks_that_share_nothing_are_one_run_per_launch(applications: Applications) -> None:
    runs = applications.runs()
    assert set(runs) == {"shared folder", "nothing shared, one", "runner"}
    for name in ("nothing shared, one", "runner"):
        run = runs[name]
        assert run.ranks == [0, 1]
        assert run.status == "completed"
        assert run.steps.num_rows == 2 * STEPS
        assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
        check_ranks_together(run)


def test_outputs_without_records_and_event_logs_are_no_problems(applications: Applications) -> None:
    outputs = {path.name for path in applications.work.glob("app-*/*/std*")}
    assert {"stdout", "stderr"} < outputs
    # Output rolls over and is compressed when a buffer is full.
    assert any(name.startswith("stderr--") and name.endswith(".gz") for name in outputs)
    assert all(run.problems == () for run in read(str(applications.work)))
    (events,) = (applications.out / "one" / "eventlogs").iterdir()
    assert events.read_bytes().startswith(b'{"Event":"SparkListener')
    for place in (events, applications.out / "one" / "eventlogs"):
        with pytest.raises(NotFoundError, match="Spark's own logs"):
            read(str(place))


def test_collect_makes_a_run_of_every_application(
    applications: Applications, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", str(applications.work), "--to", str(tmp_path / "store")]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("2 of 2 ranks") == 3
    assert printed.err == ""


def test_ranks_are_horovods_and_not_the_numbers_of_tasks(local: Path) -> None:
    returned = json.loads((local / "captured" / "result.json").read_text())
    assert returned == [
        {"rank": 0, "task": "0"},
        {"rank": 1, "task": "2"},
        {"rank": 2, "task": "1"},
    ]
    printed = (local / "captured" / "stderr").read_text()
    records = [line for line in printed.splitlines() if "stallscope:1:" in line]
    assert {line.partition("<stderr>")[0][-2] for line in records if "rank-00001" in line} == {"2"}
    (run,) = read(str(local / "captured"))
    assert run.ranks == [0, 1, 2]
    assert run.steps.num_rows == 3 * STEPS
    assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
    check_ranks_together(run)


def test_ranks_of_sparks_torch_distributor_are_one_run_in_their_folder_and_in_their_output(
    local: Path,
) -> None:
    (run,) = read(str(local / "distributor" / "logs"))
    assert run.problems == ()
    assert run.ranks == [0, 1]
    assert run.status == "completed"
    assert run.steps.num_rows == 2 * 1500
    assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
    check_ranks_together(run)
    printed = local / "distributor" / "printed.txt"
    # Spark truncates lines, and prints no ranks.
    assert printed.read_text().count("x...(truncated)\n") == 2
    (same,) = read(str(printed))
    assert same.problems == ()
    assert same.id == run.id
    assert same.steps.equals(run.steps)
    assert [log.facts for log in same.logs] == [log.facts for log in run.logs]


def test_the_script_of_the_page_records_one_run(local: Path) -> None:
    (run,) = read(str(local / "page" / "logs"))
    assert (run.name, run.ranks, run.status) == ("run-42", [0, 1], "completed")
    assert run.problems == ()
