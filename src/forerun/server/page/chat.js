// The conversation: its messages, and what the user does with them.

import { Answer } from "./text/answer.js";
import { byId, copy, el, onFrame } from "./dom.js";
import { drawFigures, Sum } from "./figures.js";
import { Looking } from "./looking.js";
import { Reply } from "./reply.js";
import * as store from "./store.js";
import { Tokens } from "./tokens.js";

const FIGURES_EVERY = 120; // ms

export class Chat {
  constructor() {
    this._thread = byId("thread");
    this._scroller = byId("scroller");
    this._looking = new Looking(this._scroller);
    this._conversations = store.merged([]);
    this._current = this._conversations[0] ?? this._start();
    this._running = null; // the reply that is streamed
    this._figuresShown = 0;
    this._isFollowing = true;
    this._wire();
    this.show();
    store.whenChanged(() => this._adopt());
  }

  /** All rounds of this conversation that are known. */
  get rounds() {
    return this._current.messages.flatMap((message) => message.trace?.rounds ?? []);
  }

  _wire() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this._running ? this.stop() : this.send();
    });
    const input = byId("input");
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this._running && !byId("send").disabled) this.send();
    });
    input.addEventListener("input", () => fit(input));
    byId("new").addEventListener("click", () => this.open(this._start()));
    byId("export").addEventListener("click", () => store.download(this._current));
    byId("system").addEventListener("change", () => {
      this._current.system = byId("system").value;
      this._save(this._current);
    });
    byId("tint").addEventListener("change", () => this._tint());
    byId("markdown").addEventListener("change", () => this.show());
    for (const idea of document.querySelectorAll("[data-idea]")) {
      idea.addEventListener("click", () => {
        input.value = idea.dataset.idea;
        fit(input);
        input.focus();
      });
    }
    this._scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this._scroller;
      this._isFollowing = scrollHeight - scrollTop - clientHeight < 60;
      this._looking.hide();
    }, { passive: true });
    this._thread.addEventListener("pointerleave", () => this._looking.hide());
    this._thread.addEventListener("click", (event) => this._copyCode(event.target));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this._running) this.stop();
    });
    this._tint();
  }

  _start() {
    const empty = this._conversations.find((one) => one.messages.length === 0);
    if (empty) return empty;
    this._conversations.unshift(store.created());
    return this._conversations[0];
  }

  open(conversation) {
    this.stop();
    this._current = conversation;
    this.show();
    byId("input").focus();
  }

  remove(conversation) {
    store.forget(conversation);
    const others = this._conversations.filter((one) => one !== conversation);
    if (conversation !== this._current) {
      this._conversations = others;
      return this._adopt();
    }
    this.stop();
    this._conversations = store.merged(others);
    this._current = this._conversations[0] ?? this._start();
    this.show();
  }

  /** `conversation` was changed here and now. */
  _save(conversation) {
    conversation.changed = Date.now();
    store.save(this._conversations);
  }

  /** Another tab of this browser changed what is kept. What is answered here goes on, and is kept
      when it is complete. */
  _adopt() {
    const { id } = this._current;
    const found = store.merged(this._conversations).filter((one) => !this._running || one.id !== id);
    if (this._running) {
      this._conversations = [this._current, ...found];
      return this._list();
    }
    this._conversations = found;
    const now = found.find((one) => one.id === id) ?? found[0] ?? this._start();
    if (now === this._current) return this._list();
    this._current = now;
    this.show();
  }

  // What is on the screen.

  show() {
    const { messages, system } = this._current;
    byId("system").value = system ?? "";
    byId("welcome").hidden = messages.length > 0;
    byId("legend").hidden = messages.length === 0;
    this._looking.look(null, null);
    this._thread.replaceChildren(...messages.map((message, at) => this._message(message, at)));
    this._list();
    this._showFigures(messages.findLast((message) => message.trace));
    this._isFollowing = messages.length > 0;
    this._scroller.scrollTop = 0;
    this._follow();
  }

  _list() {
    byId("conversations").replaceChildren(...this._conversations.map((one) => {
      const title = store.titleOf(one);
      const isCurrent = one === this._current;
      return el("li", {},
        el("button", { type: "button", class: "title", "aria-current": isCurrent ? "true" : null, text: title,
          onclick: () => this.open(one) }),
        el("button", { type: "button", class: "quiet", "aria-label": `Delete “${title}”`, text: "×",
          onclick: () => this.remove(one) }));
    }));
  }

  _message(message, at) {
    const name = message.role === "user" ? "You" : "The model";
    const box = el("article", { class: `message ${message.role}`, "aria-label": name });
    if (message === this._running?.message) return this._growing(box);
    if (message.role === "user") {
      box.append(el("div", { class: "said", text: message.content }),
        el("div", { class: "tools" }, tool("Edit", () => this._edit(box, at)), tool("Copy", () => copy(message.content))));
      return box;
    }
    box.append(this._answer(kept(message)).element);
    this._close(box, message);
    return box;
  }

  /** What stands under an answer that is complete. */
  _close(box, message) {
    box.removeAttribute("aria-busy");
    if (message.error) box.append(el("p", { class: "failed", role: "alert", text: message.error }));
    if (message.note) box.append(el("p", { class: "fine", text: message.note }));
    box.append(el("div", { class: "tools" }, tool("Copy", () => copy(message.content)),
      tool("Regenerate", () => this.regenerate(), "only-last")));
  }

  _growing(box) {
    const answer = this._answer(this._running.tokens);
    Object.assign(this._running, { box, answer });
    box.setAttribute("aria-busy", "true");
    box.append(answer.element);
    return box;
  }

  _answer(tokens) {
    return new Answer(tokens, {
      markdown: byId("markdown").checked,
      look: (answer, index) => this._looking.look(answer, index),
    });
  }

  _edit(box, at) {
    const area = el("textarea", { "aria-label": "Edit your message", rows: "3" });
    area.value = this._current.messages[at].content;
    const done = (isKept) => {
      if (!isKept || !area.value.trim()) return this.show();
      if (byId("send").disabled) return; // the model is not there yet
      this.stop();
      this._current.messages.length = at;
      this._ask(area.value);
    };
    box.replaceChildren(area, el("div", { class: "tools" },
      tool("Send again", () => done(true)), tool("Cancel", () => done(false))));
    area.addEventListener("keydown", (event) => event.key === "Escape" && done(false));
    fit(area);
    area.focus();
  }

  _copyCode(target) {
    if (target.dataset.copy) copy(target.closest(".code").querySelector("code").textContent);
  }

  _tint() {
    document.body.classList.toggle("untinted", !byId("tint").checked);
  }

  // Asking.

  send() {
    const input = byId("input");
    if (!input.value.trim()) return;
    const words = input.value;
    input.value = "";
    fit(input);
    this._ask(words);
  }

  regenerate() {
    if (byId("send").disabled) return; // the model is not there yet, and this answer is
    this.stop();
    this._current.messages.pop();
    this._trim();
    this._reply();
  }

  _trim() {
    const { messages } = this._current;
    while (this._thread.children.length > messages.length) this._thread.lastElementChild.remove();
  }

  /** What was said before stays as it is on the screen. */
  _extend() {
    const { messages } = this._current;
    this._looking.look(null, null);
    for (let at = this._thread.children.length; at < messages.length; at++) {
      this._thread.append(this._message(messages[at], at));
    }
    byId("welcome").hidden = true;
    byId("legend").hidden = false;
    this._isFollowing = true;
    this._list();
  }

  _ask(words) {
    this._trim();
    this._current.messages.push({ role: "user", content: words });
    this._reply();
  }

  stop() {
    this._running?.stop();
  }

  async _reply() {
    const conversation = this._current;
    const reply = new Reply(conversation);
    this._running = reply;
    this._conversations = [conversation, ...this._conversations.filter((one) => one !== conversation)];
    this._extend();
    this._save(conversation);
    this._showRunning(true);
    await reply.run(onFrame(() => this._running === reply && this._draw(reply)));
    if (this._running === reply) {
      this._running = null;
      this._showRunning(false);
    }
    this._save(conversation);
    if (!reply.box.isConnected) return; // another conversation is shown, or the question was edited
    reply.answer.update();
    this._close(reply.box, reply.message);
    drawFigures(byId("figures"), reply.sum, reply.seconds);
    this._list();
    this._follow();
    byId("announce").textContent = reply.message.error ?? "The answer is complete.";
  }

  _draw(reply) {
    reply.answer.update();
    this._follow();
    if (performance.now() - this._figuresShown < FIGURES_EVERY) return;
    this._figuresShown = performance.now();
    drawFigures(byId("figures"), reply.sum, reply.seconds);
  }

  _showRunning(isRunning) {
    const button = byId("send");
    button.textContent = isRunning ? "Stop" : "Send";
    button.classList.toggle("stop", isRunning);
    byId("announce").textContent = isRunning ? "The model is answering." : "";
  }

  _showFigures(message) {
    drawFigures(byId("figures"), new Sum(message?.trace?.rounds), message?.trace?.seconds ?? 0);
  }

  _follow() {
    if (this._isFollowing) this._scroller.scrollTop = this._scroller.scrollHeight;
  }
}

function tool(words, work, kind = "") {
  const isCopy = words === "Copy";
  const button = el("button", { type: "button", class: `quiet ${kind}`, text: words });
  button.addEventListener("click", async () => {
    await work();
    if (!isCopy) return;
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1200);
  });
  return button;
}

/** An answer as it was kept; without a trace where there was no room for it. */
function kept({ content, trace }) {
  return Tokens.from(content, trace ?? { rounds: [], tokens: [] });
}

/** As tall as its words, up to a third of the screen. */
function fit(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight / 3)}px`;
}
