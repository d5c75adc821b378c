// Details of a round: the token, what else was guessed in its place, and the proposal as a tree.

import { el, percent, svg, visible } from "./dom.js";
import { rejectedAt } from "./tokens.js";

export const ORIGINS = {
  accepted: "a guess that is the model's own token",
  recovered: "the model's own token in place of the first miss",
  bonus: "one more token, after all guesses were accepted",
  plain: "the model's own token; nothing was guessed",
};

/** Beside the token. */
export function tokenCard(tokens, index) {
  const token = tokens.list[index];
  const round = tokens.rounds[token.round];
  const rejected = rejectedAt(round, token.place);
  const probability = token.logprob === null ? "–" : percent(Math.exp(token.logprob));
  return el("div", {},
    el("p", { class: "card-head" },
      el("code", { class: `t ${token.origin}`, text: visible(round.emitted[token.place].token) }),
      el("span", { text: ` ${token.origin}: ${ORIGINS[token.origin]}` })),
    el("p", {},
      el("span", { text: `round ${token.round + 1} · the model gave it ${probability}` })),
    rejected.length === 0 ? null : el("p", { class: "missed" }, "rejected here: ",
      ...rejected.flatMap((node, nth) => [nth ? ", " : "",
        el("s", { text: visible(round.tokens[node]) })])));
}

/** For the panel: the round in words, and its tree. */
export function roundDetails(tokens, index) {
  const token = tokens.list[index];
  const round = tokens.rounds[token.round];
  const guessed = round.tokens.length;
  const said = guessed
    ? `${round.drafter} made ${guessed} ${guessed === 1 ? "guess" : "guesses"}; ` +
      `${round.accepted.length} accepted; ${round.emitted.length} ` +
      `${round.emitted.length === 1 ? "token" : "tokens"} from one pass of the model.`
    : `Nothing was guessed${round.choice ? ` (${round.choice})` : ""}: one token from one pass.`;
  return el("div", {},
    el("h3", { text: `Round ${token.round + 1} of ${tokens.rounds.length}` }),
    el("p", { text: said }),
    guessed ? el("div", { class: "tree-box", tabindex: "0", role: "group", "aria-label": "Proposal tree" },
      tree(round)) : null,
    guessed && round.choice ? el("p", { class: "fine", text: `Chosen: ${round.choice}.` }) : null);
}

const ROW = 30;
const GAP = 26;
const LETTER = 7.3;

/** Left to right: the root, the guesses by depth, and the token that ended the round. */
export function tree(round) {
  const nodes = placedNodes(round);
  const width = Math.max(...nodes.map((node) => node.x + node.width)) + 8;
  const height = Math.max(...nodes.map((node) => node.y)) + ROW;
  const words = `${round.tokens.length} guesses, accepted: ` +
    (round.accepted.map((node) => visible(round.tokens[node])).join(" ") || "none");
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "tree", "aria-label": words,
  });
  for (const node of nodes) {
    if (!node.parent) continue;
    const x1 = node.parent.x + node.parent.width;
    const y1 = node.parent.y + ROW / 2;
    const y2 = node.y + ROW / 2;
    const middle = (x1 + node.x) / 2;
    const d = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${node.x} ${y2}`;
    drawing.append(svg("path", { d, class: `edge ${node.kind}` }));
  }
  for (const node of nodes) drawing.append(box(node));
  return drawing;
}

function box(node) {
  const chance = node.chance === null ? "" : `; its drafter gave it ${percent(node.chance)}`;
  const title = node.kind === "root" ? "the last token before this round"
    : `${visible(node.token)}: ${node.kind}${chance}`;
  return svg("g", { class: `node ${node.kind}` },
    svg("title", { text: title }),
    svg("rect", { x: node.x, y: node.y + 4, width: node.width, height: ROW - 8, rx: 5 }),
    svg("text", { x: node.x + node.width / 2, y: node.y + ROW / 2 + 4, text: node.label }));
}

function placedNodes(round) {
  const path = new Set(round.accepted);
  const root = made("", "root", null, null);
  const nodes = round.tokens.map((token, at) =>
    made(token, path.has(at) ? "accepted" : "rejected", null, round.chances[at]));
  nodes.forEach((node, at) => (node.parent = nodes[round.parents[at]] ?? root));
  const end = round.emitted.at(-1);
  const last = nodes[round.accepted.at(-1)] ?? root;
  // A round that was cut short ends with an accepted guess, which is in the tree already.
  const all = end && end.origin !== "accepted"
    ? [root, ...nodes, made(end.token, end.origin, last, null)] : [root, ...nodes];
  const columns = [];
  for (const node of all) {
    node.depth = node.parent ? node.parent.depth + 1 : 0;
    (columns[node.depth] ??= []).push(node);
    node.parent?.children.push(node);
  }
  let x = 4;
  for (const column of columns) {
    const width = Math.max(...column.map((node) => node.width));
    for (const node of column) Object.assign(node, { x });
    x += width + GAP;
  }
  let row = 0;
  const order = (node) => {
    node.y = row * ROW;
    // The accepted path goes straight on; what branched off lies below it.
    const rank = { accepted: 0, bonus: 0, recovered: 0, rejected: 1 };
    node.children.sort((a, b) => rank[a.kind] - rank[b.kind]);
    node.children.forEach((child, nth) => {
      if (nth) row += 1;
      order(child);
    });
  };
  order(root);
  return all;
}

function made(token, kind, parent, chance) {
  const seen = kind === "root" ? "●" : visible(token);
  const label = seen.length > 14 ? `${seen.slice(0, 13)}…` : seen;
  const width = kind === "root" ? 18 : Math.max(22, label.length * LETTER + 14);
  return { token, kind, parent, chance, label, width, children: [] };
}
