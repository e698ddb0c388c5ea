"""Every public name has a place in the reference."""

import ast
import importlib
import inspect
import re
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


def test_every_name_of_the_reference_has_an_example():
    """In the code of its page, which `test_snippets.py` runs; or in words that point to one."""
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text("utf-8")
        names = [line.rsplit(".", 1)[1] for line in text.splitlines() if line.startswith("::: ")]
        rest = "\n".join(line for line in text.splitlines() if not line.startswith("::: "))
        assert [name for name in names if not re.search(rf"\b{name}\b", rest)] == [], page.name


@pytest.fixture(scope="module")
def package():
    """The package as the reference sees it."""
    griffe = pytest.importorskip("griffe")
    extension = griffe.load_extensions(str(ROOT.parent / "examples" / "griffe_modules.py"))
    options = {"search_paths": [str(ROOT.parent)], "allow_inspection": False}
    return griffe.load("psdfilter", extensions=extension, **options)


def classes_and_functions(package):
    """Name, what Python has, and what the reference has."""
    for name in sorted(documented()):
        room, _, last = name.rpartition(".")
        real = getattr(importlib.import_module(room), last)
        shown = package[name.removeprefix("psdfilter.")]
        yield name, real, shown.final_target if shown.is_alias else shown


def spoken_of(shown):
    """Names in the docstrings of a class and its parents."""
    names = set()
    for each in (shown, *shown.mro()):
        sections = () if each.docstring is None else each.docstring.parse("google", warnings=False)
        kinds = [s for s in sections if s.kind.value in ("attributes", "parameters")]
        names |= {item.name for section in kinds for item in section.value}
    return names


@pytest.mark.long
def test_the_reference_has_every_public_attribute(package):
    missing = []
    for name, real, shown in classes_and_functions(package):
        if not inspect.isclass(real):
            continue
        ours = [kind for kind in real.__mro__ if kind.__module__.startswith("psdfilter")]
        wanted = {a for kind in ours for a in (*vars(kind), *getattr(kind, "__annotations__", ()))}
        found = {k for k, member in shown.all_members.items() if member.has_docstring}
        found |= spoken_of(shown) | {p.name for p in shown.parameters}
        missing += [f"{name}.{a}" for a in sorted(wanted - found) if not a.startswith("_")]
    assert missing == []


@pytest.mark.long
def test_signatures_are_those_of_python_and_have_types(package):
    for name, real, shown in classes_and_functions(package):
        if inspect.isabstract(real) or (issubclass(type(real), type) and issubclass(real, Warning)):
            continue
        wanted = [p for p in inspect.signature(real).parameters if p != "self"]
        found = [p for p in shown.parameters if p.name != "self"]
        assert [p.name for p in found] == wanted, name
        assert all(p.annotation is not None for p in found), name


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
