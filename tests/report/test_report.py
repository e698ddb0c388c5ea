"""The report in a browser: it shows the numbers, moves, fetches nothing and runs no stranger."""

import base64
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import psdfilter as psd

pytest.importorskip("plotly")
pandas = pytest.importorskip("pandas")

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>&\"'"
NUM = 30


@pytest.fixture(scope="module")
def results():
    model = psd.learn(
        psd.linear_gaussian(
            [[0.9, 0.2], [0.0, 0.8]], [0.2, 0.3], [[1.0, 0.0]], 0.5, [0.0, 0.0], [1.0, 1.0]
        )
    )
    ys = np.random.default_rng(3).normal(size=NUM)
    ys[7] = np.nan
    days = pandas.date_range("2024-02-20", periods=NUM, freq="D", name="day " + HOSTILE)
    frame = pandas.DataFrame({HOSTILE: ys}, index=days)
    post = psd.run_filter(model, frame)
    return post, psd.run_smoother(model, frame), psd.forecast(model, post, 5)


@pytest.fixture(scope="module")
def page_path(results, tmp_path_factory):
    post, smooth, ahead = results
    path = tmp_path_factory.mktemp("report") / "report.html"
    words = {"title": HOSTILE, "source": HOSTILE, "names": ["level", HOSTILE]}
    return psd.report.write(path, post, smooth=smooth, ahead=ahead, certificate=True, **words)


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("NO BROWSER: the report is not looked at; apt-get install chromium")
    api = pytest.importorskip(
        "playwright.sync_api", reason="NO PLAYWRIGHT: the report is not looked at in a browser"
    )
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, page_path):
    """page(width, dark): the report, opened; what it said and asked for is checked at the end."""
    said, asked, contexts = [], [], []

    def page(width=1280, dark=False, touch=False):
        scheme, size = "dark" if dark else "light", {"width": width, "height": 800}
        context = browser.new_context(
            viewport=size, color_scheme=scheme, has_touch=touch, is_mobile=touch
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(page_path.as_uri())
        tab.wait_for_function("document.documentElement.dataset.ready === 'yes'", timeout=60_000)
        return tab

    page.said = said
    yield page
    for context in contexts:
        context.close()
    assert said == []
    assert set(asked) <= {page_path.as_uri()}


def numbers(tab, figure, trace, axis):
    code = f"Array.from(document.getElementById('plot-{figure}')._fullData[{trace}].{axis})"
    return np.array(tab.evaluate(code), dtype=float)


def traces(tab, figure):
    code = f"document.getElementById('plot-{figure}')._fullData.map(t => t.name)"
    return tab.evaluate(code)


def test_figures_hold_the_arrays(opened, results):
    post, smooth, ahead = results
    tab = opened()
    names = traces(tab, "states")
    for name, result in (("filter", post), ("smoother", smooth)):
        shown = numbers(tab, "states", names.index(name), "y")
        np.testing.assert_allclose(shown, result.quantile(0.5)[:, 0], rtol=1e-12)
        upper = numbers(tab, "states", names.index(f"{name}, 90%"), "y")
        np.testing.assert_allclose(upper, result.interval(0.9)[1][:, 0], rtol=1e-12)
    fan = numbers(tab, "states", names.index("forecast"), "y")
    np.testing.assert_allclose(fan[1:], ahead.quantile(0.5)[:, 0], rtol=1e-12)
    np.testing.assert_allclose(fan[0], post.quantile(0.5)[-1, 0], rtol=1e-12)
    logs = numbers(tab, "likelihoods", 0, "y")
    np.testing.assert_allclose(logs, post.log_likelihoods, rtol=1e-12)
    residuals = np.asarray(post.residuals).ravel()
    kept = np.isfinite(residuals)
    np.testing.assert_allclose(numbers(tab, "residuals", 0, "y")[kept], residuals[kept], rtol=1e-9)
    predicted = post.predicted_observations
    names = traces(tab, "observations")
    middle = numbers(tab, "observations", names.index("predicted"), "y")
    # What rounding has left of zero is shown as zero.
    np.testing.assert_allclose(middle, predicted.quantile(0.5)[:, 0], rtol=1e-12, atol=1e-14)
    z = tab.evaluate("document.getElementById('plot-density')._fullData[0].z.length")
    assert z == 121


def test_the_slider_moves_by_keyboard_and_shows_that_moment(opened, results):
    post, smooth, _ = results
    tab = opened()
    first = numbers(tab, "moment", 0, "x")
    tab.focus("#slider")
    for _ in range(12):
        tab.keyboard.press("ArrowRight")
    moved = numbers(tab, "moment", 0, "x")
    assert np.abs(moved - first).max() > 1e-3
    y = numbers(tab, "moment", 0, "y")
    mean, sd = float(post.mean[12, 0]), float(np.sqrt(post.covariance[12, 0, 0]))
    z = (y - mean) / sd
    normal = np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * sd)
    # Cells of a grid hold means of the density.
    np.testing.assert_allclose(moved, normal, atol=2e-3 * normal.max())
    y = numbers(tab, "moment", 1, "y")
    z = (y - float(smooth.mean[12, 0])) / np.sqrt(float(smooth.covariance[12, 0, 0]))
    assert np.argmax(numbers(tab, "moment", 1, "x")) == np.argmin(np.abs(z))
    joint = np.array(tab.evaluate("document.getElementById('plot-joint')._fullData[0].z"))
    axes = [numbers(tab, "joint", 0, axis) for axis in ("x", "y")]
    points = np.stack(np.meshgrid(*axes, indexing="xy"), axis=-1)
    np.testing.assert_allclose(joint**2, post.density(12)(points), rtol=2e-3, atol=1e-9)
    said = tab.inner_text("#said")
    assert "2024-03-03" in said
    assert f"mean {mean:.5g}" in said
    assert tab.get_attribute("#slider", "aria-valuetext") == said
    cursor = tab.evaluate("document.getElementById('plot-density').layout.shapes[0].x0")
    assert cursor == "2024-03-03"
    tab.select_option("#state", index=1)
    tab.wait_for_function("document.getElementById('said').textContent.includes('2024-03-03')")
    other = numbers(tab, "states", 1, "y")
    np.testing.assert_allclose(other, post.interval(0.9)[1][:, 1], rtol=1e-12)


