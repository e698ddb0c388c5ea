"""The search for the maximum: quasi-Newton steps on a frozen plan, new plans on the way."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers
from .._inference.sizing.plan import Unaffordable
from .._learning.progress import Bar
from .core import Core
from .descent import Descent, Point, Verdict, descend, evaluated, hessian_at
from .likelihood import Likelihood
from .pooling import PooledCore
from .theta import Coordinates, Theta

LogPrior = Callable[[Theta], Numbers] | None
# Two thetas this close in free coordinates share a plan; those this far apart never do.
_NEAR, _FAR = 0.02, 1.5
_MAX_HALVINGS = 6
_MAX_NEWTON = 8


class Objective(eqx.Module):
    """-(log p(y; theta) + log p(theta)) / T in free coordinates."""

    core: Core | PooledCore
    coordinates: Coordinates
    log_prior: LogPrior = eqx.field(static=True)
    count: int = eqx.field(static=True)  # T, the number of observations

    def __call__(self, free: Float[Array, " p"]) -> Float[Array, ""]:
        """The objective."""
        theta = self.coordinates.to_theta(free)
        value, _ = self.core.total(theta)
        if self.log_prior is not None:
            value = value + jnp.asarray(self.log_prior(theta), dtype=jnp.float64).reshape(())
        return -value / self.count


class Search(NamedTuple):
    """Where a search ended."""

    likelihood: Likelihood
    objective: Objective
    free: Float[Array, " p"]
    hessian: Float[Array, "p p"]  # of -log posterior in free coordinates
    converged: bool
    num_steps: int
    num_plans: int


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
    steps, plans, found, known = 0, 1, False, None
    while not found and steps < max_steps and plans <= max_plans:
        objective = objective_on(likelihood)
        ran = _quasi_newton(likelihood, objective, free, max_steps - steps, known, bar)
        likelihood, free, moved = _replanned(likelihood, coordinates, jnp.asarray(ran.free))
        # What was learned of the curvature is as good on the next plan.
        steps, plans, known = steps + ran.taken, plans + moved, ran.inverse
        found = (ran.rested or ran.taken == 0) and not moved
    objective = objective_on(likelihood)
    free, hessian, settled = _newton(objective, free)
    return Search(likelihood, objective, free, hessian, settled, steps, plans)


def _quasi_newton(
    likelihood: Likelihood,
    objective: Objective,
    free: Array,
    max_steps: int,
    known: Float[np.ndarray, "p p"] | None,
    bar: Bar,
) -> Descent:
    """Stops early where the plan no longer serves."""

    def judge(here: Point) -> Verdict:
        bar.describe(f"log-likelihood {-here.value * objective.count:.6g}")
        bar.advance(1 / max_steps)
        # Asked of the program that has made the plan, which is compiled already.
        theta = objective.coordinates.to_theta(jnp.asarray(here.free))
        if not likelihood.core.frozen.has_plan:
            return Verdict(True, True)
        check = likelihood.value_and_check(theta)[1]
        return Verdict(bool(likelihood.serves(check)), bool(likelihood.is_of_use(check)))

    return descend(objective, np.asarray(free), max_steps, judge, known)


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
    count = objective.count
    here = evaluated(objective, np.asarray(free))
    hessian, settled = hessian_at(objective, here, count), False
    for _ in range(_MAX_NEWTON):
        if not np.isfinite(hessian).all():
            break
        eigenvalues, vectors = np.linalg.eigh(hessian)
        if eigenvalues[0] <= 0:
            break
        along = vectors.T @ (count * here.gradient)
        decrement = float(np.sqrt(np.sum(np.square(along) / eigenvalues)))
        settled = decrement < 1e-4
        if settled:
            break
        new = evaluated(objective, here.free - vectors @ (along / eigenvalues))
        if not new.value <= here.value + 1e-9 * abs(here.value):
            break
        here, hessian = new, hessian_at(objective, new, count)
    return jnp.asarray(here.free), jnp.asarray(hessian), settled
