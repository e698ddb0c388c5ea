"""Files: `save` and `load`, without pickle."""

from ._file import load, save

__all__ = ["load", "save"]
