"""Settings of JAX that programs choose in their first lines; nothing here happens by itself."""

import os
from pathlib import Path


def enable_x64() -> None:
    """Let JAX compute in float64, as psdfilter needs it: `psd.enable_x64()` before any array.

    The same as `jax.config.update("jax_enable_x64", True)`. Importing psdfilter changes nothing.
    """
    import jax

    jax.config.update("jax_enable_x64", True)


def enable_cache(path: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs on disk, so that the next process need not compile them again.

    This is JAX's persistent compilation cache with all programs let in, also quick ones.

    Args:
        path: a directory, made if it is not there; by default `psdfilter` in the user's cache
            directory, or what the environment variable JAX_COMPILATION_CACHE_DIR says.

    Returns:
        The directory.
    """
    import jax

    place = Path(path) if path is not None else default_cache()
    place.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return place


def default_cache() -> Path:
    """Where compiled programs go unless somebody says otherwise."""
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if given:
        return Path(given)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "psdfilter"
