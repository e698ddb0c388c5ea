"""The recursion of Algorithm 2 at the nodes, forwards and backwards."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from ... import _results
from ..nodes.laws import moments_from_features
from ..nodes.step import StepOutput, correct
from ..numerics.grids import finite_peak
from ..series import Series
from ..trace import Trace
from .table import Table

# Observations of one time that an online law remembers, for its density between the nodes.
SLOTS = 4


class Kept(NamedTuple):
    """What is kept of every step."""

    densities: Float[Array, "t n"]
    sources: Float[Array, "t n"]  # before the last transition
    log_norms: Float[Array, " t"]  # of what each step divided by


class GivenLaw(NamedTuple):
    """A law at the nodes, and what it is made of between them.

    Attributes:
        values: at the nodes, of mass one after an observation.
        source: values before the last transition.
        moved: whether there was a transition at all.
        seen: observations since then, rows of NaN where there was none.
        num_seen: how many.
        log_norm: log of what they have divided by.
    """

    values: Float[Array, " n"]
    source: Float[Array, " n"]
    moved: Bool[Array, ""]
    seen: Float[Array, "k p"]
    num_seen: Int[Array, ""]
    log_norm: Float[Array, ""]


def begin(table: Table) -> GivenLaw:
    """The prior."""
    seen = jnp.full((SLOTS, table.triple.num_observed), jnp.nan)
    zero = jnp.zeros((), int)
    return GivenLaw(table.start, table.start, zero > 0, seen, zero, jnp.zeros(()))


def push(table: Table, values: Float[Array, " n"]) -> Float[Array, " n"]:
    """int Q^(u, .) values(u) du at the nodes."""
    return (table.flat_weights * values) @ table.kernel


def advance(table: Table, law: GivenLaw) -> tuple[GivenLaw, Float[Array, ""]]:
    """One transition, and log of the mass that it leaves on the box."""
    predicted = push(table, law.values)
    kept = table.flat_weights @ predicted
    blank, zero = jnp.full_like(law.seen, jnp.nan), jnp.zeros((), int)
    new = GivenLaw(predicted, law.values, zero == 0, blank, zero, jnp.zeros(()))
    return new, jnp.log(jnp.where(kept > 0, kept, 1.0))


def status(table: Table, y: Float[Array, " p"]) -> tuple[Array, Int[Array, ""]]:
    """Whether y is not to be used, and a code: G^ has no meaning outside of the box of y."""
    bad = jnp.any(jnp.isinf(y))
    box = table.triple.observation_box
    if box is not None:
        bad = bad | jnp.any((y < box.lower) | (y > box.upper))
    code = jnp.where(bad, _results.BAD_OBSERVATION, _results.OK)
    return jnp.all(jnp.isnan(y)) | bad, code


def observe(
    table: Table, predicted: Float[Array, " n"], y: Float[Array, " p"]
) -> tuple[StepOutput, Float[Array, " n"]]:
    """Bayes' rule, and G^(z, y) exp(-log Z) at the nodes: one where nothing was seen."""
    missing, code = status(table, y)
    # A gap must not put NaN into derivatives: any number in its place serves.
    logs = table.triple.log_likelihood(table.points, jnp.where(missing, 0.0, y))
    logs = jnp.where(missing | jnp.isnan(logs), jnp.where(missing, 0.0, -jnp.inf), logs)
    peak = jax.lax.stop_gradient(finite_peak(logs))
    values = jnp.exp(logs - peak)
    out = correct(table.flat_weights, predicted, values, peak, missing, code)
    return out, jnp.where(out.seen, values * jnp.exp(peak - out.log_norm), 1.0)


def update(table: Table, law: GivenLaw, y: Float[Array, " p"]) -> tuple[GivenLaw, StepOutput]:
    """One observation."""
    out, _ = observe(table, law.values, y)
    slot = jnp.minimum(law.num_seen, SLOTS - 1)
    seen = law.seen.at[slot].set(jnp.where(out.seen, y, law.seen[slot]))
    num = law.num_seen + out.seen.astype(int)
    return law._replace(
        values=out.density, seen=seen, num_seen=num, log_norm=law.log_norm + out.log_norm
    ), out


