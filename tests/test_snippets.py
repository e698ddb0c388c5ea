"""The Python in the pages of the documentation runs as it stands."""

import re
import sys
import warnings
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
# How to say a model: pages of one screen.
MODELS = ["distributions", "times", "memory", "families", "regimes", "angles"]
PAGES = [
    "docs/guides/densities.md",
    "docs/guides/filtering.md",
    *(pytest.param(f"docs/guides/{name}.md", marks=pytest.mark.long) for name in MODELS),
    "docs/guides/recipes.md",
    "docs/guides/from_trajectories.md",
    "docs/guides/tracking.md",
    "docs/guides/parameters.md",
    "docs/guides/scaling.md",
    *(f"docs/reference/{page.name}" for page in sorted((ROOT / "docs/reference").glob("*.md"))),
]


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow) if isinstance(p, str) else p for p in PAGES],
)
def test_snippets_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The cache of programs is for processes, not for tests.
    monkeypatch.setattr("psdfilter._settings.enable_cache", lambda path=None: tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.S | re.M)
    assert blocks
    # As a user has them: only these tests forbid promotion.
    promotion = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with promotion[0], promotion[1], warnings.catch_warnings():
        exec("\n".join(blocks), {})
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize(
    ("title", "most"),
    [
        ("Counts with gaps", 20),
        ("Volatility: which model", 15),
        ("A track", 20),
        ("A robot", 25),
        ("Volatility with two regimes", 15),
    ],
)
def test_whole_scripts_are_short(title, most):
    """Statements and what belongs to them; blank lines are left out, and so are imports."""
    text = (ROOT / "docs/guides/recipes.md").read_text("utf-8")
    (section,) = [part for part in text.split("\n## ") if part.startswith(title)]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.S | re.M)
    assert len([line for line in code.splitlines() if line.strip()]) <= most
