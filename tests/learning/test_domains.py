import numpy as np
import pytest
import scipy.stats

from psdfilter._learning.domains import box_from_quantiles, box_from_samples


def test_box_from_samples_leaks_as_reported():
    rng = np.random.default_rng(0)

    def draw(n):
        return rng.normal(size=(n, 2)) * np.array([1.0, 20.0]) + np.array([5.0, 0.0])

    choice = box_from_samples(draw(20_000), leak=0.02, margin=0.0)
    fresh = draw(100_000)
    outside = 1.0 - np.mean(np.asarray(choice.box.contains(fresh)))
    error = np.sqrt(0.02 / 20_000)
    assert abs(choice.leak - outside) < 6 * error
    assert choice.leak < choice.leak_bound < choice.leak + 6 * error
    assert "mass outside" in str(choice)


def test_margin_and_paths():
    paths = np.random.default_rng(1).normal(size=(50, 40, 3))
    tight, wide = (box_from_samples(paths, margin=m).box for m in (0.0, 0.25))
    np.testing.assert_allclose(wide.half_width, 1.5 * tight.half_width)
    assert box_from_samples(paths, margin=0.5).leak_bound > 0


def test_box_from_quantiles():
    prior = scipy.stats.norm(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    choice = box_from_quantiles(prior.ppf, leak=1e-4)
    inside = np.prod(prior.cdf(choice.box.upper) - prior.cdf(choice.box.lower))
    assert 1 - inside == pytest.approx(1e-4, rel=1e-3)
    assert 1 - inside <= choice.leak_bound


def test_errors():
    with pytest.raises(ValueError, match="samples must have shape"):
        box_from_samples(np.ones(5))
    with pytest.raises(ValueError, match="axis 1 is constant"):
        box_from_samples(np.stack([np.arange(9.0), np.ones(9)], axis=1))
    with pytest.raises(ValueError, match="leak must lie"):
        box_from_samples(np.ones((5, 1)), leak=0.0)
    with pytest.raises(ValueError, match="quantile must be finite"):
        box_from_quantiles(lambda p: [np.inf if p > 0.9 else 0.0])
