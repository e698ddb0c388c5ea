"""What estimation of parameters returns beside `Fit` and `Likelihood`."""

from ._inference.model import PlanCheck
from ._parameters.comparison import ChiSquaredTest, Comparison
from ._parameters.profile import Profile
from ._parameters.sampling import LogPosterior

__all__ = ["ChiSquaredTest", "Comparison", "LogPosterior", "PlanCheck", "Profile"]
