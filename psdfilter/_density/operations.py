"""The calculus of PSD models: functions that check, then hand over to the family at hand.

All of them take and return models, work under `jit`, `vmap` and `grad`, and integrate over a box,
or over R^d when `box` is None. Each looks at the numbers of its arguments first (`verified`) and
then calls functions that do not: what is composed of several operations checks once.
"""

from collections.abc import Sequence
from typing import TypeVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import (
    Numbers,
    as_axes,
    as_floats,
    as_integers,
    check_values,
    is_traced,
    verified,
)
from . import block_calculus, canonical, diagonal, squares
from .anchors import num_points
from .blocks import NO_DENSITY, GaussianBlocks
from .box import Box
from .conversions import Model, SameModel, generalize
from .diagonal import AxisMap
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from .mass import (
    BoxLike,
    as_model,
    closed_integral,
    optional_box,
    positive_mass,
    scaled,
    verified_model,
)
from .psd import GaussianPSD, ProductPSD
from .rounding import COSTLY, relative_error, require_digits, settle


@eqx.filter_jit
def _partial(
    f: SameModel, axes: tuple[int, ...], rest: tuple[int, ...], values: Array
) -> SameModel:
    if isinstance(f, GaussianBlocks):
        return block_calculus.partial(f, axes, rest, values)
    room = diagonal if isinstance(f, GaussianPSD) else canonical
    return room.partial(f, axes, rest, values)  # pyright: ignore[reportArgumentType, reportReturnType]


def partial(f: SameModel, axes: int | Sequence[int], values: Numbers) -> SameModel:
    """f with the coordinates `axes` fixed at `values`, a model of the other coordinates."""
    _ = as_model("f", f)
    fixed = as_axes("axes", axes, f.dim)
    at = _as_values("values", values, len(fixed))
    rest = tuple(a for a in range(f.dim) if a not in fixed)
    if not rest:
        raise ValueError(f"axes must leave at least one of {f.dim} coordinates free; call f(x)")
    f, at = verified(f=f, values=at)
    return _with_density(_partial(f, fixed, rest, at))


def _with_density(f: SameModel) -> SameModel:
    """A sum of blocks that came of fixed coordinates, unless these had no density."""
    if not isinstance(f, GaussianBlocks):
        return f
    weights = check_values(f.log_weights, ~jnp.isnan(f.log_weights), NO_DENSITY)
    return eqx.tree_at(lambda m: m.log_weights, f, weights)


def _as_values(name: str, values: Numbers, num: int) -> Float[Array, " k"]:
    at = jnp.atleast_1d(as_floats(name, values))
    if at.shape != (num,):
        raise ValueError(f"{name} must have shape ({num},), one per axis, got {at.shape}")
    return at


@eqx.filter_jit
def _closed_marginal(
    f: GaussianPSD, keep: tuple[int, ...], drop: tuple[int, ...], box: Box | None
) -> tuple[GaussianPSD, Array]:
    model = diagonal.marginal(f, keep, drop, box)
    return model, relative_error(*diagonal.marginal_bound(f, drop, box))


@eqx.filter_jit
def _general_marginal(
    f: canonical.Generalized, keep: tuple[int, ...], drop: tuple[int, ...]
) -> tuple[canonical.Generalized, Array]:
    mass, _, bound = canonical.integral_and_bound(jax.lax.stop_gradient(f), None)
    # Over R^d a model may be integrable along the axes that go and not along all: no estimate.
    error = relative_error(mass, bound)
    return canonical.marginal(f, keep, drop), jnp.where(jnp.isnan(error), 0.0, error)


@overload
def marginal(
    f: GaussianPSD, keep: int | Sequence[int], box: BoxLike | None = None
) -> GaussianPSD: ...
@overload
def marginal(f: Model, keep: int | Sequence[int], box: BoxLike | None = None) -> Model: ...
def marginal(f: Model, keep: int | Sequence[int], box: BoxLike | None = None) -> Model:
    """int f over the coordinates that are not in `keep`; the result has those of `keep`, in order.

    `box` is a box of all coordinates of f, of which the integrated ones are used.
    """
    f = as_model("f", f)
    kept = as_axes("keep", keep, f.dim)
    if not kept:
        raise ValueError("keep must name at least one axis, got none; call integral(f, box)")
    if box is not None and not isinstance(f, GaussianPSD):
        raise ValueError(
            "box must be None for a generalised model or a sum of blocks: their marginals stay "
            "closed only over R^d"
        )
    return integrate_out(*verified_model(f, box), kept)


