"""Live feeds: the numbers of single online filters, and restarts to the last bit."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import psdfilter as psd
from psdfilter.systems import sine_map


def linear():
    return psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))


def feed(ticks, num, seed=0):
    rng = np.random.default_rng(seed)
    ys = rng.normal(size=(ticks, num, 1))
    ys[rng.random((ticks, num)) < 0.3] = np.nan
    return ys


@pytest.mark.long
def test_equals_a_filter_for_each_series():
    model, ys = linear(), feed(6, 3)
    fleet = psd.OnlineFleet(model, ["a", "b", "c"])
    for tick in ys:
        fleet.step({k: y for k, y in zip("abc", tick, strict=True) if not np.isnan(y[0])})
    assert fleet.time == 6
    for i in range(3):
        post = psd.run_filter(model, ys[:, i])
        assert np.abs(np.asarray(fleet.mean[i] - post.mean[-1])).max() < 1e-12
        assert np.abs(np.asarray(fleet.covariance[i] - post.covariance[-1])).max() < 1e-12
        assert abs(float(fleet.log_likelihood[i] - post.log_likelihood)) < 1e-12
    assert not np.asarray(fleet.code).any()


@pytest.mark.long
def test_on_nodes_with_errors_that_are_watched():
    model = psd.learn(sine_map(), 1e-3, engine="nodes")
    ys = np.stack([np.asarray(sine_map.simulate(i, 5)[1]) for i in range(2)], axis=1)
    ys[3, 1] = 9.0
    fleet = psd.OnlineFleet(model, 2)
    fleet.run(ys)
    post = psd.run_filter(model, ys[:, 0])
    assert np.abs(np.asarray(fleet.mean[0] - post.mean[-1])).max() < 1e-12
    assert abs(float(fleet.log_likelihood[0] - post.log_likelihood)) < 1e-12
    assert 0 < float(fleet.error_estimate[0]) < 1e-3
    assert np.asarray(fleet.code).tolist() == [0, 3]
    assert float(fleet.error_estimate[1]) > 1e-3


@pytest.mark.long
def test_a_restart_goes_on_to_the_last_bit(tmp_path):
    model, ys, path = linear(), feed(40, 5), tmp_path / "fleet.npz"
    whole = psd.OnlineFleet(model, 5)
    whole.run(ys)
    fleet = psd.OnlineFleet(model, 5)
    for tick, seen in enumerate(ys):
        fleet.step(seen)
        if tick % 8 == 3:
            fleet.save(path)
            fleet = psd.OnlineFleet.load(path, linear())
    assert list(tmp_path.iterdir()) == [path]
    for name in ("mean", "covariance", "log_likelihood", "error_estimate", "code"):
        assert np.array_equal(np.asarray(getattr(fleet, name)), np.asarray(getattr(whole, name)))
    other = psd.learn(psd.linear_gaussian(0.8, 0.1, 1.0, 0.2, 0.0, 1.0))
    with pytest.raises(ValueError, match="checkpoint of another model"):
        psd.OnlineFleet.load(path, other)


def test_what_does_not_fit_is_refused():
    fleet = psd.OnlineFleet(linear(), 3)
    with pytest.raises(ValueError, match=r"ys must have shape \(3, 1\)"):
        fleet.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="labels that the fleet has not"):
        fleet.step({7: 0.1})
    with pytest.raises(ValueError, match="labels must be distinct"):
        psd.OnlineFleet(linear(), ["a", "a"])
    with pytest.raises(ValueError, match=r"shape \(K, 3, p\)"):
        fleet.run(np.zeros((4, 2, 1)))


FEED = """
import sys, os
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np
import psdfilter as psd
model = psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))
path, log, num, ticks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
fleet = psd.OnlineFleet.load(path, model) if os.path.exists(path) else psd.OnlineFleet(model, num)
while fleet.time < ticks:
    rng = np.random.default_rng(fleet.time)
    ys = rng.normal(size=(num, 1))
    ys[rng.random(num) < 0.3] = np.nan
    fleet.step(ys)
    if fleet.time % 7 == 0 or fleet.time == ticks:
        fleet.save(path)
    with open(log, "a") as file:
        file.write("t")
"""


@pytest.mark.slow
def test_a_feed_that_is_killed_five_times_is_the_same_to_the_last_bit(tmp_path):
    num, ticks = 200, 1200
    script = tmp_path / "feed.py"
    script.write_text(FEED)
    env = {**os.environ, "PYTHONPATH": str(Path(psd.__file__).parent.parent)}
    runs = {}
    for name, kills in (("killed", 5), ("whole", 0)):
        path, log = tmp_path / f"{name}.npz", tmp_path / f"{name}.log"
        log.touch()
        command = [sys.executable, str(script), str(path), str(log), str(num), str(ticks)]
        rng = np.random.default_rng(0)
        for _ in range(kills):
            process = subprocess.Popen(command, env=env)
            limit = log.stat().st_size + int(rng.integers(50, ticks // 6))
            while process.poll() is None and log.stat().st_size < limit:
                time.sleep(0.01)
            process.kill()
            process.wait()
        subprocess.run(command, env=env, check=True)
        runs[name] = dict(np.load(path))
    assert runs["killed"].keys() == runs["whole"].keys()
    for key, values in runs["whole"].items():
        assert np.array_equal(runs["killed"][key], values)
    assert int(runs["whole"][max(runs["whole"], key=_order)]) == ticks
    assert not list(tmp_path.glob("*.tmp"))


def _order(name):
    return int(name.split("_")[1]) if name != "header" else -1
