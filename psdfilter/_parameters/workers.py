"""What goes to the workers of a cluster: values as bytes."""

import pickle
import sys
import warnings
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

# Modules that the command line makes of a user's files: workers cannot import them.
_USER_FILES = "psdfilter_model_"


@dataclass(frozen=True)
class Bundle:
    """Anything as bytes: arrays in float64 survive only where JAX is told so before they appear."""

    payload: bytes
    digest: str

    @staticmethod
    def of(value: object) -> "Bundle":
        """Packed; functions of a user's script go by value."""
        import cloudpickle

        for name, module in list(sys.modules.items()):
            if name.startswith(_USER_FILES):
                cloudpickle.register_pickle_by_value(module)
        payload = cloudpickle.dumps(value)
        return Bundle(payload, sha256(payload).hexdigest())


def hold(client: "Client", bundle: Bundle) -> "Future":
    """A future of a bundle: sent once, and made again by the scheduler if its worker dies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is large
        return client.submit(_itself, bundle, pure=False)


def _itself(bundle: Bundle) -> Bundle:
    return bundle


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
