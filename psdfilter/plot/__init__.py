"""Pictures of what the other rooms compute; needs Matplotlib (`psdfilter[plot]`)."""

from ._checks import checks as checks
from ._profile import profile as profile
from ._states import states as states