def features(table: Table) -> Float[Array, "n k"]:
    """z_i and z_i z_j at the nodes."""
    z = table.unit_points
    dim = z.shape[1]
    pairs = [z[:, i] * z[:, j] for i in range(dim) for j in range(i, dim)]
    return jnp.concatenate([z, jnp.stack(pairs, axis=-1)], axis=1)


def moments_at(
    table: Table, values: Float[Array, "t n"]
) -> tuple[Float[Array, "t d"], Float[Array, "t d d"]]:
    """Means and covariances in user units."""
    masses = values * table.flat_weights[None, :]
    shares = masses / jnp.sum(masses, axis=1, keepdims=True)
    return moments_from_features(table.box.center, table.box.half_width, shares @ features(table))


def run_table(table: Table, series: Series, keep: bool) -> Trace:
    """The filter of a series."""

    def step(values: Array, at: tuple[Array, Array]):
        y, hops = at

        def once(_: ArrayLike, now: tuple[Array, Array]) -> tuple[Array, Array]:
            return push(table, now[0]), now[0]

        if series.regular:
            moved = once(0, (values, values))
            predicted, source = jax.tree.map(
                lambda a, b: jnp.where(hops > 0, a, b), moved, (values, values)
            )
        else:
            predicted, source = jax.lax.fori_loop(0, hops, once, (values, values))
        out, _ = observe(table, predicted, y)
        shares = predicted * table.flat_weights
        normalizer = out.log_kept if table.seen_mass is None else jnp.log(shares @ table.seen_mass)
        moments = moments_at(table, out.density[None])
        kept = Kept(out.density, source, out.log_norm) if keep else None
        scalars = out._replace(density=jnp.zeros(()))
        return out.density, (scalars, normalizer, moments, kept)

    xs = jnp.asarray(series.ys), series.hops
    last, (out, normalizers, moments, kept) = jax.lax.scan(step, table.start, xs)
    law = begin(table)._replace(values=last)
    return Trace(
        log_likelihoods=out.log_mass,
        mean=moments[0][:, 0],
        covariance=moments[1][:, 0],
        codes=out.code,
        seen=out.seen,
        log_kept=out.log_kept,
        log_normalizers=normalizers,
        errors=None,
        last=law,
        laws=kept,
    )


class Backward(NamedTuple):
    """A smoothed series at the nodes, T rows each."""

    values: Float[Array, "t n"]
    sinks: Float[Array, "t n"]  # w G beta of the step after, before its last transition back
    log_norms: Float[Array, " t"]  # log int pi_t beta_t, for the scaled beta


def smooth_table(table: Table, series: Series, kept: Kept) -> Backward:
    """beta_T = 1, beta_k(u) = int Q^(u, x) G^(x, y_{k+1}) beta_{k+1}(x) dx / Z_{k+1}."""
    weights = table.flat_weights

    def back(values: Float[Array, " n"]) -> Float[Array, " n"]:
        return table.kernel @ (weights * values)

    def step(after: Array, at: tuple[Array, Array, Array]):
        y, hops, log_norm = at
        missing, _ = status(table, y)
        logs = table.triple.log_likelihood(table.points, jnp.where(missing, 0.0, y))
        still = after * jnp.exp(jnp.where(missing, 0.0, logs) - log_norm)
        source = jax.lax.fori_loop(0, hops - 1, lambda _, b: back(b), still)
        beta = jnp.where(hops > 0, back(source), still)
        return beta, (weights * source, beta)

    last = jnp.ones_like(weights)
    later = (jnp.asarray(series.ys)[1:], series.hops[1:], kept.log_norms[1:])
    _, (sinks, betas) = jax.lax.scan(step, last, later, reverse=True)
    betas = jnp.concatenate([betas, last[None]])
    sinks = jnp.concatenate([sinks, weights[None]])
    joint = kept.densities * betas
    norms = joint @ weights
    return Backward(joint / norms[:, None], sinks, jnp.log(norms))


compiled_run = eqx.filter_jit(run_table)
compiled_smooth = eqx.filter_jit(smooth_table)
compiled_advance = eqx.filter_jit(advance)
compiled_update = eqx.filter_jit(update)
compiled_moments = eqx.filter_jit(moments_at)
