"""Components with free shapes: derivatives, exact targets, orders, losses, starts and messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import psdfilter as psd
from psdfilter._learning.components import (
    Data,
    Shapes,
    evaluate_root,
    mean_square,
    num_parameters,
    unpack,
)
from psdfilter._learning.generalized import _show, learn_generalized
from psdfilter._learning.progress import Bar

UNIT = psd.Box([-1.0, -1.0], [1.0, 1.0])


def sine(z):
    return norm.logpdf(z[1], 0.7 * jnp.sin(3.0 * z[0]), 0.25)


def sine_values(x: np.ndarray) -> np.ndarray:
    scaled = (x[:, 1] - 0.7 * np.sin(3.0 * x[:, 0])) / 0.25
    return np.exp(-0.5 * scaled**2) / (0.25 * np.sqrt(2 * np.pi))


def grid(box: psd.Box, num: int) -> np.ndarray:
    axes = [np.linspace(a, b, num) for a, b in zip(box.lower, box.upper, strict=True)]
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=-1)


# One order and one number of points for most tests: compiling is what takes their time.
OPTIONS = {"given": 0, "log": True, "points": grid(UNIT, 45)}


def random_problem(seed: int, dim: int, order: int, num: int):
    rng = np.random.default_rng(seed)
    roots = np.triu(0.3 * rng.normal(size=(order, dim, dim))) + 1.5 * np.eye(dim)
    shapes = Shapes(rng.uniform(-0.8, 0.8, (order, dim)), roots)
    points = rng.uniform(-1.0, 1.0, (num, dim))
    theta = np.zeros((order, num_parameters(dim)))
    theta[:, 0] = rng.normal(size=order)
    theta[:, 1:] = 0.5 * rng.normal(size=(order, num_parameters(dim) - 1))
    data = Data(shapes.local(points), jnp.asarray(rng.uniform(0.0, 1.0, num)))
    return theta, shapes, points, data


@pytest.fixture(scope="module")
def root_fit():
    return learn_generalized(sine, UNIT, 8, **OPTIONS)


@pytest.mark.long
@pytest.mark.parametrize("dim", [1, 3])
def test_values_from_the_definition(dim):
    theta, shapes, points, data = random_problem(0, dim, 4, 7)
    alpha, b, S = (np.asarray(a) for a in unpack(jnp.asarray(theta), dim))
    expected = np.zeros(len(points))
    for j in range(4):
        for i, x in enumerate(points):
            w = S[j] @ shapes.roots[j] @ (x - shapes.centers[j]) - b[j]
            expected[i] += alpha[j] * np.exp(-w @ w)
    np.testing.assert_allclose(evaluate_root(jnp.asarray(theta), data.local), expected, rtol=1e-12)


@pytest.mark.parametrize("loss", ["root", "density"])
@pytest.mark.parametrize("dim", [1, 3])
def test_gradient_against_differences(loss, dim):
    theta, _, _, data = random_problem(1, dim, 3, 20)
    gradient = np.asarray(jax.grad(mean_square)(jnp.asarray(theta), data, loss))
    step = 1e-5
    for index in np.ndindex(*theta.shape):
        up, down = theta.copy(), theta.copy()
        up[index] += step
        down[index] -= step
        slope = (mean_square(up, data, loss) - mean_square(down, data, loss)) / (2 * step)
        np.testing.assert_allclose(gradient[index], slope, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_linear_gaussian_conditional_is_one_component():
    F, b, s = -0.6, 0.3, 0.8
    box = psd.Box([-2.0, -1.0], [4.0, 3.0])
    fit = learn_generalized(lambda z: norm.logpdf(z[1], F * z[0] + b, s), box, 1, given=0, log=True)
    x = grid(box, 41)
    truth = np.exp(-0.5 * ((x[:, 1] - F * x[:, 0] - b) / s) ** 2) / (s * np.sqrt(2 * np.pi))
    assert np.abs(fit.model(x) - truth).max() < 1e-8 * truth.max()
    exact = psd.conditional_gaussian([[F]], [[s**2]], [b])
    np.testing.assert_allclose(fit.model.precisions()[0], exact.precision, atol=1e-7)
    assert fit.report.sup_error < 1e-8


def best_axis_aligned(x: np.ndarray, values: np.ndarray, num: int) -> float:
    """Mean square of f over grids of num x num anchors, for the best of many precisions."""
    errors = []
    for reach in (0.9, 1.0, 1.2):
        axis = np.linspace(-reach, reach, num)
        for spread in (0.2, 0.35, 0.5, 0.8, 1.2):
            eta = spread / (axis[1] - axis[0]) ** 2
            features = [np.exp(-eta * (x[:, [i]] - axis[None]) ** 2) for i in range(2)]
            phi = (features[0][:, :, None] * features[1][:, None, :]).reshape(len(x), -1)
            a = np.linalg.lstsq(phi, np.sqrt(values), rcond=1e-10)[0]
            errors.append(np.mean((np.square(phi @ a) - values) ** 2))
    return min(errors)


@pytest.mark.long
def test_eight_components_beat_thirty_six_anchors(root_fit):
    x = grid(UNIT, 61)
    values = sine_values(x)
    assert np.mean(np.square(root_fit.model(x) - values)) < 1e-4
    assert best_axis_aligned(x, values, 6) > 1e-2
    assert root_fit.report.sup_error < 0.02


def test_report_is_honest_and_prints(root_fit):
    x = grid(UNIT, 101)
    values = sine_values(x)
    error = np.abs(np.asarray(root_fit.model(x)) - values)
    report = root_fit.report
    assert error.max() / values.max() < 1.1 * report.sup_error
    np.testing.assert_allclose(error.mean() / values.mean(), report.l1_error, rtol=0.1)
    np.testing.assert_allclose(
        np.sqrt(np.mean(error**2) / np.mean(values**2)), report.l2_error, rtol=0.1
    )
    text = str(root_fit)
    assert "sup error / max f" in text
    assert "levenberg-marquardt" in text
    assert root_fit.model.order == report.order == 8
    assert root_fit.model.rank == 1


@pytest.mark.slow
def test_each_loss_is_best_in_its_own_measure():
    # Trained on one grid, both fits are compared on that grid.
    x = grid(UNIT, 45)
    fits = {
        loss: learn_generalized(sine, UNIT, 8, loss=loss, **OPTIONS).model
        for loss in ("root", "density")
    }
    f = sine_values(x)
    on_density = {k: float(np.mean(np.square(m(x) - f))) for k, m in fits.items()}
    on_root = {k: float(np.mean((np.sqrt(m(x)) - np.sqrt(f)) ** 2)) for k, m in fits.items()}
    assert on_density["density"] < on_density["root"]
    assert on_root["root"] < on_root["density"]


@pytest.mark.long
def test_a_second_call_compiles_nothing():
    x = grid(UNIT, 45)
    options = OPTIONS | {"points": psd.densities.TensorGrid([np.linspace(-1, 1, 45)] * 2)}
    first = learn_generalized(sine, UNIT, 8, **options)
    compiled = []

    def listen(name, *_, **__):
        if "backend_compile" in name:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        second = learn_generalized(sine, UNIT, 8, **options)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []
    np.testing.assert_array_equal(first.model(x), second.model(x))


@pytest.mark.long
def test_user_units_do_not_matter():
    lower, upper = np.array([1e3, -0.02]), np.array([1e3 + 40.0, 0.01])
    center, half = (lower + upper) / 2, (upper - lower) / 2
    scaled = learn_generalized(
        lambda x: sine((x - center) / half) - 5000.0,
        (lower, upper),
        8,
        given=0,
        log=True,
        points=center + half * grid(UNIT, 45),
    )
    unit = learn_generalized(sine, UNIT, 8, **OPTIONS)
    z = np.random.default_rng(3).uniform(-1, 1, (50, 2))
    # The canonical form loses digits to the offset of the box: 1e3 half-widths of 20.
    np.testing.assert_allclose(
        scaled.model.log_density(center + half * z) + 5000.0, unit.model.log_density(z), atol=1e-4
    )


@pytest.mark.long
def test_tolerance_stops_the_run():
    full = learn_generalized(sine, UNIT, 8, **OPTIONS)
    loose = learn_generalized(sine, UNIT, 8, tol=0.3, **OPTIONS)
    assert loose.report.met
    assert loose.report.iterations <= full.report.iterations
    assert full.report.met is None
    strict = learn_generalized(sine, UNIT, 8, tol=1e-6, **OPTIONS)
    assert strict.report.met is False
    assert "MISSED" in str(strict.report)


@pytest.mark.slow
def test_more_starts_are_no_worse():
    one = learn_generalized(sine, UNIT, 8, **OPTIONS)
    three = learn_generalized(
        sine, UNIT, 8, num_starts=3, key=jax.random.key(2), progress=True, **OPTIONS
    )
    assert len(three.report.start_losses) == 3
    assert three.report.loss <= one.report.loss


def test_progress_shows_the_loss():
    bar = Bar("learning", True)
    with bar:
        _show(bar, 1, 0.5, 1.5e-4)
        assert bar._shown[0].tasks[0].description == "start 2, loss 1.50e-04"
        assert bar._shown[0].tasks[0].completed == 0.5


@pytest.mark.slow
def test_black_box_and_plain_density():
    def values(x):
        return 0.3 * np.exp(-0.5 * ((x[:, 0] + 2.0) / 0.4) ** 2)

    fit = learn_generalized(values, psd.Box(-4.0, 4.0), 1, vectorized=True)
    x = np.linspace(-4, 4, 201)[:, None]
    np.testing.assert_allclose(fit.model(x), values(x), atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": 0}, "order must be a whole number >= 1, got 0"),
        ({"order": 2000}, "order must be smaller"),
        ({"loss": "l2"}, "loss must be one of 'root', 'density', got 'l2'"),
        ({"method": "newton"}, "method must be one of"),
        ({"given": (0, 1)}, "given must leave at least one of 2 axes free"),
        ({"given": 2}, "given must lie in 0..1"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"num_starts": 2}, "key must be given for num_starts > 1"),
        ({"num_starts": 2, "key": 3}, "key must be a JAX random key"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"points": np.zeros((50, 3))}, "points must have shape"),
        ({"points": np.full((50, 2), 2.0)}, "points must lie in the box"),
        ({"points": np.zeros((5, 2))}, "points must number at least 12"),
        ({"box": psd.Box([-1.0, -np.inf], [1.0, 1.0])}, "box must be finite"),
        ({"f": lambda z: -1.0 + 0 * z[0], "log": False}, "f must return a finite value >= 0"),
        ({"f": lambda z: jnp.nan * z[0]}, "f must return"),
        ({"f": lambda z: -jnp.inf + 0 * z[0]}, "f is zero at all"),
        ({"f": lambda z: z}, "f must map"),
        ({"f": lambda u, x: u}, "f must take one argument"),
    ],
)
def test_bad_input_names_the_argument(change, message):
    call = {"f": sine, "box": UNIT, "order": 2, "log": True, **change}
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        learn_generalized(call.pop("f"), call.pop("box"), call.pop("order"), **call)


@pytest.mark.slow
def test_lbfgs_comes_close_to_levenberg_marquardt(root_fit):
    fit = learn_generalized(sine, UNIT, 8, method="lbfgs", **OPTIONS)
    assert fit.report.loss < 3 * root_fit.report.loss


@pytest.mark.slow
def test_truncated_sine_transition_by_order():
    def log_transition(z):
        mean = 0.9 * jnp.sin(2.2 * z[0])
        mass = norm.cdf((1.0 - mean) / 0.15) - norm.cdf((-1.0 - mean) / 0.15)
        return norm.logpdf(z[1], mean, 0.15) - jnp.log(mass)

    errors = [
        learn_generalized(log_transition, UNIT, order, given=0, log=True).report.sup_error
        for order in (5, 10, 20)
    ]
    assert errors[0] < 6e-2
    assert errors[1] < 5e-3
    assert errors[2] < 1e-3


@pytest.mark.slow
def test_planar_transitions():
    def scalar_noise(z):
        return norm.logpdf(z[2], 0.6 * jnp.sin(2 * z[0]) + 0.3 * z[0] * z[1], 0.2)

    fit = learn_generalized(
        scalar_noise, psd.Box([-1.0] * 3, [1.0] * 3), 20, given=(0, 1), log=True
    )
    assert fit.report.sup_error < 1e-2

    def van_der_pol(z):
        u, v = z[0], z[1]
        first = norm.logpdf(z[2], u + 0.2 * v, 0.2)
        return first + norm.logpdf(z[3], v + 0.2 * ((1 - 4 * u * u) * v - u), 0.2)

    fit = learn_generalized(van_der_pol, psd.Box([-1.0] * 4, [1.0] * 4), 16, given=(0, 1), log=True)
    assert fit.report.l1_error < 1.5e-2
