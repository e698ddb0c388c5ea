"""What inference returns, one class for each question: summaries at hand, the rest when asked.

Plain data classes: making an Equinox module takes longer than filtering a few dozen steps.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import as_count, as_key, looked_at
from .._density.psd import AbstractDensity
from .._frames.labels import Labels
from .._statespace.model import Inputs
from .ability import Ability
from .certificate.certificate import Certificate
from .laws import AbstractLaws, checked_index
from .model import AbstractModel
from .observations import Observations, observations_of
from .registry import engine_of, require
from .result import STATIC, AbstractGiven, AbstractResult
from .series import Series
from .times import shown_times
from .trace import Moments, Trace, on_device

_NO_LAWS = 'this needs the densities: filter with keep="densities" instead of "summaries"'


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Posterior(AbstractResult):
    """p(x_t | y_1 ... y_t) for t = 1 ... T, from whichever engine.

    Numbers go to the device when they are asked for: all of them take longer than a short series.
    """

    model: AbstractModel
    series: Series
    trace: Trace
    called: Labels | None = field(default=None, metadata=STATIC)
    origin: str | None = field(default=None, metadata=STATIC)  # the first of dates

    @property
    def labels(self) -> Labels | None:
        """What a data frame called rows and columns."""
        return self.called

    @property
    def given_names(self) -> None:
        """States have none."""
        return

    @property
    def row_facts(self) -> dict[str, np.ndarray]:
        """log Z_t, whether y_t was used, the outcome, and the estimated error if it is at hand."""
        facts = {
            "log_likelihood": np.asarray(self.trace.log_likelihoods),
            "seen": np.asarray(self.trace.seen),
            "code": np.asarray(self.trace.codes),
        }
        if self.trace.errors is not None:
            facts["error"] = np.asarray(self.trace.errors)
        return facts

    def moments(self) -> Moments:
        """Those of the trace."""
        return Moments(self.mean, self.covariance)

    @property
    def mean(self) -> Float[Array, "t d"]:
        """Of every time."""
        return on_device(self.trace.mean)

    @property
    def covariance(self) -> Float[Array, "t d d"]:
        """Of every time."""
        return on_device(self.trace.covariance)

    @property
    def laws(self) -> AbstractLaws:
        """The filtered laws, in the form of the engine."""
        return self.model.filtered(self.series, self._kept())

    def _kept(self) -> Trace:
        if self.trace.laws is None:
            raise ValueError(_NO_LAWS)
        return self.trace

    @property
    def log_likelihoods(self) -> Float[Array, " t"]:
        """log Z_t, zero where y_t is missing, -inf where it is impossible."""
        return on_device(self.trace.log_likelihoods)

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """sum_t log Z_t."""
        xp, increments = looked_at(self.trace.log_likelihoods)
        return jnp.asarray(xp.sum(increments))

    @property
    def log_kept(self) -> Float[Array, " t"]:
        """log of the predicted mass where the state lives; zero on all of R^d."""
        return on_device(self.trace.log_kept)

    @property
    def log_predictive(self) -> Float[Array, ""]:
        """sum_t log(Z_t / D_t), normalised: D_t is int G^ Q^ pi_{t-1} over the boxes of x and y.

        With a joint model of (x, y) each factor is a density of y_t on observation_box. Otherwise
        G^ is not known for other y than those seen, and D_t is the predicted mass on the state box.
        """
        gained = self.log_likelihoods - on_device(self.trace.log_normalizers)
        return jnp.sum(jnp.where(self.seen, gained, 0.0))

    @property
    def normalizer_errors(self) -> Float[Array, " t"]:
        """int p - 1 of every filtered density as the recursion normalised it, to rounding.

        On nodes the rule of the recursion against one that is exact to rounding, which `density(t)`
        is divided by; zero where normalisers are closed forms. Takes an integral for every t.
        """
        laws, num = self.laws, self.series.num
        return jnp.expm1(jnp.stack([laws.log_mass(t) for t in range(num)]))

    @property
    def codes(self) -> Int[Array, " t"]:
        """Outcome of each step, 0 if fine; see `explain`."""
        return on_device(self.trace.codes)

    @property
    def seen(self) -> Array:
        """Whether the observation was used, (T,)."""
        return on_device(self.trace.seen)

    @property
    def times(self) -> Array | np.ndarray:
        """Times of the observations, in transitions from the prior, or as they were given."""
        return shown_times(self.series.steps, self.series.rows, self.origin)

    def predictive_density(self, t: int) -> AbstractDensity:
        """The density of x_t given y before t."""
        index = checked_index("t", t, self.series.num)
        return self.model.predicted(self.series, self._kept()).density(index)

    @property
    def predicted_observations(self) -> Observations:
        """The law of y_t given y before t, for every t."""
        require(self.model, Ability.OBSERVED_LAWS)
        laws = self.model.predicted(self.series, self._kept())
        series = self.series
        return observations_of(self.model, laws, series.steps, series.rows, self.labels)

    def observation_density(self, t: int) -> AbstractDensity:
        """p(y_t | y before t), a `GaussianPSD` in y; for a joint model of (x, y)."""
        require(self.model, Ability.JOINT)
        index = checked_index("t", t, self.series.num)
        return self.model.observation_density(self.series, self._kept(), index)

    @property
    def pit(self) -> Float[Array, "t *p"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right; NaN if missing."""
        require(self.model, Ability.OBSERVED_LAWS)
        return self.model.transforms(self.series, self._kept())

    @property
    def residuals(self) -> Float[Array, "t *p"]:
        """Normal quantiles of `pit`: standard normal and independent if the model is right."""
        eps = jnp.finfo(jnp.float64).eps
        return ndtri(jnp.clip(self.pit, eps, 1 - eps))

    @property
    def error_estimates(self) -> Float[Array, " t"]:
        """Estimated total variation to the exact filter, int |p - q|, at every t; no bound."""
        require(self.model, Ability.ERRORS)
        model, trace = self.model.core(self.trace)
        return engine_of(model).errors(model, self.series, trace)

    @property
    def error_estimate(self) -> Float[Array, ""]:
        """The largest of `error_estimates`."""
        return jnp.max(self.error_estimates)

    @property
    def certificate(self) -> Certificate:
        """What can be proved about the error, and what can be estimated; see the guide."""
        require(self.model, Ability.CERTIFICATE)
        model, trace = self.model.core(self._kept())
        found = engine_of(model).certify(model, self.series, trace)
        assert isinstance(found, Certificate)
        return found

    @property
    def facts(self) -> dict[str, float | str]:
        """For the summary."""
        facts = {
            "engine": self.model.engine,
            "log_likelihood": float(self.log_likelihood),
            "tolerance": self.model.tol,
            "not_used": int(np.sum(~np.asarray(self.seen))),
            "bad_codes": int(np.sum(np.asarray(self.codes) != 0)),
            "least_mass_kept_in_box": float(jnp.exp(jnp.min(self.log_kept))),
        }
        if self.trace.errors is not None:
            facts["largest_error_of_a_step"] = float(jnp.max(self.trace.errors))
        return facts


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Smoothed(AbstractResult):
    """p(x_t | y_1 ... y_T) for every t, and paths from their joint law.

    With a lag L, p(x_t | y_1 ... y_{t+L}) instead: every row has seen L rows more than itself.

    Attributes:
        filtered: the filter that came before, whose likelihood is its own.
        method: how, in a word or two.
        lag: L, or None.
        errors: what `error_estimates` gives, if the engine knows.
    """

    filtered: Posterior
    summary: Moments
    given: AbstractLaws | None
    method: str = field(metadata=STATIC)
    lag: int | None = field(default=None, metadata=STATIC)
    errors: Float[Array, " t"] | None = None

    @property
    def error_estimates(self) -> Float[Array, " t"]:
        """Estimated total variation to the exact smoother at every t."""
        if self.errors is None:
            raise ValueError(
                f'engine "{self.model.engine}" does not estimate the errors of smoothed laws: '
                "engines adaptive (on a line), exact, mixture and branches do"
            )
        return self.errors

    @property
    def error_estimate(self) -> Float[Array, ""]:
        """The largest of `error_estimates`."""
        return jnp.max(self.error_estimates)

    def moments(self) -> Moments:
        """As they were given."""
        return self.summary

    @property
    def laws(self) -> AbstractLaws:
        """The smoothed laws, in the form of the engine."""
        if self.given is None:
            raise ValueError(_NO_LAWS)
        return self.given

    @property
    def labels(self) -> Labels | None:
        """Those of the filter."""
        return self.filtered.labels

    @property
    def given_names(self) -> None:
        """States have none."""
        return

    @property
    def row_facts(self) -> dict[str, np.ndarray]:
        """Those of the filter."""
        return self.filtered.row_facts

    @property
    def model(self) -> AbstractModel:
        """The learned model."""
        return self.filtered.model

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """That of the filter."""
        return self.filtered.log_likelihood

    @property
    def log_likelihoods(self) -> Float[Array, " t"]:
        """Those of the filter."""
        return self.filtered.log_likelihoods

    @property
    def times(self) -> Array | np.ndarray:
        """Those of the filter."""
        return self.filtered.times

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Paths x_1 ... x_T from their joint law, (num, T, d), by backward sampling."""
        if self.lag is not None:
            raise ValueError(
                "sample draws whole paths, which a smoother with a lag has no law of: see "
                "sample_marginals, or smooth without a lag"
            )
        post, count = self.filtered, as_count("num", num)
        return post.model.paths(post.series, post.trace, as_key("key", key), count)

    def sample_marginals(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Independent draws from the law of every time, (num, T, d)."""
        return self.laws.draws(as_key("key", key), as_count("num", num))

    def pair_law(self, t: int) -> Float[Array, "n n"]:
        """p(x_t, x_{t+1} | all y) at the nodes of the recursion, unit coordinates, mass one.

        With a lag L, given y_1 ... y_{t+L}.
        """
        require(self.model, Ability.PAIRS)
        post, num = self.filtered, self.filtered.series.num
        if not 0 <= t < num - 1:
            raise ValueError(f"t must lie in 0..{num - 2}, got {t}")
        if int(post.series.hops[t + 1]) != 1:
            raise ValueError(f"t must have exactly one transition after it, got t = {t}")
        return post.model.pair_law(post.series, post.trace, self.laws, t)

    @property
    def facts(self) -> dict[str, float | str]:
        """For the summary."""
        lag = {} if self.lag is None else {"lag": self.lag}
        return {**self.filtered.facts, "method": self.method, **lag}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Forecast(AbstractGiven):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K.

    Attributes:
        log_kept: log of the mass that each transition keeps where the state lives.
        codes: outcome of each step, 0 if fine.
    """

    summary: Moments
    given: AbstractLaws
    model: AbstractModel
    steps: Int[Array, " k"]
    rows: Inputs
    log_kept: Float[Array, " k"]
    codes: Int[Array, " k"]
    called: Labels | None = field(default=None, metadata=STATIC)
    origin: str | None = field(default=None, metadata=STATIC)  # the first of dates

    @property
    def labels(self) -> Labels | None:
        """What a data frame called rows and columns."""
        return self.called

    @property
    def given_names(self) -> None:
        """States have none."""
        return

    @property
    def row_facts(self) -> dict[str, np.ndarray]:
        """Outcomes."""
        return {"code": np.asarray(self.codes)}

    @property
    def times(self) -> Array | np.ndarray:
        """When, in transitions from the prior, or in the units of the data."""
        return shown_times(self.steps, self.rows, self.origin)

    @property
    def simulation_errors(self) -> Float[Array, "k d"]:
        """Standard errors of `mean` where laws were simulated (models that take `last_y`), else 0.

        Those of quantiles and of laws of y are of the same order, 1/256 of a standard deviation.
        """
        errors = self.laws.simulation_errors()
        return jnp.zeros_like(self.mean) if errors is None else errors

    @property
    def observations(self) -> Observations:
        """The laws of y at the same times."""
        return observations_of(self.model, self.laws, self.steps, self.rows, self.labels)

    @property
    def facts(self) -> dict[str, float | str]:
        """For the summary."""
        return {"engine": self.model.engine, "tolerance": self.model.tol}
