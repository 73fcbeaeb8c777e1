/* Comparison of graphs per step: data.graphs = {names, colours, threshold, highest, episodes: [{name: [step]}]}, where a step is a
   string of edges (0 or 1) or, for the learned graph, entropy ratios in thousandths; row by row, row = source. */
const { names, colours, highest, episodes } = data.graphs, learned = data.graphs.threshold === null ? null : names[0];
const n = data.replays[0].colours.length;
/* Each graph is compared with those after it; a single graph is shown alone. */
const comparisons = names.length > 1 ? names.flatMap((judged, k) => names.slice(k + 1).map((truth) => ({ judged, truth }))) : [{ judged: names[0], truth: names[0] }];
const KINDS = { hit: "both have the edge", missed: "only the second has it", false: "only the first has it" };
const HIT = "var(--hit)", FALSE = "var(--false)";
let threshold = data.graphs.threshold, pair = n > 1 ? 1 : 0;

const called = ({ judged, truth }) => (judged === truth ? judged : `${judged} against ${truth}`);
const isPair = (cell) => Math.floor(cell / n) !== cell % n;
const hasEdge = (name, k, t, cell, c = threshold) => (name === learned ? episodes[k][name][t][cell] < c : episodes[k][name][t][cell] === "1");

function kind({ judged, truth }, k, t, cell) {
  const found = hasEdge(judged, k, t, cell), real = hasEdge(truth, k, t, cell);
  return found && real ? "hit" : real ? "missed" : found ? "false" : null;
}

/* Number of edges of each kind at one step. */
function countKinds(comparison, k, t) {
  const counts = { hit: 0, missed: 0, false: 0 };
  for (let cell = 0; cell < n * n; cell++) if (isPair(cell)) { const found = kind(comparison, k, t, cell); if (found) counts[found] += 1; }
  return counts;
}

const everyStep = (visit) => episodes.forEach((of, k) => of[names[0]].forEach((_, t) => visit(k, t)));
const share = (part, whole, ifNone) => (whole ? part / whole : ifNone);
/* null for 0/0: nothing to find, or nothing found. */
const agreement = ({ hit, missed, false: wrong }) => ({ f1: share(2 * hit, 2 * hit + missed + wrong, null), precision: share(hit, hit + wrong, null), recall: share(hit, hit + missed, null) });

function overall(comparison) {
  const sums = { hit: 0, missed: 0, false: 0 };
  everyStep((k, t) => { const counts = countKinds(comparison, k, t); for (const name in sums) sums[name] += counts[name]; });
  return sums;
}

function density(name) {
  let edges = 0, pairs = 0;
  everyStep((k, t) => { for (let cell = 0; cell < n * n; cell++) if (isPair(cell)) { pairs += 1; edges += hasEdge(name, k, t, cell); } });
  return share(edges, pairs, 0);
}

/* Marks are distinct without colour: a full square for hit, an empty one for missed, a cross for false. */
function mark(parent, name, x, y, size) {
  const inner = 0.14 * size, thick = Math.min(4, 0.1 * size), box = { x: x + inner, y: y + inner, width: size - 2 * inner, height: size - 2 * inner, rx: 0.1 * size };
  if (name === "hit") shape(parent, "rect", { ...box, fill: HIT });
  if (name === "missed") shape(parent, "rect", { ...box, fill: "none", stroke: "var(--ink)", "stroke-width": thick, "stroke-dasharray": `${2 * thick} ${thick}` });
  const [near, far] = [0.24 * size, 0.76 * size];
  if (name === "false") shape(parent, "path", { d: `M${x + near} ${y + near}L${x + far} ${y + far}M${x + far} ${y + near}L${x + near} ${y + far}`, stroke: FALSE, "stroke-width": 1.5 * thick, "stroke-linecap": "round" });
}

const EDGE = 22, SIDE = 220;
const CELL = (SIDE - EDGE) / n;

