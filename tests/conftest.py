"""Settings of all tests: float64, no silent broadcasting, shape checks on private kernels."""

import jax
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Public functions take lists and raise errors of their own; the kernels below them see arrays of
# stated shapes only.
install_import_hook(
    [
        "psdfilter._gaussian",
        "psdfilter._density.pairs",
        "psdfilter._density.diagonal",
        "psdfilter._density.canonical",
    ],
    "beartype.beartype",
)

settings.register_profile(
    "psdfilter",
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("psdfilter")
