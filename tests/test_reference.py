"""Every public name has a place in the reference."""

import ast
from pathlib import Path

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
    for room in sorted(rooms - {"systems", "plot"}):
        for node in ast.parse((ROOT / f"{room}.py").read_text()).body:
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
                yield from (f"psdfilter.{room}.{name}" for name in ast.literal_eval(node.value))


def test_every_public_name_has_a_reference_page():
    pages = documented()
    both = {name.rsplit(".", 1)[1] for name in pages}
    missing = [
        name for name in public() if name not in pages and name.rsplit(".", 1)[1] not in both
    ]
    assert not missing
    assert 50 <= len([name for name in public() if name.count(".") == 1]) <= 70
