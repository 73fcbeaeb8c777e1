/* Credit in the episodes of player.js, from tables: episode.lags[t][j][i] (meeting lag, -1: never),
   episode.through[t][j][i] (the agent before i on the path), and replay.weights by distance in time. */
const LABELS = 34, ROW = 16;  // pixels: labels of agents, height of a row

function returns(upTo) {
  const sums = replay.colours.map(() => 0);
  current().rewards.slice(0, upTo).forEach((row) => row.forEach((r, i) => { sums[i] += r; }));
  return sums;
}

/* Weight of the reward of agent i at step t in the credit of the action of `source` at `start`; NaN without the weights of
   training. */
function weight(source, start, at, i, t) {
  if (!replay.weights) return NaN;
  const { own, reached, unreached, full } = replay.weights, distance = t - start;
  if (distance < 0) return 0;
  if (i === source) return own[distance];
  const undivided = (k) => (at[k] < Infinity ? reached[at[k] - start] : unreached)[distance];
  if (!full[distance]) return undivided(i);
  const total = at.reduce((sum, _, k) => sum + (k === source ? 0 : undivided(k)), 0);
  return undivided(i) / Math.max(1, total / full[distance]);
}

function bar(value, largest, colour) {
  const fill = document.createElement("i"), width = largest > 0 ? (50 * Math.abs(value)) / largest : 0;
  fill.style.cssText = `background:${colour};width:${width}%;left:${value < 0 ? 50 - width : 50}%`;
  return element("div", fill, "track");
}

function showRewards() {
  const now = step < length() ? current().rewards[step] : replay.colours.map(() => 0);
  const sums = returns(Math.min(step + 1, length())), finals = returns(length());
  const total = (values) => values.reduce((a, b) => a + b, 0);
  const most = (rows) => Math.max(1e-9, ...rows.flatMap((row) => [...row, total(row)]).map(Math.abs));
  const largest = most(current().rewards), highest = most([finals, sums]);
  const rows = replay.colours.map((colour, i) => row(String(i), actionOf(i), colour, now[i], sums[i], largest, highest));
  rows.push(row("team", "", "var(--faint)", total(now), total(sums), largest, highest));
  document.querySelector("#rewards tbody").replaceChildren(...rows);
}

function row(name, action, colour, reward, sum, largest, highest) {
  const cells = [element("td", bar(reward, largest, colour)), element("td", show(reward), "number"), element("td", bar(sum, highest, colour)), element("td", show(sum), "number")];
  return element("tr", [element("th", [swatch(colour), name]), element("td", action), ...cells]);
}

/* Paths that start with the action of `source` at this step: the step `at` from which on each agent is reached (Infinity: never),
   and the agent before it on the path. */
function showCredit() {
  if (!current().lags || step >= length()) { $("credit").replaceChildren(); $("credited").textContent = ""; $("paths").tBodies[0].replaceChildren(); return; }
  const source = Number($("source").value), through = current().through[step][source];
  const at = current().lags[step][source].map((lag) => (lag < 0 ? Infinity : step + lag));
  const n = replay.colours.length, cell = Math.max(8, Math.min(24, ($("credit").clientWidth - LABELS - 4) / length()));
  const width = LABELS + cell * length() + 4, height = ROW * n + 18;
  const chart = shape(null, "svg", { class: "credit", width, height, role: "img", "aria-label": `Rewards credited to agent ${source} at step ${step}, described below` });
  for (let i = 0; i < n; i++) {
    shape(chart, "text", { x: LABELS - 6, y: ROW * (i + 0.5) + 4, "text-anchor": "end" }, i);
    for (let t = 0; t < length(); t++) drawCell(chart, i, t, at[i] <= t && t >= step, weight(source, step, at, i, t), cell);
  }
  shape(chart, "rect", { x: LABELS + cell * step, y: 0, width: cell, height: ROW * n, fill: "none", stroke: "var(--accent)", "stroke-width": 2 });
  shape(chart, "text", { x: LABELS - 6, y: height - 4, "text-anchor": "end" }, "step");
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((count) => count * cell >= 22) ?? length();
  for (let t = 0; t < length(); t += every) shape(chart, "text", { x: LABELS + cell * (t + 0.5), y: height - 4, "text-anchor": "middle" }, t);
  showChart(chart, LABELS + cell * step);
  $("credited").textContent = describe(source, at, through);
  $("paths").tBodies[0].replaceChildren(...replay.colours.flatMap((_, i) => (at[i] < Infinity ? [pathRow(source, i, at, through)] : [])));
}

