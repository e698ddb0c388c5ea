"""Equinox modules that cost little to hold: the base of models, laws and results."""

from typing import TYPE_CHECKING

import equinox as eqx


class PlainModule(eqx.Module):
    """A module whose methods are bound as Python binds them.

    Equinox makes a pytree of a method whenever one is looked up, and walks through all leaves of
    the module for that: 50 µs for a learned model, as long as a few dozen steps of its filter, and
    several of them a call. Nothing here hands bound methods to JAX as arguments.
    """

    if not TYPE_CHECKING:
        __getattribute__ = object.__getattribute__
