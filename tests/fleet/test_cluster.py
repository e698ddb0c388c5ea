"""Clusters on this machine: the same numbers, whoever dies on the way. Nothing leaves loopback."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import psdfilter as psd
from psdfilter.fleet import _run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the cluster's own threads, as they are shut down
]
distributed = pytest.importorskip("distributed")


def linear():
    return psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))


def series(num, seed=0, longest=40):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, num)
    return {f"s{i}": rng.normal(size=(n, 1)) for i, n in enumerate(lengths)}


@pytest.fixture
def client():
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    with cluster, distributed.Client(cluster) as made:
        yield made


def test_a_worker_that_is_killed_changes_nothing(client, tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_LEAST_BLOCK", 8)
    monkeypatch.setattr(_run, "_LEAST_BLOCKS", 40)
    model, ys = linear(), series(320)
    wanted = psd.run_fleet(model, ys)
    pids = list(client.run(os.getpid).values())
    path = tmp_path / "store.zarr"

    def kill():
        fingerprints = path / "fingerprint"
        for _ in range(600):
            if fingerprints.exists() and len(list(fingerprints.iterdir())) > 6:
                break
            time.sleep(0.05)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    data = psd.run_fleet(model, ys, client=client, out=path)
    killer.join()
    xarray.testing.assert_equal(data.load().drop_attrs(), wanted.drop_attrs())


def build(theta):
    return psd.linear_gaussian(theta["a"], 0.1, 1.0, jnp.exp(theta["r"]), 0.0, 1.0)


def test_a_pooled_fit_equals_that_of_one_process(client):
    ys = list(series(200, longest=12).values())
    here = psd.fit(build, {"a": 0.3, "r": -0.5}, ys, progress=False)
    there = psd.fit(build, {"a": 0.3, "r": -0.5}, ys, client=client, progress=False)
    assert np.abs(np.asarray(here.estimates - there.estimates)).max() < 1e-8
    assert np.abs(np.asarray(here.standard_errors - there.standard_errors)).max() < 1e-8
    assert abs(float(here.log_likelihood - there.log_likelihood)) < 1e-8


SCRIPT = """
import sys
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np
import psdfilter as psd
from psdfilter.fleet import _run
_run._LEAST_BLOCK, _run._LEAST_BLOCKS = 4, 60
rng = np.random.default_rng(0)
ys = {f"s{i}": rng.normal(size=(n, 1)) for i, n in enumerate(rng.integers(1, 40, 240))}
model = psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))
honest = _run.run_block
def slowly(*args):
    import time
    time.sleep(0.05)
    with open(sys.argv[2], "a") as log: log.write("block\\n")
    return honest(*args)
_run.run_block = slowly
psd.run_fleet(model, ys, out=sys.argv[1], resume=True)
"""


def test_a_run_that_is_killed_goes_on(tmp_path):
    script, store, log = tmp_path / "run.py", tmp_path / "store.zarr", tmp_path / "log"
    script.write_text(SCRIPT)
    root = Path(psd.__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(store), str(log)]
    rng = np.random.default_rng(0)
    for _ in range(2):
        process = subprocess.Popen(command, env=env)
        started = len(log.read_text().split()) if log.exists() else 0
        while process.poll() is None and (
            not log.exists() or len(log.read_text().split()) < started + rng.integers(6, 20)
        ):
            time.sleep(0.05)
        process.kill()
        process.wait()
    subprocess.run(command, env=env, check=True)
    calls = len(log.read_text().split())
    assert 60 <= calls <= 60 + 2 * 2  # two threads, killed twice
    ys = {f"s{i}": y for i, y in enumerate(_same_series())}
    wanted = psd.run_fleet(linear(), ys)
    data = xarray.open_zarr(store, chunks=None)
    for name in ("mean", "sd", "log_likelihood", "code"):
        assert np.array_equal(data[name].values, wanted[name].values, equal_nan=name != "code")
    assert not list(store.rglob("*.partial"))


def _same_series():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, 1)) for n in rng.integers(1, 40, 240)]


MODEL = """
import jax.numpy as jnp
import psdfilter as psd

def f(x):
    return 0.9 * x

ssm = psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0)
sine = psd.systems.sine_map()
"""


def test_the_command_on_a_cluster_started_by_hand(tmp_path):
    """A scheduler and two workers as in the guide, each a process of its own, on loopback."""
    import pandas

    (tmp_path / "model.py").write_text(MODEL)
    ys = series(40)
    rows = [(k, t + 1, y[0]) for k, v in ys.items() for t, y in enumerate(v)]
    pandas.DataFrame(rows, columns=["series", "time", "y"]).to_parquet(tmp_path / "data.parquet")
    root = Path(psd.__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    port = 20000 + os.getpid() % 20000
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    local = ["--host", "127.0.0.1"]
    board = ["--no-dashboard"]
    commands = [
        [*dask, "scheduler", *local, "--port", str(port), *board],
        *[[*dask, "worker", address, *local, "--nthreads", "1", *board]] * 2,
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(c, env=env, cwd=tmp_path, **quiet) for c in commands]
    try:
        fleet = [sys.executable, "-m", "psdfilter.cli.fleet", "model.py:ssm", "data.parquet"]
        options = ["--out", "store.zarr", "--scheduler", address, "--quiet", "--time", "time"]
        out = subprocess.run(
            [*fleet, *options], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200
        )
        assert out.returncode == 0, out.stderr
        assert "dashboard: http" in out.stdout
        assert "40 series" in out.stdout
        again = subprocess.run(
            [*fleet, *options, "--resume"], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        assert again.returncode == 0, again.stderr
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    wanted = psd.run_fleet(linear(), ys)
    data = xarray.open_zarr(tmp_path / "store.zarr", chunks=None).sel(series=wanted.series)
    for name in ("mean", "sd", "log_likelihood"):
        assert np.array_equal(data[name].values, wanted[name].values, equal_nan=True)


def test_a_command_line_that_is_wrong_says_so(tmp_path):
    (tmp_path / "d.csv").write_text("series,y\na,1\n")
    fleet = [sys.executable, "-m", "psdfilter.cli.fleet", "none.py:ssm", "d.csv", "-o", "s.zarr"]
    env = {**os.environ, "PYTHONPATH": str(Path(psd.__file__).parent.parent)}
    out = subprocess.run(fleet, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert out.returncode == 4
    assert "none.py: there is no such file" in out.stderr
