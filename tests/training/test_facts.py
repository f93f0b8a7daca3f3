"""The head of a log has the facts of model, rank and settings."""

from __future__ import annotations

import os
import socket

import pytest
from training.launching import SECRET
from training.recorded import Recorded

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


def test_the_logs_of_both_ranks_are_one_run_with_its_name(recorded: Recorded) -> None:
    run = recorded.run("plain")
    assert run.name == "plain run"
    assert run.ranks == [0, 1]
    assert run.size == 2
    assert run.missing_ranks == []
    assert run.status == "completed"
    assert run.synthetic is False
    assert run.hosts == [socket.gethostname()]


def test_facts_of_the_model_and_its_training(recorded: Recorded) -> None:
    for fit in recorded.fits("plain"):
        facts = fit.facts
        assert facts["framework"] == "tensorflow"
        assert facts["versions"] == {
            "tensorflow": "2.15.1",
            "keras": "2.15.0",
            "horovod": "0.28.1",
        }
        assert facts["model"] == "classifier"
        assert facts["parameters"] == 8 * 64 + 64 + 64 * 4 + 4
        assert facts["optimizer"] == "Adam"
        assert facts["learning_rate"] == pytest.approx(0.002)
        assert facts["batch_size"] == 16
        assert (facts["epochs"], facts["batches_per_epoch"]) == (2, 12)
        assert facts["gradient_tensors"] == 4
        assert facts["gradient_bytes"] == 4 * facts["parameters"]
        assert facts["gradients_reduced"] is True
        assert facts["threads"] == {"intra_op": 1, "inter_op": 2}
        assert facts["cpu_count"] == os.cpu_count()
        assert facts["devices"] == ["CPU"]
        assert facts["timeline"] is False
        assert facts["first_step"] == 0


def test_facts_of_the_rank(recorded: Recorded) -> None:
    first, second = recorded.fits("plain")
    for rank, fit in enumerate((first, second)):
        assert fit.facts["rank"] == rank
        assert fit.facts["local_rank"] == rank
        assert fit.facts["size"] == 2
        assert fit.facts["settings"]["HOROVOD_RANK"] == str(rank)
        # The process started before its log, and after the machine.
        assert 0 < fit.log.process_start < fit.log.anchor
    assert first.facts["pid"] != second.facts["pid"]
    assert first.facts["launch"] == second.facts["launch"]
    assert first.facts["clock_domain"] == second.facts["clock_domain"]


@pytest.mark.parametrize(
    ("case", "scaled"), [("plain", True), ("unscaled_rate", False), ("legacy_optimizer", None)]
)
def test_whether_the_learning_rate_is_scaled_with_the_ranks_is_recorded(
    recorded: Recorded, case: str, scaled: bool | None
) -> None:
    for fit in recorded.fits(case):
        assert fit.facts["learning_rate_scaled"] is scaled


def test_the_parameters_of_a_model_that_training_builds_are_counted(
    recorded_alone: Recorded,
) -> None:
    fit = recorded_alone.fit_of_one_process("structured")
    assert fit.facts["parameters"] == 9 * 4 + 4


def test_no_secret_is_in_any_log(recorded: Recorded) -> None:
    for fit in recorded.fits("plain"):
        assert "HOROVOD_SECRET_TOKEN" not in fit.facts["settings"]
    logs = [path for path in recorded.out.rglob("logs/*") if path.is_file()]
    assert len(logs) > 80
    for path in logs:
        assert SECRET not in path.read_text(), path
