"""``--engine spark`` on real executors gives the same results as one machine."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.generations import GROWN_AND_SHRUNK, write_generations
from support.machines import began_ms, history, write_metrics
from support.spark import equal, need_spark, run_on_spark
from support.step_logs import Job, run_of_job, write_job

from stallscope.catalogue.checking import check_run
from stallscope.catalogue.index import Catalogue
from stallscope.cli.main import main
from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.manifests import collected_runs
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PROGRAM = Path(__file__).parent / "program.py"
SHAPE: dict[str, Any] = {"ranks": 6, "steps": 300, "epochs": 2, "hosts": ("alpha", "beta")}
JOB = Job(ranks=4, steps=200, epochs=2, hosts=("alpha", "beta"), clock_offset_ms=(0.0, 7000.0))
KERAS = b"Epoch 1/2\n10/10 - 3s - loss: 0.5 - 3s/epoch - 300ms/step\nEpoch 2/2\n" + (
    b"10/10 - 2s - loss: 0.4 - 2s/epoch - 200ms/step\n"
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command on Spark, and the stores of both engines."""

    status: int
    out: str
    err: str
    #: Executors that were killed meanwhile.
    killed: int
    spark: Path = Path()
    local: Path = Path()
    #: The output on one machine, and the first run to read.
    here: str = ""
    logs: Path = Path()

    def runs(self) -> tuple[list[Run], list[Run]]:
        """Return the runs that Spark has collected, and those of one machine."""
        return tuple(
            [load_run(folder) for folder in collected_runs(store)] for store in self.stores
        )  # type: ignore[return-value]

    @property
    def stores(self) -> tuple[Path, Path]:
        return self.spark, self.local


def plain(folder: Path) -> None:
    """Write logs, and measurements of the machine from MLflow."""
    run = run_of_job(folder, JOB)
    measured = history(began_ms(run), [float(number) for number in range(9)])
    write_metrics(folder, {"system/gpu_0_utilization_percentage": measured})


def skewed(folder: Path) -> None:
    """Write logs of which one rank's has a hundred times the steps of the others."""
    write_job(folder, Job(ranks=4, steps=100))
    long = folder.with_name("long")
    write_job(long, Job(ranks=1, steps=10_000, facts={"size": 4}))
    for path in long.iterdir():
        shutil.copy(path, folder / path.name.replace("rank-00000.0.0", "rank-00000.0.1"))


def damaged(folder: Path) -> None:
    """Write empty, torn, compressed, anonymous and unreadable logs, and other files."""
    torn, packed, empty, *_ = write_job(folder, JOB)
    torn.write_bytes(torn.read_bytes()[:-7])
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    empty.write_bytes(b"".join(empty.read_bytes().splitlines(keepends=True)[:2]))
    (folder / "rank-00009.0.0.steps.csv").write_bytes(b"#stallscope 1 {torn\n")
    (folder / "rank-00008.0.0.steps.csv").touch()
    broken = gzip.compress(empty.read_bytes())[:-5]
    (folder / "rank-00007.0.0.steps.csv.gz").write_bytes(broken)
    (folder / "notes.bin").write_bytes(bytes(range(256)))
    (folder / "README.md").write_text("notes on this job")
    (folder / "train.out").write_bytes(KERAS)


def attempts(folder: Path) -> None:
    """Write a fit that resumed from a checkpoint: the steps in between occur twice."""
    write_job(folder, replace(JOB, steps=200))
    again = folder.with_name("again")
    write_job(again, replace(JOB, steps=100, first_step=150, seed=2))
    for path in again.glob("*.csv"):
        content = path.read_text().replace('"part": 0', '"part": 1', 1)
        (folder / path.name.replace(".0.steps", ".1.steps")).write_text(content)


def elastic(folder: Path) -> None:
    """Write a job that one host joins and another leaves; processes count generations differently."""
    write_generations(folder, GROWN_AND_SHRUNK)


def printed(folder: Path) -> None:
    """Write step logs as records in the output of executors; files rotate within a record."""
    logs = write_job(folder.with_name("unprinted"), replace(JOB, ranks=3))
    for number, path in enumerate(sorted(logs)):
        data = path.read_bytes()
        key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
        pieces = [data[at : at + 3000] for at in range(0, len(data), 3000)]
        lines, at = [], 0
        for piece in pieces:
            lines += [line.encode() for line in records(key, name, at, piece)]
            at += len(piece)
        whole = b"\n".join(lines) + b"\n"
        place = folder / "app-20261121130000-0000" / str(number)
        place.mkdir(parents=True)
        cut = len(whole) // 2
        (place / "stderr--2026-11-21--13-00").write_bytes(whole[:cut])
        (place / "stderr").write_bytes(whole[cut:])
        (place / "stdout").write_bytes(b"Start training.\n")