/* Show the chart, scrolled to the current step if it is wider than its container. */
function showChart(chart, middle) {
  const place = $("credit"), before = place.scrollLeft, seen = place.clientWidth;
  place.replaceChildren(chart);
  place.scrollLeft = middle < before + LABELS || middle > before + seen - LABELS ? middle - seen / 2 : before;
}

/* Row of the table of paths: agent, path with the step of each hop, meeting time, and sums of the credited rewards. */
function pathRow(source, i, at, through) {
  const hops = [];
  for (let k = i; k !== source; k = through[k]) hops.unshift(`→ ${k} (step ${at[k]})`);
  const rewards = current().rewards.map((all) => all[i]), from = (t) => t >= at[i];
  const sum = rewards.reduce((all, reward, t) => (from(t) ? all + reward : all), 0);
  const credited = rewards.reduce((all, reward, t) => all + reward * weight(source, step, at, i, t), 0);
  const meeting = i === source ? "0" : String(at[i] - step + 1);
  return element("tr", [element("th", [swatch(replay.colours[i]), String(i)]), element("td", [source, ...hops].join(" ")), element("td", meeting), element("td", `from step ${at[i]}`), element("td", show(sum)), element("td", show(credited), "weighted")]);
}

function drawCell(chart, i, t, credited, share, cell) {
  const reward = current().rewards[t][i], opacity = Number.isNaN(share) ? 0.45 : 0.12 + 0.33 * Math.min(share, 1);
  const box = shape(chart, "rect", { x: LABELS + cell * t, y: ROW * i, width: cell - 1, height: ROW - 1, fill: credited ? replay.colours[i] : "var(--paper)", "fill-opacity": credited ? opacity : 1, stroke: "var(--line)", "stroke-width": 0.5, cursor: "pointer" });
  shape(box, "title", {}, `agent ${i}, step ${t}: reward ${show(reward)}${Number.isNaN(share) ? "" : `, weight ${show(share)}`}`);
  box.onclick = () => { $("source").value = i; go(t); };
  const largest = Math.max(1e-9, ...current().rewards.map((all) => Math.abs(all[i])));
  if (Math.abs(reward) < 1e-9) return;
  const size = 1.2 + (0.28 * Math.min(cell, ROW) * Math.abs(reward)) / largest, place = { cx: LABELS + cell * (t + 0.5) - 0.5, cy: ROW * (i + 0.5) - 0.5, r: size, "pointer-events": "none" };
  shape(chart, "circle", { ...place, ...(reward > 0 ? { fill: "var(--ink)" } : { fill: "none", stroke: "var(--ink)", "stroke-width": 1.2 }) });
}

function describe(source, at, through) {
  const others = at.map((when, i) => ({ when, i })).filter(({ when, i }) => i !== source && when < Infinity);
  if (!others.length) return `Agent ${source} is credited with its own rewards only: no path reaches another agent before the end.`;
  const path = (i) => { const names = [i]; while (names[0] !== source) names.unshift(through[names[0]]); return names.join(" → "); };
  const many = others.length > 6 ? ` and ${others.length - 6} more` : "";
  return `Besides its own: ${others.slice(0, 6).map(({ when, i }) => `${path(i)} from step ${when} on`).join("; ")}${many}.`;
}

function arrows() { $("stage").classList.toggle("no-arrows", !$("arrows").checked); }

function onLoaded() {
  $("source").replaceChildren(...replay.colours.map((_, i) => new Option(i, i)));
  $("trained").textContent = replay.note;
  const known = Boolean(replay.episodes[0].lags);
  $("credit-panel").hidden = !known; $("arrows-label").hidden = !known;
  $("credit-panel").classList.toggle("unweighted", !replay.weights);
}

function onOtherKey(key) {
  if (key === "a") { $("arrows").checked = !$("arrows").checked; arrows(); return true; }
  if (!/^[0-9]$/.test(key) || Number(key) >= replay.colours.length) return false;
  $("source").value = key;
  showCredit();
  return true;
}

$("arrows").onchange = arrows; $("source").onchange = showCredit;
/* On a page with other content, keys control the replay only while it has the focus. */
startPlayer({ everywhere: !$("charts"), draw: () => { showRewards(); showCredit(); }, loaded: onLoaded, key: onOtherKey });
