"""`save` and `load`: round trips, and what is refused."""

import dataclasses
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import learned as shared_model
from helpers import make

import psdfilter as psd
from psdfilter import systems
from psdfilter._inference.learn import learn
from psdfilter._inference.online import init, predict, update
from psdfilter._inference.run import run_filter
from psdfilter.io import load, save
from psdfilter.io._values import different, values_of


def assert_same(a, b):
    """Of one type, and equal leaf by leaf, bit by bit."""
    assert type(a) is type(b)
    paths = [[path for path, _ in jax.tree.leaves_with_path(tree)] for tree in (a, b)]
    assert paths[0] == paths[1]
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def learned():
    model = shared_model("sine_map", 1e-2)
    return model.filled.ssm, model


DENSITIES = ["scattered_full", "grid_rank_three", "tiny_scale", "components", "shared_precision"]


@pytest.mark.parametrize("kind", [*DENSITIES, "pairs"])
def test_densities(kind, tmp_path):
    f = make(kind, 0, 2)
    save(tmp_path / "f.npz", f)
    g = load(tmp_path / "f.npz")
    assert_same(f, g)
    x = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_array_equal(f(x), g(x))


def test_boxes_with_infinite_sides_and_grids(tmp_path):
    for obj in (
        psd.Box([-np.inf, 0.0], [1.0, np.inf]),
        psd.densities.TensorGrid([[0.0, 1.0], [2.0]]),
    ):
        save(tmp_path / "obj", obj)  # the name is taken as it is
        assert_same(obj, load(str(tmp_path / "obj")))


def test_learned_model(learned, tmp_path):
    ssm, model = learned
    path = tmp_path / "model.npz"
    save(path, model)
    back = load(path, ssm=ssm)
    assert_same(model, back)
    for field in dataclasses.fields(model.report):
        value, again = getattr(model.report, field.name), getattr(back.report, field.name)
        assert type(value) is type(again)
        np.testing.assert_array_equal(value, again)
    assert back.tol == model.tol
    assert back.filled.ssm is ssm
    with pytest.raises(ValueError, match=r"load\(path, ssm=...\)"):
        load(path)
    with pytest.raises(ValueError, match="ssm must be a StateSpaceModel"):
        load(path, ssm=3)
    with pytest.raises(ValueError, match="ssm is not the model that was learned: its state_box"):
        load(path, ssm=systems.stochastic_volatility())
    with pytest.raises(ValueError, match="ssm is not the model that was learned: time_varying"):
        load(path, ssm=systems.ungm())


@pytest.mark.slow
def test_a_model_sized_by_data_stays_so(tmp_path):
    ssm = dataclasses.replace(systems.sine_map(), sample_observation=None)
    model = learn(ssm, 1e-2, engine="nodes")
    _, ys = systems.sine_map.simulate(0, 10)
    post = run_filter(model, ys)
    assert not model.is_sized
    assert post.model.is_sized
    for name, each in (("model", model), ("sized", post.model)):
        save(tmp_path / name, each)
        back = load(tmp_path / name, ssm=ssm)
        assert back.is_sized == each.is_sized
        assert_same(each, back)
        np.testing.assert_allclose(run_filter(back, ys).mean, post.mean, rtol=1e-12)


@pytest.mark.long
def test_an_online_filter_goes_on_where_it_stopped(learned, tmp_path):
    ssm, model = learned
    _, ys = systems.sine_map.simulate(0, 2000)
    ys = np.asarray(ys)

    def run(model, state, series):
        for y in series:
            state = update(model, predict(model, state), y)
        return state

    whole = run(model, init(model), ys)
    save(tmp_path / "model.npz", model)
    save(tmp_path / "state.npz", run(model, init(model), ys[:1000]))
    state = load(tmp_path / "state.npz")
    assert int(state.step) == 1000
    resumed = run(load(tmp_path / "model.npz", ssm=ssm), state, ys[1000:])
    np.testing.assert_allclose(resumed.law.values, whole.law.values, rtol=1e-12)
    np.testing.assert_allclose(resumed.log_likelihood, whole.log_likelihood, rtol=1e-12)
    assert int(resumed.step) == 2000


def test_numpy_can_look_inside(tmp_path):
    save(tmp_path / "f.npz", psd.Box([0.0], [1.0]))
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        assert json.loads(file["header.json"])["kind"] == "box"
        np.testing.assert_array_equal(file["array_0"], [0.0])


@pytest.mark.parametrize("obj", [3.0, "text", jnp.zeros(3), lambda x: x, None])
def test_other_objects_are_refused(obj, tmp_path):
    with pytest.raises(ValueError, match="obj must be one of Box"):
        save(tmp_path / "f.npz", obj)
    assert list(tmp_path.iterdir()) == []


def test_folders_are_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"path must name a file, got the folder '\.'"):
        psd.save(".", psd.Box(0.0, 1.0))


def test_tracing_is_refused(tmp_path):
    def inside(x):
        save(tmp_path / "f.npz", psd.Box(x, x + 1.0))
        return x

    with pytest.raises(ValueError, match=r"box.lower is being traced"):
        jax.jit(inside)(jnp.zeros(1))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f.npz"
    save(path, psd.Box([0.0], [1.0]))

    def fail(*args, **keywords):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, psd.Box([5.0], [6.0]))
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["f.npz"]
    assert float(load(path).lower[0]) == 0.0


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "f.npz"
    save(path, make("scattered_full", 0, 2))
    whole = path.read_bytes()
    for share in (0.0, 0.3, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match="not a whole psdfilter file"):
            load(path)
    # One bit of one number.
    at = whole.index(b"array_1.npy") + 200
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ValueError, match="not a whole psdfilter file"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.npz")


