"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const narrow = window.matchMedia("(max-width: 46rem)");
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  // Without a mouse the bar would always be there, and fingers zoom by themselves.
  const hovers = window.matchMedia("(hover: hover)");
  const config = {
    responsive: true, displaylogo: false, displayModeBar: hovers.matches ? "hover" : false,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  };
  let state = 0;
  let column = 0;
  let moment = 0;

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Colours of the page for a figure's own layout.
  function themed(figure) {
    const layout = structuredClone(figure.layout);
    const ink = colour("--ink");
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { color: ink, family: "system-ui, sans-serif", size: narrow.matches ? 11 : 13 };
    layout.hoverlabel = { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { color: ink } };
    layout.xaxis = { ...axis, ...layout.xaxis };
    layout.yaxis = { ...axis, ...layout.yaxis };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("--faint"), activecolor: ink };
    layout.dragmode = narrow.matches ? false : "zoom";
    if (calm.matches) { layout.transition = { duration: 0 }; }
    const traces = structuredClone(figure.data).map((trace) => trace.type === "heatmap"
      ? { ...trace, colorscale: [[0, colour("--ground")], [0.5, "#3a8fc4"], [1, root.dataset.theme === "dark" ? "#dff1ff" : "#08306b"]] }
      : trace);
    return [traces, layout];
  }

  // Sections may be without a figure that others have.
  function draw(name) {
    const place = byId(`plot-${name}`);
    if (!place) { return Promise.resolve(); }
    const all = data.figures[name];
    const own = data.observed.includes(name) ? column : state;
    const [traces, layout] = themed(all[Math.min(own, all.length - 1)]);
    return Plotly.react(place, traces, layout, config);
  }

  function number(value) {
    return Number.isFinite(value) ? Number(value.toPrecision(5)).toString() : "unknown";
  }

  function show() {
    const slider = byId("slider");
    const at = data.times[moment];
    const laws = data.moments[state];
    const parts = [`${data.timeName} ${at}`, `mean ${number(laws.mean[moment])}`,
      `standard deviation ${number(laws.sd[moment])}`,
      laws.regions ? `90% region ${laws.regions[moment]}`
        : `90% interval ${number(laws.lower[moment])} to ${number(laws.upper[moment])}`];
    const text = parts.join(", ");
    slider.setAttribute("aria-valuetext", text);
    byId("said").textContent = text;
    const curves = laws.densities.map((each) => each[moment]);
    const highest = Math.max(...curves.flat());
    Plotly.update("plot-moment", { x: curves }, { "xaxis.range": [0, 1.05 * highest || 1] });
    if (data.joint) { Plotly.restyle("plot-joint", { z: [data.joint[moment]] }); }
    Plotly.relayout("plot-density", { "shapes[0].x0": at, "shapes[0].x1": at });
  }

  function drawAll() {
    return Promise.all(Object.keys(data.figures).map(draw)).then(show);
  }

  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light mode" : "Dark mode";
  }

  byId("slider").addEventListener("input", (event) => { moment = Number(event.target.value); show(); });
  byId("theme").addEventListener("click", () => { setTheme(root.dataset.theme !== "dark"); drawAll(); });
  wantsDark.addEventListener("change", (event) => { setTheme(event.matches); drawAll(); });
  narrow.addEventListener("change", () => { drawAll(); });
  for (const [id, change] of [["state", (k) => { state = k; }], ["column", (k) => { column = k; }]]) {
    const choice = byId(id);
    if (choice) { choice.addEventListener("change", () => { change(choice.selectedIndex); drawAll(); }); }
  }
  byId("theme").hidden = false;
  setTheme(wantsDark.matches);
  drawAll().then(() => {
    // A click on the picture moves to that time.
    byId("plot-density").on("plotly_click", (event) => {
      const clicked = event.points[0].x;
      const nearest = data.times.indexOf(clicked);
      if (nearest >= 0) { moment = nearest; byId("slider").value = String(nearest); show(); }
    });
    root.dataset.ready = "yes";
  });
})();
