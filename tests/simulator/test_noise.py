"""Noise has the requested size and autocorrelation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import Job, Noise, simulate

JOB = Job(ranks=64, steps=4000, ranks_per_host=64, tracing_ms=0)


@pytest.mark.parametrize(("cv", "phi"), [(0.02, 0.5), (0.1, 0.0), (0.3, 0.9)])
def test_mean_variation_and_autocorrelation_are_as_requested(cv: float, phi: float) -> None:
    truth = simulate(replace(JOB, noise=Noise(cv=cv, phi=phi))).truth
    for stage, ms in ((truth.input, 4), (truth.compute, 150)):
        x = stage / 1e6
        assert x.mean() == pytest.approx(ms, rel=0.01)
        assert x.std() / x.mean() == pytest.approx(cv, rel=0.03)
        # From the first step on: the series has no start-up phase.
        assert x[0].std() / ms == pytest.approx(cv, rel=0.4)
        logs = np.log(x) - np.log(x).mean()
        assert (logs[1:] * logs[:-1]).mean() / logs.var() == pytest.approx(phi, abs=0.02)
        between_ranks = np.corrcoef(x.T) - np.eye(64)
        assert np.abs(between_ranks.mean()) < 0.01
    transfer = truth.allreduce / 1e6
    assert transfer.mean() == pytest.approx(20, rel=0.03)
    assert transfer.std() / transfer.mean() == pytest.approx(cv, rel=0.15)
    assert abs(np.corrcoef(truth.input[:, 0], truth.compute[:, 0])[0, 1]) < 0.1


def test_common_noise_is_the_same_on_all_ranks_and_stages() -> None:
    noise = Noise(cv=0, common_cv=0.2, phi=0.5)
    truth = simulate(replace(JOB, steps=20_000, ranks=4, noise=noise)).truth
    factor = truth.compute / 150e6
    np.testing.assert_allclose(factor, np.repeat(factor[:, :1], 4, axis=1))
    np.testing.assert_allclose(truth.input / 4e6, factor, atol=1e-3)
    assert factor.std() == pytest.approx(0.2, rel=0.05)


def test_a_tail_is_rare_and_long() -> None:
    noise = Noise(cv=0, tail_share=0.01, tail_scale=0.5)
    extra = simulate(replace(JOB, noise=noise)).truth.compute / 1e6 - 150
    late = extra[extra > 0]
    assert late.size / extra.size == pytest.approx(0.01, rel=0.05)
    assert late.mean() == pytest.approx(75, rel=0.05)
    assert late.std() == pytest.approx(75, rel=0.05)


def test_times_are_whole_microseconds_and_never_negative() -> None:
    truth = simulate(replace(JOB, steps=200, noise=Noise(cv=2.0))).truth
    for times in (truth.input, truth.compute, truth.other, truth.ready, truth.reduced):
        assert (times >= 0).all()
        assert not (times % 1000).any()
