"""What goes to the workers of a cluster: values as bytes."""

import pickle
from hashlib import sha256
from typing import Any, NamedTuple


class Bundle(NamedTuple):
    """Anything as bytes: arrays in float64 survive only where JAX is told so before they appear."""

    payload: bytes
    digest: str

    @staticmethod
    def of(value: Any) -> "Bundle":
        """Packed; functions of a user's script go by value."""
        import cloudpickle

        payload = cloudpickle.dumps(value)
        return Bundle(payload, sha256(payload).hexdigest())


_OPENED: dict[str, Any] = {}


def opened(bundle: Bundle, most: int = 2) -> Any:
    """Unpacked, once for each process: compiled programs hang on the objects. `most` are kept."""
    import jax

    # A worker is a process of our own making, whose mode nobody else has set.
    jax.config.update("jax_enable_x64", True)
    if bundle.digest not in _OPENED:
        while len(_OPENED) >= most:
            _ = _OPENED.pop(next(iter(_OPENED)))
        _OPENED[bundle.digest] = pickle.loads(bundle.payload)
    return _OPENED[bundle.digest]
