"""The schedule of the learning theorem: from (epsilon, beta, d) to eta, lambda, M and n.

For sqrt(f) in W_2^beta on (-1, 1)^d with beta > d / 2,

    eta = eps^(-2/beta),                     lambda = eps^((2 beta + d)/beta),
    M  ~ eps^(-d/beta) log(1/eps)^d log(1/(delta eps)),   n ~ eps^(-d/beta) log(1/delta),

give |g - g_hat|_L2 <~ eps and |f - f_hat|_inf <~ eps^(1 - d/(2 beta)) with probability 1 - delta,
up to constants and an arbitrarily small loss in the exponent.
"""

from dataclasses import dataclass
from math import ceil, log


@dataclass(frozen=True)
class Schedule:
    """What the theorem asks for and promises; constants are taken to be one.

    Attributes:
        epsilon: L2 error of the root that is aimed at.
        smoothness: beta.
        dim: d, the number of inputs (2d for a transition).
        precision: eta on the unit box.
        ridge: lambda.
        num_anchors: M.
        num_points: n.
        sup_error: promised sup error of f, eps^(1 - d/(2 beta)).
        rate: exponent r of the sup error in the number of points, n^-r, r = beta/d - 1/2.
    """

    epsilon: float
    smoothness: float
    dim: int
    precision: float
    ridge: float
    num_anchors: int
    num_points: int
    sup_error: float
    rate: float

    def __str__(self) -> str:
        return (
            f"root in W_2^{self.smoothness:g}, {self.dim} inputs, epsilon {self.epsilon:g}: "
            f"eta {self.precision:.4g}, lambda {self.ridge:.3g}, M {self.num_anchors}, "
            f"n {self.num_points}; L2 error of the root ~ {self.epsilon:.3g}, sup error of f ~ "
            f"{self.sup_error:.3g}, falling as n^-{self.rate:.3g}"
        )


def learning_schedule(
    epsilon: float, smoothness: float, dim: int, *, failure: float = 0.05
) -> Schedule:
    """eta, lambda, M and n of the learning theorem, and the rates they promise.

    Args:
        epsilon: L2 error of the root, in (0, 1).
        smoothness: beta > d / 2, the order of the Sobolev space that holds sqrt(f).
        dim: number of inputs d.
        failure: delta, the probability that random points fail.
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie in (0, 1), got {epsilon!r}")
    if not (isinstance(dim, int) and dim >= 1):
        raise ValueError(f"dim must be a whole number >= 1, got {dim!r}")
    if not smoothness > dim / 2:
        raise ValueError(f"smoothness must exceed dim / 2 = {dim / 2:g}, got {smoothness!r}")
    if not 0 < failure < 1:
        raise ValueError(f"failure must lie in (0, 1), got {failure!r}")
    size = epsilon ** (-dim / smoothness)
    logs = log(1 / epsilon) ** dim * log(1 / (failure * epsilon))
    return Schedule(
        epsilon=epsilon,
        smoothness=smoothness,
        dim=dim,
        precision=epsilon ** (-2 / smoothness),
        ridge=epsilon ** ((2 * smoothness + dim) / smoothness),
        num_anchors=ceil(size * max(logs, 1.0)),
        num_points=ceil(size * max(log(1 / failure), 1.0)),
        sup_error=epsilon ** (1 - dim / (2 * smoothness)),
        rate=smoothness / dim - 0.5,
    )
