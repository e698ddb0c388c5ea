"""The likelihood of very many series: parts of a sum, computed in pieces or on a cluster.

    log p(y; theta) = sum_i log p(y_i; theta),  and so are its gradient and its Hessian.

Pieces of equal size run one after the other in one compiled program, in the memory of one of them;
or on the workers of a Dask cluster, which send back numbers. Either way the search sees a function
of theta like any other, with derivatives of first and second order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._inference.model import AbstractFrozen, PlanCheck
from .._inference.series import Series
from .._statespace.functions import AbstractFunction
from .core import Core
from .theta import Theta
from .workers import Bundle, hold, opened

if TYPE_CHECKING:
    from distributed import Client, Future

# Series of one piece: what a core works on at once.
PIECE = 128


class Workers(NamedTuple):
    """Pieces that have been handed to a cluster; compared by identity."""

    client: "Client"
    pieces: "tuple[Future, ...]"  # futures of bundles

    def __hash__(self) -> int:
        return id(self.client) ^ hash(tuple(id(p) for p in self.pieces))


class PooledCore(eqx.Module):
    """What `Core` is, for series in pieces."""

    build: AbstractFunction
    frozen: AbstractFrozen
    series: Series | None  # (pieces, series, ...), if they are computed here
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    workers: Workers | None = eqx.field(static=True, default=None)

    def increments(self, theta: Theta, forward: bool = False) -> list[Float[Array, " t"]]:
        """Of every series, one piece after the other."""
        if self.series is None:
            raise ValueError(
                "increments of single series stay on the workers: leave client out of likelihood"
            )
        logs = []
        for k in range(self.series.ys.shape[0]):
            part = jax.tree.map(lambda a, k=k: a[k], self.series)
            logs += list(self.frozen.increments(self.build(theta), part, forward))
        return [row[jnp.asarray(at)] for row, at in zip(logs, self.rows, strict=False)]

    def run(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, PyTree]:
        """log p(y; theta) and how well the plan serves; no facts of single steps."""
        return *self.total(theta), None

    def total(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck]:
        """log p(y; theta), and how well the plan serves at theta."""
        if self.workers is not None:
            return _on_workers(self.workers, theta)
        assert self.series is not None

        def one(part: Series) -> tuple[Array, PlanCheck]:
            return Core(self.build, self.frozen, part, ()).total(theta)

        values, checks = jax.lax.map(jax.checkpoint(one), self.series)
        return jnp.sum(values), merged(checks)


def merged(checks: PlanCheck) -> PlanCheck:
    """Of all pieces, which are equally large."""
    return PlanCheck(
        jnp.mean(checks.transition_error),
        jnp.max(checks.observation_error),
        jnp.mean(checks.mean_observation_error),
        jnp.mean(checks.lost),
        jnp.any(checks.failed),
    )


def in_pieces(series: Series, piece: int = PIECE) -> Series:
    """Stacked series (S, ...) as (pieces, series, ...), filled up with ones that are missing."""
    num = series.ys.shape[0]
    pieces = -(-num // piece)
    piece = -(-num // pieces)
    extra = pieces * piece - num

    def split(a: Array, missing: bool) -> Array:
        fill = jnp.full((extra, *a.shape[1:]), jnp.nan) if missing else a[:1].repeat(extra, axis=0)
        return jnp.concatenate([jnp.asarray(a), fill]).reshape(pieces, piece, *a.shape[1:])

    return Series(
        split(jnp.asarray(series.ys), True),
        split(series.steps, False),
        split(series.hops, False),
        jax.tree.map(lambda a: split(a, False), series.rows),
        series.regular,
        series.partly,
    )


def hand_out(client: "Client", core: PooledCore) -> PooledCore:
    """The same on the workers of a cluster: each piece goes there once."""
    assert core.series is not None
    num = core.series.ys.shape[0]
    parts = [jax.tree.map(lambda a, k=k: a[k], core.series) for k in range(num)]
    bundles = [Bundle.of(Core(core.build, core.frozen, part, ())) for part in parts]
    pieces = tuple(hold(client, bundle) for bundle in bundles)
    return PooledCore(core.build, core.frozen, None, core.rows, Workers(client, pieces))


@eqx.filter_jit
def _values(core: Core, theta: Theta) -> tuple[Array, PlanCheck]:
    return core.total(theta)


@eqx.filter_jit
def _gradient(core: Core, theta: Theta) -> Array:
    flat, back = ravel_pytree(theta)
    return jax.grad(lambda z: core.total(back(z))[0])(flat)


@eqx.filter_jit
def _hessian(core: Core, theta: Theta) -> Array:
    flat, back = ravel_pytree(theta)
    return jax.jacfwd(jax.grad(lambda z: core.total(back(z))[0]))(flat)


def _piece_task(bundle: Bundle, theta: Theta, order: int) -> np.ndarray:
    """Value and check, gradient or Hessian of one piece, as numbers."""
    core = opened(bundle, most=64)
    theta = jax.tree.map(jnp.asarray, theta)
    if order == 0:
        value, check = _values(core, theta)
        return np.asarray([float(value), *(float(c) for c in check)])
    return np.asarray((_gradient, _hessian)[order - 1](core, theta))


def _gather(workers: Workers, theta: Theta, order: int) -> np.ndarray:
    """Of all pieces, in their order: the sum does not depend on who was first."""
    plain = jax.tree.map(np.asarray, theta)
    client = workers.client
    futures = [client.submit(_piece_task, p, plain, order, pure=False) for p in workers.pieces]
    return np.stack(cast(list[np.ndarray], client.gather(futures)))


def _on_workers(workers: Workers, theta: Theta) -> tuple[Array, PlanCheck]:
    flat, back = ravel_pytree(theta)
    size = flat.shape[0]

    def called(order: int, z: Array, shape: tuple[int, ...]) -> Array:
        def host(values: Array) -> np.ndarray:
            parts = _gather(workers, back(jnp.asarray(values)), order)
            return _checks_merged(parts) if order == 0 else parts.sum(axis=0)

        out = jax.ShapeDtypeStruct(shape, jnp.float64)
        return jax.pure_callback(host, out, z, vmap_method="sequential")

    @jax.custom_jvp
    def gradient(z: Array) -> Array:
        return called(1, z, (size,))

    @gradient.defjvp
    def _(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
        (z,), (dz,) = primals, tangents
        return gradient(z), called(2, z, (size, size)) @ dz

    @jax.custom_jvp
    def value(z: Array) -> Array:
        return called(0, z, (6,))

    @value.defjvp
    def _(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
        (z,), (dz,) = primals, tangents
        slope = gradient(z) @ dz
        return value(z), jnp.concatenate([slope[None], jnp.zeros(5)])

    numbers = value(flat)
    fixed = jax.lax.stop_gradient(numbers)
    return numbers[0], PlanCheck(fixed[1], fixed[2], fixed[3], fixed[4], fixed[5] > 0)


def _checks_merged(parts: np.ndarray) -> np.ndarray:
    value, transition, largest, mean, lost, failed = parts.T
    return np.asarray(
        [value.sum(), transition.mean(), largest.max(), mean.mean(), lost.mean(), failed.max()]
    )
