"""Reports: one HTML file that shows a filter, its forecast and its checks in any browser."""

from ._page import render
from ._write import write

__all__ = ["render", "write"]
