"""Laws in the plane at several times: the questions every engine answers."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...._checks import Numbers
from ...._density.psd import AbstractDensity
from ...._statespace.model import StateSpaceModel
from ...laws import AbstractLaws
from ..density import log_ratio
from ..drawing import generator
from . import answers
from .density import PlaneDensity, PlaneSink
from .known import plane_values
from .law import Law
from .smooth import first_transition
from .sums import log_sums


class PlaneLaws(AbstractLaws):
    """Laws in the plane, each on a lattice of its own.

    Smoothed laws are filtered ones with other masses at the nodes, and between them times what the
    law after the next transition says.
    """

    ssm: StateSpaceModel
    laws: Sequence[Law]
    filtered: Sequence[Law] | None = None
    after: Sequence[Law | None] = ()  # of smoothed laws, the next one given the same data

    def _columns(self, one: Callable[[Law, int], np.ndarray]) -> Array:
        """one(law, coordinate) stacked to (t, d, ...)."""
        return jnp.asarray(np.stack([[one(law, c) for c in range(2)] for law in self.laws]))

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By bisection of the distribution functions."""
        values, wanted = plane_values(self.ssm), np.asarray(levels)
        columns = self._columns(lambda law, c: answers.quantile(values, law, c, wanted))
        return jnp.moveaxis(columns, 2, 0)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integral of what lies between the nodes."""
        values, points = plane_values(self.ssm), np.asarray(x)
        rows = [
            [answers.cdf(values, law, c, points[t, c : c + 1])[0] for c in range(2)]
            for t, law in enumerate(self.laws)
        ]
        return jnp.asarray(np.array(rows))

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the nodes."""
        values = plane_values(self.ssm)
        image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))
        rows = []
        for law in self.laws:
            at_nodes = np.asarray(image(jnp.asarray(answers.states(values, law))))
            rows.append(np.tensordot(law.masses, at_nodes, axes=1))
        return jnp.asarray(np.stack(rows))

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """From cells of a finer lattice; smoothed laws from those of their nodes."""
        rng, values = generator(key), plane_values(self.ssm)
        drawn = [answers.draw(values, law, rng, num, self.filtered is None) for law in self.laws]
        return jnp.asarray(np.stack(drawn, axis=1))

    def density(self, t: int) -> AbstractDensity:
        """Exact between the nodes: G(x, y_t) / Z sum_m v_m Q(u_m, x)."""
        law = self.laws[t]
        if self.filtered is None:
            return PlaneDensity(self.ssm, law)
        after = self.after[t]
        if after is None:
            return PlaneDensity(self.ssm, self.filtered[t])
        if after.source is None or after.source.t == _time_of(self.filtered[t]):
            # Several sensors at one time share their smoothed density.
            return self.density(t + 1)
        values = plane_values(self.ssm)
        source, nodes, log_masses = first_transition(values, after)
        log_p = log_sums(values, source, nodes)
        sink = PlaneSink(nodes, log_ratio(log_masses, log_p), source.t, source.row)
        return PlaneDensity(self.ssm, self.filtered[t], sink)


def _time_of(law: Law) -> int | None:
    return None if law.source is None else law.source.t
