"""Jobs on several hosts without a shared folder or clock are launched, collected and analysed."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from lab import FAKETIME, Clock, Lab
from scipy.stats import theilslopes
from support.lab import LabStarter
from support.needing import need
from support.stopping import wait_for_stopped
from support.waiting import wait_until
from training.launching import ENVIRONMENT, ON_HOSTS, Launch, launch_words, programs_of
from training.on_hosts import collected

from stallscope.analysis import analyse
from stallscope.analysis.steps.alignment import align
from stallscope.parsers import read

pytestmark = pytest.mark.horovod

TRAIN, WORK = "../../tools/samples/train.py", "working_torch.py"
# A wall clock that is wrong and too fast. ``faketime`` breaks sleeping in the recorder's thread, so
# that rows are written only at the end of training.
AHEAD_SECONDS, DRIFT = 7.3, 3e-4
WRONG = Clock(ahead_s=AHEAD_SECONDS, drift=DRIFT)


SETTINGS = {**ON_HOSTS, "TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.fixture
def hosts(training_side: None, start_lab: LabStarter) -> Lab:
    """Start two hosts, the second one a day later."""
    return start_lab(2, programs_of(ENVIRONMENT), **SETTINGS)


@pytest.fixture
def hosts_with_wrong_clocks(training_side: None, start_lab: LabStarter) -> Lab:
    need(FAKETIME.exists(), "there is no faketime for clocks that differ: make services-env")
    return start_lab(2, programs_of(ENVIRONMENT), {"h2": WRONG}, **SETTINGS)


def horovodrun(lab: Lab, out: Path, program: str, *arguments: str) -> Launch:
    options = ["--disable-cache", "--gloo", "--network-interfaces", "eth0"]
    hosts = ",".join(f"{host.name}:1" for host in lab.hosts)
    words = ["horovodrun", *options, "-np", str(len(lab.hosts)), "-H", hosts, "python"]
    return launch_words(out / "printed.txt", lab.ssh("h1", words), program, *arguments)


@pytest.mark.unmeasured
def test_a_slow_rank_on_a_host_with_wrong_clocks_is_named(
    hosts_with_wrong_clocks: Lab, tmp_path: Path
) -> None:
    hosts = hosts_with_wrong_clocks
    words = [str(hosts.disk / "logs"), "--epochs", "2", "--steps-per-epoch", "60"]
    words += ["--fault", "slow-compute-rank", "--fault-ms", "150"]
    horovodrun(hosts, tmp_path, TRAIN, *words).succeed()
    assert [len(list(host.disk.glob("logs/*.csv"))) for host in hosts.hosts] == [1, 1]

    run = collected(hosts, tmp_path)
    analysis = analyse(run)
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "compute", (1,))
    assert [log.host for log in run.logs] == ["h1", "h2"]

    clocks, begin = align(run, 0).clocks, align(run, 0).begin
    offsets = clocks.offset[:, clocks.of_rank[1]]
    first, second = (log.wall_minus_monotonic for log in run.logs)
    # The clocks drift apart for a minute at most.
    assert (np.median(offsets) + second - first) / 1e9 == pytest.approx(AHEAD_SECONDS, abs=0.05)
    seconds = begin[:, 0] / 1e9
    slope = theilslopes((offsets - offsets[0]) / 1e9, seconds).slope
    # On a busy machine the offset is uncertain by milliseconds, as the analysis reports.
    (unsure_ms,) = (rank.clock_uncertainty_ms for rank in analysis.ranks if rank.rank == 1)
    within = max(0.5 * DRIFT, 2 * unsure_ms / 1e3 / (seconds[-1] - seconds[0]))
    assert slope == pytest.approx(DRIFT, abs=within)


def steps_in(logs: Path) -> int:
    return min((file.read_text().count("\nstep,") for file in logs.glob("*.csv")), default=0)


@pytest.mark.unmeasured
@pytest.mark.parametrize("loss", ["power", pytest.param("suspended", marks=pytest.mark.variant)])
def test_a_lost_host_is_named(
    hosts: Lab, tmp_path: Path, request: pytest.FixtureRequest, loss: str
) -> None:
    logs = tmp_path / "logs"
    words = [str(logs), "--epochs", "1", "--steps-per-epoch", "100000"]
    launched = horovodrun(hosts, tmp_path, TRAIN, *words)
    request.addfinalizer(launched.end)
    wait_until(lambda: len(list(logs.glob("*.csv"))) == 2, lambda: launched.output)
    wait_until(lambda: steps_in(logs) > 50, lambda: launched.output)
    if loss == "power":
        hosts["h2"].lose_power()
    else:
        hosts["h2"].kill(str(logs).encode(), signal.SIGSTOP)
    stopped = wait_for_stopped(logs)
    assert [(rank.rank, rank.host) for rank in stopped.ranks] == [(1, "h2")]
    assert stopped.waiting == (0,)


def test_the_host_with_a_slow_link_is_named_and_its_delay_is_not_clock_error(
    training_side: None, start_lab: LabStarter, tmp_path: Path
) -> None:
    hosts = start_lab(3, programs_of(ENVIRONMENT), **SETTINGS)
    hosts.limit_link("h3", 40.0)
    words = [str(tmp_path / "logs"), "40", "20", "1"]
    horovodrun(hosts, tmp_path, WORK, *words).succeed()

    (run,) = read(str(tmp_path / "logs"))
    analysis = analyse(run)
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.hosts) == ("allreduce", "network", ("h3",))
    assert not verdict.ranks
    assert {link.sender for link in verdict.links} == {"h1", "h3"}
    assert all(10 < link.mbit_s[1] < 60 for link in verdict.links)
    # The link's delay of completions is allreduce; between steps the ranks hardly work.
    shares = {cause.name: cause.share for cause in analysis.by_cause}
    assert shares["other"] < 0.1 * shares["allreduce"]
    # All hosts have one wall clock; their monotonic clocks are a day apart.
    clocks = align(run, 0).clocks
    assert clocks.method == "wall clocks"
    for host, rank in enumerate(analysis.ranks):
        assert rank.clock_offset_ms is not None
        assert rank.clock_uncertainty_ms is not None
        error = rank.clock_offset_ms - host * 86_400_000
        assert abs(error) <= rank.clock_uncertainty_ms
        assert abs(error) < 5.0


def test_the_verdict_names_too_few_cores_as_the_reason(hosts: Lab, tmp_path: Path) -> None:
    hosts["h2"].limits.limit_cores(0.4)
    words = [str(tmp_path / "logs"), "160", "30", "0.5"]
    horovodrun(hosts, tmp_path, WORK, *words).succeed()

    (run,) = read(str(tmp_path / "logs"))
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "compute", (1,))
    assert [reason.code for reason in verdict.why][:1] == ["throttled"]
    (reason,) = (reason for reason in verdict.why if reason.code == "throttled")
    assert reason.ranks == (1,)
    assert reason.value > 50.0
    assert reason.peers == pytest.approx(0.0, abs=1.0)