def rewrite(path, change):
    """The file with its header changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    change(header)
    members["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is no psdfilter file"),
        ({"version": 99}, "format version 99"),
        ({"kind": "Secret"}, "holds a 'Secret'"),
        ({"arrays": 9}, "not a whole psdfilter file"),
        ({"tree": {"kind": "Popen", "version": 1, "parts": {}}}, "'Popen', which this version"),
        ({"tree": {"kind": "box", "version": 1, "parts": {"lower": None}}}, "has parts"),
        ({"tree": {"kind": "box", "version": 7, "parts": {}}}, "'box' has version 7"),
        ({"tree": {"strange": 1}}, "is not known"),
        ({"tree": [1, 2]}, "not one that psdfilter writes"),
    ],
)
def test_unknown_headers_are_refused(change, message, tmp_path):
    path = tmp_path / "f.npz"
    save(path, psd.Box([0.0], [1.0]))
    rewrite(path, lambda header: header.update(change))
    with pytest.raises(ValueError, match=message):
        load(path)


DEEP = "[" * 100_000 + "]" * 100_000


def without_tree(header):
    del header["tree"]


def with_factor(**entry):
    def change(header):
        header["tree"]["parts"]["factor"].update(entry)

    return change


@pytest.mark.parametrize(
    "change",
    [
        without_tree,
        with_factor(array=99),
        with_factor(array=-1),
        with_factor(array="0"),
        with_factor(array=0),  # of another shape
        with_factor(float="many"),
        lambda header: header["tree"].update(parts=[1]),
        lambda header: header.update(arrays="two"),
    ],
)
def test_headers_that_were_altered_are_refused_on_loading(change, tmp_path):
    path = tmp_path / "f.npz"
    save(path, make("scattered_full", 0, 2))
    rewrite(path, change)
    with pytest.raises(ValueError, match=r"f\.npz is not a whole psdfilter file: it is"):
        load(path)


@pytest.mark.parametrize("header", [DEEP.encode(), b"\xff\xfe\x00"])
def test_headers_that_nobody_can_read_are_refused(header, tmp_path):
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", header)
    with pytest.raises(ValueError, match=r"f\.npz (is not a whole|has a header)"):
        load(path)


def test_descriptions_of_a_model_that_were_altered_are_damage(learned, tmp_path):
    path = tmp_path / "model.npz"
    save(path, learned[1])

    def change(header):
        del header["tree"]["parts"]["filled"]["parts"]["ssm"]["ssm"]["lower"]

    rewrite(path, change)
    with pytest.raises(ValueError, match="not a whole psdfilter file"):
        load(path, ssm=learned[0])


def test_other_zip_files_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match=r"has no header.json"):
        load(tmp_path / "other.npz")


def waves(slope=2.0, gain=0.25, spread=1.0):
    """Functions that differ, in one box and with the same flags."""
    return psd.additive_gaussian(
        f=lambda x: slope * jnp.sin(x),
        h=lambda x: gain * x**2,
        Q=0.2,
        R=0.1,
        m0=0.0,
        P0=spread,
        state_box=(-5.0, 5.0),
    )


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"slope": 1.0}, "log_transition"),
        ({"gain": 0.2}, "log_observation"),
        ({"spread": 0.9}, "log_prior"),
    ],
)
def test_other_functions_in_the_same_box_are_refused_by_name(other, name, tmp_path):
    path = tmp_path / "waves.psd"
    save(path, learn(waves(), 1e-2))
    assert load(path, ssm=waves()).ssm.dim == 1
    with pytest.raises(ValueError, match=f"ssm is not the model that was learned: its {name} "):
        load(path, ssm=waves(**other))

    def as_before(header):
        del header["tree"]["parts"]["ssm"]["ssm"]["values"]

    rewrite(path, as_before)
    assert load(path, ssm=waves(**other)).ssm.dim == 1


def test_functions_of_regimes_are_told_apart():
    def switching(level, stay):
        return psd.switching([waves(), waves(gain=level)], [[stay, 1 - stay], [0.1, 0.9]])

    own = values_of(switching(0.2, 0.9))
    assert different(own, values_of(switching(0.2, 0.9))) is None
    assert "log_observation of regime 1" in different(own, values_of(switching(0.3, 0.9)))
    assert "P " in different(own, values_of(switching(0.2, 0.8)))
    # What takes inputs cannot be asked.
    driven = psd.additive_gaussian(
        lambda u, inputs: u + inputs, lambda x: x, 0.1, 0.1, 0.0, 1.0, state_box=(-5.0, 5.0)
    )
    assert set(values_of(driven)) == {"log_prior", "log_observation"}


@pytest.mark.long
def test_models_that_cannot_be_saved_say_whose_they_are(tmp_path):
    sine = learn(systems.sine_map(), 1e-1, engine="reference")
    with pytest.raises(ValueError, match=r'engine "reference", which .* adaptive, .* can be'):
        save(tmp_path / "f.npz", sine)
    real = learn(psd.linear_gaussian(lambda dt: 0.9**dt, lambda dt: 0.2 * dt, 1.0, 0.5, 0.0, 1.0))
    with pytest.raises(ValueError, match=r'engine "exact" whose .* takes dt'):
        save(tmp_path / "f.npz", real)
    assert list(tmp_path.iterdir()) == []
