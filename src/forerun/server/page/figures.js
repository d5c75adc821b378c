// The figures of speculation for an answer so far, from its trace.

import { el, percent, svg } from "./dom.js";

/** Sums over rounds, which grow as rounds come. `depths` are the guesses' depth in each round. */
export class Sum {
  constructor(rounds = []) {
    this.tokens = this.guesses = this.accepted = this.misses = 0;
    this.positions = []; // [judged, accepted] by depth
    this.depths = [];
    rounds.forEach((round) => this.add(round));
  }

  add(round) {
    this.tokens += round.emitted.length;
    this.guesses += round.tokens.length;
    this.accepted += round.accepted.length;
    this.depths.push(Math.max(0, ...depthsOf(round.parents)));
    // A level is judged if all before it was accepted; it is missed where the path stops short.
    const isMissed = missed(round);
    if (isMissed) this.misses += 1;
    for (let level = 0; level < round.accepted.length + isMissed; level++) {
      this.positions[level] ??= [0, 0];
      this.positions[level][0] += 1;
      if (level < round.accepted.length) this.positions[level][1] += 1;
    }
  }

  get passes() {
    return this.depths.length;
  }

  get perPass() {
    return this.passes ? this.tokens / this.passes : null;
  }

  get alpha() {
    const judged = this.accepted + this.misses;
    return judged ? this.accepted / judged : null;
  }

  get saved() {
    return this.tokens - this.passes;
  }
}

function depthsOf(parents) {
  const found = [];
  for (const parent of parents) found.push(parent < 0 ? 1 : found[parent] + 1);
  return found;
}

/** Whether a guess was made right after the last accepted one, and was not the model's token. */
function missed(round) {
  const last = round.accepted.at(-1) ?? -1;
  return round.emitted.at(-1)?.origin === "recovered" && round.parents.includes(last);
}

/** `seconds` from the first token to the last. */
export function drawFigures(parent, sum, seconds) {
  const perSecond = seconds > 0 && sum.tokens > 1 ? (sum.tokens - 1) / seconds : null;
  parent.replaceChildren(
    el("dl", { class: "numbers" },
      ...number("tokens per pass", sum.perPass?.toFixed(2) ?? "–", "perPass"),
      ...number("tokens a second", perSecond?.toFixed(1) ?? "–", "perSecond"),
      ...number("passes saved", sum.passes ? `${sum.saved} of ${sum.tokens}` : "–", "saved"),
      ...number("guesses accepted", sum.guesses ? `${sum.accepted} of ${sum.guesses}` : "–", "accepted")),
    el("h3", { text: "Acceptance by position" }),
    bars(sum.positions),
    el("h3", { text: "Depth chosen, round by round" }),
    depthLine(sum.depths));
}

function number(name, value, id) {
  return [el("div", {}, el("dt", { text: name }), el("dd", { text: value, "data-figure": id }))];
}

const WIDTH = 300;

function bars(positions) {
  const shown = positions.slice(0, 16);
  if (shown.length === 0) return el("p", { class: "fine empty", text: "No guesses yet." });
  const height = 84, step = Math.min(44, WIDTH / shown.length);
  const words = shown.map(([judged, accepted], at) =>
    `position ${at + 1}: ${percent(accepted / judged)} of ${judged}`);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height + 16}`, class: "bars", role: "img",
    "aria-label": `Acceptance by position. ${words.join("; ")}.` });
  shown.forEach(([judged, accepted], at) => {
    const share = accepted / judged, x = at * step + 2, top = height - share * (height - 14);
    drawing.append(svg("g", {}, svg("title", { text: words[at] }),
      svg("rect", { class: "ghost", x, y: 14, width: step - 4, height: height - 14, rx: 2 }),
      svg("rect", { class: "bar", x, y: top, width: step - 4, height: height - top, rx: 2 }),
      svg("text", { x: x + step / 2 - 2, y: height + 12, text: at + 1 })));
  });
  return drawing;
}

function depthLine(depths) {
  if (depths.length === 0) return el("p", { class: "fine empty", text: "No rounds yet." });
  const height = 70, recent = depths.slice(-120), deepest = Math.max(1, ...recent);
  const step = WIDTH / Math.max(24, recent.length);
  const y = (depth) => height - 2 - (depth / deepest) * (height - 16);
  const d = recent.map((depth, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${y(depth).toFixed(1)}` +
    `H${((at + 1) * step).toFixed(1)}`).join("");
  const label = `Depth of the guesses in the last ${recent.length} rounds; the deepest is ${Math.max(...recent)}.`;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "depths", role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0), class: "axis" }),
    svg("text", { x: 0, y: 10, text: `deepest ${Math.max(...recent)}` }),
    svg("path", { d, class: "depth" }));
}
