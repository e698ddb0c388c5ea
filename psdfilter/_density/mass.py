"""How much of a PSD model there is: its integral, and models scaled by it.

Public functions look at the numbers of their arguments first (`verified`) and then call functions
that do not: what is composed of several operations checks once.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats, check_values, verified
from . import block_calculus, canonical, diagonal, squares
from .anchors import TensorGrid
from .blocks import GaussianBlocks
from .box import Box, as_box
from .conversions import Model, SameModel, describe_foreign, generalize
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from .psd import GaussianPSD
from .rounding import COSTLY, relative_error, require_digits, settle

BoxLike = Box | tuple[Numbers, Numbers]


def as_model(name: str, f: object) -> Model:
    """`f`, if it is one of the families of this package."""
    if not isinstance(f, Model):
        raise ValueError(
            f"{name} must be a GaussianPSD, GeneralizedGaussianPSD, PairwiseGaussianPSD or "
            f"GaussianBlocks, got {describe_foreign(f)}"
        )
    return f


def optional_box(box: BoxLike | None, dim: int) -> Box | None:
    """None for R^d, else a Box of `dim` coordinates."""
    return None if box is None else as_box("box", box, dim)


def verified_model(f: object, box: BoxLike | None) -> tuple[Model, Box | None]:
    """A model `f` and a box of its coordinates, their numbers looked at."""
    model = as_model("f", f)
    return verified(f=model, box=optional_box(box, model.dim))


@eqx.filter_jit
def closed_integral(f: Model, box: Box | None) -> tuple[tuple[Array, Array], Array]:
    """(z, s) with int f = z exp(s) as a signed sum, and the estimate of its relative error."""
    if isinstance(f, GaussianBlocks):
        mass, log_scale, bound = block_calculus.integral_and_bound(f)
        return (mass, log_scale), relative_error(mass, bound)
    room = diagonal if isinstance(f, GaussianPSD) else canonical
    mass, log_scale, bound = room.integral_and_bound(f, box)  # pyright: ignore[reportArgumentType]
    return (mass, log_scale), relative_error(mass, bound)


def estimated_integral(f: Model, domain: Box | None) -> tuple[tuple[Array, Array], Array]:
    """(z, s) with int f = z exp(s), and the estimate of its relative error."""
    return settle(
        lambda: closed_integral(f, domain),
        lambda plan: squares.scaled_integral(f, plan),  # pyright: ignore[reportArgumentType]
        lambda: squares.plan_for_integral(f, domain),
        costly=num_pairs(f) > COSTLY,
    )


def num_pairs(f: Model) -> int:
    """Products of pairs of kernels in an integral of f: on a grid those of its axes."""
    if not isinstance(f, GaussianPSD):
        return 0
    if isinstance(f.anchors, TensorGrid):
        return max(len(axis) for axis in f.anchors.axes) ** 2
    return f.order**2


def uncoupled(f: GeneralizedGaussianPSD | PairwiseGaussianPSD, domain: Box | None) -> Box | None:
    """The box, if f has a closed form on it: all precisions are diagonal."""
    if domain is None:
        return None
    lower = check_values(
        domain.lower,
        canonical.off_diagonal(f) == 0,
        "box must be None for a generalised model whose precision couples its axes: box "
        "integrals have a closed form only for diagonal precisions. Integrate over R^d, or by "
        "quadrature of f",
    )
    return eqx.tree_at(lambda b: b.lower, domain, lower)


def scaled_integral(f: Model, domain: Box | None) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """z and s with int f = z exp(s); a non-finite integral is an error, a zero one is not."""
    if domain is not None and isinstance(f, GaussianBlocks):
        f = generalize(f)
    if not isinstance(f, GaussianPSD | GaussianBlocks):
        domain = uncoupled(f, domain)
    (mass, log_scale), error = estimated_integral(f, domain)
    mass = check_values(
        mass,
        jnp.isfinite(mass),
        "f has no finite integral: a precision is not positive definite (integrate over the axes "
        "where it is, or add a damping), or a factor or a bound is too large for float64 (put the "
        "size of f into log_scale)",
    )
    mass = require_digits(mass, error, "the integral of f")
    # Rounding can leave a vanishing mass below zero; the integral of a non-negative f is not.
    return jnp.maximum(mass, 0.0), log_scale


def integral(f: Model, box: BoxLike | None = None) -> Float[Array, ""]:
    """int f(x) dx = tr(L' G L),  G_ij = int k_i(x) k_j(x) dx.

    For the mass of a sub-box pass that box; its bounds may be infinite. Where the signed sum would
    lose digits, f is summed as squares at quadrature nodes; a value of fewer than six digits is
    refused.
    """
    mass, log_scale = scaled_integral(*verified_model(f, box))
    return mass * jnp.exp(log_scale)


def log_integral(f: Model, box: BoxLike | None = None) -> Float[Array, ""]:
    """log int f(x) dx, finite where the integral itself would underflow or overflow."""
    mass, log_scale = scaled_integral(*verified_model(f, box))
    return jnp.log(mass) + log_scale


def digits(f: Model, box: BoxLike | None = None) -> Float[Array, ""]:
    """Decimal digits that the closed form of int f has left, as it estimates itself: 0 to 15.

    -log10 of 4 eps |L|'G|L| / L'GL: coefficients that are large against the values of f cancel.
    From eleven digits down, integrals of `GaussianPSD` and `GeneralizedGaussianPSD` are taken at
    quadrature nodes, where about half of what is missing here is lost.
    """
    _, error = closed_integral(*verified_model(f, box))
    return jnp.clip(-jnp.log10(jnp.maximum(error, 1e-300)), 0.0, 15.0)


def positive_mass(f: Model, domain: Box | None) -> Float[Array, ""]:
    """log int f, or an error if there is no mass to divide by."""
    mass, log_scale = scaled_integral(f, domain)
    mass = check_values(
        mass, mass > 0, "f must have positive mass on the box, got zero: is the box the right one?"
    )
    return jnp.log(mass) + log_scale


def normalize(f: SameModel, box: BoxLike | None = None) -> SameModel:
    """f / int f: a probability density on the box (on R^d if None)."""
    model, domain = verified_model(f, box)
    return scaled(model, -positive_mass(model, domain))  # pyright: ignore[reportReturnType]


def scale(f: SameModel, log_factor: Numbers) -> SameModel:
    """exp(log_factor) f."""
    _ = as_model("f", f)
    return scaled(*verified(f=f, log_factor=as_floats("log_factor", log_factor, ndim=0)))


def scaled(f: SameModel, log_factor: Array) -> SameModel:
    """exp(log_factor) f, unchecked."""
    if isinstance(f, GaussianBlocks):
        return block_calculus.scaled(f, log_factor)
    return eqx.tree_at(lambda m: m.log_scale, f, f.log_scale + log_factor)