def epochs_only(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "train.out").write_bytes(KERAS)


def nothing(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "notes.bin").write_bytes(bytes(range(256)))


#: Collected runs that executors analyse for the catalogue; the driver analyses other short runs. Each
#: generation of a run takes 60 jobs of Spark: "resized" has three, in a report.
DIVIDED = ("attempts",)
#: The cases on the lowest versions: one command of each kind, and an error of Spark.
FEW = ("plain", "hungry", "resized")
CASES = (plain, skewed, damaged, attempts, elastic, printed, epochs_only, nothing)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """Run all commands on one Spark, and the same on one machine."""
    need_spark()
    folder = tmp_path_factory.mktemp("spark")
    commands: dict[str, list[str]] = {}
    for case in CASES:
        case(folder / case.__name__ / "logs")
        commands[case.__name__] = collecting(folder, case.__name__)
    # Collect twice: one host first, then all hosts, after a log of one was lost.
    half = folder / "merged" / "logs"
    write_job(half, JOB)
    first = folder / "merged" / "first"
    shutil.copytree(half, first)
    for path in (*sorted(first.glob("rank*"))[2:], sorted(half.glob("rank*"))[0]):
        path.unlink()
    commands["half"] = collecting(folder, "merged", "first")
    commands["merged"] = collecting(folder, "merged")
    later = folder / "later" / "logs"
    write_generations(later, GROWN_AND_SHRUNK)
    earlier = folder / "later" / "first"
    shutil.copytree(later, earlier)
    for path in earlier.glob("rank*"):
        # The host that joined is collected later, after a log of the others was lost.
        job_logs = earlier if '"gamma"' in path.read_text().partition("\n")[0] else later
        (job_logs / path.name).unlink()
    commands["earlier"] = collecting(folder, "later", "first")
    commands["later"] = collecting(folder, "later")
    write_job(folder / "killed" / "logs", JOB)
    commands["killed"] = [*collecting(folder, "killed"), "--read-as", "deadly_parser:Deadly"]
    write_job(folder / "hungry" / "logs", JOB)
    commands["hungry"] = [*collecting(folder, "hungry"), "--read-as", "deadly_parser:Hungry"]
    reported = reports(folder / "runs")
    commands |= reported
    only_few = request.config.getoption("one_case")
    if only_few:
        commands = {name: commands[name] for name in FEW}
    entries = [
        {
            "words": [*words, "--engine", "spark"],
            "divided": name in DIVIDED or (name in reported and name != "short"),
            "kill": str(folder / "runs") if name == "slow" else None,
        }
        for name, words in commands.items()
    ]
    (folder / "commands.json").write_text(json.dumps(entries))
    note = folder / "executor-killed"
    run_on_spark(PROGRAM, folder, 1 if only_few else 2, STALLSCOPE_TEST_KILLED=str(note))
    assert note.exists() == ("killed" in commands)
    results = json.loads((folder / "outcomes.json").read_text())
    assert results["there"]
    return {
        name: on_both(words, outcome)
        for (name, words), outcome in zip(commands.items(), results["commands"], strict=True)
    }


def reports(store: Path) -> dict[str, list[str]]:
    """Return report commands, on a collected run and on logs.

    The collected run has a slow rank, and hosts with different clocks. The logs are those of a restart
    with fewer ranks, validation and missing rows, and damaged ones.
    """
    slow = Job(**SHAPE, slow={(3, "compute"): 30.0}, clock_offset_ms=(0.0, 70_000.0), run_id="slow")
    folder = store.with_name("reported")
    write_job(folder / "slow", slow)
    first = replace(slow, run_id="restarted", slow={})
    write_job(folder / "restarted", first)
    second = replace(first, ranks=5, generation=1, first_step=250, validation_ms=300.0, seed=3)
    for path in write_job(folder / "restarted", second):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for number, line in enumerate(lines) if number % 40 != 39))
    damaged(folder / "damaged")
    run = read(str(folder / "slow"))[0]
    elastic(folder / "resized")
    named = {
        "slow": [save_run(run, store)],
        "resized": [folder / "resized"],
        "short": [folder / "resized"],
        "restarted": [folder / "restarted", folder / "damaged"],
    }
    return {name: ["report", *map(str, runs), "--format", "json"] for name, runs in named.items()}


def collecting(folder: Path, case: str, logs: str = "logs") -> list[str]:
    return ["collect", str(folder / case / logs), "--to", str(folder / case / "spark")]


def on_both(words: Sequence[str], result: dict[str, Any]) -> Outcome:
    """Run a command on one machine, too."""
    if words[0] == "report":
        out = io.StringIO()
        with redirect_stdout(out):
            main(list(words))
        return Outcome(**result, here=out.getvalue(), logs=Path(words[1]))
    store = Path(words[3])
    local = store.with_name("local")
    main(["collect", words[1], "--to", str(local)])
    return Outcome(**result, spark=store, local=local)


