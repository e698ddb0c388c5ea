"""Pictures of what the other rooms compute; needs Matplotlib (`psdfilter[plot]`).

Functions of one panel take Matplotlib axes `ax` and return them; those of several panels take
`axes` and return all of them in an array. Times, units and dates are those of the results.
"""

from ._certificate import certificate as certificate
from ._certificate import errors as errors
from ._checks import checks as checks
from ._checks import pit as pit
from ._checks import residuals as residuals
from ._density import density as density
from ._forecast import forecast as forecast
from ._likelihood import log_likelihoods as log_likelihoods
from ._observations import observations as observations
from ._over_time import over_time as over_time
from ._profile import profile as profile
from ._regimes import regimes as regimes
from ._snapshots import snapshots as snapshots
from ._states import comparison as comparison
from ._states import states as states
from ._track import track as track
