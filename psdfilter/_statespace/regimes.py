"""Models that switch between regimes: a hidden Markov chain beside the continuous state."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats, is_concrete
from .._density.box import Box
from .functions import AbstractFunction, Keywords, as_function, call, keywords_of, requires
from .model import Regimes, StateSpaceModel, Trait

# What rounding may leave of a row that was divided by its sum.
_ROWS = 1e-8


class ConstantMatrix(AbstractFunction):
    """u -> P, whatever u."""

    matrix: Float[Array, "k k"]

    @property
    def keywords(self) -> Keywords:
        """None."""
        return Keywords(frozenset(), frozenset())

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, "k k"]:
        """P."""
        del u
        return self.matrix


class OfNoRegime(AbstractFunction):
    """A density that has no value unless the regime is known."""

    takes: Keywords
    what: str = eqx.field(static=True)

    @property
    def keywords(self) -> Keywords:
        """Those of all regimes."""
        return self.takes

    def __call__(self, *args: object, **keywords: object) -> Array:
        """An error: there is no such density of the state alone."""
        raise ValueError(
            f"{self.what} of a model made by switching depends on the regime: ask one of "
            "ssm.regimes.models"
        )


def switching(
    models: Sequence[StateSpaceModel],
    P: Numbers | Callable[..., Numbers],
    *,
    initial: Numbers | None = None,
) -> StateSpaceModel:
    """k' ~ P[k],  x' ~ Q_k'(x, .),  y ~ G_k'(x', .): a hidden Markov chain beside the state.

    The regime moves first, then the state by the dynamics of the new regime, and the observation
    comes from the sensor of the new regime. The prior of x_0 in regime k is that of models[k].

    Args:
        models: one for each regime, with states of the same coordinates and observations of the
            same size, from `StateSpaceModel`, `additive_gaussian` or `linear_gaussian`.
        P: matrix (K, K), P[j, k] the probability of regime k after regime j, rows of sum one; or a
            function of the old state u (d,) that returns one, with the keywords `t` and `inputs` if
            it takes them.
        initial: probabilities (K,) of the regimes at time 0; by default those that P keeps as they
            are, or equal ones if P is a function.
    """
    parts = _checked_models(models)
    num = len(parts)
    if callable(P):
        matrix = as_function(P)
        _check_rows_of(matrix, parts, num)
        start = jnp.full(num, 1.0 / num) if initial is None else _probabilities(initial, num)
    else:
        values = as_floats("P", P)
        _check_rows("P", values, num)
        matrix = ConstantMatrix(values)
        start = stationary(values) if initial is None else _probabilities(initial, num)
    boxes = [ssm.observation_box for ssm in parts]
    seen_box = None
    if all(box is not None for box in boxes):
        seen_box = _hull([box for box in boxes if box is not None])
    takes = Keywords(frozenset(), frozenset())
    for ssm in parts:
        for fn in (ssm.log_transition, ssm.log_observation):
            takes = takes | Keywords(
                keywords_of(fn), frozenset(n for n in ("t", "inputs") if requires(fn, n))
            )
    if callable(P):
        takes = takes | matrix.keywords
    return StateSpaceModel(
        log_prior=OfNoRegime(takes, "log_prior"),
        log_transition=OfNoRegime(takes, "log_transition"),
        log_observation=OfNoRegime(takes, "log_observation"),
        state_box=_state_box(parts),
        observation_box=seen_box,
        marginalizes_missing=all(ssm.marginalizes_missing for ssm in parts),
        regimes=Regimes(parts, matrix, start),
    )


def is_boxed(ssm: StateSpaceModel) -> bool:
    """Whether the state was said to live on the box; one that was only simulated cuts nothing."""
    return ssm.structure is None or ssm.structure.boxed


def stationary(P: Float[Array, "k k"]) -> Float[Array, " k"]:
    """The probabilities that P keeps as they are: p P = p, sum p = 1.

    By least squares, so that a chain with several such laws gets the shortest, and differentiable.
    """
    num = P.shape[0]
    system = jnp.concatenate([P.T - jnp.eye(num), jnp.ones((1, num))])
    right = jnp.zeros(num + 1).at[num].set(1.0)
    solved = jnp.linalg.solve(system.T @ system, system.T @ right)
    found = jnp.where(jnp.all(jnp.isfinite(solved)), solved, jnp.full(num, 1.0 / num))
    found = jnp.maximum(found, 0.0)
    return found / jnp.sum(found)


def _checked_models(models: Sequence[StateSpaceModel]) -> tuple[StateSpaceModel, ...]:
    parts = tuple(models) if isinstance(models, Sequence) else ()
    if not parts or not all(isinstance(ssm, StateSpaceModel) for ssm in parts):
        raise ValueError(
            "models must be a list of StateSpaceModels, one for each regime, got "
            f"{[type(m).__name__ for m in parts] or type(models).__name__}"
        )
    dims = [ssm.dim for ssm in parts]
    if len(set(dims)) > 1:
        raise ValueError(f"models must have states of one number of coordinates, got {dims}")
    if any(ssm.regimes is not None for ssm in parts):
        raise ValueError("models must have no regimes of their own: list all of them at once")
    for name in ("last_y", "dt"):
        if any(name in ssm.wants for ssm in parts):
            raise ValueError(
                f"models must not take {name} beside regimes: a function of one does, and would "
                "never be told it"
            )
    if any(Trait.STATE_BEFORE in ssm.traits for ssm in parts):
        raise ValueError(
            "models must have sensors of the present state: one takes u, the state before, and "
            "that is not served beside regimes"
        )
    if any(ssm.vectorized for ssm in parts):
        raise ValueError("models must be written in JAX: those of NumPy functions have no regimes")
    sizes = {n for n in (ssm.num_observed for ssm in parts) if n is not None}
    if len(sizes) > 1:
        raise ValueError(f"models must have observations of one size, got sizes {sorted(sizes)}")
    return parts


def _probabilities(initial: Numbers, num: int) -> Float[Array, " k"]:
    values = as_floats("initial", initial)
    if values.shape != (num,):
        raise ValueError(f"initial must have shape ({num},), got {values.shape}")
    if is_concrete(values):
        numbers = np.asarray(values)
        if (numbers < 0).any() or abs(numbers.sum() - 1) > _ROWS:
            raise ValueError(f"initial must be probabilities of sum one, got {numbers}")
    return values


def _check_rows(name: str, P: Float[Array, "k k"], num: int) -> None:
    if P.shape != (num, num):
        raise ValueError(
            f"{name} must have shape ({num}, {num}), one row and one column for each "
            f"regime, got {P.shape}"
        )
    if not is_concrete(P):
        return
    values = np.asarray(P)
    if not (values >= 0).all():
        raise ValueError(f"{name} must hold probabilities, got {values.min():.6g} in it")
    sums = values.sum(axis=1)
    if (np.abs(sums - 1) > _ROWS).any():
        row = int(np.argmax(np.abs(sums - 1)))
        columns = np.abs(values.sum(axis=0) - 1).max() <= _ROWS
        remedy = (
            f"; its columns do, so pass {name}.T"
            if columns
            else f": row {row} sums to {sums[row]:.6g}"
        )
        raise ValueError(f"rows of {name} must sum to one{remedy}")


def _check_rows_of(P: AbstractFunction, parts: tuple[StateSpaceModel, ...], num: int) -> None:
    """A function P is looked at where the boxes are, as far as it can be called by now."""
    if requires(P, "inputs"):
        return
    box = _state_box(parts)
    for share in (0.1, 0.5, 0.9):
        u = box.lower + share * (box.upper - box.lower)
        values = jnp.asarray(call(P, u, t=1), dtype=jnp.float64)
        where = f"P(u) at u = {np.asarray(u)}" if is_concrete(u) else "P(u)"
        _check_rows(where, values, num)


def _state_box(parts: tuple[StateSpaceModel, ...]) -> Box:
    """The box that was given, the same for all, or one that holds those that were simulated."""
    boxed = [ssm.state_box for ssm in parts if is_boxed(ssm)]
    if not boxed:
        return _hull([ssm.state_box for ssm in parts])
    if boxed[0].periodic and len(boxed) < len(parts):
        raise ValueError(
            "models must all live on a circle, or none of them: one has a periodic state_box and "
            "another has no state_box; give all regimes the same"
        )
    for box in boxed[1:]:
        ends = (box.lower, box.upper, boxed[0].lower, boxed[0].upper)
        same = not is_concrete(ends) or (
            np.array_equal(box.lower, boxed[0].lower) and np.array_equal(box.upper, boxed[0].upper)
        )
        if not same or box.periodic != boxed[0].periodic:
            raise ValueError(
                "models must have one state_box, got "
                f"{np.asarray(boxed[0].lower)} to {np.asarray(boxed[0].upper)} and "
                f"{np.asarray(box.lower)} to {np.asarray(box.upper)}: give all regimes the same"
            )
    return boxed[0]


def _hull(boxes: list[Box]) -> Box:
    lower = jnp.min(jnp.stack([box.lower for box in boxes]), axis=0)
    upper = jnp.max(jnp.stack([box.upper for box in boxes]), axis=0)
    return Box(*jax.lax.stop_gradient((lower, upper)))
