"""Gaussian components with free shapes, fitted to values by nonlinear least squares.

    g(x) = sum_j alpha_j exp(-|w_j(x)|^2),   w_j(x) = S_j xi_j - b_j,   xi_j = C_j (x - m_j)

C_j and m_j are those of the start and stay fixed; alpha_j, b_j and the upper triangular S_j are
free, from S_j = I and b_j = 0. These are the components alpha_j exp(-|R_j (x - mu_j)|^2) with
R_j = S_j C_j. Written this way the parameters are of size one however narrow a component is, which
is what the damping of Levenberg-Marquardt wants, and P_j = R_j'R_j may become singular, as it is
for a linear-Gaussian conditional, without its centre running to infinity.

Derivatives, with e_j = exp(-|w_j|^2):

    dg/dalpha_j = e_j,   dg/db_jk = 2 alpha_j e_j w_jk,   dg/dS_jkl = -2 alpha_j e_j w_jk xi_jl
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int, PyTree

# exp(-80) = 2e-35: below it a component is zero, so that no product of two is a subnormal number,
# which processors are slow with.
_FAR = 80.0
# Sum of squares over mean square, as the solver sees it. It fixes the first damping, which is 1,
# relative to J'J, whatever the number of points.
_LM_SCALE = 2500.0
LOSSES = ("root", "density")
METHODS = ("levenberg-marquardt", "lbfgs")


class Shapes(NamedTuple):
    """Fixed part of the components: x -> xi_j = C_j (x - m_j)."""

    centers: Float[np.ndarray, "m d"]  # m_j
    roots: Float[np.ndarray, "m d d"]  # C_j, upper triangular

    def local(self, points: Float[np.ndarray, "n d"]) -> Float[Array, "n m d"]:
        """xi_j at all points."""
        return _local(jnp.asarray(points), jnp.asarray(self.centers), jnp.asarray(self.roots))


@jax.jit
def _local(points: Array, centers: Array, roots: Array) -> Array:
    return jnp.einsum("jkl,njl->njk", roots, points[:, None, :] - centers[None, :, :])


def num_parameters(dim: int) -> int:
    """Parameters of one component: alpha, b, and the triangle of S."""
    return 1 + dim + dim * (dim + 1) // 2


def pack(amplitudes: Float[np.ndarray, " m"], dim: int) -> Float[np.ndarray, "m q"]:
    """Parameters at the start, S = I and b = 0."""
    rows, cols = np.triu_indices(dim)
    theta = np.zeros((len(amplitudes), num_parameters(dim)))
    theta[:, 0] = amplitudes
    theta[:, 1 + dim :] = (rows == cols).astype(float)
    return theta


def unpack(
    theta: Float[Array, "m q"], dim: int
) -> tuple[Float[Array, " m"], Float[Array, "m d"], Float[Array, "m d d"]]:
    """alpha, b, S."""
    rows, cols = np.triu_indices(dim)
    triangle = jnp.zeros((theta.shape[0], dim, dim)).at[:, rows, cols].set(theta[:, 1 + dim :])
    return theta[:, 0], theta[:, 1 : 1 + dim], triangle


def _residual_shapes(
    theta: Float[Array, "m q"], local: Float[Array, "n m d"]
) -> tuple[Float[Array, "n m"], Float[Array, "n m d"]]:
    """e_j and w_j at all points."""
    _, shift, triangle = unpack(theta, local.shape[-1])
    w = jnp.einsum("jkl,njl->njk", triangle, local) - shift[None]
    square = jnp.sum(jnp.square(w), axis=-1)
    return jnp.where(square < _FAR, jnp.exp(-jnp.minimum(square, _FAR)), 0.0), w


@jax.custom_jvp
def evaluate_root(theta: Float[Array, "m q"], local: Float[Array, "n m d"]) -> Float[Array, " n"]:
    """g at the points whose local coordinates are given."""
    bumps, _ = _residual_shapes(theta, local)
    return bumps @ theta[:, 0]


# The Jacobian is written out, as a matrix, instead of being left to automatic differentiation: one
# column depends on one component only, so that all of it costs as much as a few values of g. Seen
# once by `jax.linearize`, it leaves matrix products to the normal equations.
@evaluate_root.defjvp
def _evaluate_root_jvp(primals, tangents):
    (theta, local), (d_theta, _) = primals, tangents  # local coordinates are data
    bumps, w = _residual_shapes(theta, local)
    rows, cols = np.triu_indices(local.shape[-1])
    by_shift = 2.0 * (theta[:, 0][None] * bumps)[..., None] * w
    by_triangle = -by_shift[..., rows] * local[..., cols]
    jacobian = jnp.concatenate([bumps[..., None], by_shift, by_triangle], axis=-1)
    flat = jacobian.reshape(local.shape[0], -1)
    return bumps @ theta[:, 0], flat @ d_theta.reshape(-1)


class Data(NamedTuple):
    """Training points in local coordinates, and sqrt(f / max f) there."""

    local: Float[Array, "n m d"]
    target: Float[Array, " n"]


class Residuals(eqx.Module):
    """r_i(theta), or their mean square: g - sqrt(f) for "root", g^2 - f for "density"."""

    loss: str = eqx.field(static=True)
    scalar: bool = eqx.field(static=True, default=False)

    def __call__(self, theta: Float[Array, "m q"], data: Data) -> tuple[Array, None]:
        value, target = evaluate_root(theta, data.local), data.target
        if self.loss == "density":
            value, target = jnp.square(value), jnp.square(target)
        residual = value - target
        if self.scalar:
            return jnp.mean(jnp.square(residual)), None
        return residual * jnp.sqrt(_LM_SCALE / residual.shape[0]), None


@partial(jax.jit, static_argnames="loss")
def mean_square(theta: Float[Array, "m q"], data: Data, loss: str) -> Float[Array, ""]:
    """J(theta) = (1/n) sum_i r_i^2."""
    return Residuals(loss, scalar=True)(theta, data)[0]


def fit_amplitudes(data: Data) -> Float[np.ndarray, " m"]:
    """alpha of least squares at the shapes of the start, with a ridge far below the error."""
    bumps = np.asarray(jnp.exp(-jnp.sum(jnp.square(data.local), axis=-1)))
    num, order = bumps.shape
    gram = bumps.T @ bumps / num
    ridge = 1e-8 * np.trace(gram) / order
    target = bumps.T @ np.asarray(data.target) / num
    return np.linalg.solve(gram + ridge * np.eye(order), target)


class Descent:
    """One run of a solver of Optimistix, a few steps at a time, so that it can be watched."""

    def __init__(self, theta: Float[Array, "m q"], data: Data, loss: str, method: str, tol: float):
        """Start at theta; `tol` is the relative change of parameters at which the solver stops."""
        newton = method == "levenberg-marquardt"
        self._fn, self._data, self.theta = Residuals(loss, scalar=not newton), data, theta
        if newton:
            solver = optx.LevenbergMarquardt(tol, 1e-3 * tol, linear_solver=_NORMAL)
        else:
            solver = optx.LBFGS(tol, 1e-6 * tol**2, history_length=20)
        self._solver: optx.AbstractIterativeSolver = solver
        self._state = _init(self._solver, self._fn, theta, data)
        self.num_steps, self.stopped = 0, False
        self.loss = float(mean_square(theta, data, loss))

    def advance(self, num_steps: int) -> None:
        """Take up to that many steps; fewer if the solver converges."""
        steps = jnp.asarray(num_steps)
        self.theta, self._state, taken, stopped = _advance(
            self._solver, self._fn, self.theta, self._data, self._state, steps
        )
        self.num_steps += int(taken)
        self.stopped = bool(stopped)
        self.loss = float(mean_square(self.theta, self._data, self._fn.loss))


_NORMAL = lx.Normal(lx.Cholesky())


@eqx.filter_jit
def _init(solver: optx.AbstractIterativeSolver, fn: Residuals, theta: Array, data: Data) -> PyTree:
    value, _ = jax.eval_shape(fn, theta, data)
    return solver.init(fn, theta, data, {}, value, None, frozenset())


@eqx.filter_jit
def _advance(
    solver: optx.AbstractIterativeSolver,
    fn: Residuals,
    theta: Array,
    data: Data,
    state: PyTree,
    num_steps: Int[Array, ""],
) -> tuple[Array, PyTree, Int[Array, ""], Bool[Array, ""]]:
    arrays, rest = eqx.partition(state, eqx.is_array)

    def unfinished(carry):
        step, _, _, stopped = carry
        return (step < num_steps) & ~stopped

    def body(carry):
        step, now, arrays, _ = carry
        now, new, _ = solver.step(fn, now, data, {}, eqx.combine(arrays, rest), frozenset())
        # The outcome code is left alone: a Cholesky factorisation that fails yields NaN, which the
        # search rejects like any bad step, and the next one is damped more.
        stopped, _ = solver.terminate(fn, now, data, {}, new, frozenset())
        return step + 1, now, eqx.filter(new, eqx.is_array), stopped

    start = (jnp.asarray(0), theta, arrays, jnp.asarray(False))
    step, theta, arrays, stopped = jax.lax.while_loop(unfinished, body, start)
    return theta, eqx.combine(arrays, rest), step, stopped
