"""Run the programs of the gallery and write their pages: text, code, what it printed, pictures.

A program is a module docstring (a title and an introduction in Markdown) and cells. A cell starts
with `# %%`; comment lines right after that are Markdown, the rest is code. What a cell prints, and
the figures that it leaves open, stand below it.

    python examples/build_gallery.py [NAME ...]     all programs, or some of them
"""

import ast
import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent / "gallery"
DOCS = Path(__file__).parents[1] / "docs"


class Cell(NamedTuple):
    """Some text, and code whose first line is at `line` of its file."""

    text: str
    code: str
    line: int


class Ran(NamedTuple):
    """A cell, what it printed, and the files of its pictures."""

    cell: Cell
    printed: str
    pictures: list[str]


def names() -> list[str]:
    """All programs, in alphabetical order."""
    return sorted(path.stem for path in HERE.glob("*.py"))


def cells_of(source: str) -> tuple[str, list[Cell]]:
    """The docstring, and the cells."""
    introduction = ast.get_docstring(ast.parse(source)) or ""
    lines = source.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    cells = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        body = start + 1
        while body < end and lines[body].startswith("#"):
            body += 1
        text = "\n".join(line[2:] for line in lines[start + 1 : body])
        cells.append(Cell(text, "\n".join(lines[body:end]).strip("\n"), body + 1))
    return introduction, cells


def run(name: str, pictures: Path) -> tuple[str, list[Ran]]:
    """Run a program cell by cell; figures are written to the folder `pictures`."""
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")
    path = HERE / f"{name}.py"
    introduction, cells = cells_of(path.read_text("utf-8"))
    scope: dict[str, object] = {"__name__": "__main__"}
    ran = []
    for cell in cells:
        printed, files = io.StringIO(), []
        # Line numbers of errors are those of the file.
        code = compile("\n" * (cell.line - 1) + cell.code, str(path), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
        for number in plt.get_fignums():
            file = f"{name}_{sum(len(r.pictures) for r in ran) + len(files) + 1}.png"
            plt.figure(number).savefig(pictures / file, dpi=110)
            files.append(file)
        plt.close("all")
        ran.append(Ran(cell, printed.getvalue().rstrip(), files))
    return introduction, ran


def page(name: str, introduction: str, ran: list[Ran]) -> str:
    """The page in Markdown."""
    parts = [introduction]
    title = introduction.splitlines()[0].lstrip("# ")
    for cell, printed, pictures in ran:
        parts += [cell.text] if cell.text else []
        parts += [f"```python\n{cell.code}\n```"] if cell.code else []
        parts += [f"```text\n{printed}\n```"] if printed else []
        parts += [f"![{title}](../assets/gallery/{file}){{ .figure }}" for file in pictures]
    parts.append(f"*The program: `examples/gallery/{name}.py`.*")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write pages and pictures."""
    (DOCS / "gallery").mkdir(exist_ok=True)
    pictures = DOCS / "assets" / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or names():
        text = page(name, *run(name, pictures))
        (DOCS / "gallery" / f"{name}.md").write_text(text, "utf-8")
        print(f"docs/gallery/{name}.md")


if __name__ == "__main__":
    main()
