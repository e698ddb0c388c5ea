"""What the filter is held against: the grid recursion an expert would write by hand, and clocks."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_legendre


def fastest(*calls, repeat: int = 5, seconds: float = 0.5) -> list[float]:
    """Best time of each call; all take turns, so that a busy machine disturbs them alike."""
    for call in calls:
        jax.block_until_ready(call())
    best = [np.inf] * len(calls)
    for _ in range(repeat):
        for i, call in enumerate(calls):
            stop = time.perf_counter() + seconds / repeat
            while True:
                start = time.perf_counter()
                jax.block_until_ready(call())
                now = time.perf_counter()
                best[i] = min(best[i], now - start)
                if now > stop:
                    break
    return best


class HandGrid:
    """p <- (w p) E, times G, over Z: Gauss-Legendre nodes, true densities, one `lax.scan`.

    In two dimensions the separable form E_0' v E_1 if `separable`, else the product of matrices
    (E_0 v)' E_1 with one row for each old node.
    """

    def __init__(self, ssm, num: int, separable: bool = False):
        """Tabulate everything that does not depend on the data."""
        box, dim = ssm.state_box, ssm.dim
        z, w = roots_legendre(num)
        center, half = np.asarray(box.center), np.asarray(box.half_width)
        self.axes = [center[i] + half[i] * z for i in range(dim)]
        self.shape = (num,) * dim
        weights = np.ones(1)
        for i in range(dim):
            weights = np.multiply.outer(weights, half[i] * w).ravel()
        self.weights = weights
        points = np.stack([m.ravel() for m in np.meshgrid(*self.axes, indexing="ij")], axis=-1)
        self.points, self._ssm = jnp.asarray(points), ssm
        self._tables = [self._table(i) for i in range(dim)]
        if separable:
            first, second = (table.reshape(num, num, num) for table in self._tables)
            self._tables = [first[:, 0], second[0]]
        self._separable = separable
        logs = jax.vmap(ssm.log_prior)(self.points)
        prior = jnp.exp(logs - jnp.max(logs))
        self._prior = prior / (jnp.asarray(weights) @ prior)
        self.run = jax.jit(self._run)

    def _table(self, axis: int):
        ssm, x = self._ssm, jnp.asarray(self.axes[axis])
        if ssm.dim == 1:
            fn = lambda u, v: ssm.log_transition(u, v[None])  # noqa: E731
        else:
            fn = lambda u, v: ssm.log_transition_axis(axis, u, v)  # noqa: E731
        return jnp.exp(jax.vmap(lambda u: jax.vmap(lambda v: fn(u, v).reshape(()))(x))(self.points))

    def _predict(self, v):
        if len(self._tables) == 1:
            return v @ self._tables[0]
        first, second = self._tables
        if self._separable:
            return (first.T @ v.reshape(self.shape) @ second).ravel()
        return ((first * v[:, None]).T @ second).ravel()

    def _run(self, ys):
        weights = jnp.asarray(self.weights)

        def step(density, y):
            predicted = self._predict(weights * density)
            logs = jax.vmap(lambda x: self._ssm.log_observation(x, y).reshape(()))(self.points)
            peak = jnp.max(logs)
            joint = predicted * jnp.exp(logs - peak)
            mass = weights @ joint
            density = joint / mass
            return density, (density, jnp.log(mass) + peak, (weights * density) @ self.points)

        return jax.lax.scan(step, self._prior, ys)[1]

    def distance(self, reference, ys, times) -> float:
        """Largest total variation distance to a converged reference."""
        densities = np.asarray(self.run(jnp.asarray(ys))[0])
        return max(
            float(self.weights @ np.abs(densities[t] - reference.on_axes(t, self.axes)))
            for t in times
        )


def distance(post, reference, times) -> float:
    """Largest total variation distance of a filter to a converged reference."""
    return max(
        float(
            reference.weights
            @ np.abs(np.asarray(post.density(t)(reference.nodes)) - reference.densities[t])
        )
        for t in times
    )


def best_time(fn, *arguments, repeat=7):
    """Seconds of the fastest of `repeat` calls, after one that compiles."""
    jax.block_until_ready(fn(*arguments))
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        jax.block_until_ready(fn(*arguments))
        times.append(time.perf_counter() - start)
    return min(times)
