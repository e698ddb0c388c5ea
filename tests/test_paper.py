"""The page on the paper: every test and every name on it exists, every snippet runs and asserts."""

import ast
import re
from functools import cache
from pathlib import Path

import jax
import pytest

import psdfilter as psd

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text("utf-8")
PREAMBLE, *SECTIONS = re.split(r"^### ", PAGE, flags=re.M)
STATEMENTS = {text.split("\n", 1)[0]: text for text in SECTIONS}
ROWS = {name: text for name, text in STATEMENTS.items() if not name.startswith("Slips")}
# How many of each kind the paper has; its remarks in the text count as well.
KINDS = {
    "Definition": 12,
    "Example": 5,
    "Proposition": 20,
    "Corollary": 1,
    "Assumption": 2,
    "Algorithm": 2,
    "Theorem": 3,
    "Lemma": 2,
    "Remark": 10,
    "Erratum": 28,
    "Deviation": 6,
}


def snippets(text):
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.S | re.M))


def listed(text, label):
    lines = [line for line in text.splitlines() if line.startswith(f"- {label}:")]
    return re.findall(r"`([^`]+)`", "\n".join(lines))


@cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_nothing_of_the_paper_is_left_out():
    assert len(STATEMENTS) == len(SECTIONS)  # no two of one name
    for kind, number in KINDS.items():
        assert sum(name.startswith(kind) for name in ROWS) >= number, kind


@pytest.mark.parametrize("name", [n for n in ROWS if not n.startswith(("Erratum", "Deviation"))])
def test_a_statement_names_code_and_tests_that_exist(name):
    names, tests = listed(ROWS[name], "Code"), listed(ROWS[name], "Test")
    assert names
    assert tests
    for dotted in names:
        assert dotted.startswith("psd.")
        thing, fields = psd, set()
        for part in dotted.split(".")[1:]:
            # Fields of a dataclass have no value in the class.
            fields = getattr(thing, "__dataclass_fields__", {})
            thing = None if part in fields else getattr(thing, part)
    for test in tests:
        path, function = test.split("::")
        assert function in functions_of(path), test


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_a_snippet_runs_and_asserts(name):
    code = snippets(ROWS[name])
    assert re.search(r"^\s*(assert |close\()", code, re.M), "nothing is asserted"
    space = {}
    # As a user has them: only these tests forbid promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(snippets(PREAMBLE), space)
        exec(code, space)
