"""Probabilities and quantiles are those of scipy.stats."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from stallscope.arrays.distributions import (
    binomial_tail,
    chi_square_quantile,
    mean_of_truncated,
    mills_ratio,
    normal_probability,
    normal_quantile,
    student_quantile,
    student_tail,
)

#: From far below the middle to far above it.
PROBABILITIES = np.array([1e-12, 1e-3, 0.025, 0.5, 0.975, 1 - 1e-9])
FREEDOM = np.array([0.37, 1.0, 3.5, 20.0, 1e4])[:, None]
VALUES = np.array([-8.0, -1.0, 0.0, 0.5, 9.0])


def test_normal() -> None:
    np.testing.assert_allclose(normal_quantile(PROBABILITIES), stats.norm.ppf(PROBABILITIES))
    np.testing.assert_allclose(normal_probability(VALUES), stats.norm.cdf(VALUES))


@pytest.mark.parametrize("z", [-40.0, -3.0, 0.0, 5.0])
def test_mills_ratio(z: float) -> None:
    expected = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
    assert mills_ratio(z) == pytest.approx(expected, rel=1e-9)


def test_student() -> None:
    expected = stats.t.ppf(PROBABILITIES, FREEDOM)
    np.testing.assert_allclose(student_quantile(PROBABILITIES, FREEDOM), expected, atol=1e-12)
    np.testing.assert_allclose(student_tail(VALUES, FREEDOM), stats.t.sf(VALUES, FREEDOM))


def test_chi_square() -> None:
    expected = stats.chi2.ppf(PROBABILITIES, FREEDOM)
    np.testing.assert_allclose(chi_square_quantile(PROBABILITIES, FREEDOM), expected)


@pytest.mark.parametrize(("count", "trials"), [(-1, 4), (0, 4), (3, 4), (4, 4), (0, 0), (17, 900)])
def test_binomial(count: int, trials: int) -> None:
    expected = stats.binom.sf(count, trials, 0.02)
    assert binomial_tail(count, trials, 0.02) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("z", [-2.9, -1.0, 0.0, 3.0, 30.0])
@pytest.mark.parametrize("sd", [0.1, 1e6])
def test_the_mean_of_a_distribution_from_its_upper_part(z: float, sd: float) -> None:
    limit = 5e6
    whole = limit + z * sd
    above = stats.truncnorm.mean(-z, np.inf, whole, sd)
    assert mean_of_truncated(float(above), limit, sd) == pytest.approx(whole, abs=1e-6 * sd)


@pytest.mark.broad
def test_the_package_around_the_functions_in_c_is_whole_when_it_is_imported() -> None:
    program = (
        "import sys; from stallscope.arrays.distributions import normal_quantile, special; "
        "normal_quantile(0.9); print('scipy.special' in sys.modules); "
        "import scipy.special, scipy.stats; print(scipy.special.ndtri is special.ndtri); "
        "print(scipy.special.softmax([0, 0])[0], scipy.stats.norm.cdf(0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "0.5", "0.5"]
