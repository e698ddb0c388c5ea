"""Many series: from one machine to a cluster."""

from ._online import OnlineFleet
from ._run import run_fleet
from ._sweep import run_sweep

__all__ = ["OnlineFleet", "run_fleet", "run_sweep"]
