"""Ready-made families: `psd.models.StochasticVolatility(leverage=True).fit(y)`."""

from ._models.family import AbstractFamily, Fitted
from ._models.levels import LocalLevel, OrnsteinUhlenbeck
from ._models.population import PopulationGrowth
from ._models.volatility import StochasticVolatility, value_at_risk

__all__ = [
    "AbstractFamily",
    "Fitted",
    "LocalLevel",
    "OrnsteinUhlenbeck",
    "PopulationGrowth",
    "StochasticVolatility",
    "value_at_risk",
]
