"""Many series: from one machine to a cluster."""

from ._online import OnlineFleet
from ._run import run_fleet

__all__ = ["OnlineFleet", "run_fleet"]
