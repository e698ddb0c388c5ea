"""Whether given models are the densities that they should be: masses of Q^(u, .) and G^(x, .)."""

from typing import NamedTuple

import numpy as np

from .table import Table

# Steps over which the prior is pushed forward: where the state goes.
_STEPS = 20


class Masses(NamedTuple):
    """int Q^(u, x) dx over u of the box, and where the state goes; of G^(x, .) if y has a box."""

    least: float
    largest: float
    typical: float  # average over where the state goes
    typical_gap: float  # of |mass - 1|
    seen_gap: float | None  # largest |int G^(x, y) dy - 1|

    def notes(self) -> list[tuple[str, str]]:
        """Lines of a report."""
        gap = max(abs(self.least - 1.0), abs(self.largest - 1.0))
        rows = [
            (
                "mass of Q^(u, .)",
                f"{self.least:.6g} to {self.largest:.6g}, off from one by at most {gap:.1e}, by "
                f"{self.typical_gap:.1e} where the state goes",
            )
        ]
        if self.seen_gap is not None:
            rows.append(("mass of G^(x, .)", f"off from one by at most {self.seen_gap:.1e}"))
        return rows


def masses_of(table: Table) -> Masses:
    """At the nodes, and averaged over the prior pushed forward and renormalised."""
    kernel, weights = np.asarray(table.kernel), np.asarray(table.flat_weights)
    masses = kernel @ weights
    law, path = np.asarray(table.start) * weights, []
    for _ in range(_STEPS):
        path.append(law)
        moved = (law @ kernel) * weights
        total = moved.sum()
        if not total > 0:
            break
        law = moved / total
    where = np.mean(path, axis=0)
    seen = None
    if table.seen_mass is not None:
        seen = float(np.abs(np.asarray(table.seen_mass) - 1.0).max())
    return Masses(
        float(masses.min()),
        float(masses.max()),
        float(where @ masses),
        float(where @ np.abs(masses - 1.0)),
        seen,
    )
