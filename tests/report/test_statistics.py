"""Point estimates against scipy and rliable; intervals against what is known of them."""

import numpy as np
import pytest
from scipy import stats

from dgmarl.report.statistics import contrast_interval, iqm, mean_band, mean_interval, stratified_interval

RNG = np.random.default_rng(1)
SCENARIOS = RNG.uniform(size=(6, 10))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 60])
def test_iqm_is_the_trimmed_mean_of_scipy(count):
    values = RNG.normal(size=count)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_iqm_pools_all_axes_as_rliable_does():
    rliable = pytest.importorskip("rliable.metrics")
    assert iqm(SCENARIOS) == pytest.approx(rliable.aggregate_iqm(SCENARIOS.T))


def test_stratified_interval_agrees_with_rliable():
    library, metrics = pytest.importorskip("rliable.library"), pytest.importorskip("rliable.metrics")
    ours = stratified_interval(list(SCENARIOS))
    points, ends = library.get_interval_estimates(
        {"method": SCENARIOS.T}, metrics.aggregate_iqm, reps=2000, random_state=np.random.RandomState(0)
    )
    assert ours.estimate == pytest.approx(points["method"])
    width = ours.high - ours.low
    np.testing.assert_allclose([ours.low, ours.high], ends["method"].ravel(), atol=0.1 * width)


def test_resampling_stays_within_strata():
    # Equal runs within each stratum: nothing to resample, however far the strata are apart.
    interval = stratified_interval([np.zeros(10), np.ones(10), np.full(10, 5.0)])
    assert interval.low == interval.high == interval.estimate


def test_strata_may_have_different_numbers_of_runs():
    interval = stratified_interval([np.arange(4.0), np.arange(7.0)])
    assert interval.estimate == pytest.approx(stats.trim_mean(np.r_[0:4, 0:7], 0.25))
    assert interval.low < interval.estimate < interval.high


def test_the_interval_of_a_mean_is_nearly_the_normal_one():
    values = RNG.normal(size=100)
    half_width = 1.96 * values.std() / 10
    np.testing.assert_allclose(mean_interval(values), values.mean() + half_width * np.array([0, -1, 1]), atol=0.1 * half_width)


def test_a_contrast_of_two_is_a_difference_with_both_spreads():
    first, second = RNG.normal(3.0, 1.0, 50), RNG.normal(1.0, 2.0, 40)
    difference = contrast_interval([first, second], [1, -1])
    assert difference.estimate == pytest.approx(first.mean() - second.mean())
    half_width = 1.96 * np.sqrt(first.var() / 50 + second.var() / 40)
    assert (difference.high - difference.low) / 2 == pytest.approx(half_width, rel=0.05)


def test_equal_groups_are_resampled_independently():
    values = RNG.normal(size=10)
    difference = contrast_interval([values, values], [1, -1])
    assert difference.estimate == pytest.approx(0)
    assert difference.low < -0.1 < 0.1 < difference.high


def test_a_band_is_an_interval_at_each_point():
    curves = RNG.normal(size=(10, 3)) * [0.0, 1.0, 10.0]
    low, high = mean_band(curves, n_resamples=10_000)
    for k in range(3):
        np.testing.assert_allclose((low[k], high[k]), mean_interval(curves[:, k])[1:])


def test_one_run_has_no_interval():
    for interval in (mean_interval(np.ones(1)), stratified_interval([np.ones(5), np.ones(1)])):
        assert interval.estimate == 1
        assert np.isnan(interval[1:]).all()


def test_the_same_runs_give_the_same_interval():
    assert stratified_interval(list(SCENARIOS)) == stratified_interval(list(SCENARIOS))


@pytest.mark.parametrize("groups", [[], [np.zeros(0)], [np.zeros((2, 2))]])
def test_groups_that_are_no_vectors_of_runs_are_refused(groups):
    with pytest.raises(ValueError, match="at least one run"):
        contrast_interval(groups, [1.0] * len(groups))


def test_weights_must_match_groups():
    with pytest.raises(ValueError, match="one weight per group"):
        contrast_interval([np.ones(3)], [1, -1])
