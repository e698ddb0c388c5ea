"""What `learn` found out, in a form that prints well."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LearnReport:
    """Sizes and measured errors of a learned model.

    Attributes:
        tol: the tolerance asked for.
        nodes: quadrature nodes on each axis.
        anchors: for each factor of Q, anchors on the axes of u, then of x.
        observation_anchors: anchors of sqrt G(., y) on each axis.
        one_step_error: largest int |Q - Q^|(u, x) dx over typical states u.
        coefficient_norm: largest |a|_1 of the factors; digits lost in expanded forms.
        leak: share of mass that leaves the box in a step, from typical states.
        seconds: time of `learn`.
        time_varying: whether Q is filled anew at every step.
        joint_anchors: anchors on each axis of y, if G was learned jointly over (x, y).
    """

    tol: float
    nodes: tuple[int, ...]
    anchors: tuple[tuple[int, ...], ...]
    observation_anchors: tuple[int, ...]
    one_step_error: float
    coefficient_norm: float
    leak: float
    seconds: float
    time_varying: bool
    joint_anchors: tuple[int, ...] | None = None

    def __str__(self) -> str:
        def times(sizes: tuple[int, ...]) -> str:
            return " x ".join(map(str, sizes))

        anchors = "; ".join(times(a) for a in self.anchors)
        seen = "fitted for each observation"
        if self.joint_anchors is not None:
            seen = f"with {times(self.joint_anchors)} in y, learned jointly"
        lines = [
            f"engine               nodes, on {times(self.nodes)} Gauss-Legendre nodes",
            f"tolerance            {self.tol:.1e} (total variation of the filter)",
            f"anchors of Q         {anchors}"
            + ("  (filled at every step)" if self.time_varying else ""),
            f"anchors of sqrt G    {times(self.observation_anchors)}, {seen}",
            f"one-step error of Q  {self.one_step_error:.1e} (largest over typical states)",
            f"|a|_1                {self.coefficient_norm:.1e}",
            f"leak per step        {self.leak:.1e}",
            f"learned in           {self.seconds:.2f} s",
        ]
        return "\n".join(lines)
