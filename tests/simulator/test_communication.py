"""The simulation follows the models of communication."""

from __future__ import annotations

import pytest
from simulator import Fixed, Job, Noise, Ring, Tree, simulate
from simulator.communication import Communication

HUNDRED_MB = 100_000_000


@pytest.mark.parametrize(
    ("communication", "ranks", "ms"),
    [
        (Fixed(20.0), 2, 20.0),
        (Fixed(20.0), 1, 0.0),
        (Ring(HUNDRED_MB, 10.0), 1, 0.0),
        (Ring(HUNDRED_MB, 10.0), 2, 0.02 + 10.0),
        (Ring(HUNDRED_MB, 10.0, latency_us=5), 64, 126 * 0.005 + 2 * 63 / 64 * 10),
        (Ring(HUNDRED_MB, 10.0, overlap_ms=4), 2, 6.02),
        (Ring(HUNDRED_MB, 10.0, overlap_ms=40), 2, 0.0),
        (Tree(HUNDRED_MB, 10.0), 1, 0.0),
        (Tree(HUNDRED_MB, 10.0), 5, 2 * 3 * 0.01 + 20.0),
        (Tree(HUNDRED_MB, 10.0), 64, 2 * 6 * 0.01 + 20.0),
    ],
)
def test_the_transfer_follows_the_model(
    communication: Communication, ranks: int, ms: float
) -> None:
    assert communication.transfer_ms(ranks) == pytest.approx(ms)
    job = Job(
        ranks=ranks,
        ranks_per_host=64,
        steps=10,
        communication=communication,
        noise=Noise(cv=0),
        jitter_ms=0,
    )
    assert simulate(job).truth.allreduce / 1e6 == pytest.approx([ms] * 10, abs=1e-3)


def test_many_ranks_favour_the_tree() -> None:
    ring, tree = Ring(1_000_000, 10.0), Tree(1_000_000, 10.0)
    assert ring.transfer_ms(4) < tree.transfer_ms(4)
    assert ring.transfer_ms(1024) > 10 * tree.transfer_ms(1024)


def test_the_logs_record_how_much_is_reduced() -> None:
    job = Job(ranks=2, steps=3, communication=Ring(HUNDRED_MB, 10.0))
    assert simulate(job).run.fact("gradient_bytes") == HUNDRED_MB
    assert simulate(Job(ranks=2, steps=3)).run.fact("gradient_bytes") is None
