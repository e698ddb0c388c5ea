"""Benchmarks compute in float64 like everything else; no shape checks, which would cost time."""

import jax

jax.config.update("jax_enable_x64", True)
