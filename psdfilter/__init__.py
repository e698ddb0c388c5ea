"""Nonlinear Bayesian filtering in closed form, with Gaussian PSD models."""

import lazy_loader

from ._moved import MOVED

__version__ = "0.1.0.dev0"

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str):
    if name not in MOVED:
        return _lazy(name)
    import warnings
    from importlib import import_module

    place = f"psdfilter.{MOVED[name]}"
    warnings.warn(f"psdfilter.{name} is now {place}.{name}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(place), name)