def integrate_out(f: Model, domain: Box | None, keep: tuple[int, ...]) -> Model:
    """The marginal of the coordinates `keep`; over R^d for a generalised model."""
    drop = tuple(a for a in range(f.dim) if a not in keep)
    if isinstance(f, GaussianPSD):
        return _diagonal_marginal(f, keep, drop, domain)
    if isinstance(f, GaussianBlocks):
        _, error = closed_integral(f, None)
        weights = require_digits(f.log_weights, error, "the marginal of f")
        return block_calculus.marginal(eqx.tree_at(lambda m: m.log_weights, f, weights), keep)
    result, error = _general_marginal(f, keep, drop)
    result = _with_digits(result, error, "the marginal of f")
    offset = check_values(
        result.offset,
        jnp.isfinite(result.offset),
        "f cannot be integrated over the axes left out of keep: its precision there is not "
        "positive definite",
    )
    return eqx.tree_at(lambda m: m.offset, result, offset)


def _diagonal_marginal(
    f: GaussianPSD, keep: tuple[int, ...], drop: tuple[int, ...], domain: Box | None
) -> GaussianPSD:
    if not drop:
        return diagonal.reorder(f, keep)
    inner = None if domain is None else domain.keep(drop)
    traced = is_traced((f, domain))
    result, error = settle(
        lambda: _square(_closed_marginal(f, keep, drop, domain), traced),
        lambda plan: _square(squares.integrate_axes(f, drop, keep, None, plan), traced),
        lambda: squares.plan_for_axes(f, drop, None, inner),
    )
    return _with_digits(result, error, "the marginal of f")


def _square(pair: tuple[GaussianPSD, Array], traced: bool) -> tuple[GaussianPSD, Array]:
    """The factor with as many columns as rows, where two routes have to have one shape."""
    model, error = pair
    if not traced:
        return pair
    missing = model.order - model.rank
    factor = jnp.pad(model.factor, ((0, 0), (0, max(missing, 0))))
    return eqx.tree_at(lambda m: m.factor, model, factor), error


Scaled = TypeVar("Scaled", bound=GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD)


def _with_digits(f: Scaled, error: Array, what: str) -> Scaled:
    return eqx.tree_at(lambda m: m.log_scale, f, require_digits(f.log_scale, error, what))


@eqx.filter_jit
def _product(f: Model, g: Model, axes: AxisMap) -> Model:
    if isinstance(f, GaussianPSD) and isinstance(g, GaussianPSD):
        return diagonal.product(f, g, axes)
    if isinstance(f, GaussianBlocks) and isinstance(g, GaussianBlocks):
        return block_calculus.product(f, g, axes)
    return canonical.product(generalize(f), generalize(g), axes)


@overload
def product(
    f: GaussianPSD,
    g: GaussianPSD,
    f_axes: int | Sequence[int] | None = None,
    g_axes: int | Sequence[int] | None = None,
) -> GaussianPSD: ...
@overload
def product(
    f: Model,
    g: Model,
    f_axes: int | Sequence[int] | None = None,
    g_axes: int | Sequence[int] | None = None,
) -> Model: ...
def product(
    f: Model,
    g: Model,
    f_axes: int | Sequence[int] | None = None,
    g_axes: int | Sequence[int] | None = None,
) -> Model:
    """f g as a model of all their variables, of order m_f m_g.

    `f_axes[i]` names the variable of the result that coordinate i of f is, by default variable i;
    likewise `g_axes`. So f(x, y) g(y, z) is product(f, g, (0, 1), (1, 2)), and without axes f and
    g share their first coordinates. Models of two families give a generalised one.
    """
    f, g = as_model("f", f), as_model("g", g)
    of_f = _result_axes("f_axes", f_axes, f.dim)
    of_g = _result_axes("g_axes", g_axes, g.dim)
    named = set(of_f) | set(of_g)
    if named != set(range(len(named))):
        raise ValueError(
            f"f_axes and g_axes together must name every variable 0..{len(named) - 1} of the "
            f"result, got {of_f} and {of_g}"
        )
    f, g = verified(f=f, g=g)
    return _multiplied(f, g, AxisMap(len(named), of_f, of_g))


def _multiplied(f: Model, g: Model, axes: AxisMap) -> Model:
    if isinstance(f, GaussianBlocks) and isinstance(g, GaussianBlocks):
        return _with_density(_product(f, g, axes))
    # Beside another family, blocks are a generalised model: of singular precisions too.
    f, g = (generalize(m) if isinstance(m, GaussianBlocks) else m for m in (f, g))
    return _product(f, g, axes)


def _result_axes(name: str, axes: int | Sequence[int] | None, dim: int) -> tuple[int, ...]:
    named = tuple(range(dim)) if axes is None else as_integers(name, axes)
    if len(named) != dim or len(set(named)) != dim or min(named) < 0:
        raise ValueError(f"{name} must name {dim} distinct variables of the result, got {axes!r}")
    return named


@eqx.filter_jit
def closed_transition(q: GaussianPSD, f: GaussianPSD, box: Box | None) -> tuple[GaussianPSD, Array]:
    """int q(u, x) f(u) du as signed sums, and the estimate of its relative error."""
    model, mass, bound = diagonal.transition_and_bound(q, f, box)
    return model, relative_error(mass, bound)


