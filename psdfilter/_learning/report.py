"""What a fit did and how well, in a form that prints."""

from .table import AbstractErrorReport


class FitReport(AbstractErrorReport):
    """Held-out errors and the size of a learned model.

    Attributes:
        sup_error: max |f_hat - f| / max f over the validation points.
        l1_error: integral of |f_hat - f| over the box, divided by that of f.
        l2_error: root of the integral of |f_hat - f|^2, divided by that of f^2.
        tol: the tolerance asked for; None if the design was given.
        shape: anchors on each axis, or (m,) for scattered anchors.
        precision: eta per axis, in the user's units.
        spread: eta h^2 per axis for grids.
        ridge: lambda.
        coefficient_l1: |a|_1 relative to sqrt(max f); rounding in integrals grows with its square.
        coefficient_l2: |a|_2 relative to sqrt(max f).
        coefficient_max: max |a_i| relative to sqrt(max f).
        condition: condition number of the kernel matrix.
        num_points: training points.
        num_validation: validation points.
        num_evaluations: points at which f was evaluated in all.
        log_peak: log of max f.
        seconds: time taken.
    """

    sup_error: float
    l1_error: float
    l2_error: float
    tol: float | None
    shape: tuple[int, ...]
    precision: tuple[float, ...]
    spread: tuple[float, ...] | None
    ridge: float
    coefficient_l1: float
    coefficient_l2: float
    coefficient_max: float
    condition: float
    num_points: int
    num_validation: int
    num_evaluations: int
    log_peak: float
    seconds: float

    @property
    def num_anchors(self) -> int:
        """Order of the model."""
        total = 1
        for num in self.shape:
            total *= num
        return total

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""
        grid = " x ".join(map(str, self.shape))
        order = f"{grid} = {self.num_anchors}" if len(self.shape) > 1 else grid
        rows = [
            *self.error_rows(),
            ("anchors", order),
            ("precision", ", ".join(f"{p:.4g}" for p in self.precision)),
        ]
        if self.spread is not None:
            rows.append(("eta h^2", ", ".join(f"{s:.3g}" for s in self.spread)))
        return [
            *rows,
            ("ridge", f"{self.ridge:.1e}"),
            (
                "coefficients",
                f"|a|_1 {self.coefficient_l1:.3g}, |a|_2 {self.coefficient_l2:.3g}, "
                f"max {self.coefficient_max:.3g}",
            ),
            ("condition of K", f"{self.condition:.1e}"),
            ("training points", f"{self.num_points}"),
            ("validation points", f"{self.num_validation}"),
            ("evaluations of f", f"{self.num_evaluations}"),
            ("time", f"{self.seconds:.3g} s"),
        ]
