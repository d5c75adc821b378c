// The speed-up that theory expects. All numbers come from the server's closed forms.

import { get } from "./api.js";
import { byId, el, onFrame, svg } from "./dom.js";
import { Sum } from "./figures.js";

const DEEPEST = 16;
const BOX = { left: 44, right: 12, top: 16, bottom: 40, height: 340 };

export class Theory {
  constructor(rounds) {
    this._rounds = rounds; // of the conversation, when asked
    this._costs = null;
    this._asked = 0;
    for (const id of ["alpha", "cost", "slope"]) {
      byId(id).addEventListener("input", onFrame(() => this.draw()));
    }
    byId("use-alpha").addEventListener("click", () => {
      byId("alpha").value = this._found.alpha.toFixed(2);
      this.draw();
    });
    byId("view-theory").addEventListener("shown", () => this.refresh());
    addEventListener("resize", onFrame(() => byId("view-theory").hidden || this.draw()));
  }

  get _found() {
    return new Sum(this._rounds());
  }

  /** What a guess of this conversation's drafter was measured to cost. */
  _ownCost() {
    const names = this._rounds().map((round) => round.drafter).filter((name) => name !== null);
    return this._costs?.guesses[names.at(-1)];
  }

  async refresh() {
    try {
      this._costs = (await get("forerun/settings")).speculation?.costs ?? null;
    } catch (error) {
      byId("meaning").textContent = error.message;
      return;
    }
    byId("measured").textContent = this._costs?.verify_cost
      ? `This machine: a pass over one token takes ${(1000 * this._costs.plain_pass_seconds).toFixed(1)} ms; ` +
        `measured v(γ): ${this._costs.verify_cost.split(",").map((point) => `v(${point.replace(":", ") = ")}`).join(", ")}` +
        Object.entries(this._costs.guesses).map(([name, c]) => `; c of ${name} ${c.toPrecision(2)}`).join("") + "."
      : "This server has measured no v(γ): it runs without the controller, so only the sliders' curve is drawn.";
    await this.draw();
  }

  async draw() {
    const [alpha, cost, slope] = ["alpha", "cost", "slope"].map((id) => byId(id).value);
    byId("alpha-out").textContent = Number(alpha).toFixed(2);
    byId("cost-out").textContent = Number(cost).toFixed(2);
    byId("slope-out").textContent = `1 + ${Number(slope).toFixed(2)} γ`;
    const asked = ++this._asked;
    const found = this._found;
    const used = found.depths.filter((one) => one > 0);
    const depth = used.length ? used.reduce((sum, one) => sum + one, 0) / used.length : null;
    byId("use-alpha").hidden = found.alpha === null;
    if (found.alpha !== null) {
      byId("use-alpha").textContent = `Use this conversation's α, ${found.alpha.toFixed(2)}`;
    }
    const measured = this._costs?.verify_cost;
    const table = (a, v, c = cost) =>
      get("forerun/theory", { alpha: a, cost: c, verify_cost: v, max_depth: DEEPEST });
    try {
      const [mine, machine, own] = await Promise.all([
        table(alpha, slope),
        measured ? table(alpha, measured) : null,
        found.alpha === null ? null : table(found.alpha, measured ?? slope, this._ownCost() ?? cost),
      ]);
      if (asked !== this._asked) return; // a later question is under way
      byId("meaning").textContent = mine.meaning;
      const here = own && { table: own, row: own.rows[Math.min(own.rows.length - 1, Math.round(depth))] };
      byId("curve").replaceChildren(chart(mine, machine, here, byId("curve").clientWidth));
      byId("curve-legend").replaceChildren(...legend(mine, machine, here));
      byId("rows").replaceChildren(...rows(mine));
    } catch (error) {
      byId("meaning").textContent = error.message;
    }
  }
}

function rows(table) {
  return table.rows.map((row) => el("tr", {},
    ...[row.depth, row.expected_tokens.toFixed(2), row.verify_cost.toFixed(2), row.speedup.toFixed(2),
      row.operations_factor.toFixed(2)].map((value) => el("td", { text: value }))));
}

/** As wide as there is room for, so that its words stay readable on a phone. */
function chart(mine, machine, point, room) {
  const { left, right, top, bottom, height } = BOX;
  const width = Math.max(260, Math.min(992, room));
  const all = [mine, machine, point?.table].flatMap((table) => table?.rows ?? []);
  const most = Math.max(2, Math.ceil(Math.max(...all.map((row) => row.speedup)) * 2) / 2);
  const x = (depth) => left + (depth / DEEPEST) * (width - left - right);
  const y = (speed) => height - bottom - (speed / most) * (height - top - bottom);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "chart",
    "aria-label": `Speedup by depth. ${mine.meaning}` });
  const step = most > 6 ? 2 : most > 3 ? 1 : 0.5;
  for (let speed = 0; speed <= most; speed += step) {
    drawing.append(
      svg("line", { x1: left, x2: width - right, y1: y(speed), y2: y(speed), class: speed === 1 ? "one" : "grid" }),
      svg("text", { x: left - 8, y: y(speed) + 4, class: "end", text: `${speed}×` }));
  }
  for (let depth = 0; depth <= DEEPEST; depth += 2) {
    drawing.append(svg("text", { x: x(depth), y: height - bottom + 18, class: "middle", text: depth }));
  }
  drawing.append(
    svg("text", { x: x(DEEPEST / 2), y: height - 4, class: "middle", text: "depth γ: guesses a round" }),
    svg("text", { x: width - right, y: y(1) + 15, class: "end", text: "plain decoding" }));
  for (const [table, kind] of [[machine, "machine"], [mine, "mine"]]) {
    const at = (row) => `${x(row.depth).toFixed(1)} ${y(row.speedup).toFixed(1)}`;
    if (table) drawing.append(svg("path", { d: `M${table.rows.map(at).join("L")}`, class: `curve ${kind}`, id: `curve-${kind}` }));
  }
  const best = mine.rows[mine.best_depth];
  drawing.append(svg("circle", { cx: x(best.depth), cy: y(best.speedup), r: 5, class: "best" }));
  if (point) drawing.append(svg("path", { d: diamond(x(point.row.depth), y(point.row.speedup)), class: "here", id: "here" }));
  return drawing;
}

const diamond = (x, y) => `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z`;

function legend(mine, machine, point) {
  const best = mine.rows[mine.best_depth];
  const entry = (kind, text) => el("li", { class: kind, text });
  return [
    entry("mine", `with the sliders; the dot is the best depth, ${best.depth}: ${best.speedup.toFixed(2)}×`),
    machine ? entry("machine", "the same α and c with this machine's measured v(γ)") : null,
    point ? entry("here", `this conversation: α ${point.table.alpha.toFixed(2)}, depth ${point.row.depth}: ` +
      `${point.row.speedup.toFixed(2)}× expected`) : null,
  ].filter(Boolean);
}
