"""The scripts of docs/launching start jobs on several hosts, and their ranks are one run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from lab import Lab, Slurm, why_no_slurm
from support.lab import LabStarter
from support.needing import need
from training.environments import ROOT
from training.launching import ENVIRONMENT, ON_HOSTS, PROGRAMS, programs_of
from training.on_hosts import collected, hostfile

from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

SCRIPTS = ROOT / "docs" / "launching"
PATIENCE_SECONDS = 900.0
#: Two epochs of as many batches on every rank.
STEPS = 2 * 32
SETTINGS = {
    **ON_HOSTS,
    "GLOO_SOCKET_IFNAME": "eth0",
    # The lab needs root, which Open MPI refuses.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@pytest.fixture
def hosts(training_side: None, start_lab: LabStarter) -> Lab:
    return start_lab(2, [*programs_of(ENVIRONMENT), Path("/usr/sbin")], **SETTINGS)


def at_once(commands: Sequence[Sequence[str]]) -> list[str]:
    """Run commands, which must succeed, and return the output of each."""
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words in commands
    ]
    try:
        printed = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(printed)
    return printed


def check_run(run: Run, launch: str) -> None:
    """Check that the ranks are one run, with the launcher's name of the job."""
    (name,) = {log.facts["launch"] for log in run.logs}
    assert name.startswith(launch)
    assert (run.name, run.status, run.problems) == ("run-42", "completed", ())
    assert [(log.rank, log.host) for log in run.logs] == [(0, "h1"), (1, "h2")]
    assert run.steps.num_rows == 2 * STEPS


def test_ranks_of_torchrun_are_one_run(hosts: Lab, tmp_path: Path) -> None:
    words = [str(SCRIPTS / "torchrun.sh"), "2", "h1", str(hosts.disk / "logs")]
    at_once([hosts.ssh(host.name, words) for host in hosts.hosts])
    check_run(collected(hosts, tmp_path), "TORCHELASTIC_RUN_ID:run-42")


def test_ranks_of_horovodrun_are_one_run_after_each_host_uploads(
    hosts: Lab, tmp_path: Path
) -> None:
    words = [str(SCRIPTS / "horovodrun.sh"), "2", str(hostfile(hosts, tmp_path))]
    at_once([hosts.ssh("h1", [*words, str(hosts.disk / "logs")])])
    # As in a bucket with a prefix for each host.
    for host in hosts.hosts:
        shutil.copytree(host.disk / "logs", tmp_path / "bucket" / "run-42" / host.name)
    (run,) = read(str(tmp_path / "bucket" / "run-42"))
    check_run(run, "HOROVOD_GLOO_RENDEZVOUS_ADDR:")


def container(manifest: str, replicas: str) -> list[str]:
    """Return the command of the first container of some replicas."""
    replica_specs = ("mpiReplicaSpecs", "pytorchReplicaSpecs")
    spec = yaml.safe_load((SCRIPTS / manifest).read_text())["spec"]
    (replica_spec,) = (spec[name][replicas] for name in replica_specs if name in spec)
    command: list[str] = replica_spec["template"]["spec"]["containers"][0]["command"]
    return [word.replace("/train/", f"{SCRIPTS}/") for word in command]


def test_ranks_of_an_mpi_job_are_one_run(hosts: Lab, tmp_path: Path) -> None:
    need(shutil.which("mpirun"), "there is no mpirun: apt-get install openmpi-bin")
    replacements = {
        "/etc/mpi/hostfile": str(hostfile(hosts, tmp_path)),
        "/logs/run-42": str(hosts.disk / "logs"),
    }
    words = [replacements.get(word, word) for word in container("mpijob.yaml", "Launcher")]
    at_once([hosts.ssh("h1", words)])
    check_run(collected(hosts, tmp_path), "PMIX_NAMESPACE:")


def test_the_output_of_a_pytorch_jobs_pods_is_one_run(hosts: Lab, tmp_path: Path) -> None:
    """The operator sets these variables, and the pods' logs are concatenated."""
    common = ["MASTER_ADDR=h1", "MASTER_PORT=23456", "WORLD_SIZE=2"]
    printed = at_once(
        [
            hosts.ssh(
                host, ["env", *common, f"RANK={rank}", *container("pytorchjob.yaml", replicas)]
            )
            for rank, (host, replicas) in enumerate((("h1", "Master"), ("h2", "Worker")))
        ]
    )
    (tmp_path / "run-42.txt").write_text("".join(printed))
    (run,) = read(str(tmp_path / "run-42.txt"))
    check_run(run, "MASTER_ADDR:h1:23456")


@pytest.fixture
def slurm(hosts: Lab) -> Iterator[Slurm]:
    reason = why_no_slurm()
    need(reason is None, str(reason))
    with Slurm(hosts) as started:
        yield started


def in_job(*words: str) -> list[str]:
    """Return a command of Slurm for a job, which inherits the submitter's variables."""
    path = f"PATH={ENVIRONMENT / 'bin'}:/usr/bin:/bin"
    return ["env", path, *(f"{name}={value}" for name, value in SETTINGS.items()), *words]


def test_ranks_of_slurm_are_one_run(hosts: Lab, slurm: Slurm, tmp_path: Path) -> None:
    for name in ("slurm.sh", "train.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    words = in_job("sbatch", "--wait", "slurm.sh", str(hosts.disk / "logs"))
    done = slurm.run(words, tmp_path)
    (output,) = tmp_path.glob("slurm-*.out")
    assert done.returncode == 0, done.stderr + output.read_text() + slurm.messages
    (gathered,) = tmp_path.glob("logs-*")
    (run,) = read(str(gathered))
    check_run(run, "SLURM_JOB_ID:")


def test_ranks_of_srun_are_recorded_without_an_edit(slurm: Slurm, tmp_path: Path) -> None:
    """The script takes its rank from Slurm, which sets no variables of PyTorch."""
    record = ["python", "-m", "stallscope.record", "--to", str(tmp_path / "logs")]
    script = [str(PROGRAMS / "unedited_cases.py"), "ddp_of_slurm"]
    done = slurm.run(in_job("srun", "--nodes=1", "--ntasks=2", *record, *script), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr + slurm.messages
    assert done.stderr.count("stallscope: records a loop of PyTorch (SGD, Dist") == 1
    (run,) = read(str(tmp_path / "logs"))
    assert (run.status, run.problems) == ("completed", ())
    assert [(log.rank, log.facts["local_rank"]) for log in run.logs] == [(0, 0), (1, 1)]
