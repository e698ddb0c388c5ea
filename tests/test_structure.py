"""The house: imports point downwards, and no late import hides a way up."""

import ast
from pathlib import Path

import psdfilter

ROOT = Path(psdfilter.__file__).parent

# From the ground up; a room imports from itself and from those before it.
ROOMS = [
    "_results", "_settings", "_checks", "_modules", "_frames", "_gaussian", "_density", "densities",
    "_learning", "fitting", "_statespace", "systems", "_inference", "engines", "_parameters",
    "parameters", "_models", "models", "plot", "io", "fleet", "report", "cli",
]  # fmt: skip
# Within `_inference`: what engines are made of, the engines, what knows them all, the drivers.
FLOORS = [
    [
        "ability",
        "report",
        "trace",
        "laws",
        "series",
        "lengths",
        "times",
        "notices",
        "buckets",
        "numerics",
    ],
    ["model", "result"],
    ["engine", "sizing"],
    ["nodes", "gaussian", "certificate"],
    [
        "adaptive",
        "closed",
        "exact",
        "mixture",
        "free",
        "given",
        "transformed",
        "lattice",
        "branches",
    ],
    ["registry"],
    ["observations"],
    ["batch", "posterior", "learn"],
    ["many"],
    ["run", "online"],
    ["smooth", "forecast", "online_filter"],
]


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield path, path.relative_to(ROOT).with_suffix("").parts


def imported(path, parts):
    """Absolute names of everything a module imports from the package, wherever the import is."""
    package, tree = parts[:-1], ast.parse(path.read_text())
    # Names for type checkers only are no imports.
    for node in [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n)]:
        tree.body.remove(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            base = package[: len(package) - node.level + 1]
            target = (*base, *(node.module.split(".") if node.module else ()))
            if node.module is None:
                yield from ((*base, alias.name) for alias in node.names)
            else:
                yield target
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("psdfilter"):
            yield tuple(node.module.split(".")[1:])


def test_rooms_import_from_the_rooms_below_them():
    wrong = []
    for path, parts in modules():
        if parts[0] == "__init__":
            continue
        for target in imported(path, parts):
            if target and target[0] in ROOMS and ROOMS.index(target[0]) > ROOMS.index(parts[0]):
                wrong.append((".".join(parts), ".".join(target)))
    assert not wrong


def floor_of(parts):
    return next(i for i, names in enumerate(FLOORS) if parts[1] in names)


def test_inside_of_inference_too():
    wrong = []
    for path, parts in modules():
        if parts[0] != "_inference" or parts[-1] == "__init__":
            continue
        for target in imported(path, parts):
            if target[0] != "_inference" or len(target) < 2 or target[1] == parts[1]:
                continue
            if floor_of(target) > floor_of(parts):
                wrong.append((".".join(parts), ".".join(target)))
    assert not wrong


def test_modules_have_no_cycles():
    names = {parts: path for path, parts in modules()}
    graph = {
        parts: {t for t in imported(path, parts) if t in names and t != parts}
        for parts, path in names.items()
    }
    done: set = set()

    def visit(node, trail):
        assert node not in trail, " -> ".join(".".join(p) for p in (*trail, node))
        if node in done:
            return
        for target in graph[node]:
            visit(target, (*trail, node))
        done.add(node)

    for node in graph:
        visit(node, ())


def test_no_relative_import_is_late():
    late = []
    for path, parts in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                late += [
                    ".".join(parts)
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.ImportFrom) and inner.level > 0
                ]
    assert not late


def test_drivers_name_no_engine():
    for name in ("learn", "run", "smooth", "forecast", "online", "posterior", "result"):
        path = ROOT / "_inference" / f"{name}.py"
        targets = {t[1] for t in imported(path, ("_inference", name)) if t[0] == "_inference"}
        assert not targets & {"nodes", "closed", "exact", "mixture", "free", "gaussian"}


def test_files_and_functions_stay_small():
    large = []
    for path, parts in modules():
        text = path.read_text()
        if text.count("\n") > 400:
            large.append(".".join(parts))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 80:
                large.append(f"{'.'.join(parts)}.{node.name}")
    assert not large
