"""The learned model of the adaptive engine: nothing is fitted, every step is controlled."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import Numbers
from ..._density.psd import AbstractDensity
from ..._statespace.functions import requires
from ..._statespace.model import Inputs, StateSpaceModel, log_observation_grid, observation_box
from ..laws import OUTER_MASS, AbstractLaws
from ..model import AbstractFrozen, Settled
from ..numerics.observed import AbstractObservedLaws, GridLaws, observation_grid
from ..numerics.seen import laws_of_y
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace, held_to
from . import recent, walls
from .base import AbstractAdaptive, refuse_tracing
from .density import LineDensity, Sink, log_ratio
from .drawing import generator
from .frozen import FrozenWindows, Run, windows_of
from .hosted import Step
from .known import known_frame, known_values
from .laws import cdf, draw, expectation, quantile
from .passes import Kit
from .recent import Recent
from .run import run
from .smooth import draw_paths, first_transition, forecast, smooth
from .state import Law, at_one_time
from .tables import Values
from .trace import AdaptiveTrace


class LineLaws(AbstractLaws):
    """Laws on a line, each on nodes of its own.

    Smoothed laws are filtered ones with other masses at the nodes, and between them times what the
    law after the next transition says.
    """

    ssm: StateSpaceModel
    laws: Sequence[Law]
    filtered: Sequence[Law] | None = None
    sinks: Sequence[Sink | None] | None = None  # of smoothed laws on panels of their own

    def _each(self, one: Callable[[Law], np.ndarray]) -> Array:
        return jnp.asarray(np.stack([one(law) for law in self.laws]))

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By the integral of what lies between the nodes."""
        return self._each(lambda law: quantile(law, np.asarray(levels))).T[..., None]

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integral of what lies between the nodes."""
        pairs = zip(self.laws, np.asarray(x), strict=True)
        return jnp.asarray(np.stack([cdf(law, point) for law, point in pairs]))

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the nodes."""
        image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))
        return self._each(lambda law: expectation(law, lambda x: np.asarray(image(jnp.asarray(x)))))

    def tail_shares(
        self, image: Callable[[Array], Numbers], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k d"]:
        """By the rule of the nodes."""
        mapped = jax.vmap(lambda x: jnp.asarray(image(x), dtype=jnp.float64))

        def one(law: Law) -> np.ndarray:
            x = np.asarray(mapped(jnp.asarray(law.nodes)[:, None]))[:, 0]
            below = np.cumsum(law.masses)
            outer = (below < OUTER_MASS) | (below - law.masses > 1 - OUTER_MASS)
            squares = law.masses * np.square(x - law.masses @ x)
            return np.sum(squares[outer], keepdims=True) / max(float(np.sum(squares)), 1e-300)

        return np.stack([one(self.laws[t]) for t in rows])

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """By inverting distribution functions."""
        rng = generator(key)
        return self._each(lambda law: draw(law, rng, num)).T[..., None]

    def density(self, t: int) -> AbstractDensity:
        """Exact between the nodes: G(x, y_t) / Z sum_m v_m Q(u_m, x)."""
        law = self.laws[t]
        if self.filtered is None:
            return LineDensity.of(self.ssm, law)
        if self.sinks is not None:
            return LineDensity.of(self.ssm, law, self.sinks[t])
        if t + 1 == len(self.laws):
            return LineDensity.of(self.ssm, self.filtered[t])
        after, smoothed = self.filtered[t + 1], self.laws[t + 1]
        if at_one_time(after, self.filtered[t]):
            # Several sensors at one time share their smoothed density.
            return self.density(t + 1)
        values = known_values(self.ssm)
        source, nodes, log_masses = first_transition(values, after, smoothed.log_masses)
        sums = values.push(source, nodes)
        sink = Sink(nodes, log_ratio(log_masses, sums.log_p), source.t, source.row)
        return LineDensity.of(self.ssm, self.filtered[t], sink)


class AdaptiveModel(AbstractAdaptive):
    """Nodes that are chosen anew at every step, where the law is and as close as it asks for.

    Values of Q and G are exact; the error of every step is estimated and held to the tolerance.
    Traced series (under `jit`, `vmap` or `grad`) are filtered on a fixed plan, by the engine
    "nodes".
    """

    @property
    def _values(self) -> Values:
        return known_values(self.ssm)

    @property
    def _target(self) -> float:
        """What one step may err by at first."""
        return self.plan.tol / self.plan.share

    @property
    def _kit(self) -> Kit:
        return Kit(self.ssm, self._values, known_frame(self.ssm), self.plan, self._target)

    def start(self) -> Recent:
        """The prior."""
        return recent.begin(self._kit)

    def predict(self, law: Recent, step: Int[Array, ""], row: Inputs) -> tuple[Recent, Moved]:
        """One transition."""
        refuse_tracing((law.law, step, row))
        # The scan asks for the likelihood of a missing observation too, and drops it.
        width = self.num_observed or (len(law.kept.steps[-1].y) if law.kept.steps else None)
        scans = width is not None
        scans &= row is not None or not requires(self.ssm.log_observation, "inputs")
        missing = Step(int(step), 1, row, np.full(width or 1, np.nan), passing=True)
        new, change = recent.predict(self._kit, law, missing, scans)
        log_kept, code = jnp.asarray(change.outcome.log_kept), jnp.asarray(change.code)
        return new, Moved(log_kept, jnp.asarray(change.error), code)

    def update(
        self, law: Recent, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Recent, Seen]:
        """One observation."""
        refuse_tracing((law.law, y, step, row))
        self.refuse_gaps(y)
        seen = np.asarray(y, dtype=float)
        new, change = recent.update(self._kit, law, Step(int(step), 0, row, seen))
        used = bool(np.isfinite(change.outcome.log_mass)) and not bool(np.all(np.isnan(seen)))
        return new, Seen(
            jnp.asarray(change.log_mass),
            jnp.asarray(change.error),
            jnp.asarray(used),
            jnp.asarray(change.code),
        )

    def moments(self, law: Recent) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return _moments(law.law)

    def density(self, law: Recent) -> LineDensity:
        """The law as a density."""
        return LineDensity.of(self.ssm, law.law)

    def settle(self, series: Series, keep: bool) -> Settled:
        """The filter of a series, within walls that hold it if nobody gave any."""
        if self.sized(series) is not self:
            return super().settle(series, keep)
        model, out = self, self._filter(series)
        for _ in range(walls.TIMES):
            found = walls.beyond(model._values, model.ssm, out.every_law(), self._target)
            if found is None:
                out = out if model is self else model._compared(series, out)
                return Settled(model, series, model._trace(series, out, keep))
            other = walls.widened(model, lambda m: m.ssm.state_box, found.box)
            moved = other._filter(series)
            if np.any((moved.codes == _results.NO_MASS) & (out.codes != _results.NO_MASS)):
                # Far out some transitions are no densities any more.
                break
            model, out = other, moved
        return Settled(model, series, model._trace(series, model._confined(out), keep))

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series, within the walls of this model."""
        return self._trace(series, self._confined(self._filter(series)), keep)

    def _filter(self, series: Series) -> AdaptiveTrace:
        steps = np.asarray(series.steps), np.asarray(series.hops)
        return run(self.ssm, self.plan, np.asarray(series.ys), *steps, series.rows)

    def _compared(self, series: Series, out: AdaptiveTrace) -> AdaptiveTrace:
        """With what other walls change as errors: tails of tails may be too short within both."""
        other = walls.widened(self, lambda m: m.ssm.state_box, walls.roomier(self.ssm.state_box))
        with np.errstate(invalid="ignore"):
            change = np.nan_to_num(np.abs(out.log_masses - other._filter(series).log_masses))
        return self._with_errors(out, np.fmax(out.errors, change))

    def _with_errors(self, out: AdaptiveTrace, errors: np.ndarray) -> AdaptiveTrace:
        codes = np.asarray(held_to(jnp.asarray(out.codes), jnp.asarray(errors), self.tol))
        return out._replace(errors=errors, codes=codes)

    def _confined(self, out: AdaptiveTrace) -> AdaptiveTrace:
        """With what is beyond walls that nobody gave as errors, of all rows that follow too."""
        found = walls.beyond(self._values, self.ssm, out.laws, self._target)
        if found is None:
            return out
        return self._with_errors(
            out, np.minimum(out.errors + 2 * np.maximum.accumulate(found.shares), 2.0)
        )

    def _trace(self, series: Series, out: AdaptiveTrace, keep: bool) -> Trace:
        ys = np.asarray(series.ys)
        seen = np.isfinite(out.log_masses) & ~np.isnan(ys).all(axis=1) & np.isfinite(ys).any(axis=1)
        # The mass lost on the way to an observation is part of log Z.
        put = jax.device_put  # `jnp.asarray` is compiled for every length
        return Trace(
            log_likelihoods=put(out.log_masses),
            mean=put(out.mean),
            covariance=put(out.covariance),
            codes=put(out.codes),
            seen=put(seen),
            log_kept=put(out.log_kept),
            log_normalizers=put(out.log_kept),
            errors=put(out.errors),
            last=out.laws[-1],
            laws=out if keep else None,
        )

    def _laws(self, laws: Sequence[Law]) -> LineLaws:
        return LineLaws(self.ssm, laws)

    def filtered(self, series: Series, trace: Trace) -> LineLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return self._laws(trace.laws.laws)

    def predicted(self, series: Series, trace: Trace) -> LineLaws:
        """p(x_t | y before t), each on nodes of its own."""
        kept: AdaptiveTrace = trace.laws
        laws, hops, steps = [], np.asarray(series.hops), np.asarray(series.steps)
        for k, before in enumerate([kept.start, *kept.laws[:-1]]):
            row = series.row(k)
            times = [(int(steps[k] - hops[k] + 1 + i), row) for i in range(int(hops[k]))]
            laws.append(self._advanced(before, times)[-1] if times else before)
        return self._laws(tuple(laws))

    def _advanced(self, law: Law, times: list[tuple[int, Inputs]]) -> list[Law]:
        values, target = self._values, self._target

        def made(ssm: StateSpaceModel) -> tuple[StateSpaceModel, list[Law]]:
            return ssm, forecast(values, known_frame(ssm), law, times, target)

        (_, laws), found = walls.moved_out(
            made(self.ssm),
            lambda pair: walls.beyond(values, *pair, target),
            lambda pair, found: made(walls.widened(pair[0], lambda s: s.state_box, found.box)),
        )
        if found is None:
            return laws
        shares = np.maximum.accumulate(found.shares)
        pairs = zip(laws, shares, strict=True)
        return [one._replace(error=one.error + 2 * share) for one, share in pairs]

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """On the nodes of the filter; with a lag, on a fixed plan."""
        if lag is not None:
            fixed = self.fixed()
            return fixed.smooth(series, fixed.run(series, keep), lag, keep)
        kept: AdaptiveTrace = trace.laws
        out = smooth(self._values, kept, self.plan.tol, self._target)
        laws = LineLaws(self.ssm, out.laws, kept.laws, out.sinks)
        put = jax.device_put
        moments = put(out.mean), put(out.covariance)
        return Smoothing(*moments, laws, "backward sums", put(out.errors))

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Drawn backwards on the nodes of the filter."""
        del series
        drawn = draw_paths(self._values, trace.laws, generator(key), num)
        return jnp.asarray(drawn)[..., None]

    def ahead(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        at = [int(t) for t in np.asarray(steps)]
        times = [(t, jax.tree.map(lambda a, i=i: a[i], rows)) for i, t in enumerate(at)]
        laws = tuple(self._advanced(last, times))
        mean, covariance = zip(*(_moments(law) for law in laws), strict=True)
        kept = jnp.asarray([law.log_norm for law in laws])
        errors = jnp.asarray([law.error for law in laws])
        codes = held_to(jnp.zeros(len(laws), int), errors, self.tol)
        return Ahead(jnp.stack(mean), jnp.stack(covariance), self._laws(laws), kept, codes)

    def frozen_on(self, parts: Sequence[Series]) -> FrozenWindows:
        """The windows of filters of these series."""
        model, windows = self, []
        for part in parts:
            model = model.settle(part, True).model
        assert isinstance(model, AdaptiveModel)
        frame = known_frame(model.ssm)
        for part in parts:
            kept: AdaptiveTrace = model.run(part, True).laws
            moves = np.asarray(part.hops) > 0
            run = Run(self._values, frame, kept.start, kept.laws, moves, self._target)
            windows.append(windows_of(run))
        return FrozenWindows.of(windows, frame)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "AdaptiveModel":
        """Steps are controlled whatever the windows of a likelihood are."""
        del frozen
        return AdaptiveModel(ssm=ssm, plan=self.plan, report=self.report)

    def observed(
        self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs
    ) -> AbstractObservedLaws:
        """By quadrature, over grids that are found or `observation_box`."""
        assert isinstance(laws, LineLaws)
        each = [(law.nodes[:, None], law.masses) for law in laws.laws]
        if (found := laws_of_y(self.ssm, each, steps, rows)) is not None:
            return found
        box = observation_box(self.ssm, "the law of y")
        nodes, _ = observation_grid(box)
        values = []
        for k, law in enumerate(laws.laws):
            row = jax.tree.map(lambda a, k=k: a[k], rows)
            table = self._table(law, nodes, steps[k], row)
            values.append(jnp.asarray(law.masses) @ jnp.exp(table))
        return GridLaws.of(box, jnp.stack(values))

    def _table(self, law: Law, ys: Array, t: Array, row: Inputs) -> Float[Array, "n k"]:
        return log_observation_grid(self.ssm, jnp.asarray(law.nodes)[:, None], ys, t, row)


def _moments(law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    mean = float(law.masses @ law.nodes)
    variance = float(law.masses @ np.square(law.nodes - mean))
    return jnp.full(1, mean), jnp.full((1, 1), variance)
