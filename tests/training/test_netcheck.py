"""Netcheck on real ranks: with the logs of a training, without, and on a host with a slow link."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from support.lab import LabStarter
from support.step_logs import Job, write_job
from training.environments import MXNET, needs
from training.launching import (
    ENVIRONMENT,
    ON_HOSTS,
    SECRET,
    Launch,
    launch,
    launch_words,
    programs_of,
)

from stallscope.collector.netcheck.result_file import rate_of
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PROGRAM = str(ENVIRONMENT / "bin" / "stallscope")
#: One gradient, of so many bytes.
SIZES = [[400_384, 1]]
TORCHRUN = ["torchrun", "--nproc-per-node"]


@pytest.fixture
def logs(training_side: None, tmp_path: Path) -> Path:
    """Write the logs of a run of two ranks on this host."""
    facts = {"gradient_sizes": SIZES, "gradient_bytes": SIZES[0][0], "gradient_tensors": 1}
    write_job(tmp_path / "logs", Job(steps=5, hosts=(socket.gethostname(),), facts=facts))
    return tmp_path / "logs"


def result(launched: Launch, folder: Path) -> dict[str, Any]:
    """Return the content of the one file, which the launch must have named."""
    launched.succeed()
    (path,) = folder.glob("*.netcheck.json")
    assert f"stored in {path}" in launched.output
    assert launched.output.count("stored in") == 1
    assert SECRET not in path.read_text()
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def fastest(pair: dict[str, Any]) -> float:
    """Return the Mbit/s of the fastest exchange of a pair of hosts, with its latency."""
    return rate_of({**pair, "us": [min(pair["us"])], "small_us": []})


def check_times(content: dict[str, Any]) -> None:
    assert [burst["messages"] for burst in content["tiny"]] == [1, 8]
    sizes = [allreduce["bytes"] for allreduce in content["sweep"]]
    assert sizes[:2] == [4096, 65536]
    # What has no time left on a busy machine is named.
    assert (1 << 20) in sizes or "an allreduce of 1048576 bytes: no time was left" in " ".join(
        content["left_out"]
    )
    for times in (measurement["us"] for measurement in (*content["tiny"], *content["sweep"])):
        assert 5 <= len(times) <= 50
        assert all(10 < us < 60e6 for us in times)


def check_gradients(content: dict[str, Any], logs: Path) -> None:
    (run,) = read(str(logs))
    assert content["run_id"] == run.id
    gradients = content["gradients"]
    assert (gradients["from"], gradients["sizes"]) == ("sizes", SIZES)
    assert run.fact("gradient_sizes") == SIZES
    assert all(us > 10 for us in gradients["as_run_us"] + gradients["together_us"])
    assert len(set(content["hosts"])) == 1
    assert content["pairs"] == []


def hide_torch(folder: Path) -> str:
    """Return a path on which torch cannot be imported."""
    (folder / "hidden").mkdir()
    (folder / "hidden" / "torch.py").write_text("raise ImportError('hidden')\n")
    return str(folder / "hidden")


@pytest.mark.parametrize(
    "framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.variant)]
)
def test_horovod_reduces_the_gradients_of_the_run(
    logs: Path, tmp_path: Path, framework: str
) -> None:
    hidden = {"PYTHONPATH": hide_torch(tmp_path)} if framework == "tensorflow" else {}
    words = ["netcheck", str(logs), "--seconds", "6"]
    launched = launch(tmp_path / "printed.txt", PROGRAM, *words, ranks=2, **hidden)
    content = result(launched, logs)
    check_times(content)
    check_gradients(content, logs)
    assert (content["framework"], content["reduced_by"]) == (framework, "horovod")
    assert set(content["versions"]) == {framework, "horovod"}
    assert (content["size"], content["device"]) == (2, "cpu")
    assert content["reduces_with"] == ["gloo"]
    assert content["launch"].startswith("HOROVOD_GLOO_RENDEZVOUS_ADDR:")
    assert "another network" not in launched.output
    assert f"gradients of the run: {median(content['gradients']['as_run_us']) / 1e3:.2f} ms" in (
        launched.output
    )


def test_more_ranks_of_torchrun_are_another_network(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["netcheck", str(logs), "--seconds", "6", "--out", str(out)]
    launched = launch_words(tmp_path / "printed.txt", [*TORCHRUN, "3"], PROGRAM, *words)
    content = result(launched, out)
    check_times(content)
    check_gradients(content, logs)
    assert (content["reduced_by"], content["reduces_with"]) == ("torch.distributed", ["gloo"])
    assert "another network than the run's: 3 ranks, and the run had 2" in launched.output


@pytest.mark.frameworks
@pytest.mark.variant
def test_mxnet_is_measured_on_python_3_8(tmp_path: Path) -> None:
    needs(MXNET)
    program = str(MXNET / "bin" / "stallscope")
    words = ["netcheck", "--seconds", "6", "--out", str(tmp_path)]
    printed = tmp_path / "printed.txt"
    content = result(launch(printed, program, *words, ranks=2, environment=MXNET), tmp_path)
    check_times(content)
    assert content["framework"] == "mxnet"


def test_one_process_is_an_error_that_shows_how_to_start_it(
    training_side: None, tmp_path: Path
) -> None:
    launched = launch_words(tmp_path / "printed.txt", ["python"], PROGRAM, "netcheck")
    assert launched.wait() == 2
    assert launched.output.startswith("stallscope: netcheck runs as one process")
    assert launched.output.count("\n") == 1


def test_missing_logs_end_all_ranks_with_one_error(training_side: None, tmp_path: Path) -> None:
    words = ["netcheck", str(tmp_path / "none")]
    launched = launch_words(tmp_path / "printed.txt", [*TORCHRUN, "2"], PROGRAM, *words)
    assert launched.wait() != 0
    assert launched.output.count("stallscope: ") == 1
    assert f"there is no folder {tmp_path / 'none'}" in launched.output


def test_the_host_with_the_slow_link_is_in_all_slow_pairs(
    training_side: None, start_lab: LabStarter, tmp_path: Path
) -> None:
    hosts = start_lab(3, programs_of(ENVIRONMENT), **ON_HOSTS)
    hosts.limit_link("h3", 40.0)
    options = ["--disable-cache", "--gloo", "--network-interfaces", "eth0"]
    words = ["horovodrun", *options, "-np", "3", "-H", "h1:1,h2:1,h3:1", "python"]
    arguments = ["netcheck", "--seconds", "40", "--out", str(tmp_path)]
    printed = tmp_path / "printed.txt"
    launched = launch_words(printed, hosts.ssh("h1", words), PROGRAM, *arguments)
    content = result(launched, tmp_path)
    assert content["hosts"] == ["h1", "h2", "h3"]
    assert (content["run_id"], content["gradients"]) == (None, None)
    # A busy core makes single exchanges slower, and never faster than the link: the fastest one counts.
    rates = {tuple(pair["hosts"]): fastest(pair) for pair in content["pairs"]}
    slow = [rates[("h1", "h3")], rates[("h2", "h3")]]
    assert all(5 < rate < 80 for rate in slow)
    assert rates[("h1", "h2")] > 1.5 * max(slow)
    assert "slowest pairs of hosts: " in launched.output
