"""The Python in the pages of the documentation runs as it stands."""

import re
import sys
import warnings
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "docs/guides/densities.md",
    "docs/guides/filtering.md",
    "docs/guides/distributions.md",
    "docs/guides/times.md",
    "docs/guides/memory.md",
    "docs/guides/families.md",
    "docs/guides/recipes.md",
    "docs/guides/from_trajectories.md",
    "docs/guides/tracking.md",
    "docs/guides/regimes.md",
    "docs/guides/angles.md",
    "docs/guides/parameters.md",
    "docs/guides/scaling.md",
    *(f"docs/reference/{page.name}" for page in sorted((ROOT / "docs/reference").glob("*.md"))),
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
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
