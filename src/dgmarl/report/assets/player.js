/* Player of recorded episodes, with the controls of player_part.html: data.replays = [{name, environment, policy, actions, colours, episodes}].
   startPlayer({everywhere, draw, loaded, key}): whether keys work without focus, a function that draws the rest of a step, and
   optional functions that are called after loading a run and with other keys (returning whether the key was handled). */
let replay, episode = 0, step = 0, timer = null, player;
const current = () => replay.episodes[episode];
const length = () => current().rewards.length;

/* Name of an agent's action at this step; empty at the end or if actions were not recorded. */
function actionOf(agent) {
  const action = current().actions?.[step]?.[agent];
  return action === undefined ? "" : replay.actions[action] ?? String(action);
}

/* The frame of a step: there is one for every `stride` steps, and one after the last. */
function frame(at) {
  const { frames, stride } = current();
  return at < length() ? frames[Math.floor(at / stride)] : frames.at(-1);
}

function go(to) {
  step = Math.max(0, Math.min(to, length()));
  $("stage").innerHTML = frame(step);
  $("scrub").max = length(); $("scrub").value = step;
  $("where").textContent = step < length() ? `step ${step} of ${length()}` : `end after ${length()} (${current().ending})`;
  player.draw();
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(() => { if (step >= length()) play(false); else go(step + 1); }, 1000 / Number($("speed").value)) : null;
  $("play").textContent = timer ? "❚❚ pause" : "▶ play";
}

function toggle() {
  if (!timer && step >= length()) go(0);
  play(!timer);
}

function load(index) {
  replay = data.replays[index]; episode = 0;
  play(false);
  const total = (k) => replay.episodes[k].rewards.flat().reduce((a, b) => a + b, 0);
  $("title").textContent = replay.environment;
  $("subtitle").textContent = `${replay.policy} policy, ${replay.episodes.length} episode${replay.episodes.length > 1 ? "s" : ""}, ${replay.colours.length} agents`;
  $("episode").replaceChildren(...replay.episodes.map((_, k) => new Option(`${k} (return ${show(total(k))})`, k)));
  player.loaded?.();
  go(0);
}

function onKey(event) {
  if (!player.everywhere && !$("replay").contains(event.target)) return;
  if (event.target.matches("select, input[type=number], input[type=range]:not(#scrub)")) return;
  if (event.key === " " && event.target.matches("button, input[type=checkbox]")) return;
  const jumps = { ArrowLeft: step - 1, ArrowRight: step + 1, Home: 0, End: length() };
  if (event.key in jumps) go(jumps[event.key]);
  else if (event.key === " ") toggle();
  else if (!player.key?.(event.key)) return;
  event.preventDefault();
}

function startPlayer(page) {
  player = page;
  data.replays.forEach((one, k) => $("run").add(new Option(one.name, k)));
  $("run-label").hidden = data.replays.length < 2;
  $("run").onchange = () => load(Number($("run").value));
  $("play").onclick = toggle; $("back").onclick = () => go(step - 1); $("on").onclick = () => go(step + 1);
  $("scrub").oninput = () => go(Number($("scrub").value));
  $("episode").onchange = () => { episode = Number($("episode").value); go(0); };
  $("speed").onchange = () => { if (timer) play(true); };
  document.addEventListener("keydown", onKey);
  addEventListener("resize", () => player.draw());
  load(0);
}
