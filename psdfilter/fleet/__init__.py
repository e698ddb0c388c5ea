"""Many series: from one machine to a cluster."""

from ._run import run_fleet

__all__ = ["run_fleet"]
