"""What users are told about a model, in the same words whichever engine finds out."""

import math

import numpy as np

from .. import _results

# What to do where an engine has reached its limits.
_RAISE = "learn with a smaller tol, or with typical data, learn(..., ys=...)"
_REMEDIES = {
    "adaptive": "the model asks for more nodes than there are; accept the error, or raise tol",
    "branches": "the regimes ask for more Gaussians than there are; accept the error, raise tol, "
    "or ask for more, engine=psdfilter.engines.Branches(order=...)",
    "lattice": "the model asks for more nodes than there are; accept the error, or raise tol",
    "mixture": "Gaussians that are split and merged seldom do better than 1e-2; accept the error, "
    "raise tol, or ask for more of them, engine=psdfilter.engines.Mixture(order=...)",
}
# What to do where a smoother has reached its own.
_SMOOTHERS = {
    "backward sampling": "they are averages over paths that are drawn; accept the error, or "
    "average more of them, filtered.sample(key=..., num=...)"
}
# Mass of Q(u, .) beyond which it is taken for something else than a density.
NO_DENSITY = 1.5

traced_model = (
    "ssm must be concrete where grids are chosen, but learn was called under jax.jit, grad or "
    "vmap: call it outside, and for a function of parameters use psdfilter.likelihood"
)


def no_density(mass: float) -> str:
    """log_transition is no logarithm of a density."""
    return (
        "log_transition must be the logarithm of a density in x, but exp(log_transition(u, .)) has "
        f"mass {mass:.3g} on state_box, on average over typical u: likelihoods are too large by as "
        "much in every step"
    )


def no_normal_density(mass: float) -> str:
    """log_transition lacks a constant, and no mass leaves the box."""
    return (
        f"exp(log_transition(u, .)) has mass {mass:.4g} with u in the middle of state_box, all of "
        "it inside: log_transition is not normalised, and every step of the likelihood is off by "
        f"log {mass:.4g} = {math.log(mass):.3g}. Add the constant that is missing; states are "
        "right if it is the same for all u"
    )


def no_mass_ahead() -> str:
    """Nothing comes after the prior."""
    return (
        "exp(log_transition(u, .)) has no mass at the points of state_box that were tried: it must "
        "be a density in x, which a probability of single values is not. A state that is discrete "
        "belongs into regimes, psdfilter.switching; if it is continuous, does it leave state_box?"
    )


def no_density_of_y(mass: float, num: int) -> str:
    """Laws of y by draws, because its density is none."""
    return (
        f"exp(log_observation(x, .)) is no density in y: a law of y has mass {mass:.4g} instead of "
        "one, as where y is censored and some of its values have probabilities. Laws of y are "
        f"made of {num} draws by sample_observation instead"
    )


def loses_mass(leak: float) -> str:
    """The state leaves its box."""
    return (
        f"{100 * leak:.0f} % of the mass leaves state_box in a typical step, is lost, and lowers "
        "the likelihood: choose a larger state_box, or learn with "
        "engine=psdfilter.engines.Nodes(renormalize=True) if the model is meant to be confined to "
        "it"
    )


def unresolved_series(engine: str, tol: float, bad: tuple[int, int, int], error: str) -> str:
    """Rows of a series miss the tolerance; `bad` are their number, that of all, and the first."""
    count, num, first = bad
    return (
        f"{count} of {num} steps miss tol = {tol:g}, from ys[{first}] on{error}: "
        f"{_REMEDIES.get(engine, _RAISE)}. See post.error_estimates and post.codes"
    )


def unresolved_smoother(
    by: tuple[str, str], tol: float, errors: np.ndarray, missed: np.ndarray
) -> str:
    """Smoothed laws miss the tolerance; `by` are the engine and its method."""
    first, (engine, method) = int(np.argmax(missed)), by
    remedy = _SMOOTHERS.get(method, _REMEDIES.get(engine, _RAISE))
    return (
        f"{int(missed.sum())} of {len(errors)} smoothed laws miss tol = {tol:g}, that of index "
        f"{first} by about {errors[first]:.1e}: {remedy}. See smooth.error_estimates"
    )


def heavy_tails(first: int, num: int) -> str:
    """Times without an observation whose variance rests on tails."""
    why = _results.MESSAGES[_results.HEAVY_TAILS]
    return f"{num} steps without an observation, from ys[{first}] on: {why}. See post.codes"


def doubtful_forecast(first: int, num: int, code: int) -> str:
    """Steps ahead, counted from one, that have a code; `code` is that of the first."""
    why = "the law misses the tolerance" if code == _results.UNRESOLVED else _results.MESSAGES[code]
    return f"{num} steps ahead have a code, from step {first} on: {why}. See forecast.codes"


def unresolved_batch(engine: str, tol: float, bad: tuple[int, int], worst: float) -> str:
    """Series of a batch miss the tolerance; `bad` are their number and that of all."""
    return (
        f"{bad[0]} of {bad[1]} series miss tol = {tol:g}, by up to {worst:.1e}: "
        f"{_REMEDIES.get(engine, _RAISE)}. See code and error_estimate"
    )


def unresolved_state(engine: str, tol: float, step: int, error: float) -> str:
    """A single step misses the tolerance."""
    return (
        f"the filter misses tol = {tol:g} from step {step} on, there by about {error:.1e}: "
        f"{_REMEDIES.get(engine, _RAISE)}. See state.error and state.code"
    )