def _transition(q: GaussianPSD, f: GaussianPSD, box: Box | None) -> GaussianPSD:
    axes, rest = tuple(range(f.dim)), tuple(range(f.dim, q.dim))
    u_order = num_points(diagonal.keep_axes(q.anchors, axes))
    traced = is_traced((q, f, box))
    result, error = settle(
        lambda: _square(closed_transition(q, f, box), traced),
        lambda plan: _square(squares.integrate_axes(q, axes, rest, f, plan), traced),
        lambda: squares.plan_for_axes(q, axes, f, box),
        costly=0.25 * (u_order * f.order) ** 2 > COSTLY,
    )
    return _with_digits(result, error, "the transition of f")


@overload
def transition(Q: GaussianPSD, f: GaussianPSD, box: BoxLike | None = None) -> GaussianPSD: ...
@overload
def transition(Q: Model, f: Model, box: BoxLike | None = None) -> Model: ...
def transition(Q: Model, f: Model, box: BoxLike | None = None) -> Model:
    """int Q(u, x) f(u) du: the Markov step, u being the first coordinates of Q.

    For `GaussianPSD` the order of the result is that of Q (on a grid the number of its x anchors),
    whatever the order of f; peak memory does not grow with the orders. For generalised models it
    is the product of the orders.

    Error functions where they keep eleven digits; else, and where they would take seconds, squares
    at quadrature nodes in u, with the same anchors in x (at most three coordinates; under `jit` at
    most 256, 64^2 or 20^3 nodes). A result of fewer than six digits is refused.
    """
    Q, f, domain = verified(Q=Q, f=f, box=_transition_box(Q, f, box))
    return _moved(Q, f, domain)


def _transition_box(Q: object, f: object, box: BoxLike | None) -> Box | None:
    """The box of a transition, once Q, f and it are known to fit together."""
    Q, f = as_model("Q", Q), as_model("f", f)
    if Q.dim <= f.dim:
        raise ValueError(
            f"Q must have more coordinates than f: (u, x) against u; got {Q.dim} and {f.dim}"
        )
    if box is not None and not (isinstance(Q, GaussianPSD) and isinstance(f, GaussianPSD)):
        raise ValueError("box must be None for generalised models, whose transitions live on R^d")
    return optional_box(box, f.dim)


def _moved(Q: Model, f: Model, domain: Box | None) -> Model:
    if isinstance(Q, GaussianPSD) and isinstance(f, GaussianPSD):
        return _transition(Q, f, domain)
    if isinstance(Q, GaussianBlocks) and isinstance(f, GaussianBlocks):
        joint = _multiplied(Q, f, _leading_axes(Q.dim, f.dim))
    else:
        joint = _product(generalize(Q), generalize(f), _leading_axes(Q.dim, f.dim))
    return integrate_out(joint, None, tuple(range(f.dim, Q.dim)))


def _leading_axes(f_dim: int, g_dim: int) -> AxisMap:
    """f and g share their first coordinates."""
    return AxisMap(max(f_dim, g_dim), tuple(range(f_dim)), tuple(range(g_dim)))


@overload
def filter_step(
    Q: GaussianPSD, G: GaussianPSD, f: GaussianPSD, y: Numbers, box: BoxLike | None = None
) -> tuple[GaussianPSD, Float[Array, ""]]: ...
@overload
def filter_step(
    Q: Model, G: Model, f: Model, y: Numbers, box: BoxLike | None = None
) -> tuple[Model, Float[Array, ""]]: ...
def filter_step(
    Q: Model, G: Model, f: Model, y: Numbers, box: BoxLike | None = None
) -> tuple[Model, Float[Array, ""]]:
    """One step of the filter: p(x) = G(x, y) int Q(u, x) f(u) du / Z; returns p and log Z.

    Coordinates: Q(u, x), G(x, y), f(u); `box` is the box of the state.
    """
    G, domain = as_model("G", G), _transition_box(Q, f, box)
    state = tuple(range(Q.dim - f.dim))
    _ = optional_box(box, len(state))
    if G.dim <= len(state):
        raise ValueError(
            f"G must have more coordinates than the state: (x, y) against x; got {G.dim} and "
            f"{len(state)}"
        )
    seen_axes = tuple(range(len(state), G.dim))
    at = _as_values("y", y, len(seen_axes))
    Q, G, f, at, domain = verified(Q=Q, G=G, f=f, y=at, box=domain)
    seen = _with_density(_partial(G, seen_axes, state, at))
    moved = _moved(Q, f, domain)
    joint = _multiplied(moved, seen, _leading_axes(len(state), len(state)))
    if isinstance(moved, GaussianPSD) and isinstance(seen, GaussianPSD):
        joint = ProductPSD.of(joint, moved, seen)  # pyright: ignore[reportArgumentType]
    log_mass = positive_mass(joint, domain)
    return scaled(joint, -log_mass), log_mass