def test_hostile_names_stay_text(opened):
    tab = opened()
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert tab.evaluate("document.scripts.length") == 3
    assert tab.inner_text("h1") == HOSTILE
    assert tab.inner_text("pre[aria-label='Model source']") == HOSTILE
    assert tab.evaluate("document.getElementById('state').options[1].text") == HOSTILE
    axis = tab.evaluate("document.querySelector('#plot-observations .ytitle').textContent")
    assert axis == HOSTILE
    # Even if something had got through: no script runs but ours.
    tab.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 2';"
        "document.body.append(s)"
    )
    assert tab.evaluate("window.hacked") is None
    assert "Content Security Policy" in opened.said.pop()


@pytest.mark.long
def test_no_script_of_a_stranger_is_in_the_file(page_path):
    text = page_path.read_text("utf-8")
    assert "<script>window.hacked" not in text
    assert "<img" not in re.sub(r"(?s)<script>.*?</script>", "", text)
    data = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', text)[1]
    assert json.loads(data)["timeName"] == "day " + HOSTILE


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1280, True)])
def test_widths_and_colours(width, dark, opened):
    tab = opened(width, dark)
    wide = tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    dark_ground = "rgb(13, 17, 23)"
    assert (ground == dark_ground) == dark
    tab.click("#theme")
    assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == dark_ground) != dark


OVERLAPS = """
id => {
  const place = document.getElementById(id);
  const shown = (name) => [...place.querySelectorAll(name)].map(e => e.getBoundingClientRect());
  const bars = shown(".modebar").filter(b => b.width > 0);
  const words = [...shown(".legend"), ...shown(".ytitle"), ...shown(".xtick text")];
  const meet = (a, b) => a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom;
  return [bars.length, bars.flatMap(b => words.filter(w => meet(b, w))).length];
}
"""


def test_the_tool_bar_lies_on_nothing(opened):
    tab = opened()
    for name in ("density", "moment", "states", "likelihoods"):
        tab.hover(f"#plot-{name}")
        assert tab.evaluate(OVERLAPS, f"plot-{name}") == [1, 0], name
    tab = opened(390, touch=True)
    assert tab.evaluate(OVERLAPS, "plot-moment") == [0, 0]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_everything_has_a_name_for_those_who_do_not_see_it(opened):
    tab = opened()
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('[role=img],[role=region],section,nav')]"
        ".filter(e => !(e.ariaLabel || e.getAttribute('aria-labelledby'))).length"
    )
    assert unnamed == 0
    assert tab.evaluate("document.documentElement.lang") == "en"
    assert tab.evaluate("document.getElementById('slider').labels.length") == 1
    levels = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


@pytest.mark.long
def test_a_report_of_long_series_is_thinned_and_says_so():
    model = psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.5, 0.0, 1.0))
    text = psd.report.render(psd.run_filter(model, np.zeros(6000)))
    assert "6000 rows, step 1 to 6000, 4000 of them shown" in text
    assert "Densities are drawn at 240 of 6000 rows." in text


@pytest.mark.long
def test_what_is_missing_is_said_and_what_is_wrong_comes_first():
    model = psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.5, 0.0, 1.0))
    post = psd.run_filter(model, [0.1, 0.2, np.inf], throw=False)
    text = psd.report.render(post)
    assert text.index("Look at this first") < text.index('id="density-title"')
    assert "1 of 3 steps, first row 3: the observation is infinite" in text
    with pytest.raises(ValueError, match="post must come from run_filter, got int"):
        psd.report.render(3)


