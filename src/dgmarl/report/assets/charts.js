/* Learning curves: data.charts = [{title, series: [{method, name, colour, dash, seeds, curves: {metric: {axis: [x, mean, low, high]}}}]}].
   mean, low and high are null where a curve has no value. */
const WIDTH = 460, HEIGHT = 270, LEFT = 56, RIGHT = 20, TOP = 10, BOTTOM = 38;
const hidden = new Set();
const cursors = new Map();

/* The visible series of a chart that have the selected metric and axis. */
function visible(chart) {
  const metric = $("chart-metric").value, axis = $("chart-axis").value;
  return chart.series.flatMap((series) => {
    const curve = series.curves[metric]?.[axis];
    return curve && !hidden.has(series.name) ? [{ series, x: curve[0], mean: curve[1], low: curve[2], high: curve[3] }] : [];
  });
}

/* The parts of a curve between points without a value. */
function withoutGaps({ series, x, mean, low, high }) {
  const starts = mean.flatMap((value, k) => (value !== null && (k === 0 || mean[k - 1] === null) ? [k] : []));
  return starts.map((start) => {
    const end = mean.indexOf(null, start), cut = (values) => values?.slice(start, end < 0 ? undefined : end);
    return { series, x: cut(x), mean: cut(mean), low: cut(low), high: cut(high) };
  });
}

function drawChart(chart, panel) {
  const shown = visible(chart), old = panel.querySelector("svg");
  const svg = shape(null, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curves", role: "img", tabindex: 0, "font-size": 11, "aria-label": `${chart.title}: ${$("chart-metric").selectedOptions[0].text} over ${$("chart-axis").selectedOptions[0].text}` });
  const focused = document.activeElement === old;
  old.replaceWith(svg);
  if (focused) svg.focus();
  if (!shown.length) {
    shape(svg, "text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle", fill: "var(--faint)" }, "not recorded, or all lines are hidden");
    panel.querySelector("output").replaceChildren();
    return;
  }
  const right = Math.max(...shown.map(({ x }) => x.at(-1))), values = shown.flatMap(({ mean, low, high }) => [...mean, ...(low ?? []), ...(high ?? [])]).filter((value) => value !== null);
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1], margin = 0.04 * (most - least) || 0.5;
  const [bottom, top] = [least - margin, most + margin];
  const px = (x) => LEFT + ((WIDTH - LEFT - RIGHT) * x) / right, py = (y) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (y - bottom)) / (top - bottom);
  for (const y of ticks(bottom, top)) {
    shape(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y), stroke: "var(--line)" });
    shape(svg, "text", { x: LEFT - 6, y: py(y) + 4, "text-anchor": "end", fill: "var(--faint)" }, count(y));
  }
  for (const x of ticks(0, right)) shape(svg, "text", { x: px(x), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle", fill: "var(--faint)" }, count(x));
  shape(svg, "text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle", fill: "var(--faint)" }, $("chart-axis").selectedOptions[0].text);
  const line = (xs, ys) => xs.map((x, k) => `${px(x).toFixed(1)},${py(ys[k]).toFixed(1)}`).join(" ");
  const parts = shown.flatMap(withoutGaps);
  for (const { series, x, low, high } of parts) if (low) shape(svg, "polygon", { points: `${line(x, high)} ${line([...x].reverse(), [...low].reverse())}`, fill: series.colour, "fill-opacity": 0.2 });
  for (const { series, x, mean } of parts) shape(svg, "polyline", { points: line(x, mean), fill: "none", stroke: series.colour, "stroke-width": 2.2, "stroke-dasharray": series.dash });
  for (const { series, x, mean, low, high } of parts) {
    const end = px(x.at(-1));
    if (low && x.length === 1) shape(svg, "line", { x1: end, x2: end, y1: py(low[0]), y2: py(high[0]), stroke: series.colour, "stroke-opacity": 0.35, "stroke-width": 5 });
    shape(svg, "circle", { cx: end, cy: py(mean.at(-1)), r: 3.2, fill: series.colour });
  }
  const cursor = shape(svg, "line", { y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--accent)", visibility: "hidden" });
  const at = (x) => { cursors.set(chart, x); readOut(chart, panel, shown, x, right, cursor, px); };
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    at(Math.max(0, Math.min(1, (((event.clientX - box.left) * WIDTH) / box.width - LEFT) / (WIDTH - LEFT - RIGHT))));
  };
  svg.onkeydown = (event) => {
    const move = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!move) return;
    event.preventDefault(); event.stopPropagation();
    at(Math.max(0, Math.min(1, (cursors.get(chart) ?? 1) + move)));
  };
  readOut(chart, panel, shown, cursors.get(chart) ?? 1, right, cursor, px);
}

/* Show the values of all visible methods at a fraction of the horizontal axis. */
function readOut(chart, panel, shown, share, right, cursor, px) {
  const where = share * right;
  cursor.setAttribute("x1", px(where)); cursor.setAttribute("x2", px(where)); cursor.setAttribute("visibility", "visible");
  const rows = shown.map(({ series, x, mean, low, high }) => {
    const k = x.reduce((best, value, index) => (Math.abs(value - where) < Math.abs(x[best] - where) ? index : best), 0);
    const known = mean[k] !== null, ends = !known ? "no value" : low ? `[${show(low[k])}, ${show(high[k])}]` : "one seed";
    const ended = x.at(-1) < 0.95 * where ? ` (at ${count(x.at(-1))})` : "";
    return element("tr", [element("th", [swatch(series.colour), series.name + ended]), element("td", known ? show(mean[k]) : "–", "number"), element("td", ends, "number faint"), element("td", `n = ${series.seeds}`, "number faint")]);
  });
  panel.querySelector("output").replaceChildren(element("p", `at ${count(where)} ${$("chart-axis").selectedOptions[0].text}`, "faint"), element("table", element("tbody", rows)));
}

function startCharts() {
  const all = data.charts.flatMap((chart) => chart.series);
  const options = (select, names, present) => Object.entries(names).filter(([key]) => present(key)).forEach(([key, name]) => select.add(new Option(name, key)));
  options($("chart-metric"), data.metrics, (metric) => all.some((series) => series.curves[metric]));
  options($("chart-axis"), data.axes, (axis) => all.some((series) => Object.values(series.curves).some((of) => of[axis])));
  for (const name of ["chart-metric", "chart-axis"]) $(name).parentElement.hidden = $(name).length < 2;
  const panels = data.charts.map((chart) => element("div", [element("h2", chart.title), shape(null, "svg"), document.createElement("output")], "panel chart"));
  $("charts").append(...panels);
  const draw = () => data.charts.forEach((chart, k) => drawChart(chart, panels[k]));
  const names = new Map(all.map((series) => [series.name, series]));
  for (const [name, series] of names) {
    const button = element("button", name, "method");
    button.style.borderBottom = `3px ${series.dash ? "dashed" : "solid"} ${series.colour}`;
    button.setAttribute("aria-pressed", "true");
    button.onclick = () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      draw();
    };
    $("chart-methods").append(button);
  }
  $("chart-metric").onchange = draw; $("chart-axis").onchange = draw;
  draw();
}

startCharts();
