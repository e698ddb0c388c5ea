"""How a command ends when something is wrong."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._frames.errors import DataError

# Beside 0, and Typer's 2 for a command line that makes no sense.
BAD_DATA, BAD_MODEL, FAILED, INTERRUPTED = 3, 4, 5, 130


# Starts of messages of the library that are about the data, and what to do on a command line.
_ABOUT_DATA = {
    "ys must have": "--column says which they are",
    "inputs must be given": "name their columns by --inputs",
    "inputs must be None": "leave out --inputs",
}


class ModelError(ValueError):
    """A model that cannot be found, made or learned."""


@contextmanager
def exits(model: str = "", data: str = "") -> Iterator[None]:
    """Errors as a line on the standard error and an exit code.

    An error from inside of the user's file is one of the `model`, with its line; one whose message
    is about the shape of the series is one of the `data`. What is neither
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
    except (Exception, SystemExit) as error:
        place = place_in(error, model.rpartition(":")[0])
        if place is not None:
            _leave(f"{place}: {told(error)}", BAD_MODEL)
        remedy = next((r for start, r in _ABOUT_DATA.items() if str(error).startswith(start)), None)
        if isinstance(error, ValueError) and remedy is not None:
            _leave(f"{data}: {error} ({remedy})", BAD_DATA)
        if isinstance(error, ValueError | ImportError | OSError):
            _leave(str(error), FAILED)
        raise


def told(error: BaseException) -> str:
    """What was raised, in a line."""
    ends = ": a model must not end the program" if isinstance(error, SystemExit) else ""
    return f"{type(error).__name__}: {error}{ends}"


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
