"""Errors estimated on the data: the same filter, finer."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import is_concrete
from .learn import LEAST_TOL, learn
from .refine import fine_nodes

# The finer plan's share of the tolerance: its own error must not show.
_FINER = 1.0 / 30.0


def estimate_errors(post) -> Float[Array, " t"]:
    """int |p - q| between each filtered density and that of a finer filter on the same data."""
    from .run import filter_series

    if not all(is_concrete(leaf) for leaf in jax.tree.leaves(post)):
        raise ValueError(
            "error_estimate cannot be traced: it learns a finer model; call it outside jit"
        )
    model = post.model
    finer = learn(
        model.ssm,
        max(_FINER * model.tol, LEAST_TOL),
        engine="nodes",
        renormalize=model.renormalize,
        ys=None if model.ssm.sample_observation is not None else post.series.ys,
        inputs=post.series.rows,
    )
    again = filter_series(finer, _series_for(finer, post.series), False, True)
    return _distances(post, again)


def _series_for(model, series):
    from .series import as_series

    rebuilt, _ = as_series(model, series.ys, "predict", series.rows, series.steps)
    return rebuilt


@eqx.filter_jit
def _distances(post, again) -> Float[Array, " t"]:
    fine = fine_nodes(again.model)
    gap = jnp.abs(post._values_on(fine) - again._values_on(fine))
    return gap @ fine.flat_weights()
