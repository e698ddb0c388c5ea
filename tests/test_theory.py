"""The theory page is its source with formulas set, and every formula is well-formed MathML."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "theory.md").read_text("utf-8")
SPEC = importlib.util.spec_from_file_location("build_theory", ROOT / "examples/build_theory.py")
theory = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(theory)


def test_every_formula_is_mathml():
    formulas = re.findall(r"(?s)<math.*?</math>", PAGE)
    assert len(formulas) == len(theory._FORMULA.findall(theory.SOURCE.read_text("utf-8")))
    for formula in formulas:
        tree = ElementTree.fromstring(formula)
        assert tree.tag == "{http://www.w3.org/1998/Math/MathML}math"
        # What the converter does not know it leaves as a command of LaTeX.
        assert "\\" not in "".join(tree.itertext())
    assert "$" not in re.sub(r"(?s)<math.*?</math>", "", PAGE)


def test_the_page_is_that_of_its_source():
    pytest.importorskip("latex2mathml")
    assert theory.built(theory.SOURCE.read_text("utf-8")) == PAGE
