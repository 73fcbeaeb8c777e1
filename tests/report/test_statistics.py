"""Point estimates against scipy and rliable; intervals against what is known of them."""

import numpy as np
import pytest
from scipy import stats

from dgmarl.report.statistics import (
    ESTIMATORS,
    Interval,
    aggregate_band,
    aggregate_interval,
    contrast_interval,
    iqm,
    mean,
    mean_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

RNG = np.random.default_rng(1)
SCENARIOS = RNG.uniform(size=(6, 10))


OTHERS = RNG.uniform(size=(6, 8)) + 0.05
OURS = {**ESTIMATORS, "optimality gap": optimality_gap}
RLIABLE = {
    "mean": "aggregate_mean",
    "median": "aggregate_median",
    "IQM": "aggregate_iqm",
    "optimality gap": "aggregate_optimality_gap",
}


@pytest.fixture(scope="module")
def rliable():
    reason = "rliable is not installed, so estimates are not compared with it"
    metrics, library = (
        pytest.importorskip(f"rliable.{name}", reason=reason) for name in ("metrics", "library")
    )
    return metrics, library


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 60])
def test_iqm_is_the_trimmed_mean_of_scipy(count):
    values = RNG.normal(size=count)
    assert iqm([values]) == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-12)


@pytest.mark.parametrize("name", RLIABLE)
def test_point_estimates_equal_those_of_rliable(rliable, name):
    theirs = getattr(rliable[0], RLIABLE[name])(SCENARIOS.T)
    assert OURS[name](list(SCENARIOS)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("name", RLIABLE)
def test_intervals_agree_with_those_of_rliable(rliable, name):
    metrics, library = rliable
    theirs = getattr(metrics, RLIABLE[name])
    ours = aggregate_interval(list(SCENARIOS), OURS[name])
    _, ends = library.get_interval_estimates(
        {"method": SCENARIOS.T},
        lambda x: np.array([theirs(x)]),
        reps=2000,
        random_state=np.random.RandomState(0),
    )
    np.testing.assert_allclose(
        [ours.low, ours.high], ends["method"].ravel(), atol=0.1 * (ours.high - ours.low)
    )


def test_probability_of_improvement_equals_that_of_rliable(rliable):
    metrics, library = rliable
    ours = probability_of_improvement(list(SCENARIOS), list(OTHERS))
    assert ours.estimate == pytest.approx(
        metrics.probability_of_improvement(SCENARIOS.T, OTHERS.T), abs=1e-12
    )
    _, ends = library.get_interval_estimates(
        {"pair": (SCENARIOS.T, OTHERS.T)},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=1000,
        random_state=np.random.RandomState(0),
    )
    np.testing.assert_allclose(
        [ours.low, ours.high], ends["pair"].ravel(), atol=0.15 * (ours.high - ours.low)
    )


def test_performance_profiles_equal_those_of_rliable(rliable):
    thresholds = np.linspace(0, 1, 11)
    theirs, ends = rliable[1].create_performance_profile(
        {"method": SCENARIOS.T}, thresholds, reps=2000
    )
    ours = performance_profile(list(SCENARIOS), thresholds)
    np.testing.assert_allclose(ours.estimate, theirs["method"], atol=1e-12)
    np.testing.assert_allclose(ours[1:], ends["method"], atol=0.035)


def test_sample_efficiency_equals_that_of_rliable(rliable):
    metrics, _ = rliable
    curves = RNG.uniform(size=(6, 10, 5))
    theirs = [metrics.aggregate_iqm(curves[:, :, k].T) for k in range(5)]
    ours = aggregate_band(list(curves))
    np.testing.assert_allclose(ours.estimate, theirs, atol=1e-12)
    for k in range(5):
        point = aggregate_interval(list(curves[:, :, k]), n_resamples=2000)
        np.testing.assert_allclose([band[k] for band in ours], point)


def test_estimates_by_hand():
    strata = [np.array([0.0, 2.0]), np.array([0.5, 0.5, 0.8])]
    assert mean(strata) == pytest.approx((1 + 0.6) / 2)
    assert optimality_gap(strata) == pytest.approx(1 - (0.5 + 0.6) / 2)
    assert probability_of_improvement(
        [np.array([1.0, 2.0])], [np.array([1.0, 0.0, 3.0])]
    ).estimate == pytest.approx(3.5 / 6)
    np.testing.assert_allclose(
        performance_profile(strata, np.array([-1.0, 0.5, 2.0])).estimate,
        [1, (1 / 2 + 1 / 3) / 2, 0],
    )


def test_equal_methods_improve_upon_each_other_half_of_the_time():
    chance = probability_of_improvement([np.ones(5)], [np.ones(4)])
    assert chance == (0.5, 0.5, 0.5)


def test_resampling_stays_within_strata():
    # Equal runs within each stratum: nothing to resample, however far the strata are apart.
    interval = aggregate_interval([np.zeros(10), np.ones(10), np.full(10, 5.0)])
    assert interval.low == interval.high == interval.estimate


def test_strata_may_have_different_numbers_of_runs():
    interval = aggregate_interval([np.arange(4.0), np.arange(7.0)])
    assert interval.estimate == pytest.approx(stats.trim_mean(np.r_[0:4, 0:7], 0.25))
    assert interval.low < interval.estimate < interval.high


def test_the_interval_of_a_mean_is_nearly_the_normal_one():
    values = RNG.normal(size=100)
    half_width = 1.96 * values.std() / 10
    np.testing.assert_allclose(
        mean_interval(values),
        values.mean() + half_width * np.array([0, -1, 1]),
        atol=0.1 * half_width,
    )


def test_a_contrast_of_two_has_welchs_interval():
    first, second = RNG.normal(3.0, 1.0, 5), RNG.normal(1.0, 2.0, 9)
    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(
        contrast_interval([first, second], [1, -1]), (first.mean() - second.mean(), low, high)
    )


def test_a_contrast_of_one_has_students_interval():
    values = RNG.normal(3.0, 1.0, 5)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(contrast_interval([values], [1]), (values.mean(), low, high))


def test_equal_runs_have_a_contrast_without_width():
    assert contrast_interval([np.full(5, 20.0), np.full(5, 18.0)], [1, -1]) == (2, 2, 2)
    assert np.isnan(contrast_interval([np.ones(1), np.zeros(5)], [1, -1])[1:]).all()


def test_contrasts_of_few_runs_cover_95_percent_where_the_bootstrap_does_not():
    generator = np.random.default_rng(0)
    groups = [list(generator.normal(size=(2, 5))) for _ in range(1000)]

    def excludes_zero(interval: Interval) -> bool:
        return not interval.low <= 0 <= interval.high

    welch = np.mean([excludes_zero(contrast_interval(each, [1, -1])) for each in groups])
    bootstrap = np.mean(
        [
            excludes_zero(aggregate_interval(each, lambda g: mean(g[:1]) - mean(g[1:]), 500))
            for each in groups[:400]
        ]
    )
    assert welch < 0.06
    assert bootstrap > 0.09


def test_equal_groups_are_independent():
    values = RNG.normal(size=10)
    difference = contrast_interval([values, values], [1, -1])
    assert difference.estimate == pytest.approx(0)
    assert difference.low < -0.1 < 0.1 < difference.high


def test_a_band_is_an_interval_at_each_point():
    curves = RNG.normal(size=(10, 3)) * [0.0, 1.0, 10.0]
    _, low, high = aggregate_band([curves], mean, n_resamples=10_000)
    for k in range(3):
        np.testing.assert_allclose((low[k], high[k]), mean_interval(curves[:, k])[1:])


def test_one_run_has_no_interval():
    for interval in (mean_interval(np.ones(1)), aggregate_interval([np.ones(5), np.ones(1)])):
        assert interval.estimate == 1
        assert np.isnan(interval[1:]).all()


def test_the_same_runs_give_the_same_interval():
    assert aggregate_interval(list(SCENARIOS)) == aggregate_interval(list(SCENARIOS))


@pytest.mark.parametrize("groups", [[], [np.zeros(0)], [np.zeros((2, 2))]])
def test_groups_that_are_no_vectors_of_runs_are_refused(groups):
    with pytest.raises(ValueError, match="at least one run"):
        contrast_interval(groups, [1.0] * len(groups))


def test_scenarios_must_have_the_same_points_and_the_same_order():
    with pytest.raises(ValueError, match="same points"):
        aggregate_band([np.ones((3, 2)), np.ones((3, 4))])
    with pytest.raises(ValueError, match="longer"):
        probability_of_improvement([np.ones(3)], [np.ones(3), np.ones(3)])


def test_weights_must_match_groups():
    with pytest.raises(ValueError, match="shape"):
        contrast_interval([np.ones(3)], [1, -1])
