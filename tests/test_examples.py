"""Examples run, and leave their pictures."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "demo",
        "filter",
        pytest.param("algorithms", marks=pytest.mark.slow),
        pytest.param("tracking", marks=pytest.mark.slow),
    ],
)
def test_an_example_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "output").glob("*.png"))