function drawMatrix(comparison, index) {
  const ended = step >= length(), counts = ended ? null : countKinds(comparison, episode, step);
  const label = ended ? "end of the episode, no actions" : `${counts.hit} hit, ${counts.missed} missed, ${counts.false} false`;
  const svg = shape(null, "svg", { viewBox: `0 0 ${SIDE + 1} ${SIDE + 1}`, class: "matrix", role: "img", tabindex: 0, "aria-label": `${called(comparison)}: ${label}`, "data-index": index });
  shape(svg, "rect", { x: EDGE, y: EDGE, width: n * CELL, height: n * CELL, fill: "var(--paper)", stroke: "var(--line)" });
  for (let i = 0; i < n; i++) {
    shape(svg, "rect", { x: EDGE + CELL * i, y: EDGE + CELL * i, width: CELL, height: CELL, fill: "var(--line)", "fill-opacity": 0.6 });
    if (i) shape(svg, "path", { d: `M${EDGE} ${EDGE + CELL * i}H${SIDE}M${EDGE + CELL * i} ${EDGE}V${SIDE}`, stroke: "var(--line)", "stroke-width": 0.5 });
    if (n > 20) continue;
    for (const [x, y] of [[10, EDGE + CELL * (i + 0.5)], [EDGE + CELL * (i + 0.5), 10]]) {
      shape(svg, "circle", { cx: x, cy: y, r: Math.min(9, 0.45 * CELL), fill: replay.colours[i] });
      shape(svg, "text", { x, y, class: "agent", "font-size": Math.min(10, 0.5 * CELL) }, i);
    }
  }
  for (let cell = 0; cell < n * n && !ended; cell++) if (isPair(cell)) drawCellOf(svg, comparison, cell);
  if (!ended) shape(svg, "rect", { class: "cursor", x: EDGE + CELL * (pair % n), y: EDGE + CELL * Math.floor(pair / n), width: CELL, height: CELL });
  return element("figure", [element("figcaption", [element("b", called(comparison)), document.createElement("br"), label]), svg]);
}

function drawCellOf(svg, comparison, cell) {
  const found = kind(comparison, episode, step, cell), x = EDGE + CELL * (cell % n), y = EDGE + CELL * Math.floor(cell / n);
  const numbered = comparison.judged === learned && n <= 5, size = Math.min(40, (numbered ? 0.55 : 1) * CELL);
  if (found) mark(svg, found, x + (CELL - size) / 2, y + (numbered ? 0.06 * CELL : (CELL - size) / 2), size);
  if (numbered) shape(svg, "text", { x: x + CELL / 2, y: y + 0.78 * CELL, class: "ratio", "font-size": Math.min(13, 0.3 * CELL) }, (episodes[episode][learned][step][cell] / 1000).toFixed(2));
}

function describePair() {
  const [j, i] = [Math.floor(pair / n), pair % n];
  if (step >= length()) return "";
  const ratio = learned && !(j === i) ? `entropy ratio ${(episodes[episode][learned][step][pair] / 1000).toFixed(3)}; ` : "";
  const edges = names.map((name) => `${name} ${j === i || hasEdge(name, episode, step, pair) ? "edge" : "no edge"}`).join(", ");
  return `${j} → ${i}: ${ratio}${j === i ? "always on" : edges}`;
}

function drawMatrices() {
  const focused = document.activeElement?.dataset?.index;
  $("matrices").replaceChildren(...comparisons.map(drawMatrix));
  if (focused !== undefined) $("matrices").querySelector(`[data-index="${focused}"]`)?.focus();
  $("pair").textContent = describePair();
  const acts = replay.colours.flatMap((_, i) => (actionOf(i) ? [`${i} ${actionOf(i)}`] : []));
  $("actions").textContent = acts.length ? `Actions: ${acts.join(", ")}` : "";
}

/* Overview of the episode: a row per kind of edge. */
function drawStrips() {
  const left = 52, size = Math.max(3, Math.min(18, ($("strips").clientWidth - left - 2) / length())), width = left + size * length() + 2, high = 14;
  $("strips").replaceChildren(...comparisons.map((comparison) => {
    const counts = current().rewards.map((_, t) => countKinds(comparison, episode, t));
    const svg = shape(null, "svg", { viewBox: `0 0 ${width} ${3 * high + 2}`, class: "strip", width, role: "img", "aria-label": `${called(comparison)} along the episode` });
    Object.keys(KINDS).forEach((name, row) => {
      const y = high * row + 1, colour = { hit: HIT, missed: "var(--ink)", false: FALSE }[name], most = Math.max(1, ...counts.map((all) => all[name]));
      shape(svg, "text", { x: left - 5, y: y + 10, "text-anchor": "end", "font-size": 11, fill: "var(--faint)" }, name);
      shape(svg, "rect", { x: left, y, width: size * length(), height: high - 1, fill: "var(--paper)" });
      counts.forEach((all, t) => { if (all[name]) shape(svg, "rect", { x: left + size * t, y: y + 0.5, width: size - 0.5, height: high - 2, fill: colour, "fill-opacity": 0.35 + (0.65 * all[name]) / most }); });
    });
    shape(svg, "rect", { x: left + size * Math.min(step, length() - 1), y: 0.5, width: size, height: 3 * high, fill: "none", stroke: "var(--accent)", "stroke-width": 1.2 });
    svg.onclick = (event) => { const box = svg.getBoundingClientRect(); go(Math.floor((event.clientX - box.left - left) / size)); };
    return element("figure", [element("figcaption", called(comparison)), svg]);
  }));
}

