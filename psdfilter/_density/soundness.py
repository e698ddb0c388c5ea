"""A check that answers with a code instead of an error."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from .. import _results
from .._checks import Numbers, as_points, demands_of
from .mass import BoxLike, as_model, optional_box
from .psd import AbstractDensity


def check(
    f: AbstractDensity, box: BoxLike | None = None, x: Numbers | None = None
) -> Int[Array, ""]:
    """0 if the numbers in a model, a box and points make sense; else the code of what does not.

    `explain(code)` says what a code means. Every operation makes this check by itself and raises an
    error, under `jit` one that stops the whole program, and under `vmap` the whole batch. Where
    one bad member must not stop the others, ask for the codes first and put a good model in its
    place:

        codes = jax.vmap(psd.check)(models)
    """
    demands = demands_of("f", f if isinstance(f, AbstractDensity) else as_model("f", f))
    domain = optional_box(box, f.dim)
    if domain is not None:
        demands += demands_of("box", domain)
    if x is not None:
        demands += demands_of("x", as_points("x", x, f.dim))
    code = jnp.asarray(_results.OK)
    for demand in reversed(demands):
        code = jnp.where(demand.holds, code, demand.code)
    return code
