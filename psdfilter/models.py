"""Ready-made families: `psd.models.StochasticVolatility(leverage=True).fit(y)`."""

from ._models.epidemic import SIR
from ._models.family import AbstractFamily, Fitted
from ._models.levels import LocalLevel, OrnsteinUhlenbeck
from ._models.population import PopulationGrowth
from ._models.risk import Backtest, backtest, value_at_risk
from ._models.robot import PlanarRobot
from ._models.tracking import ConstantVelocity, CoordinatedTurn
from ._models.volatility import StochasticVolatility

__all__ = [
    "SIR",
    "AbstractFamily",
    "Backtest",
    "ConstantVelocity",
    "CoordinatedTurn",
    "Fitted",
    "LocalLevel",
    "OrnsteinUhlenbeck",
    "PlanarRobot",
    "PopulationGrowth",
    "StochasticVolatility",
    "backtest",
    "value_at_risk",
]
