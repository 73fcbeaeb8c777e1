/* Episodes one can watch, and where credit goes: data.replays = [{name, environment, policy, note, colours, episodes}]. */
let replay = data.replays[0], episode = 0, step = 0, timer = null;
const current = () => replay.episodes[episode];
const length = () => current().rewards.length;

function returns(upTo) {
  const sums = replay.colours.map(() => 0);
  current().rewards.slice(0, upTo).forEach((row) => row.forEach((r, i) => { sums[i] += r; }));
  return sums;
}

/* First step at which a path from (start, source) has reached each agent, Infinity if it never does, and through whom. */
function reachedFrom(start, source) {
  const at = replay.colours.map(() => Infinity), through = replay.colours.map(() => null);
  let reached = new Set([source]);
  at[source] = start;
  for (let t = start; t < length(); t++) {
    for (const [j, i] of current().edges[t]) if (reached.has(j) && at[i] === Infinity) { at[i] = t; through[i] = j; }
    reached = new Set(at.flatMap((when, i) => (when <= t ? [i] : [])));
  }
  return { at, through };
}

function bar(value, largest, colour) {
  const track = document.createElement("div"), fill = document.createElement("i");
  const width = largest > 0 ? (50 * Math.abs(value)) / largest : 0;
  track.className = "track";
  fill.style.cssText = `background:${colour};width:${width}%;left:${value < 0 ? 50 - width : 50}%`;
  track.append(fill);
  return track;
}

function showRewards() {
  const now = step < length() ? current().rewards[step] : replay.colours.map(() => 0);
  const sums = returns(Math.min(step + 1, length())), finals = returns(length());
  const largest = Math.max(1e-9, ...current().rewards.flat().map(Math.abs));
  const highest = Math.max(1e-9, ...finals.map(Math.abs), ...sums.map(Math.abs));
  const rows = replay.colours.map((colour, i) => row(String(i), colour, now[i], sums[i], largest, highest));
  const total = (values) => values.reduce((a, b) => a + b, 0);
  rows.push(row("team", "var(--faint)", total(now), total(sums), largest * replay.colours.length, highest * replay.colours.length));
  document.querySelector("#rewards tbody").replaceChildren(...rows);
}

function row(name, colour, reward, sum, largest, highest) {
  const line = document.createElement("tr");
  const head = document.createElement("th"), swatch = document.createElement("span");
  swatch.className = "swatch"; swatch.style.background = colour; head.append(swatch, name);
  const cells = [bar(reward, largest, colour), show(reward), bar(sum, highest, colour), show(sum)].map((content, k) => {
    const cell = document.createElement("td");
    if (k % 2) cell.className = "number";
    cell.append(content);
    return cell;
  });
  line.append(head, ...cells);
  return line;
}

function showCredit() {
  if (!current().edges || step >= length()) { $("credit").replaceChildren(); $("credited").textContent = ""; $("paths").tBodies[0].replaceChildren(); return; }
  const source = Number($("source").value), { at, through } = reachedFrom(step, source);
  const n = replay.colours.length, cell = 12, left = 26, width = left + cell * length(), height = cell * n + 14;
  const chart = document.createElementNS(SVG, "svg");
  chart.setAttribute("class", "credit"); chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.setAttribute("width", 2 * width);
  for (let i = 0; i < n; i++) {
    shape(chart, "text", { x: left - 6, y: cell * (i + 0.8), "text-anchor": "end" }, i);
    for (let t = 0; t < length(); t++) drawCell(chart, i, t, at[i] <= t && t >= step, left, cell);
  }
  shape(chart, "rect", { x: left + cell * step, y: 0, width: cell, height: cell * n, fill: "none", stroke: "var(--accent)", "stroke-width": 1.5 });
  shape(chart, "text", { x: left, y: height - 2 }, "step 0");
  shape(chart, "text", { x: width, y: height - 2, "text-anchor": "end" }, `step ${length() - 1}`);
  $("credit").replaceChildren(chart);
  $("credited").textContent = describe(source, at, through);
  $("paths").tBodies[0].replaceChildren(...replay.colours.flatMap((_, i) => (at[i] < Infinity ? [pathRow(source, i, at, through)] : [])));
}

/* Whose rewards, along which path (and when each hop happens), after which meeting time, and how much there was to credit. */
function pathRow(source, i, at, through) {
  const hops = [];
  for (let k = i; k !== source; k = through[k]) hops.unshift(`→ ${k} (step ${at[k]})`);
  const rewards = current().rewards.slice(at[i]).map((all) => all[i]), sum = rewards.reduce((a, b) => a + b, 0);
  const swatch = element("span", "", "swatch");
  swatch.style.background = replay.colours[i];
  const meeting = i === source ? "0" : String(at[i] - step + 1);
  return element("tr", [element("th", [swatch, String(i)]), element("td", [source, ...hops].join(" ")), element("td", meeting), element("td", `from step ${at[i]}`), element("td", show(sum))]);
}

