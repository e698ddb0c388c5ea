"""One .npz file for each object: `header.json` and the arrays, no pickle.

The header says {"format": "psdfilter", "version": 2, "kind": ..., "arrays": n, "tree": ...}. Files
can be looked into with `numpy.load` and any zip tool.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from .._checks import require_x64
from .._inference.model import AbstractModel
from .._inference.transformed.model import TransformedModel
from .._statespace.model import StateSpaceModel
from ._format import check_model, decode, described_in, encode
from ._schemas import KINDS, SCHEMAS, Parts, schema_of

# Of the container; what is in it has versions of its own (`SCHEMAS`).
_VERSION = 2
_HEADER = "header.json"
# What reading raises where entries are missing, of other kinds, or too deep. RuntimeError is that
# of members that are encrypted or packed in an unknown way, and of too deep a recursion.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, TypeError, AttributeError, RuntimeError,
)  # fmt: skip


def save(path: str | os.PathLike[str], obj: object) -> None:
    """Write a density, a box, a learned model or the state of an online filter to a file.

    The file appears whole or not at all, and replaces an older one in one step. Functions are not
    saved: `load` takes those of a learned model through its argument `ssm`, and compares their
    values at a few points with those in the file.

    Args:
        path: where to; taken as it is, no suffix is added.
        obj: a density (GaussianPSD, GeneralizedGaussianPSD, PairwiseGaussianPSD, GaussianBlocks), a
            Box or TensorGrid, whatever `learn` returns, or the state of an online filter.
    """
    schema = schema_of(obj)
    if schema is None or schema.kind not in KINDS:
        raise ValueError(_refusal(obj))
    kind = schema.kind
    arrays: list[np.ndarray] = []
    tree = encode(obj, arrays, kind)
    header = {
        "format": "psdfilter",
        "version": _VERSION,
        "kind": kind,
        "arrays": len(arrays),
        "tree": tree,
    }
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"path must name a file, got the folder {str(target)!r}")
    partial = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with partial.open("xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_HEADER, json.dumps(header, allow_nan=False))
                for index, values in enumerate(arrays):
                    with archive.open(f"{_member(index)}", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, values, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], ssm: StateSpaceModel | None = None) -> Any:
    """Read what `save` wrote.

    Args:
        path: the file.
        ssm: the state-space model, for a learned model, which still needs its functions.
    """
    require_x64()
    target = Path(path)
    with _damage_of(target):
        with zipfile.ZipFile(target) as archive:
            header = _read_header(archive, target)
            arrays = [_read_array(archive, index) for index in range(header["arrays"])]
        described = described_in(header["tree"])
    # Outside of both: what functions of the user raise is no damage of the file.
    for each in described:
        check_model(ssm, each)
    with _damage_of(target):
        return decode(header["tree"], arrays, ssm)


def _refusal(obj: object) -> str:
    """Why an object cannot be saved, and what can."""
    if not isinstance(obj, AbstractModel):
        names = ", ".join(SCHEMAS[kind].place[1] for kind in KINDS)
        return f"obj must be one of {names}, got {type(obj).__name__}"
    classes = [SCHEMAS[kind].cls() for kind in KINDS]
    engines = sorted({c.engine for c in classes if issubclass(c, AbstractModel)})
    what = f'obj is a learned model of engine "{obj.engine}"'
    if isinstance(obj, TransformedModel):
        what += " whose state-space model has a support, or takes dt, last_y or u"
    return (
        f"{what}, which files cannot hold: learn it again where it is needed. Models of engines "
        f"{', '.join(engines)} can be saved, without support, dt, last_y and u"
    )


@contextmanager
def _damage_of(target: Path) -> Iterator[None]:
    """Whatever Python says of a file that is not as it was written, with the name of the file."""
    try:
        yield
    except _DAMAGE as error:
        raise ValueError(
            f"{target} is not a whole psdfilter file: it is damaged, truncated, altered, or "
            f"something else ({type(error).__name__}: {error}); save it anew"
        ) from error


def _member(index: int) -> str:
    return f"array_{index}.npy"


def _read_header(archive: zipfile.ZipFile, target: Path) -> Parts:
    if _HEADER not in archive.namelist():
        raise ValueError(f"{target} is no psdfilter file: it has no {_HEADER}")
    try:
        header = json.loads(archive.read(_HEADER))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{target} has a header that is not JSON ({error})") from error
    if not isinstance(header, dict) or header.get("format") != "psdfilter":
        raise ValueError(f"{target} is no psdfilter file")
    if header.get("version") != _VERSION:
        raise ValueError(
            f"{target} has format version {header.get('version')}; this version of psdfilter reads "
            f"{_VERSION}"
        )
    if header.get("kind") not in KINDS:
        raise ValueError(
            f"{target} holds a {header.get('kind')!r}; this version of psdfilter reads "
            f"{', '.join(KINDS)}"
        )
    return header


def _read_array(archive: zipfile.ZipFile, index: int) -> np.ndarray:
    with archive.open(_member(index)) as member:
        try:
            values = np.lib.format.read_array(member, allow_pickle=False)
        except ValueError as error:
            raise zipfile.BadZipFile(f"{_member(index)}: {error}") from error
        # Reading to the end is what makes zipfile compare the checksum.
        if member.read(1):
            raise zipfile.BadZipFile(f"{_member(index)} has bytes after its array")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the file's array {index} has dtype {values.dtype}")
    return values
