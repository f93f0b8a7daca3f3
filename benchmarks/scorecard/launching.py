"""Start trainings on real ranks with one compute thread each, by default in `.venv-horovod`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TRAINING = ROOT / ".venv-horovod"
#: One thread per rank and a short cycle, whatever the user has set: steps must be comparable.
SETTINGS = {"OMP_NUM_THREADS": "1", "HOROVOD_CYCLE_TIME": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}

#: The label of `horovodrun` before every line of rank 0.
_RANK_0 = "[0]<stdout>:"


def horovodrun(ranks: int) -> list[str]:
    """Return the command that starts a Python program with Horovod on this machine."""
    hosts = f"localhost:{ranks}"
    return ["horovodrun", "--disable-cache", "-np", str(ranks), "-H", hosts, "python", "-u"]


def torchrun(ranks: int) -> list[str]:
    """Return the command that starts a Python program with torch.distributed on this machine."""
    return ["torchrun", "--standalone", "--nproc-per-node", str(ranks)]


def horovodrun_on(hosts: Sequence[str]) -> list[str]:
    """Return the command that starts one rank on each of these hosts; run it on the first one."""
    slots = ",".join(f"{host}:1" for host in hosts)
    options = ["--disable-cache", "--gloo", "--network-interfaces", "eth0"]
    return ["horovodrun", *options, "-np", str(len(hosts)), "-H", slots, "python", "-u"]


def torchrun_on(hosts: Sequence[str], place: int, ranks: int = 1) -> list[str]:
    """Return the command that starts the ranks of one of these hosts; run it on that host.

    Args:
        hosts: the names of all hosts.
        place: of the host among them.
        ranks: on each host.
    """
    nodes = ["--nnodes", str(len(hosts)), "--nproc-per-node", str(ranks), "--node-rank", str(place)]
    return ["torchrun", *nodes, "--master-addr", hosts[0], "--master-port", "29400"]


def launch(command: list[str], printed: Path, environment: Path = TRAINING) -> None:
    """Run a launch command, write its output to a file, and show the lines of rank 0.

    Raises:
        SystemExit: if the command fails.
    """
    with printed.open("w") as log:
        process = subprocess.Popen(
            command,
            env=settings(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        only_rank_0 = command[0] == "horovodrun"
        for line in process.stdout:
            log.write(line)
            if line.startswith(_RANK_0) or not only_rank_0:
                print(line.removeprefix(_RANK_0), end="", flush=True)
    if process.wait():
        sys.exit(f"the training failed; its output is in {printed}")


def launch_plan(
    out: Path,
    name: str,
    folders: Iterable[str],
    write_plan: Callable[[Path], None],
    framework: str,
    ranks: int,
    program: str,
) -> None:
    """Train a plan's runs in one launch.

    Args:
        out: the folder of the runs' folders.
        name: of the launch.
        folders: the runs' folders; an interrupted launch may have left partial data in them.
        write_plan: writes the plan to a file.
        framework: what trains.
        ranks: the number of ranks.
        program: the file name of the training, which gets the paths of the plan and of ``out``.

    Raises:
        SystemExit: if there is no environment to train in, or the launch fails.
    """
    environment = _environment(framework)
    path = out / f"plan-{name}.json"
    for folder in (*folders, f"warm-up-{path.stem}"):
        shutil.rmtree(out / folder, ignore_errors=True)
    write_plan(path)
    command = [*_start(framework, ranks), str(HERE / program), str(path), str(out)]
    launch(command, out / f"printed-{name}.txt", environment)


def _start(framework: str, ranks: int) -> list[str]:
    """Return the command that starts a program of a framework."""
    if framework == "jax":
        return ["python", "-u"]
    return (horovodrun if framework in ("keras", "torch") else torchrun)(ranks)


def _environment(framework: str) -> Path:
    """Return the virtual environment to train in.

    Raises:
        SystemExit: if it is missing.
    """
    if framework not in ("trainer", "jax"):
        require_training_environment()
        return TRAINING
    folder = ROOT / ".venv-keras3"
    if not (folder / ".ready").exists():
        sys.exit("there is no .venv-keras3 to train in: make keras3-env")
    return folder


def require_training_environment() -> None:
    """Exit with advice where the training environment is missing."""
    if not (TRAINING / "bin" / "horovodrun").exists():
        sys.exit("there is no .venv-horovod to train in: make training-env")


def settings_on_hosts(environment: Path = TRAINING) -> dict[str, str]:
    """Return the variables of a training on hosts of the lab."""
    known = {**settings(environment), "PYTHONPATH": str(ROOT / "src"), "GLOO_SOCKET_IFNAME": "eth0"}
    return {name: known[name] for name in (*SETTINGS, "PATH", "PYTHONPATH", "GLOO_SOCKET_IFNAME")}


def settings(environment: Path = TRAINING) -> dict[str, str]:
    """Return the variables of a training, without the user's settings of Horovod."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    return {
        **kept,
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        **SETTINGS,
    }
