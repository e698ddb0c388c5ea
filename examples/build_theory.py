"""Write docs/theory.md: the text of examples/theory/theory.md with its formulas as MathML.

`$...$` is a formula in a line, a paragraph between `$$` one of its own. Browsers set MathML
themselves, so that the page needs no script, no font and no network.

    python examples/build_theory.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, PAGE = ROOT / "examples" / "theory" / "theory.md", ROOT / "docs" / "theory.md"
_FORMULA = re.compile(r"(?s)\$\$(?P<own>.+?)\$\$|\$(?P<line>[^$\n]+?)\$")


def mathml(formula: str, own: bool) -> str:
    """A formula of LaTeX as MathML."""
    from latex2mathml.converter import convert

    text = " ".join(formula.split())
    set_formula = convert(text, display="block" if own else "inline")
    # Markdown must not read anything inside of the element as its own.
    safe = set_formula.replace("_", "&#95;").replace("*", "&#42;").replace("\n", "")
    # A line that starts with <math> would be a block of HTML to Markdown; <span> never is.
    return f'<div class="formula">{safe}</div>' if own else f"<span>{safe}</span>"


def built(source: str) -> str:
    """The page."""
    return _FORMULA.sub(
        lambda found: mathml(found["own"] or found["line"], found["own"] is not None), source
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(built(SOURCE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
