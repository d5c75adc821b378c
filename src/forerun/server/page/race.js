// The same question twice, each time alone on the engine, then replayed side by side on one clock.

import { stream } from "./api.js";
import { byId, el } from "./dom.js";

const LANES = {
  plain: [
    { name: "plain decoding", fields: () => ({ speculative: false }) },
    { name: "with speculation", fields: () => ({}) },
  ],
  edit: [
    { name: "without a prediction", fields: () => ({}) },
    { name: "with the text as prediction",
      fields: (text) => ({ prediction: { type: "content", content: text } }) },
  ],
};

export class Race {
  constructor() {
    this._controller = null;
    for (const radio of document.querySelectorAll("[name=race]")) {
      radio.addEventListener("change", () => this._showKind());
    }
    byId("race-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this._controller) this._controller.abort();
      else this._run();
    });
    this._showKind();
  }

  get _kind() {
    return document.querySelector("[name=race]:checked").value;
  }

  _showKind() {
    const isEdit = this._kind === "edit";
    byId("race-plain-fields").hidden = isEdit;
    byId("race-edit-fields").hidden = !isEdit;
    this._controller?.abort();
    byId("race-result").replaceChildren();
    byId("lanes").replaceChildren();
  }

  async _run() {
    const kind = this._kind;
    const text = byId("race-text").value;
    const words = kind === "edit" ? `${byId("race-instruction").value}\n\n${text}` : byId("race-prompt").value;
    if (!words.trim()) return;
    const common = {
      messages: [{ role: "user", content: words }],
      temperature: Number(byId("race-temperature").value || 0),
      max_completion_tokens: Number(byId("race-tokens").value || 128),
      seed: Math.floor(Math.random() * 2 ** 32), // the same for both
      return_token_ids: true,
      reasoning_format: "none",
      stream_options: { include_usage: true },
    };
    const lanes = LANES[kind].map(({ name, fields }) => new Lane(name, { ...common, ...fields(text) }));
    byId("lanes").replaceChildren(...lanes.map((lane) => lane.element));
    byId("race-result").replaceChildren();
    this._controller = new AbortController();
    byId("race-start").textContent = "Stop";
    byId("race-start").classList.add("stop");
    try {
      await this._race(lanes, this._controller.signal);
    } catch (error) {
      const said = error.name === "AbortError" ? "Stopped before the finish." : error.message;
      byId("race-result").replaceChildren(el("p", { class: "failed", role: "alert", text: said }));
      for (const lane of lanes) lane.halt();
    }
    this._controller = null;
    byId("race-start").textContent = "Start";
    byId("race-start").classList.remove("stop");
  }

  async _race([first, second], signal) {
    const say = (words) => byId("race-result").replaceChildren(el("p", { text: words }));
    say(`1 of 2: ${first.name}, alone.`);
    await first.run(signal, null);
    say(`2 of 2: ${second.name}, alone; the first run is shown again at its own pace.`);
    await Promise.all([second.run(signal, first.tokens.length), first.replay(signal)]);
    byId("race-result").replaceChildren(verdict(first, second));
  }
}

/** A track with a finish line, and the text as it comes. */
class Lane {
  constructor(name, body) {
    this.name = name;
    this._body = body;
    this._frame = null;
    this._clear();
    this._bar = el("div", { class: "bar" });
    this._text = el("div", { class: "lane-text" });
    this._time = el("span", { class: "lane-time", text: "–" });
    this.element = el("section", { class: "lane", "aria-label": name },
      el("div", { class: "lane-head" }, el("h2", { text: name }), this._time),
      el("div", { class: "track" }, this._bar), this._text);
  }

  _clear() {
    this.events = []; // { at, num, text }: seconds, tokens so far, text so far
    this.tokens = [];
    this.usage = null;
    this.seconds = null;
  }

  /** `num` tokens are the finish; null: nobody knows yet. A salt of its own: neither lane finds the
   * other's prompt in the cache, nor its answer among the texts that a drafter copies from. */
  async run(signal, num) {
    this._clear();
    const began = performance.now();
    const salt = `race ${began} ${Math.random()}`;
    let text = "";
    this._play(num ?? this._body.max_completion_tokens, began);
    await stream("v1/chat/completions", { ...this._body, cache_salt: salt }, (event) => {
      if (event.usage) this.usage = event.usage;
      const choice = event.choices[0];
      if (!choice?.token_ids) return;
      text += choice.delta.content ?? "";
      this.tokens.push(...choice.token_ids);
      this.events.push({ at: (performance.now() - began) / 1000, num: this.tokens.length, text });
    }, signal);
    this.seconds = this.events.at(-1)?.at ?? 0;
    this.element.classList.add("home");
    await this._shown();
  }

  async replay(signal) {
    this.element.classList.remove("home");
    this._play(this.tokens.length, performance.now());
    signal.addEventListener("abort", () => this.halt());
    await this._shown();
  }

  halt() {
    cancelAnimationFrame(this._frame);
    this._over?.();
  }

  /** Draws what had come by now, until the last event is drawn. */
  _play(num, began) {
    this._text.textContent = "";
    const over = new Promise((resolve) => (this._over = resolve));
    this._shown = () => over;
    let next = 0;
    const draw = () => {
      const now = (performance.now() - began) / 1000;
      const before = next;
      while (next < this.events.length && this.events[next].at <= now) next += 1;
      const event = this.events[next - 1];
      if (next > before) {
        this._bar.style.width = `${Math.min(100, (100 * event.num) / Math.max(1, num))}%`;
        this._text.textContent = event.text;
        this._text.scrollTop = this._text.scrollHeight;
      }
      const isHome = this.seconds !== null && next === this.events.length;
      this._time.textContent = `${(isHome ? this.seconds : now).toFixed(2)} s`;
      if (isHome) {
        this._bar.style.width = "100%";
        this.element.classList.add("home");
        this._over();
      } else this._frame = requestAnimationFrame(draw);
    };
    draw();
  }
}

function verdict(first, second) {
  const ratio = first.seconds / second.seconds;
  const differs = first.tokens.findIndex((token, at) => token !== second.tokens[at]);
  const isSame = differs < 0 && first.tokens.length === second.tokens.length;
  const passes = (lane) => lane.usage?.forerun.target_passes ?? "–";
  const speed = (lane) => (lane.tokens.length / lane.seconds).toFixed(1);
  const found = (lane) => `${lane.name}: ${lane.seconds.toFixed(2)} s, ${speed(lane)} tokens a second`;
  return el("div", {},
    el("p", { class: "ratio" }, el("strong", { text: `${ratio.toFixed(2)}×` }),
      ratio >= 1 ? ` as fast ${second.name}` : ` the speed ${second.name}: slower, this time`,
      `, with ${passes(second)} passes instead of ${passes(first)}`),
    el("p", { class: isSame ? "same" : "failed", text: isSame
      ? `✓ identical tokens: all ${first.tokens.length} are the same`
      : `✗ not identical: they differ from token ${(differs < 0 ? Math.min(first.tokens.length, second.tokens.length) : differs) + 1} on` }),
    el("p", { class: "fine", text: `${found(first)}. ${found(second)}. One after the other, on this server as it is now.` }));
}
