"""The table of a fit, as people know it from statsmodels."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from .fit import Fit

# Numbers below it have less than two digits in four decimals.
_SMALL = 1e-3


def summary_table(fit: "Fit", level: float) -> str:
    """Header, one row for each parameter, and what there is to be warned of."""
    estimates, errors = np.asarray(fit.estimates), np.asarray(fit.standard_errors)
    lower, upper = (np.asarray(end) for end in fit.interval(level))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = estimates / errors
    p = 2 * ndtr(-np.abs(z))
    tail = 0.5 * (1 - level)
    head = ["", "coef", "std err", "z", "P>|z|", f"[{tail:.3g}", f"{1 - tail:.3g}]"]
    rows = [
        [name, *(_number(v) for v in values[:2]), f"{values[2]:.2f}", f"{values[3]:.3f}"]
        + [_number(v) for v in values[4:]]
        for name, *values in zip(fit.names, estimates, errors, z, p, lower, upper, strict=True)
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) + 2 for i in range(len(head))]
    line = "-" * sum(widths)

    def show(row: list[str]) -> str:
        return row[0].ljust(widths[0]) + "".join(
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
        )

    kind = "maximum likelihood" if fit.objective.log_prior is None else "maximum a posteriori"
    facts = [
        ("method", kind),
        ("observations", str(fit.num_observed)),
        ("log-likelihood", f"{float(fit.log_likelihood):.4f}"),
        ("AIC", f"{fit.aic:.3f}"),
        ("BIC", f"{fit.bic:.3f}"),
        ("converged", "yes" if fit.converged else "NO"),
        ("search", f"{fit.num_steps} steps, {fit.num_plans} plans, {fit.seconds:.1f} s"),
    ]
    text = [f"{name:<16}{value}" for name, value in facts]
    text += [line, show(head), line, *(show(row) for row in rows), line]
    return "\n".join([*text, *(_warnings(fit))])


def _number(value: float) -> str:
    """Four decimals; of a number that has no digits there, such as one at a bound, the first."""
    return f"{value:.4f}" if value == 0 or not abs(value) < _SMALL else f"{value:.3g}"


def _warnings(fit: "Fit") -> list[str]:
    notes = []
    if not np.isfinite(np.asarray(fit.standard_errors)).all():
        notes.append("The information is not positive definite: there are no standard errors.")
    if not fit.likelihood.core.frozen.has_plan:
        return notes
    lost = float(fit.likelihood.value_and_check(fit.theta)[1].lost)
    if lost > 1e-2:
        notes.append(
            f"{lost:.1%} of the mass leaves the box in a step: a larger "
            "state_box would change the estimate."
        )
    return notes
