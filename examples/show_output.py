"""Run the code of pages of the documentation, and write what it prints under it.

Blocks of `python` and the `psdfilter` commands in blocks of `sh` run one after the other, in a
folder that holds the files of `examples/quickstart`. A block of `text` that follows one of them is
what it printed; figures that are open at the end of a page are its picture.

    python examples/show_output.py [PAGE ...]     all pages, or some of them
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/quickstart.md",
    "docs/guides/command_line.md",
    "docs/guides/data_frames.md",
    "docs/guides/coming_from.md",
    "docs/guides/howto.md",
    "docs/guides/sensors.md",
)
# Pages whose last figure is a picture of the documentation.
PICTURES = {"docs/index.md": "home.png", "docs/quickstart.md": "quickstart.png"}
_WIDTH = "88"
_BLOCK = re.compile(r"(?ms)^```(python|sh)\n(.*?)^```\n(\n```text\n.*?^```\n)?")
_SECONDS = re.compile(r"\d+\.\d+ s\b")


def without_times(text: str) -> str:
    """A page, with all times in seconds made equal: they differ from run to run."""
    return _SECONDS.sub("0.0 s", text)


def command(line: str) -> str:
    """What a psdfilter command prints; an error ends the program."""
    from typer.testing import CliRunner

    from psdfilter.cli.app import app

    runner = CliRunner(env={"COLUMNS": _WIDTH, "TERM": "dumb"})
    done = runner.invoke(app, shlex.split(line)[1:], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"{line}: exit code {done.exit_code}\n{done.output}")
    return done.stdout


def run_shell(code: str) -> str:
    """The psdfilter commands of a block; other lines are for readers."""
    joined = code.replace("\\\n", " ")
    return "".join(command(line) for line in joined.splitlines() if line.startswith("psdfilter "))


def run_python(code: str, names: dict[str, object]) -> str:
    """What a block prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


@contextlib.contextmanager
def workplace():
    """A folder with the files of the quickstart, for as long as a page runs."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples" / "quickstart", folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def rebuilt(page: str, picture: Path | None = None) -> str:
    """The text of a page with what its code prints now; its last figure goes to `picture`."""
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")
    plt.close("all")
    names: dict[str, object] = {}

    def run(found: re.Match[str]) -> str:
        kind, code, shown = found.groups()
        printed = run_python(code, names) if kind == "python" else run_shell(code)
        if shown is None:
            return found[0]
        lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
        return f"```{kind}\n{code}```\n\n```text\n{lines}\n```\n"

    with workplace():
        text = _BLOCK.sub(run, (ROOT / page).read_text("utf-8"))
    if picture is not None and plt.get_fignums():
        plt.savefig(picture, dpi=140)
    plt.close("all")
    return text


def main() -> None:
    """Write pages anew."""
    for page in sys.argv[1:] or PAGES:
        name = PICTURES.get(page)
        picture = None if name is None else ROOT / "docs" / "assets" / name
        text = rebuilt(page, picture)
        (ROOT / page).write_text(text, "utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
