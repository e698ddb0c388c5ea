"""How a command ends when something is wrong."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .._frames.errors import DataError

# Beside 0, and Typer's 2 for a command line that makes no sense.
BAD_DATA, BAD_MODEL, FAILED, INTERRUPTED = 3, 4, 5, 130


class ModelError(ValueError):
    """A model that cannot be found, made or learned."""


@contextmanager
def exits() -> Iterator[None]:
    """Errors as a line on the standard error and an exit code."""
    try:
        yield
    except DataError as error:
        _leave(str(error), BAD_DATA)
    except ModelError as error:
        _leave(str(error), BAD_MODEL)
    except (ValueError, ImportError, OSError) as error:
        _leave(str(error), FAILED)
    except KeyboardInterrupt:
        _leave("interrupted; nothing was written", INTERRUPTED)


def _leave(message: str, code: int) -> None:
    _ = sys.stderr.write(f"error: {message}\n")
    raise SystemExit(code) from None
