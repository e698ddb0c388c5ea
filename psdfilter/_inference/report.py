"""What `learn` found out and decided, in a form that prints well; one class for all engines."""

from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """The engine, why it, its sizes, and the errors that were measured; None for what it has not.

    All reports are equal to one another: they ride along with models through compiled functions,
    and two models that differ in the time it took to learn them must share their programs.

    Attributes:
        engine: its word, as `learn(..., engine=)` takes it.
        reason: why this engine serves the model.
        tol: the tolerance asked for.
        seconds: time of `learn`.
        nodes: quadrature nodes on each axis.
        anchors: for each factor of Q, anchors on the axes of u, then of x.
        observation_anchors: anchors of sqrt G(., y) on each axis.
        joint_anchors: anchors on each axis of y, if G was learned jointly over (x, y).
        order: components of the prior, or places for components of the filter.
        one_step_error: largest int |Q - Q^|(u, x) dx over typical states u.
        coefficient_norm: largest |a|_1 of the factors; digits lost in expanded forms.
        leak: share of mass that leaves the box in a step, from typical states.
        time_varying: whether Q is filled anew at every step.
        notes: other decisions, as lines of a name and a text.
    """

    engine: str
    reason: str
    tol: float
    seconds: float
    nodes: Sizes | None = None
    anchors: tuple[Sizes, ...] | None = None
    observation_anchors: Sizes | None = None
    joint_anchors: Sizes | None = None
    order: int | None = None
    one_step_error: float | None = None
    coefficient_norm: float | None = None
    leak: float = 0.0
    time_varying: bool = False
    notes: tuple[tuple[str, str], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report)

    def __hash__(self) -> int:
        return hash(Report)

    def __str__(self) -> str:
        lines = [
            ("engine", self.engine),
            ("because", self.reason),
            ("tolerance", f"{self.tol:.1e} (total variation of the filter)"),
        ]
        if self.nodes is not None:
            lines.append(("nodes", _times(self.nodes)))
        if self.anchors is not None:
            filled = "  (filled at every step)" if self.time_varying else ""
            lines.append(("anchors of Q", "; ".join(map(_times, self.anchors)) + filled))
        if self.observation_anchors is not None:
            seen = "fitted for each observation"
            if self.joint_anchors is not None:
                seen = f"with {_times(self.joint_anchors)} in y, learned jointly"
            lines.append(("anchors of sqrt G", f"{_times(self.observation_anchors)}, {seen}"))
        if self.order is not None:
            lines.append(("components", str(self.order)))
        if self.one_step_error is not None:
            error = f"{self.one_step_error:.1e} (largest over typical states)"
            lines.append(("one-step error of Q", error))
        if self.coefficient_norm is not None:
            lines.append(("|a|_1", f"{self.coefficient_norm:.1e}"))
        if self.nodes is not None:
            lines.append(("leak per step", f"{self.leak:.1e}"))
        lines += [*self.notes, ("learned in", f"{self.seconds:.2f} s")]
        return "\n".join(f"{name:<21}{text}" for name, text in lines)


def _times(sizes: Sizes) -> str:
    return " x ".join(map(str, sizes))