function drawNumbers() {
  const rows = comparisons.filter(({ judged, truth }) => judged !== truth).map((comparison) => {
    const counts = overall(comparison), { f1, precision, recall } = agreement(counts);
    return element("tr", [element("th", called(comparison)), ...[f1, precision, recall].map((value) => element("td", value === null ? "–" : value.toFixed(3))), ...Object.keys(KINDS).map((name) => element("td", String(counts[name])))]);
  });
  $("numbers").hidden = !rows.length;
  $("numbers").tBodies[0].replaceChildren(...rows);
  $("densities").textContent = `Density (share of pairs with an edge): ${names.map((name) => `${name} ${density(name).toFixed(3)}`).join(", ")}.`;
}

/* F1 against each other graph, and density, at every threshold, from cumulative counts of edges by ratio. */
function atThresholds() {
  const bins = () => new Array(highest + 1).fill(0), truths = names.slice(1);
  const all = bins(), real = truths.map(bins), total = truths.map(() => 0);
  let pairs = 0;
  everyStep((k, t) => {
    for (let cell = 0; cell < n * n; cell++) {
      if (!isPair(cell)) continue;
      const first = Math.min(episodes[k][learned][t][cell] + 1, highest + 1);  // the lowest threshold with this edge
      pairs += 1;
      if (first <= highest) all[first] += 1;
      truths.forEach((truth, m) => { if (hasEdge(truth, k, t, cell)) { total[m] += 1; if (first <= highest) real[m][first] += 1; } });
    }
  });
  const sum = (values) => { let so = 0; return values.map((value) => (so += value)); };
  const found = sum(all), hits = real.map(sum);
  return {
    density: found.map((edges) => share(edges, pairs, 0)),
    total: Object.fromEntries(truths.map((truth, m) => [truth, total[m]])),
    f1: Object.fromEntries(truths.map((truth, m) => [truth, found.map((edges, c) => share(2 * hits[m][c], edges + total[m], 1))])),
  };
}

function drawThresholds(found) {
  const [width, height, left, bottom, top] = [460, 230, 34, 34, 22], px = (c) => left + ((width - left - 10) * c) / highest, py = (value) => height - bottom - (height - bottom - top) * value;
  const svg = shape(null, "svg", { viewBox: `0 0 ${width} ${height}`, class: "curves", role: "img", "font-size": 11, "aria-label": "F1 and density at every threshold" });
  for (const y of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    shape(svg, "line", { x1: left, x2: width - 10, y1: py(y), y2: py(y), stroke: "var(--line)" });
    shape(svg, "text", { x: left - 6, y: py(y) + 4, "text-anchor": "end", fill: "var(--faint)" }, count(y));
  }
  for (const c of ticks(0, highest / 1000)) shape(svg, "text", { x: px(1000 * c), y: height - bottom + 15, "text-anchor": "middle", fill: "var(--faint)" }, count(c));
  shape(svg, "text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle", fill: "var(--faint)" }, "threshold c");
  const lines = [...Object.entries(found.f1).map(([truth, values], k) => ({ label: `F1 against ${truth}`, values, colour: colours[truth], dash: ["", "7 3"][k] })), { label: "density", values: found.density, colour: "var(--faint)", dash: "2 2.5" }];
  let x = left;
  for (const { label, values, colour, dash } of lines) {
    shape(svg, "polyline", { points: values.map((value, c) => `${px(c).toFixed(1)},${py(value).toFixed(1)}`).join(" "), fill: "none", stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dash });
    shape(svg, "line", { x1: x, x2: x + 22, y1: 8, y2: 8, stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dash });
    shape(svg, "text", { x: x + 27, y: 12, fill: "currentColor" }, label);
    x += 44 + 5.8 * label.length;
  }
  const here = shape(svg, "line", { y1: py(1) - 4, y2: py(0), stroke: "var(--accent)", "stroke-width": 1.5 });
  svg.onclick = (event) => { const box = svg.getBoundingClientRect(); setThreshold(Math.round(((((event.clientX - box.left) * width) / box.width - left) / (width - left - 10)) * highest)); };
  $("thresholds").replaceChildren(svg);
  return () => { here.setAttribute("x1", px(threshold)); here.setAttribute("x2", px(threshold)); };
}