def cases(*names: str) -> list[Any]:
    """Mark the cases that do not run on the lowest versions."""
    marks = pytest.mark.any_versions
    return [name if name in FEW else pytest.param(name, marks=marks) for name in names]


@pytest.mark.parametrize(
    "name",
    cases(
        *("plain", "skewed", "damaged", "attempts", "elastic", "printed", "epochs_only"),
        *("merged", "later"),
        "killed",
    ),
)
def test_spark_collects_what_one_machine_collects(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.status == 0, outcome.err
    ours, theirs = outcome.runs()
    assert [run.id for run in ours] == [run.id for run in theirs]
    for spark_run, local_run in zip(ours, theirs, strict=True):
        assert spark_run.logs == local_run.logs
        assert spark_run.steps.num_rows == local_run.steps.num_rows
        order = [("log", "ascending"), ("step", "ascending")]
        assert spark_run.steps.sort_by(order).equals(local_run.steps.sort_by(order))
        assert spark_run.intervals.equals(local_run.intervals)
        assert sorted(map(str, spark_run.problems)) == sorted(map(str, local_run.problems))
        assert spark_run.events == local_run.events
        assert measured(spark_run) == measured(local_run)


def measured(run: Run) -> list[tuple[str, list[int], list[float]]]:
    return [(series.name, series.wall_ns.tolist(), series.value.tolist()) for series in run.series]


def test_measurements_of_machines_are_collected_too(outcomes: dict[str, Outcome]) -> None:
    ((run,), _) = outcomes["plain"].runs()
    assert [series.name for series in run.series] == ["gpu_0_utilization"]


@pytest.mark.parametrize("name", cases("plain", "skewed", "damaged", "killed"))
def test_nothing_is_left_of_attempts_that_do_not_count(
    outcomes: dict[str, Outcome], name: str
) -> None:
    store = outcomes[name].spark
    (folder,) = collected_runs(store)
    checked = check_run(folder)
    assert (checked.damage, checked.notes) == ((), ())
    assert not list(store.glob(".stallscope-spark-*"))


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("plain", 4),
        pytest.param("attempts", 4, marks=pytest.mark.any_versions),
        pytest.param("elastic", 2, marks=pytest.mark.any_versions),
    ],
)
def test_collected_runs_are_in_the_catalogue_with_their_verdict(
    outcomes: dict[str, Outcome], name: str, ranks: int
) -> None:
    entries = []
    for store in outcomes[name].stores:
        with Catalogue.open(store) as catalogue:
            entries += catalogue.entries()
    ours, theirs = entries
    assert (ours.ranks, ours.status) == (ranks, theirs.status)
    assert ours.summary.verdict is not None
    equal(asdict(ours.summary), asdict(theirs.summary))


@pytest.mark.any_versions
def test_collected_runs_and_unreadable_logs_are_reported(outcomes: dict[str, Outcome]) -> None:
    assert "4 of 4 ranks, 800 rows, completed" in outcomes["plain"].out
    assert "rank-00009.0.0.steps.csv: the header's facts are torn" in outcomes["damaged"].err


@pytest.mark.any_versions
def test_without_logs_the_error_is_one_sentence(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["nothing"]
    assert (outcome.status, outcome.out) == (2, "")
    assert "no logs in 1 file" in outcome.err
    assert not collected_runs(outcome.spark)


def test_a_failure_of_spark_is_one_sentence(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["hungry"]
    assert (outcome.status, outcome.out) == (2, "")
    # Spark's own warnings may come first.
    last = outcome.err.splitlines()[-1]
    assert last.startswith("stallscope: Spark failed: Job aborted due to stage failure")
    assert "Traceback" not in outcome.err
    assert not list(outcome.spark.iterdir())


@pytest.mark.parametrize("name", cases("slow", "restarted", "resized", "short"))
def test_spark_reports_what_one_machine_reports(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.status == 0, outcome.err
    equal(json.loads(outcome.out), json.loads(outcome.here))


@pytest.mark.any_versions
def test_no_temporary_files_remain_beside_reported_logs(outcomes: dict[str, Outcome]) -> None:
    folder = outcomes["restarted"].logs.parent
    assert sorted(path.name for path in folder.iterdir()) == [
        "damaged",
        "resized",
        "restarted",
        "slow",
    ]


@pytest.mark.any_versions
def test_a_lost_executor_changes_no_figure(outcomes: dict[str, Outcome]) -> None:
    (document,) = json.loads(outcomes["slow"].out)
    assert (outcomes["slow"].killed, document["bottleneck"]["ranks"]) == (1, [3])
