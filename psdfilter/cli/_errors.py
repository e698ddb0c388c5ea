"""How a command ends when something is wrong."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._frames.errors import DataError

# Beside 0, and Typer's 2 for a command line that makes no sense.
BAD_DATA, BAD_MODEL, FAILED, INTERRUPTED = 3, 4, 5, 130


class ModelError(ValueError):
    """A model that cannot be found, made or learned."""


@contextmanager
def exits(model: str = "") -> Iterator[None]:
    """Errors as a line on the standard error and an exit code.

    An error from inside of the user's file is one of the `model`, with its line. What is neither
    that nor an error that the library knows is a bug of ours, and keeps its traceback.
    """
    try:
        yield
    except DataError as error:
        _leave(str(error), BAD_DATA)
    except ModelError as error:
        _leave(str(error), BAD_MODEL)
    except KeyboardInterrupt:
        _leave("interrupted; nothing was written", INTERRUPTED)
    except Exception as error:
        place = place_in(error, model.rpartition(":")[0])
        if place is not None:
            _leave(f"{place}: {type(error).__name__}: {error}", BAD_MODEL)
        if isinstance(error, ValueError | ImportError | OSError):
            _leave(str(error), FAILED)
        raise


def place_in(error: BaseException, path: str) -> str | None:
    """file:line of the last call in a file on the way to an error; None if there is none."""
    if not path.endswith(".py"):
        return None
    wanted = Path(path).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f.lineno for f in frames if f.filename and Path(f.filename).resolve() == wanted]
    return f"{path}:{inside[-1]}" if inside else None


def _leave(message: str, code: int) -> None:
    _ = sys.stderr.write(f"error: {message}\n")
    raise SystemExit(code) from None