let markThreshold = () => {};

function setThreshold(c) {
  threshold = Math.max(0, Math.min(highest, c));
  $("threshold").value = threshold; $("threshold-number").value = (threshold / 1000).toFixed(3);
  drawMatrices(); drawStrips(); drawNumbers(); markThreshold();
}

/* The threshold with the highest F1; none if the other graph is empty or no threshold finds an edge of it. */
function recommend(truth, values, found) {
  if (!found.total[truth]) return element("p", `The ${truth} graph has no edge in these steps, so there is no best threshold against it.`);
  const best = values.reduce((high, value, c) => (value > values[high] ? c : high), 0), button = element("button", `c = ${(best / 1000).toFixed(3)}`);
  if (!(values[best] > 0)) return element("p", `No threshold up to ${highest / 1000} finds an edge of the ${truth} graph.`);
  button.onclick = () => setThreshold(best);
  return element("p", [`F1 against ${truth} is highest, ${values[best].toFixed(3)}, at `, button]);
}

function startThreshold() {
  const found = atThresholds(), own = data.graphs.threshold;
  markThreshold = drawThresholds(found);
  $("threshold").max = highest; $("threshold-number").max = highest / 1000;
  $("threshold").oninput = () => setThreshold(Number($("threshold").value));
  $("threshold-number").onchange = () => setThreshold(Math.round(1000 * Number($("threshold-number").value)));
  $("own-threshold").textContent = `the run's threshold, ${(own / 1000).toFixed(3)}`;
  $("own-threshold").onclick = () => setThreshold(own);
  $("best").replaceChildren(...Object.entries(found.f1).map(([truth, values]) => recommend(truth, values, found)));
  setThreshold(own);
}

/* Pointing at a cell, or moving between cells with the arrow keys, describes that pair. */
function startMatrices() {
  const choosePair = (cell) => { if (cell !== pair) { pair = cell; drawMatrices(); } };
  $("matrices").onpointermove = (event) => {
    const svg = event.target.closest("svg");
    if (!svg) return;
    const box = svg.getBoundingClientRect(), place = (at) => Math.floor((((at * (SIDE + 1)) / box.width) - EDGE) / CELL);
    const [i, j] = [place(event.clientX - box.left), place(event.clientY - box.top)];
    if (i >= 0 && j >= 0 && i < n && j < n) choosePair(j * n + i);
  };
  $("matrices").onkeydown = (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault(); event.stopPropagation();
    const [j, i] = [Math.floor(pair / n) + move[0], (pair % n) + move[1]];
    if (j >= 0 && i >= 0 && j < n && i < n) choosePair(j * n + i);
  };
}

/* n: go to the next step of this episode at which graphs differ. */
function onOtherKey(key) {
  if (key !== "n") return false;
  let t = step + 1;
  while (t < length() && comparisons.every((comparison) => { const counts = countKinds(comparison, episode, t); return !counts.missed && !counts.false; })) t += 1;
  go(t);
  return true;
}

function startGraph() {
  const steps = episodes.reduce((sum, of) => sum + of[names[0]].length, 0);
  $("numbers-title").textContent = `All ${steps} steps of ${episodes.length === 1 ? "this episode" : `these ${episodes.length} episodes`}`;
  for (const [name, meaning] of Object.entries(KINDS)) {
    const svg = shape(null, "svg", { viewBox: "0 0 20 20", class: "key" });
    mark(svg, name, 0, 0, 20);
    $("marks").append(svg, ` ${name}: ${meaning}. `);
  }
  startMatrices();
  startPlayer({ everywhere: true, draw: () => { drawMatrices(); drawStrips(); }, key: onOtherKey });
  $("threshold-panel").hidden = $("thresholds-panel").hidden = $("threshold-keys").hidden = learned === null;
  if (learned === null) drawNumbers();
  else startThreshold();
}

startGraph();
