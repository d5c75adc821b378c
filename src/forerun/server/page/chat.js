// The conversation: messages, what is being answered, and what a reader does with them.

import { stream } from "./api.js";
import { Answer } from "./answer.js";
import { chosen } from "./controls.js";
import { byId, copy, el, onFrame } from "./dom.js";
import { drawFigures } from "./figures.js";
import { roundDetails, tokenCard } from "./round.js";
import * as store from "./store.js";
import { Tokens } from "./tokens.js";

const FIGURES_EVERY = 120; // ms

export class Chat {
  constructor() {
    this._thread = byId("thread");
    this._scroller = byId("scroller");
    this._card = byId("card");
    this._conversations = store.load();
    this._current = this._conversations[0] ?? this._start();
    this._running = null; // { controller, answer, … } while one is streamed
    this._looking = null; // the answer whose token is looked at
    this._figuresShown = 0;
    this._isFollowing = true;
    this._wire();
    this.show();
  }

  get current() {
    return this._current;
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
      if (!this._running) this.send();
    });
    input.addEventListener("input", () => fit(input));
    byId("new").addEventListener("click", () => this.open(this._start()));
    byId("export").addEventListener("click", () => store.download(this._current));
    byId("system").addEventListener("change", () => {
      this._current.system = byId("system").value;
      this._save();
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
      this._card.hidden = true;
    }, { passive: true });
    this._thread.addEventListener("pointerleave", () => (this._card.hidden = true));
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
    if (conversation === this._current) this.stop();
    this._conversations = this._conversations.filter((one) => one !== conversation);
    if (conversation === this._current) this._current = this._conversations[0] ?? this._start();
    this._save();
    this.show();
  }

  _save() {
    store.save(this._conversations);
  }

  // What is on the screen.

  show() {
    const { messages, system } = this._current;
    byId("system").value = system ?? "";
    byId("welcome").hidden = messages.length > 0;
    byId("legend").hidden = messages.length === 0;
    this._look(null, null);
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

  /** `answer` is there already where the message was streamed. */
  _message(message, at, answer = null) {
    const box = el("article", { class: `message ${message.role}`, "aria-label": message.role === "user" ? "You" : "The model" });
    if (message.role === "user") {
      box.append(el("div", { class: "said", text: message.content }),
        el("div", { class: "tools" }, tool("Edit", () => this._edit(box, at)), tool("Copy", () => copy(message.content))));
      return box;
    }
    box.append((answer ?? this._answer(kept(message))).element);
    if (message.error) box.append(el("p", { class: "failed", role: "alert", text: message.error }));
    if (message.note) box.append(el("p", { class: "fine", text: message.note }));
    box.append(el("div", { class: "tools" }, tool("Copy", () => copy(message.content)),
      tool("Regenerate", () => this.regenerate(), "only-last")));
    return box;
  }

  _answer(tokens) {
    return new Answer(tokens, {
      markdown: byId("markdown").checked,
      look: (answer, index) => this._look(answer, index),
    });
  }

  _edit(box, at) {
    const area = el("textarea", { "aria-label": "Edit your message", rows: "3" });
    area.value = this._current.messages[at].content;
    const done = (isKept) => {
      if (!isKept || !area.value.trim()) return this.show();
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

  // Looking at a token.

  _look(answer, index) {
    if (this._looking && this._looking !== answer) this._looking.deselect();
    this._looking = index === null ? null : answer;
    document.body.classList.toggle("looking", index !== null);
    const details = byId("round");
    if (index === null || !answer.tokens.list[index]) {
      answer?.deselect();
      this._card.hidden = true;
      byId("round-hint").hidden = false;
      details.replaceChildren();
      return;
    }
    byId("round-hint").hidden = true;
    details.replaceChildren(roundDetails(answer.tokens, index));
    this._card.replaceChildren(tokenCard(answer.tokens, index));
    this._card.hidden = false;
    if (document.activeElement === answer.element) byId("announce").textContent = this._card.textContent;
    this._placeCard(answer.spanOf(index).getClientRects()[0]);
  }

  /** Under the token, or over it where there is no room below; never over the panel with the tree. */
  _placeCard(token) {
    const { offsetWidth: width, offsetHeight: height } = this._card;
    const right = this._scroller.getBoundingClientRect().right;
    const left = Math.max(8, Math.min(token.left, right - width - 8));
    const under = token.bottom + 8;
    const top = under + height > innerHeight - 8 ? token.top - height - 8 : under;
    Object.assign(this._card.style, { left: `${left}px`, top: `${Math.max(8, top)}px` });
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
    this._look(null, null);
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
    this._running?.controller.abort();
  }

  async _reply() {
    const conversation = this._current;
    const tokens = new Tokens();
    const message = { role: "assistant", content: "" };
    const asked = conversation.messages.map(({ role, content }) => ({ role, content }));
    if (conversation.system) asked.unshift({ role: "system", content: conversation.system });
    conversation.messages.push(message);
    this._conversations = [conversation, ...this._conversations.filter((one) => one !== conversation)];
    this._extend();
    this._save();
    const box = this._thread.lastElementChild;
    const answer = this._answer(tokens);
    box.replaceChildren(answer.element);
    box.setAttribute("aria-busy", "true");
    const running = { controller: new AbortController(), began: null, last: null };
    this._running = running;
    this._showRunning(true);
    const draw = onFrame(() => {
      if (this._running !== running) return;
      answer.update();
      this._follow();
      if (performance.now() - this._figuresShown > FIGURES_EVERY) this._drawFigures(tokens.rounds, running);
    });
    const hear = (event) => {
      const choice = event.choices[0];
      if (event.usage) message.usage = event.usage;
      if (!choice) return;
      if (choice.finish_reason) message.finish = choice.finish_reason;
      tokens.add(choice);
      if (choice.forerun?.trace.length) {
        running.last = performance.now();
        running.began ??= running.last;
      }
      draw();
    };
    try {
      const body = { ...chosen(), messages: asked, logprobs: true, forerun: { trace: true },
        stream_options: { include_usage: true } };
      await stream("/v1/chat/completions", body, hear, running.controller.signal);
    } catch (error) {
      if (error.name === "AbortError") message.note = "Stopped.";
      else message.error = error.message;
    }
    tokens.finish();
    if (message.finish === "length") message.note = "It ends here because the answer may not be longer.";
    message.content = tokens.text;
    message.trace = { ...tokens.toJSON(), seconds: running.began === null ? 0 : (running.last - running.began) / 1000 };
    if (this._running === running) {
      this._running = null;
      this._showRunning(false);
    }
    this._save();
    if (!box.isConnected) return; // another conversation is shown, or the question was edited
    answer.update();
    box.replaceWith(this._message(message, conversation.messages.indexOf(message), answer));
    this._showFigures(message);
    this._list();
    this._follow();
    byId("announce").textContent = message.error ?? "The answer is complete.";
  }

  _showRunning(isRunning) {
    const button = byId("send");
    button.textContent = isRunning ? "Stop" : "Send";
    button.classList.toggle("stop", isRunning);
    byId("announce").textContent = isRunning ? "The model is answering." : "";
  }

  _showFigures(message) {
    drawFigures(byId("figures"), message?.trace?.rounds ?? [], message?.trace?.seconds ?? 0);
  }

  _drawFigures(rounds, running) {
    this._figuresShown = performance.now();
    drawFigures(byId("figures"), rounds, (running.last - running.began) / 1000);
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
