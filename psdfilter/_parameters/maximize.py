"""The search for the maximum: quasi-Newton steps on a frozen plan, new plans on the way."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, PyTree

from .._checks import Numbers
from .._inference.model import PlanCheck
from .._inference.sizing.plan import Unaffordable
from .._learning.progress import Bar
from .core import Core
from .likelihood import Likelihood
from .pooling import PooledCore
from .theta import Coordinates, Theta

LogPrior = Callable[[Theta], Numbers] | None
# Of the quasi-Newton search, on the objective per observation; Newton steps do the rest.
_RTOL = 1e-5
# Two thetas this close in free coordinates share a plan; those this far apart never do.
_NEAR, _FAR = 0.02, 1.5
_MAX_HALVINGS = 6
_MAX_NEWTON = 8
_MAX_REFUSED = 10


class Objective(eqx.Module):
    """-(log p(y; theta) + log p(theta)) / T in free coordinates."""

    core: Core | PooledCore
    coordinates: Coordinates
    log_prior: LogPrior = eqx.field(static=True)
    count: int = eqx.field(static=True)  # T, the number of observations

    def __call__(self, free: Float[Array, " p"], _: None = None) -> tuple[Array, PlanCheck]:
        """The objective, and how well the plan serves there."""
        theta = self.coordinates.to_theta(free)
        value, check = self.core.total(theta)
        if self.log_prior is not None:
            value = value + jnp.asarray(self.log_prior(theta), dtype=jnp.float64).reshape(())
        return -value / self.count, check


class Search(NamedTuple):
    """Where a search ended."""

    likelihood: Likelihood
    objective: Objective
    free: Float[Array, " p"]
    hessian: Float[Array, "p p"]  # of -log posterior in free coordinates
    converged: bool
    num_steps: int
    num_plans: int


_SOLVER = optx.BFGS(rtol=_RTOL, atol=_RTOL)


@eqx.filter_jit
def _start(objective: Objective, free: Array):
    value, check = jax.eval_shape(lambda z: objective(z), free)
    return _SOLVER.init(objective, free, None, {}, value, check, frozenset())


@eqx.filter_jit
def _step(objective: Objective, free: Array, state: PyTree):
    new, state, check = _SOLVER.step(objective, free, None, {}, state, frozenset())
    done, result = _SOLVER.terminate(objective, new, None, {}, state, frozenset())
    return new, state, check, done, result


@eqx.filter_jit
def value_gradient_hessian(objective: Objective, free: Array) -> tuple[Array, Array, Array]:
    """-log posterior, its gradient and its Hessian, in free coordinates."""

    def negative(z: Array) -> Array:
        return objective(z)[0] * objective.count

    def slope(z: Array) -> tuple[Array, tuple[Array, Array]]:
        value, gradient = jax.value_and_grad(negative)(z)
        return gradient, (value, gradient)

    hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(free)
    return value, gradient, 0.5 * (hessian + hessian.T)


def maximize(
    start: Likelihood,
    coordinates: Coordinates,
    log_prior: LogPrior,
    max_steps: int,
    max_plans: int,
    bar: Bar,
) -> Search:
    """Quasi-Newton until it rests or leaves the plan, a new plan there, Newton at the end."""

    def objective_on(likelihood: Likelihood) -> Objective:
        count = max(likelihood.settings.num_observed, 1)
        return Objective(likelihood.core, coordinates, log_prior, count)

    likelihood, free = start, coordinates.to_free(start.theta)
    steps, plans, found = 0, 0, False
    while not found and steps < max_steps and plans < max_plans:
        objective = objective_on(likelihood)
        free, taken, rested = _quasi_newton(likelihood, objective, free, max_steps - steps, bar)
        likelihood, free, moved = _replanned(likelihood, coordinates, free)
        steps, plans, found = steps + taken, plans + 1, rested and not moved
    objective = objective_on(likelihood)
    free, hessian, settled = _newton(objective, free)
    return Search(likelihood, objective, free, hessian, settled, steps, plans)


def _quasi_newton(
    likelihood: Likelihood, objective: Objective, free: Array, max_steps: int, bar: Bar
) -> tuple[Array, int, bool]:
    """(z, steps, rested): stops early where the plan no longer serves."""
    state, taken, refused, rested = _start(objective, free), 0, 0, False
    while taken < max_steps and not rested:
        new, state, check, done, _ = _step(objective, free, state)
        taken += 1
        # At an optimum rounding lets no step through.
        refused = refused + 1 if bool(jnp.all(new == free)) else 0
        free = new
        bar.describe(f"log-likelihood {-float(state.f_info.f) * objective.count:.6g}")
        bar.advance(1 / max_steps)
        rested = bool(done) or refused >= _MAX_REFUSED
        if taken > 1 and not bool(likelihood.serves(check)):
            break
    return free, taken, rested


def _replanned(
    old: Likelihood, coordinates: Coordinates, free: Array
) -> tuple[Likelihood, Array, bool]:
    """A plan for z, and whether it is a new one: not if the old one serves to its tolerance.

    An engine without a plan has none to renew.
    Where no grid is affordable, z goes back half-way towards the theta of the old plan.
    """
    if not old.core.frozen.has_plan:
        return old, free, False
    home = coordinates.to_free(old.theta)
    check = old.value_and_check(coordinates.to_theta(free))[1]
    if bool(old.serves(check, 1.0)) and bool(jnp.max(jnp.abs(free - home)) < _FAR):
        return old, free, False
    for _ in range(_MAX_HALVINGS):
        if bool(jnp.max(jnp.abs(free - home)) < _NEAR):
            return old, free, False
        try:
            return old.replan(coordinates.to_theta(free)), free, True
        except Unaffordable:
            free = 0.5 * (free + home)
    raise Unaffordable(
        "the likelihood rises towards a theta whose noise is too small for any affordable grid, "
        f"beyond {_show(coordinates, free)}: bound the noise away from zero with bounds=, or "
        "choose a smaller state_box or a larger tol"
    )


def _show(coordinates: Coordinates, free: Array) -> str:
    values = np.asarray(coordinates.natural(free))
    return ", ".join(f"{n} = {v:.4g}" for n, v in zip(coordinates.names, values, strict=True))


def _newton(objective: Objective, free: Array) -> tuple[Array, Array, bool]:
    """Newton steps while they improve; settled if the last was below 1e-4 standard errors."""
    value, gradient, hessian = value_gradient_hessian(objective, free)
    for _ in range(_MAX_NEWTON):
        if not np.isfinite(np.asarray(hessian)).all():
            return free, hessian, False
        eigenvalues, vectors = np.linalg.eigh(np.asarray(hessian))
        if eigenvalues[0] <= 0:
            return free, hessian, False
        along = vectors.T @ np.asarray(gradient)
        decrement = float(np.sqrt(np.sum(np.square(along) / eigenvalues)))
        if decrement < 1e-4:
            return free, hessian, True
        new = free - jnp.asarray(vectors @ (along / eigenvalues))
        new_value, new_gradient, new_hessian = value_gradient_hessian(objective, new)
        if not float(new_value) <= float(value) + 1e-9 * abs(float(value)):
            return free, hessian, False
        free, value, gradient, hessian = new, new_value, new_gradient, new_hessian
    return free, hessian, False