@pytest.mark.long
def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch, results):
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        psd.report.write(Path(tmp_path) / "r.html", results[0])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def two_modes():
    """A law of two modes at every time, from a prior of two and exact dynamics."""
    prior = psd.from_mixture([0.5, 0.5], [[-3.0], [3.0]], [[[0.04]], [[0.04]]])
    ssm = psd.linear_gaussian(1.0, 0.01, 1.0, 100.0, 0.0, 1.0, prior=prior)
    model = psd.learn(ssm)
    post = psd.run_filter(model, np.zeros(5))
    return post, psd.forecast(model, post, 2)


@pytest.mark.long
def test_modes_that_are_apart_have_regions_instead_of_a_median(two_modes):
    post, ahead = two_modes
    text = psd.report.render(post, ahead=ahead)
    data = json.loads(re.search(r'(?s)id="data">(.*?)</script>', text)[1])
    drawn = {trace["name"]: trace for trace in data["figures"]["states"][0]["data"]}
    assert set(drawn) == {"filter, 90%", "filter, modes", "forecast, 90%", "forecast, modes"}
    modes = np.array(drawn["filter, modes"]["y"]).reshape(5, 2)
    np.testing.assert_allclose(modes, [[-3, 3]] * 5, atol=0.02)
    bars = np.array(drawn["filter, 90%"]["y"], dtype=float).reshape(5, 2, 3)[:, :, :2]
    reach = 1.645 * np.sqrt(0.04 + 0.01 * np.arange(1, 6))
    np.testing.assert_allclose(bars[:, 1, 1] - 3, reach, rtol=0.1)
    assert np.abs(bars).min() > 2  # nothing in the gap, where median and mean are
    assert data["moments"][0]["mean"] == [0.0] * 5  # not what rounding has left of it
    assert " and " in data["moments"][0]["regions"][0]


@pytest.mark.long
def test_a_vague_prior_does_not_flatten_the_observations():
    model = psd.learn(psd.linear_gaussian(1.0, 0.1, 1.0, 0.5, 0.0, 1e6))
    ys = np.random.default_rng(0).normal(size=40)
    text = psd.report.render(psd.run_filter(model, ys))
    data = json.loads(re.search(r'(?s)id="data">(.*?)</script>', text)[1])
    low, high = data["figures"]["observations"][0]["layout"]["yaxis"]["range"]
    assert low < ys.min() < ys.max() < high
    assert high - low < 10


def numbers_in(array):
    """Plotly may write arrays in bytes."""
    if isinstance(array, dict):
        return np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])
    return np.array(array, dtype=float)


@pytest.mark.long
def test_an_angle_is_drawn_once_and_across_no_picture():
    circle = psd.Box(-np.pi, np.pi, periodic=0)
    compass = psd.additive_gaussian(
        lambda u: u + 0.4, lambda x: x, 0.04, 0.09, 2.5, 0.25, state_box=circle, wrap=[True]
    )
    model = psd.learn(compass, 1e-2)
    post = psd.run_filter(model, [3.0, -2.9, -2.4])
    text = psd.report.render(post, ahead=psd.forecast(model, post, 3))
    data = json.loads(re.search(r'(?s)id="data">(.*?)</script>', text)[1])
    assert data["moments"][0]["regions"] is None
    for figure in ("states", "observations"):
        drawn = data["figures"][figure][0]
        np.testing.assert_allclose(drawn["layout"]["yaxis"]["range"], [-np.pi, np.pi])
        curves = [trace for trace in drawn["data"] if trace["mode"] == "lines"]
        assert all(np.abs(np.diff(numbers_in(trace["y"]))).max() < 1.0 for trace in curves)
    # The second came from the other side, where it was expected.
    assert "observed, outside" not in {trace.get("name") for trace in drawn["data"]}


@pytest.mark.long
def test_characters_that_turn_text_around_are_not_in_a_page():
    model = psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.5, 0.0, 1.0))
    days = pandas.date_range("2024-02-20", periods=4, freq="D", name="day\u2066")
    post = psd.run_filter(model, pandas.DataFrame({"level\u202e": np.zeros(4)}, index=days))
    words = {"title": "a\u202eb", "source": "x = 1  # \u202e\n\ty = 2", "names": ["z\u202e"]}
    page = psd.report.render(post, **words)
    text = re.sub(r"(?s)<script>.*?</script>", "", page)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]|u202e|u2066", text)
    assert "level\N{REPLACEMENT CHARACTER}: 4 rows, day\N{REPLACEMENT CHARACTER} 2024" in text
    assert "\n        y = 2" in text
