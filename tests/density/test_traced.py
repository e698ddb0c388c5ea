"""Bad numbers under jit: every operation stops with the name of the argument, or gives a code."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow

import psdfilter as psd

NAN = jnp.nan
BOX = psd.Box([-1.0, -0.8], [0.9, 1.0])
F = psd.GaussianPSD([[0.1, -0.3], [-0.5, 0.4]], [1.0, -0.4], [1.5, 2.0])
LINE = psd.GaussianPSD([[0.1], [-0.5]], [1.0, 0.3], 1.5)


def tilted(anchors, factor, precision, log_scale):
    """A generalised model from the numbers of F."""
    matrix = jnp.diag(precision)
    f = psd.GeneralizedGaussianPSD.from_centers(anchors, factor, matrix)
    return eqx.tree_at(lambda m: m.log_scale, f, log_scale)


# What each does with a model, a box and a number, all of them traced; and which of them it uses.
OPERATIONS = {
    "value": (lambda f, box, t: f(jnp.stack([t, t])), "ft"),
    "log_density": (lambda f, box, t: f.log_density(jnp.stack([t, t])), "ft"),
    "gradient": (lambda f, box, t: f.gradient(jnp.stack([t, t])), "ft"),
    "integral": (lambda f, box, t: psd.integral(f, box), "fb"),
    "integral over the plane": (lambda f, box, t: psd.integral(f), "f"),
    "log_integral": (lambda f, box, t: psd.log_integral(f, box), "fb"),
    "normalize": (lambda f, box, t: psd.normalize(f, box).log_scale, "fb"),
    "scale": (lambda f, box, t: psd.scale(f, t), "ft"),
    "moments": (lambda f, box, t: psd.moments(f, box), "fb"),
    "partial": (lambda f, box, t: psd.partial(f, 0, t), "ft"),
    "marginal": (lambda f, box, t: psd.marginal(f, 0, box), "fb"),
    "product": (lambda f, box, t: psd.product(f, LINE), "f"),
    "second factor": (lambda f, box, t: psd.product(LINE, f), "f"),
    "transition": (lambda f, box, t: psd.transition(f, LINE, box.keep((0,))), "fb"),
    "filter_step": (lambda f, box, t: psd.filter_step(f, f, LINE, t, box.keep((0,))), "fbt"),
    "cdf": (lambda f, box, t: psd.cdf(f, 0, t, box), "fbt"),
    "quantile": (lambda f, box, t: psd.quantile(f, 0, t, box), "fbt"),
    "mode": (lambda f, box, t: psd.mode(f, box), "fb"),
    "sample": (lambda f, box, t: psd.sample(f, box, key=jax.random.key(0), num=2), "fb"),
    "bisection": (
        lambda f, box, t: psd.sample(f, box, key=jax.random.key(0), num=2, method="bisection"),
        "fb",
    ),
    "compress": (lambda f, box, t: psd.densities.compress_with_loss(f, order=1, box=box), "fb"),
    "to_mixture": (lambda f, box, t: psd.densities.to_mixture(f), "f"),
    "change_units": (lambda f, box, t: psd.densities.change_units(f, t, 2.0), "ft"),
    "units": (lambda f, box, t: psd.densities.change_units(f, 0.0, t), "ft"),
    "total_variation": (
        lambda f, box, t: psd.total_variation(f, psd.product(LINE, LINE, 0, 1), box, num_nodes=20),
        "fb",
    ),
    "entropy": (lambda f, box, t: psd.densities.entropy(f, box, num_nodes=20), "fb"),
    "hdr_level": (lambda f, box, t: psd.densities.hdr_level(f, t, box, num_nodes=20), "fbt"),
    "to_unit": (lambda f, box, t: box.to_unit(jnp.stack([t, t])), "bt"),
    "from_unit": (lambda f, box, t: box.from_unit(jnp.stack([t, t])), "bt"),
}
FAST = {"value", "integral", "partial", "scale", "product", "from_unit"}
GENERALIZED = ["value", "gradient", "integral over the plane", "partial", "product"]

NUMBER = r"\b(x|z|t|q|y|values|log_factor|center|scale|mass) must"

# What is spoilt, and what the message then has to name.
SPOILT = {
    "anchors": ("f", lambda n: n._replace(anchors=n.anchors.at[1, 0].set(NAN)), "anchors|linear"),
    "factor": ("f", lambda n: n._replace(factor=n.factor.at[0].set(NAN)), "factor"),
    "infinite factor": ("f", lambda n: n._replace(factor=n.factor.at[0].set(jnp.inf)), "factor"),
    "huge factor": ("f", lambda n: n._replace(factor=n.factor.at[0].set(1e200)), "factor"),
    "precision": ("f", lambda n: n._replace(precision=n.precision.at[1].set(NAN)), "precision"),
    "negative precision": ("f", lambda n: n._replace(precision=-n.precision), "precision"),
    "log_scale": ("f", lambda n: n._replace(log_scale=jnp.asarray(NAN)), "log_scale"),
    "lower": ("b", lambda n: n._replace(lower=n.lower.at[0].set(NAN)), r"box\.lower"),
    "inverted": ("b", lambda n: n._replace(upper=n.lower, lower=n.upper), r"box\.lower"),
    "number": ("t", lambda n: n._replace(t=jnp.asarray(NAN)), NUMBER),
}  # fmt: skip


class Numbers(eqx.Module):
    """All numbers that an operation sees, each a traced array."""

    anchors: jax.Array
    factor: jax.Array
    precision: jax.Array
    log_scale: jax.Array
    lower: jax.Array
    upper: jax.Array
    t: jax.Array

    def _replace(self, **changes):
        names = tuple(changes)
        where = lambda n: tuple(getattr(n, name) for name in names)  # noqa: E731
        return eqx.tree_at(where, self, tuple(changes.values()))


GOOD = Numbers(
    F.anchors, F.factor[:, 0], F.precision, jnp.zeros(()), BOX.lower, BOX.upper, jnp.asarray(0.3)
)


def run(operation, build, as_argument):
    """The operation under jit, on a model made inside or handed over."""

    def inside(n):
        f, box = build(n.anchors, n.factor, n.precision, n.log_scale), psd.Box(n.lower, n.upper)
        return operation(f, box, n.t)

    if not as_argument:
        return eqx.filter_jit(inside)
    compiled = eqx.filter_jit(operation)

    def outside(n):
        # Around the constructors, which would refuse concrete numbers before the operation can.
        f = eqx.filter_jit(build)(n.anchors, n.factor, n.precision, n.log_scale)
        box = eqx.tree_at(lambda b: (b.lower, b.upper), BOX, (n.lower, n.upper))
        return compiled(f, box, n.t)

    return outside


def faults(name, build, as_argument):
    """What an operation gets wrong: good numbers that fail, bad ones that it does not name."""
    operation, uses = OPERATIONS[name]
    call = run(operation, build, as_argument)
    leaves = jax.tree.leaves(call(GOOD))
    found = [] if all(np.all(np.isfinite(np.asarray(leaf))) for leaf in leaves) else ["nothing"]
    for what, (of, spoil, message) in SPOILT.items():
        if of not in uses:
            continue
        try:
            jax.block_until_ready(jax.tree.leaves(call(spoil(GOOD))))
        except (RuntimeError, ValueError) as error:
            if re.search(message, str(error)):
                continue
        found.append(what)
    return found


@pytest.mark.parametrize("name", [n if n in FAST else slow(n) for n in OPERATIONS])
def test_every_operation_stops_and_names_the_argument(name):
    assert faults(name, psd.GaussianPSD, as_argument=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_models_handed_to_compiled_functions_are_looked_at_too(name):
    assert faults(name, psd.GaussianPSD, as_argument=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERALIZED)
def test_generalised_models_too(name):
    assert faults(name, tilted, as_argument=False) == []


def test_concrete_models_with_bad_numbers_are_refused():
    # A constructor never saw these.
    bad = eqx.tree_at(lambda m: m.factor, F, F.factor.at[0, 0].set(NAN))
    inverted = eqx.tree_at(lambda b: b.upper, BOX, BOX.lower - 1)
    with pytest.raises(ValueError, match=r"f\.factor must be finite"):
        bad([0.1, 0.2])
    with pytest.raises(ValueError, match=r"g\.factor must be finite"):
        psd.product(F, bad)
    with pytest.raises(ValueError, match=r"box\.lower must be below upper"):
        psd.integral(F, inverted)


def test_codes_instead_of_errors():
    # Of each number a good one and a bad one, checked as one batch: the first defect counts.
    bad = {
        0: GOOD,
        11: SPOILT["anchors"][1](GOOD),
        12: SPOILT["factor"][1](GOOD),
        13: SPOILT["negative precision"][1](GOOD),
        15: SPOILT["log_scale"][1](GOOD),
        16: SPOILT["inverted"][1](GOOD),
        17: SPOILT["number"][1](GOOD),
    }
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *bad.values())

    @jax.jit
    @jax.vmap
    def codes(n):
        f = psd.GaussianPSD(n.anchors, n.factor, n.precision, n.log_scale)
        return psd.check(f, psd.Box(n.lower, n.upper), jnp.stack([n.t, n.t]))

    np.testing.assert_array_equal(codes(batch), list(bad))
    assert psd.explain(codes(batch)[1]) == "anchors must be finite"
    assert psd.explain(psd.check(F, BOX)) == "fine"
    with pytest.raises(ValueError, match="code must be one of"):
        psd.explain(99)


def test_weights_that_are_not_psd_are_refused_under_jit():
    @eqx.filter_jit
    def factor(weights):
        return psd.GaussianPSD.from_weights([[0.0], [1.0]], weights, 1.0).factor

    good = np.array([[2.0, 1.0], [1.0, 0.5]])
    np.testing.assert_allclose(factor(good) @ factor(good).T, good, atol=1e-14)
    for bad in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[NAN, 0.0], [0.0, 1.0]]):
        with pytest.raises(Exception, match="weights must be finite, symmetric and positive"):
            jax.block_until_ready(factor(np.array(bad)))


def numbers_of(name):
    """A number from an operation, as a function of all numbers that it sees."""
    operation, _ = OPERATIONS[name]

    def number(n):
        f = psd.GaussianPSD(n.anchors, n.factor, n.precision, n.log_scale)
        out = operation(f, psd.Box(n.lower, n.upper), n.t)
        # The numbers of a model are not unique, its values are.
        leaves = jax.tree.leaves(
            out([[0.1] * out.dim]) if isinstance(out, psd.GaussianPSD) else out
        )
        return sum((jnp.sum(jnp.sin(leaf)) for leaf in leaves[1:]), jnp.sum(jnp.sin(leaves[0])))

    return number


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["value", *map(slow, ["integral", "moments", "partial", "product", "cdf", "quantile"])]
)
def test_checks_do_not_disturb_batches_gradients_and_loops(name):
    number = numbers_of(name)
    batch = jax.tree.map(lambda a: jnp.stack([a, 0.9 * a]), GOOD)
    many = jax.jit(jax.vmap(number))
    looped = jax.jit(lambda b: jax.lax.map(number, b))(batch)
    np.testing.assert_allclose(many(batch), looped, rtol=1e-12)
    step = 1e-5
    both = jax.tree.map(lambda a: jnp.stack([a + step, a - step]), GOOD)
    expected = float(jnp.diff(many(both)[::-1])[0]) / (2 * step)
    slopes = jax.tree.leaves(jax.jit(jax.grad(number))(GOOD))
    np.testing.assert_allclose(sum(float(jnp.sum(s)) for s in slopes), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_bad_member_of_a_batch_stops_it():
    batch = jax.tree.map(lambda a, b: jnp.stack([a, b]), GOOD, SPOILT["factor"][1](GOOD))
    with pytest.raises(Exception, match=r"f\.factor must be finite"):
        jax.block_until_ready(eqx.filter_jit(jax.vmap(numbers_of("value")))(batch))
