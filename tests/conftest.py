"""Settings of all tests: float64, no silent broadcasting, shape checks on private kernels."""

import os
from pathlib import Path

import jax
import psutil
import pytest
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

# Two thirds of the time of the fast tests is compilation: thousands of programs that run once. They
# are compiled in a hurry, without optimisation and fused multiply-adds, in half the time; the slow
# tests are compiled as a user's programs are. XLA reads the variable when the first array is made.
# One that is set already stays: `XLA_FLAGS= make test` compiles the fast tests as a user would.
QUICK_COMPILATION = (
    "--xla_cpu_use_fusion_emitters=false"
    " --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
)


# Workers, and the programs that tests start, compile the same functions over and over: a third of
# all time. They share what is compiled, and the next run finds it in pytest's own cache.
SHARED_PROGRAMS = {
    "jax_compilation_cache_dir": "JAX_COMPILATION_CACHE_DIR",
    "jax_persistent_cache_min_compile_time_secs": "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "jax_persistent_cache_min_entry_size_bytes": "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
}


def pytest_configure(config):
    if "not slow" in config.option.markexpr:
        os.environ.setdefault("XLA_FLAGS", QUICK_COMPILATION)
    cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and cache is not None:
        values = str(cache.mkdir("jax")), 0.0, -1
        for (setting, variable), value in zip(SHARED_PROGRAMS.items(), values, strict=True):
            jax.config.update(setting, value)
            os.environ[variable] = str(value)


# Compiled programs pile up, by more than 10 GB an hour, each with mappings of its own, of which a
# process may have 65 530 on Linux: a worker then dies without a word. They are let go in between.
MOST_MEMORY, MOST_MAPPINGS = 5 * 2**30, 40_000
# Memory that was let go does not always come back to the system: the next limit is this far above.
ROOM = 2**30


def _num_mappings():
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:  # another system
        return 0


def _memory():
    return psutil.Process().memory_info().rss


class _Limit:
    memory = MOST_MEMORY


@pytest.fixture(autouse=True)
def _bounded_memory():
    yield
    if _memory() > _Limit.memory or _num_mappings() > MOST_MAPPINGS:
        jax.clear_caches()
        _Limit.memory = max(MOST_MEMORY, _memory() + ROOM)
