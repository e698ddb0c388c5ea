"""The same systems in the form of other libraries; importing this needs none of them."""

import time

import numpy as np


def bootstrap_models():
    """`particles` models of shipped systems, by name; ImportError if it is not installed."""
    from particles import distributions as dists  # pyright: ignore[reportMissingImports]
    from particles import state_space_models as models  # pyright: ignore[reportMissingImports]

    from psdfilter.systems import _lorenz63, _pendulum, _range_only, _ungm

    class Sine(models.StateSpaceModel):
        def PX0(self):
            return dists.Uniform(-1.0, 1.0)

        def PX(self, t, xp):
            return dists.TruncNormal(mu=0.9 * np.sin(2.2 * xp), sigma=0.15, a=-1.0, b=1.0)

        def PY(self, t, xp, x):
            return dists.Normal(loc=x**2, scale=0.1)

    class Volatility(models.StateSpaceModel):
        def PX0(self):
            return dists.Normal(loc=-1.0, scale=0.2 / np.sqrt(1 - 0.95**2))

        def PX(self, t, xp):
            return dists.Normal(loc=-1.0 + 0.95 * (xp + 1.0), scale=0.2)

        def PY(self, t, xp, x):
            return dists.Normal(loc=0.0, scale=np.exp(0.5 * x))

    class Growth(models.StateSpaceModel):
        def PX0(self):
            return dists.Normal(loc=0.0, scale=np.sqrt(5.0))

        def PX(self, t, xp):
            return dists.Normal(loc=_ungm._mean(xp, t, np), scale=np.sqrt(10.0))

        def PY(self, t, xp, x):
            return dists.Normal(loc=x**2 / 20.0, scale=1.0)

    def independent(means, sds):
        return dists.IndepProd(
            *(dists.Normal(loc=m, scale=s) for m, s in zip(means, sds, strict=True))
        )

    class Range(models.StateSpaceModel):
        def PX0(self):
            sd = 0.25 / np.sqrt(1 - 0.9**2)
            return independent((0.0, 0.0), (sd, sd))

        def PX(self, t, xp):
            return independent((0.9 * xp[:, 0], 0.9 * xp[:, 1]), (0.25, 0.25))

        def PY(self, t, xp, x):
            return dists.Normal(loc=_range_only._distance(x[:, 0], x[:, 1], 0.4, np), scale=0.15)

    class Pendulum(models.StateSpaceModel):
        def PX0(self):
            return independent(_pendulum._PRIOR_MEAN, _pendulum._PRIOR_SD)

        def PX(self, t, xp):
            return independent(_pendulum._mean(xp[:, 0], xp[:, 1], 0.4, 0.6, np), (0.2, 0.3))

        def PY(self, t, xp, x):
            return dists.Normal(loc=np.sin(x[:, 0]), scale=0.15)

    class Lorenz(models.StateSpaceModel):
        def PX0(self):
            return independent(_lorenz63._PRIOR_MEAN, _lorenz63._PRIOR_SD)

        def PX(self, t, xp):
            mean = _lorenz63._flow(xp, 0.05, 10.0, 28.0, 8.0 / 3.0, np)
            return independent(mean.T, 0.12 * np.asarray(_lorenz63._HALF_WIDTH))

        def PY(self, t, xp, x):
            return independent(x.T, (8.0, 8.0, 8.0))

    return {
        "sine_map": Sine(),
        "stochastic_volatility": Volatility(),
        "ungm": Growth(),
        "range_only": Range(),
        "pendulum": Pendulum(),
        "lorenz63": Lorenz(),
    }


def bootstrap(model, ys: np.ndarray, num: int) -> tuple[float, np.ndarray]:
    """Seconds per step of a bootstrap filter with `num` particles, and its means (T, d).

    `particles` observes the first state; a first observation that says nothing makes it predict
    first like the rest of the benchmarks.
    """
    import particles  # pyright: ignore[reportMissingImports]
    from particles import state_space_models as models  # pyright: ignore[reportMissingImports]

    class Shifted(models.Bootstrap):
        def logG(self, t, xp, x):
            if t == 0:
                return np.zeros(x.shape[0])
            return super().logG(t, xp, x)

    data = [ys[:1] if ys.shape[1] > 1 else ys[0]] + [y[None] if len(y) > 1 else y for y in ys]
    run = particles.SMC(fk=Shifted(ssm=model, data=data), N=num)
    means, start = [], time.perf_counter()
    next(run)
    for _ in ys:
        next(run)
        x = run.X.reshape(num, -1)
        means.append(run.W @ x)
    return (time.perf_counter() - start) / (len(ys) + 1), np.asarray(means)


def extended_kalman():
    """A batch of series -> means, covariances and likelihoods of the sine map, by `dynamax`."""
    import jax
    import jax.numpy as jnp
    from dynamax.nonlinear_gaussian_ssm import ParamsNLGSSM, extended_kalman_filter  # pyright: ignore[reportMissingImports]

    params = ParamsNLGSSM(
        jnp.zeros(1),
        jnp.eye(1),
        lambda x: 0.9 * jnp.sin(2.2 * x),
        0.15**2 * jnp.eye(1),
        jnp.square,
        0.01 * jnp.eye(1),
    )

    def one(ys):
        post = extended_kalman_filter(params, ys)
        return post.filtered_means, post.filtered_covariances, post.marginal_loglik

    return jax.jit(jax.vmap(one))
