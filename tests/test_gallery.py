"""The programs of the gallery run, and their pages show what they print."""

import importlib.util
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("build_gallery", ROOT / "examples/build_gallery.py")
gallery = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gallery)

pytest.importorskip("matplotlib")

# Programs of more than a few seconds: compiled for many lengths, or fitted.
SLOW = {"diffusion", "fleet", "from_data", "heater", "mirror", "nile", "population", "robot"}
SLOW |= {"terrain", "volatility"}


def _program(name):
    return pytest.param(name, marks=pytest.mark.slow if name in SLOW else [])


@pytest.mark.long
@pytest.mark.parametrize("name", [_program(name) for name in gallery.names()])
def test_a_program_prints_what_its_page_says(name, tmp_path):
    # As a user has them: only these tests forbid promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        introduction, ran = gallery.run(name, tmp_path)
    written = (ROOT / "docs" / "gallery" / f"{name}.md").read_text("utf-8")
    assert gallery.page(name, introduction, ran) == written
    assert any(r.pictures for r in ran)
    for file in (file for r in ran for file in r.pictures):
        assert (ROOT / "docs" / "assets" / "gallery" / file).exists()
        assert (tmp_path / file).stat().st_size > 5000


def test_every_page_is_in_the_navigation():
    menu = (ROOT / "zensical.toml").read_text("utf-8")
    overview = (ROOT / "docs" / "gallery" / "index.md").read_text("utf-8")
    for name in gallery.names():
        assert f'"gallery/{name}.md"' in menu
        assert f"({name}.md)" in overview
        assert f"(../assets/gallery/{name}_1.png)" in overview  # a thumbnail


def test_cells_keep_their_lines():
    source = '"""# Title\n\nText."""\n\n# %%\n# Some *text*.\nx = 1\n\n# %%\ny = 2\n'
    introduction, cells = gallery.cells_of(source)
    assert introduction == "# Title\n\nText."
    assert [(c.text, c.code, c.line) for c in cells] == [
        ("Some *text*.", "x = 1", 7),
        ("", "y = 2", 10),
    ]
