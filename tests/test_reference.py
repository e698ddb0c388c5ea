"""Every public name has a place in the reference."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import psdfilter

ROOT = Path(psdfilter.__file__).parent
PAGES = ROOT.parent / "docs" / "reference"


def documented():
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    return {line[4:].strip() for line in text.splitlines() if line.startswith("::: ")}


def public():
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    rooms = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            if node.module is None:
                rooms |= {alias.name for alias in node.names}
            else:
                yield from (f"psdfilter.{alias.name}" for alias in node.names)
    for node in ast.parse((ROOT / "plot" / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            yield from (f"psdfilter.plot.{alias.name}" for alias in node.names)
    for room in sorted(rooms - {"systems", "plot"}):
        file = ROOT / f"{room}.py"
        file = file if file.exists() else ROOT / room / "__init__.py"
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
                yield from (f"psdfilter.{room}.{name}" for name in ast.literal_eval(node.value))


def test_every_public_name_has_a_reference_page():
    pages = documented()
    both = {name.rsplit(".", 1)[1] for name in pages}
    missing = [
        name
        for name in public()
        if name not in pages and (".plot." in name or name.rsplit(".", 1)[1] not in both)
    ]
    assert not missing
    assert 50 <= len([name for name in public() if name.count(".") == 1]) <= 75


@pytest.mark.parametrize(
    ("name", "room"),
    [("digits", "densities"), ("padded_grid", "fitting"), ("Comparison", "parameters")],
)
def test_names_that_moved_are_found_with_a_warning(name, room):
    with pytest.warns(DeprecationWarning, match=f"is now psdfilter.{room}.{name}"):
        found = getattr(psdfilter, name)
    assert found is getattr(getattr(psdfilter, room), name)


def test_names_that_never_were_are_no_attributes():
    assert not hasattr(psdfilter, "no_such_name")
    assert not hasattr(psdfilter, "_no_such_name")


def test_importing_the_package_does_not_start_jax():
    code = "import sys, psdfilter; psdfilter.__version__; print('jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
