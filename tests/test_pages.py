"""Pages of the documentation show what their code and their commands print."""

import importlib.util
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("show_output", ROOT / "examples/show_output.py")
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)

for package in ("matplotlib", "typer", "plotly", "pandas", "polars", "xarray"):
    pytest.importorskip(package)

QUICK = ("docs/quickstart.md", "docs/guides/data_frames.md", "docs/guides/sensors.md")


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [page if page in QUICK else pytest.param(page, marks=pytest.mark.slow) for page in pages.PAGES],
)
def test_a_page_shows_what_its_code_prints(page, tmp_path, monkeypatch):
    # The cache of programs is for processes, not for tests.
    monkeypatch.setattr("psdfilter._settings.enable_cache", lambda path=None: tmp_path)
    monkeypatch.setattr("psdfilter.cli._work.enable_cache", lambda: tmp_path)
    # As a user has them: only these tests forbid promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        now = pages.rebuilt(page, tmp_path / "picture.png")
    written = (ROOT / page).read_text("utf-8")
    assert pages.without_times(now) == pages.without_times(written)
    name = pages.PICTURES.get(page)
    if name is not None:
        assert (ROOT / "docs" / "assets" / name).exists()
        assert (tmp_path / "picture.png").stat().st_size > 5000
