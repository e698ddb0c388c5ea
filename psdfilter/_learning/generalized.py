"""Learn f as the square of a few Gaussians with full precision matrices, by least squares.

    f_hat(x) = g(x)^2,   g(x) = sum_j alpha_j exp(-(x - mu_j)' R_j'R_j (x - mu_j))

Not convex, but a curved transition needs tens of components where one precision for all anchors
needs hundreds: the components turn with the ridge x = m(u).
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from .._checks import Numbers, as_axes, as_count, as_key
from .._density.anchors import TensorGrid
from .._density.box import Box, as_finite_box
from .._density.generalized import GeneralizedGaussianPSD, about, is_far
from .components import (
    LOSSES,
    METHODS,
    Data,
    Descent,
    Shapes,
    fit_amplitudes,
    num_parameters,
    pack,
    unpack,
)
from .evaluate import RootFunction
from .generalized_points import Validation, as_unit_points, num_training_points, training_points
from .generalized_start import Starter
from .progress import Bar
from .rank_one import as_tolerance
from .table import AbstractErrorReport

# Steps between two looks at the loss; a relative gain below _STALL over that many ends the run.
_CHUNK = {"levenberg-marquardt": 25, "lbfgs": 200}
_MAX_STEPS = {"levenberg-marquardt": 200, "lbfgs": 4000}
_STALL = 1e-3
# Mean square below which only rounding is left to fit.
_ROUNDING = 1e-19
_SOLVER_TOL = 1e-6


class GeneralizedReport(AbstractErrorReport):
    """Held-out errors of a fit with free shapes, and how it went."""

    sup_error: float  # max |f_hat - f| / max f over the validation points
    l1_error: float  # integral of |f_hat - f| over the box, divided by that of f
    l2_error: float  # root of the integral of |f_hat - f|^2, divided by that of f^2
    tol: float | None  # the sup error asked for
    order: int  # components
    num_parameters: int
    loss_name: str
    loss: float  # mean square of the residuals at the training points, f relative to max f
    start_loss: float  # the same before the first step
    method: str
    iterations: int  # of the best start
    converged: bool
    start_losses: tuple[float, ...]  # final loss of every start
    amplitude_l1: float  # sum |alpha_j| relative to sqrt(max f)
    num_points: int
    num_validation: int
    num_evaluations: int
    log_peak: float
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""
        done = "converged" if self.converged else "step limit reached"
        state = "tolerance met" if self.met and not self.converged else done
        rows = [
            *self.error_rows(),
            ("components", f"{self.order}  ({self.num_parameters} parameters)"),
            (f"{self.loss_name} loss", f"{self.loss:.2e}  (start {self.start_loss:.2e})"),
            ("solver", f"{self.method}, {self.iterations} steps, {state}"),
        ]
        if len(self.start_losses) > 1:
            rows.append(("losses of all starts", ", ".join(f"{v:.1e}" for v in self.start_losses)))
        return [
            *rows,
            ("sum of |alpha|", f"{self.amplitude_l1:.3g}"),
            ("training points", f"{self.num_points}"),
            ("validation points", f"{self.num_validation}"),
            ("evaluations of f", f"{self.num_evaluations}"),
            ("time", f"{self.seconds:.3g} s"),
        ]


class GeneralizedFit(eqx.Module):
    """A learned model of rank one with free shapes, and its report."""

    model: GeneralizedGaussianPSD
    report: GeneralizedReport = eqx.field(static=True)

    def __str__(self) -> str:
        return f"generalised fit\n{self.report}"


def _show(bar: Bar, start: int, fraction: float, loss: float) -> None:
    """Move on, with the number of the start and its loss beside the bar."""
    bar.describe(f"start {start + 1}, loss {loss:.2e}")
    bar.advance(fraction)


class _Run(eqx.Module):
    """One descent from one start."""

    shapes: Shapes
    theta: Float[np.ndarray, "m q"]
    start_loss: float
    loss: float
    iterations: int
    converged: bool
    met: bool  # the tolerance, if there is one


def learn_generalized(
    f: Callable,
    box: Box | tuple[ArrayLike, ArrayLike],
    order: int,
    *,
    given: int | Sequence[int] = (),
    tol: float | None = None,
    loss: str = "root",
    method: str = "levenberg-marquardt",
    num_starts: int = 1,
    key: PRNGKeyArray | None = None,
    points: Numbers | TensorGrid | None = None,
    max_steps: int | None = None,
    log: bool = False,
    vectorized: bool = False,
    progress: bool | None = None,
) -> GeneralizedFit:
    """f_hat(x) = (sum_j alpha_j exp(-(x - mu_j)' R_j'R_j (x - mu_j)))^2 with `order` terms.

    All of alpha, mu and R are fitted, by least squares on the root, sum (sqrt(f) - g)^2, or on the
    density, sum (f - g^2)^2. The amplitudes are fitted first, at the shapes of the start.

    Args:
        f: non-negative function of one point, `(d,) -> scalar`, in JAX or NumPy.
        box: where f is learned, in the user's units. The model lives on all of space: for
            integrals over R^d choose a box outside of which f is negligible.
        order: number of components.
        given: axes of the conditioning variables of a conditional density: 0 for Q(u, x) with
            scalars u and x, (0, 1) for planar ones. Components then start on the
            ridge x = argmax f(u, .); without it they start on weighted clusters.
        tol: sup error relative to max f at which to stop; by default the loss is minimised.
        loss: "root" or "density".
        method: "levenberg-marquardt", or "lbfgs" for orders whose normal equations are too large.
        num_starts: the best of that many starts is kept; all but the first are perturbed.
        key: random key, needed if num_starts > 1.
        points: training points in the user's units; by default space-filling ones, half of them
            drawn to where f is large.
        max_steps: steps of the solver per start; by default 200, or 4000 for "lbfgs".
        log: f is the logarithm of the function; -inf means zero.
        vectorized: f maps `(n, d) -> (n,)`.
        progress: show a progress bar with the loss; by default only on a terminal.

    Returns:
        A fit with `.model`, a `GeneralizedGaussianPSD` of rank one, and `.report`.
    """
    began = perf_counter()
    box, method = as_finite_box("box", box), _as_choice("method", method, METHODS)
    search = _Search(
        order=as_count("order", order),
        tol=None if tol is None else as_tolerance(tol),
        loss=_as_choice("loss", loss, LOSSES),
        method=method,
        max_steps=as_count("max_steps", _MAX_STEPS[method] if max_steps is None else max_steps),
        num_starts=as_count("num_starts", num_starts),
    )
    conditioning = as_axes("given", given, box.dim)
    if len(conditioning) == box.dim:
        raise ValueError(f"given must leave at least one of {box.dim} axes free, got {given!r}")
    keys = _as_keys(key, search.num_starts - 1)
    size = search.order * num_parameters(box.dim)
    num = num_training_points(size, box.dim) if points is None else 0
    trained = None if points is None else as_unit_points(points, box, size)
    root_fn = RootFunction([f], box, kind="log" if log else "value", vectorized=vectorized)
    starter = Starter(root_fn, search.order, conditioning)
    trained = training_points(root_fn, num) if trained is None else trained
    target, check = root_fn(trained)[:, 0], Validation(root_fn)
    bar, runs = Bar("start 1", progress), list[_Run]()
    with bar:
        for number in range(search.num_starts):
            shapes = starter.perturbed(keys[number - 1]) if number else starter.shapes
            data = Data(shapes.local(trained), jnp.asarray(target))
            runs.append(search.descend(shapes, data, check, partial(_show, bar, number)))
            if runs[-1].met:
                break
    best = min(runs, key=lambda run: (not run.met, run.loss))
    report = search.report(best, runs, check, len(trained), root_fn, perf_counter() - began)
    return GeneralizedFit(_in_user_units(best, box, root_fn.log_peak), report)


class _Search(eqx.Module):
    """The settings of a fit, and what is done with them."""

    order: int
    tol: float | None
    loss: str
    method: str
    max_steps: int
    num_starts: int

    def descend(
        self, shapes: Shapes, data: Data, check: Validation, show: Callable[[float, float], None]
    ) -> _Run:
        """Amplitudes first, then everything, until nothing is gained or the tolerance is met."""
        theta = jnp.asarray(pack(fit_amplitudes(data), data.local.shape[-1]))
        run = Descent(theta, data, self.loss, self.method, _SOLVER_TOL)
        start_loss, met, stalled = run.loss, False, False
        chunk = min(_CHUNK[self.method], self.max_steps)
        while run.num_steps < self.max_steps and not (run.stopped or stalled or met):
            before = run.loss
            run.advance(min(chunk, self.max_steps - run.num_steps))
            stalled = not _ROUNDING < run.loss < (1.0 - _STALL) * before
            if self.tol is not None:
                met = check.errors(shapes, np.asarray(run.theta))[0] <= self.tol
            show(chunk / (self.max_steps * self.num_starts), run.loss)
        return _Run(
            shapes,
            np.asarray(run.theta),
            start_loss,
            run.loss,
            run.num_steps,
            run.stopped or stalled,
            met,
        )

    def report(
        self,
        best: _Run,
        runs: Sequence[_Run],
        check: Validation,
        num_points: int,
        root_fn: RootFunction,
        seconds: float,
    ) -> GeneralizedReport:
        """Errors of the best run, and how all of them went."""
        sup, l1, l2 = check.errors(best.shapes, best.theta)
        return GeneralizedReport(
            sup_error=sup,
            l1_error=l1,
            l2_error=l2,
            tol=self.tol,
            order=self.order,
            num_parameters=best.theta.size,
            loss_name=self.loss,
            loss=best.loss,
            start_loss=best.start_loss,
            method=self.method,
            iterations=best.iterations,
            converged=best.converged,
            start_losses=tuple(run.loss for run in runs),
            amplitude_l1=float(np.abs(best.theta[:, 0]).sum()),
            num_points=num_points,
            num_validation=check.num_points,
            num_evaluations=root_fn.num_calls,
            log_peak=root_fn.log_peak,
            seconds=seconds,
        )


def _in_user_units(best: _Run, box: Box, log_peak: float) -> GeneralizedGaussianPSD:
    """-|R (z - m) - b|^2 with z = (x - center) / half_width, in canonical form about the center."""
    dim = box.dim
    amplitudes, shift, triangle = (np.asarray(a) for a in unpack(jnp.asarray(best.theta), dim))
    unit_roots = triangle @ best.shapes.roots
    roots = unit_roots / np.asarray(box.half_width)
    constant = np.einsum("mkl,ml->mk", unit_roots, best.shapes.centers) + shift
    precision = np.einsum("mki,mkj->mij", roots, roots)
    linear = np.einsum("mki,mk->mi", roots, constant)
    offset = -np.sum(constant**2, axis=1)
    model = GeneralizedGaussianPSD(amplitudes, precision, linear, offset, log_peak, box.center)
    return model if is_far(box.center, model.precision) else about(model, jnp.zeros(dim))


def _as_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def _as_keys(key: PRNGKeyArray | None, num: int) -> Sequence[PRNGKeyArray] | PRNGKeyArray:
    if num == 0:
        return ()
    if key is None:
        raise ValueError("key must be given for num_starts > 1, for example jax.random.key(0)")
    return jax.random.split(as_key("key", key), num)
