"""Nonlinear Bayesian filtering in closed form, with Gaussian PSD models."""

import lazy_loader

__version__ = "0.1.0.dev0"

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Their names used to be at the top level as well.
_ROOMS = ("densities", "fitting", "parameters")


def __getattr__(name: str):
    if name in __all__ or name.startswith("_"):
        return _lazy(name)
    import warnings
    from importlib import import_module

    for place in (f"{__name__}.{room}" for room in _ROOMS):
        room = import_module(place)
        if name in room.__all__:
            message = f"{__name__}.{name} is now {place}.{name}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(room, name)
    return _lazy(name)