function drawCell(chart, i, t, credited, left, cell) {
  const reward = current().rewards[t][i];
  const box = shape(chart, "rect", { x: left + cell * t, y: cell * i, width: cell - 1, height: cell - 1, fill: credited ? replay.colours[i] : "var(--paper)", "fill-opacity": credited ? 0.45 : 1, stroke: "var(--line)", "stroke-width": 0.5, cursor: "pointer" });
  box.onclick = () => { $("source").value = i; step = t; render(); };
  const largest = Math.max(1e-9, ...current().rewards.map((all) => Math.abs(all[i])));
  if (Math.abs(reward) > 1e-9) shape(chart, "circle", { cx: left + cell * (t + 0.45), cy: cell * (i + 0.45), r: 1 + (cell * 0.3 * Math.abs(reward)) / largest, fill: reward > 0 ? "#0072B2" : "#E69F00" });
}

function describe(source, at, through) {
  const others = at.map((when, i) => ({ when, i })).filter(({ when, i }) => i !== source && when < Infinity);
  if (!others.length) return `Agent ${source} is credited with its own rewards only: no path leads to anybody else before the end.`;
  const path = (i) => { const names = [i]; while (names[0] !== source) names.unshift(through[names[0]]); return names.join(" → "); };
  const many = others.length > 6 ? ` and ${others.length - 6} more` : "";
  return `Beside its own: ${others.slice(0, 6).map(({ when, i }) => `${path(i)} from step ${when} on`).join("; ")}${many}.`;
}

function render() {
  step = Math.max(0, Math.min(step, length()));
  $("stage").innerHTML = current().frames[step];
  $("scrub").max = length(); $("scrub").value = step;
  $("where").textContent = step < length() ? `step ${step} of ${length()}` : `end after ${length()} (${current().ending})`;
  showRewards(); showCredit();
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(() => { if (step >= length()) play(false); else { step += 1; render(); } }, 1000 / Number($("speed").value)) : null;
  $("play").textContent = timer ? "❚❚ pause" : "▶ play";
}

function toggle() { if (!timer && step >= length()) step = 0; play(!timer); }
function arrows() { $("stage").classList.toggle("no-arrows", !$("arrows").checked); }

function choose(index) {
  replay = data.replays[index]; episode = 0; step = 0;
  play(false);
  const total = (k) => replay.episodes[k].rewards.flat().reduce((a, b) => a + b, 0);
  $("title").textContent = replay.environment;
  $("subtitle").textContent = `${replay.policy} policy, ${replay.episodes.length} episode${replay.episodes.length > 1 ? "s" : ""}, ${replay.colours.length} agents`;
  $("episode").replaceChildren(...replay.episodes.map((_, k) => new Option(`${k} (return ${show(total(k))})`, k)));
  $("source").replaceChildren(...replay.colours.map((_, i) => new Option(i, i)));
  $("trained").textContent = replay.note;
  const known = Boolean(replay.episodes[0].edges);
  $("credit-panel").hidden = !known; $("arrows-label").hidden = !known;
  render();
}

function start() {
  data.replays.forEach((one, k) => $("run").add(new Option(one.name, k)));
  $("run-label").hidden = data.replays.length < 2;
  $("run").onchange = () => choose(Number($("run").value));
  $("play").onclick = toggle; $("back").onclick = () => { step -= 1; render(); }; $("on").onclick = () => { step += 1; render(); };
  $("scrub").oninput = () => { step = Number($("scrub").value); render(); };
  $("episode").onchange = () => { episode = Number($("episode").value); step = 0; render(); };
  $("speed").onchange = () => { if (timer) play(true); };
  $("arrows").onchange = arrows; $("source").onchange = showCredit;
  document.addEventListener("keydown", onKey);
  choose(0);
}

/* On a page with more to it than the replay, keys belong to the replay only while something in it has the focus. */
const alone = !$("charts");

function onKey(event) {
  if (!alone && !$("replay").contains(event.target)) return;
  if (["SELECT", "INPUT", "BUTTON"].includes(event.target.tagName) && event.target.type !== "range" && event.key === " ") return;
  if (event.target.tagName === "SELECT") return;
  const jumps = { ArrowLeft: step - 1, ArrowRight: step + 1, Home: 0, End: length() };
  if (event.key in jumps) step = jumps[event.key];
  else if (event.key === " ") toggle();
  else if (event.key === "a") { $("arrows").checked = !$("arrows").checked; arrows(); }
  else if (/^[0-9]$/.test(event.key) && Number(event.key) < replay.colours.length) $("source").value = event.key;
  else return;
  event.preventDefault();
  render();
}

start();
