// One answer on the screen: its text, tinted by how each token came about, and the selected token.

import { el } from "../dom.js";
import { Markdown } from "./markdown.js";

export class Answer {
  /** `look(answer, index)` hears which token is pointed at; index null: none any more. */
  constructor(tokens, { markdown, look }) {
    this.tokens = tokens;
    this.selected = null;
    this._look = look;
    this.element = el("div", {
      class: "answer",
      tabindex: "0",
      role: "group",
      "aria-label": "Answer. Left and right arrow keys look at its tokens.",
      onpointerover: (event) => this._point(event.target),
      onclick: (event) => this._point(event.target),
      onkeydown: (event) => this._key(event),
    });
    this._spans = [];
    this._shown = 0;
    this._paint = this._paint.bind(this);
    this._markdown = markdown ? new Markdown(this.element, this._paint) : null;
    if (!markdown) this.element.classList.add("raw");
    this.element.classList.toggle("growing", !tokens.isDone);
    this.update();
  }

  /** What came since. Text whose token is not placed yet waits, so that tints never change. */
  update() {
    const { tokens } = this;
    const last = tokens.list[tokens.placed - 1];
    const end = tokens.isDone ? tokens.text.length : (last?.end ?? 0);
    const text = tokens.text.slice(0, end);
    if (this._markdown) this._markdown.update(text, tokens.isDone);
    else if (end > this._shown) this._paint(this.element, this._shown, end);
    this._shown = end;
    if (tokens.isDone) this.element.classList.remove("growing");
  }

  _paint(parent, start, end) {
    const { list, placed, text } = this.tokens;
    let at = start;
    for (let index = this.tokens.indexAt(start); index < placed && at < end; index++) {
      const token = list[index];
      if (token.end === token.start) continue;
      const to = Math.min(end, token.end);
      const span = el("span", { class: `t ${token.origin}`, text: text.slice(at, to) });
      span.token = index;
      // What is built anew takes the place of what was there; a token may be in two pieces.
      const others = at === token.start ? [] : (this._spans[index] ?? []);
      this._spans[index] = [...others.filter((one) => one.isConnected || one.parentNode === parent), span];
      if (index === this.selected) span.classList.add("on");
      parent.append(span);
      at = to;
    }
    if (at < end) parent.append(text.slice(at, end));
  }

  _point(target) {
    if (target.token !== undefined) this.select(target.token);
  }

  _key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key === "Escape") this._look(this, null);
    if (!(event.key in steps) || event.target !== this.element) return;
    event.preventDefault();
    let index = this.selected ?? (event.key === "ArrowRight" ? -1 : this.tokens.placed);
    do index += steps[event.key];
    while (index >= 0 && index < this.tokens.placed && !this.spanOf(index));
    if (index >= 0 && index < this.tokens.placed) this.select(index);
  }

  select(index) {
    this._mark(false);
    this.selected = index;
    this._mark(true);
    this._look(this, index);
  }

  deselect() {
    this._mark(false);
    this.selected = null;
  }

  /** The first piece of a token on the screen. */
  spanOf(index) {
    return this._spans[index]?.find((span) => span.isConnected) ?? null;
  }

  _mark(isOn) {
    if (this.selected === null) return;
    for (const span of this._spans[this.selected] ?? []) span.classList.toggle("on", isOn);
  }
}
