"""Models of other libraries: linear results of statsmodels, parameters of dynamax."""

from typing import Any

import numpy as np

from .adapters import additive_gaussian, linear_gaussian
from .model import StateSpaceModel


def from_statsmodels(results: Any) -> StateSpaceModel:
    """The linear state-space model of results of statsmodels, with its estimates.

    Its first observation is of the first state: filter with `first="observe"`. States that
    statsmodels starts diffusely start from its approximation, a variance of 1e6; the likelihood is
    then that of all observations, without the burn-in that statsmodels leaves out.

    Args:
        results: what `fit`, `smooth` or `filter` of a state-space model returned, such as those of
            `UnobservedComponents` or `SARIMAX`.
    """
    kept = getattr(results, "filter_results", None)
    if kept is None:
        raise ValueError(
            "results must be those of a state-space model of statsmodels, with filter_results, got "
            f"{type(results).__name__}"
        )
    parts = {
        name: np.asarray(getattr(kept, name))
        for name in (
            "transition", "selection", "state_cov", "state_intercept", "design", "obs_cov",
            "obs_intercept",
        )
    }  # fmt: skip
    # Time is the last axis there; what does not change loses it.
    each = {name: _steps(array) for name, array in parts.items()}
    moving = [n for n in ("design", "obs_cov", "obs_intercept") if each[n].ndim == parts[n].ndim]
    if moving:
        raise ValueError(
            f"results must have a sensor that is the same at all times, but {', '.join(moving)} "
            "change"
        )
    selection = each["selection"]
    Q = selection @ each["state_cov"] @ np.swapaxes(selection, -1, -2)
    return linear_gaussian(
        each["transition"],
        0.5 * (Q + np.swapaxes(Q, -1, -2)),
        each["design"],
        _matrix(each["obs_cov"]),
        np.asarray(kept.predicted_state)[:, 0],
        _matrix(np.asarray(kept.predicted_state_cov)[:, :, 0]),
        b=each["state_intercept"],
        d=each["obs_intercept"],
    )


def _steps(array: np.ndarray) -> np.ndarray:
    """One matrix if all are equal, else with the steps in front."""
    if np.all(array == array[..., :1]):
        return array[..., 0]
    return np.moveaxis(array, -1, 0)


def _matrix(covariance: np.ndarray) -> np.ndarray:
    return 0.5 * (covariance + covariance.T)


def from_dynamax(params: Any, **options: Any) -> StateSpaceModel:
    """The model of parameters of dynamax, linear (`ParamsLGSSM`) or not (`ParamsNLGSSM`).

    dynamax observes the first state itself: filter with `first="observe"` for its likelihood. Only
    matrices that are the same at all times, without inputs.

    Args:
        params: the parameters.
        options: those of `linear_gaussian` or `additive_gaussian`, such as state_box.
    """
    if hasattr(params, "dynamics_function"):
        return additive_gaussian(
            params.dynamics_function,
            params.emission_function,
            params.dynamics_covariance,
            params.emission_covariance,
            params.initial_mean,
            params.initial_covariance,
            **options,
        )
    groups: list[Any] = [
        getattr(params, name, None) for name in ("initial", "dynamics", "emissions")
    ]
    if any(group is None for group in groups):
        raise ValueError(
            "params must be dynamax's ParamsLGSSM (initial, dynamics, emissions) or ParamsNLGSSM "
            f"(dynamics_function, ...), got {type(params).__name__}"
        )
    initial, dynamics, emissions = groups
    for name, part in (("dynamics", dynamics), ("emissions", emissions)):
        for field in ("weights", "cov"):
            shape = np.shape(getattr(part, field))
            if len(shape) != 2:
                raise ValueError(
                    f"params must have one matrix for all times, got {name}.{field} of shape "
                    f"{shape}: pass them to linear_gaussian, one for each step"
                )
        inputs = getattr(part, "input_weights", None)
        if inputs is not None and np.any(np.asarray(inputs)):
            raise ValueError(
                f"params must not have inputs, got {name}.input_weights that are not zero: write "
                "the model with additive_gaussian, whose functions may take inputs"
            )
    return linear_gaussian(
        np.asarray(dynamics.weights),
        dynamics.cov,
        emissions.weights,
        emissions.cov,
        initial.mean,
        initial.cov,
        b=getattr(dynamics, "bias", None),
        d=getattr(emissions, "bias", None),
        **options,
    )
