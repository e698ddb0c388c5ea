"""What every smoother has from the filter before it."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float


class AbstractSmoothed(eqx.Module):
    """A smoother: it knows its filter, whose likelihood is its own."""

    filtered: eqx.AbstractVar[Any]

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """That of the filter."""
        return self.filtered.log_likelihood

    @property
    def log_likelihoods(self) -> Float[Array, " t"]:
        """Those of the filter."""
        return self.filtered.log_likelihoods
