// One answer as it is streamed: the request, what has arrived, and how long it took.

import { stream } from "./api.js";
import { chosen } from "./controls.js";
import { Sum } from "./figures.js";
import { Tokens } from "./tokens.js";

export class Reply {
  /** Becomes the conversation's last message. */
  constructor(conversation) {
    this.tokens = new Tokens();
    this.sum = new Sum(); // of its rounds
    this.message = { role: "assistant", content: "" };
    this._messages = asked(conversation);
    this._controller = new AbortController();
    this._began = null; // when the first token came, in ms
    this._last = null;
    conversation.messages.push(this.message);
  }

  /** From the first token to the last. */
  get seconds() {
    return this._began === null ? 0 : (this._last - this._began) / 1000;
  }

  stop() {
    this._controller.abort();
  }

  /** Until it is complete, stopped or refused; `tell` hears that something came. */
  async run(tell) {
    const body = {
      ...chosen(),
      messages: this._messages,
      logprobs: true,
      reasoning_format: "none", // what it thinks stays in its text, where tokens are shown
      forerun: { trace: true },
      stream_options: { include_usage: true },
    };
    const { message, tokens } = this;
    const hear = (event) => {
      this._hear(event);
      tell();
    };
    try {
      await stream("v1/chat/completions", body, hear, this._controller.signal);
    } catch (error) {
      if (error.name === "AbortError") message.note = "Stopped.";
      else message.error = error.message;
    }
    tokens.finish();
    if (message.finish === "length") message.note = "It ends here because the answer may not be longer.";
    message.content = tokens.text;
    message.trace = { ...tokens.toJSON(), seconds: this.seconds };
  }

  _hear({ choices: [choice], usage }) {
    if (usage) this.message.usage = usage;
    if (!choice) return;
    if (choice.finish_reason) this.message.finish = choice.finish_reason;
    if (choice.forerun?.trace.length) {
      this._last = performance.now();
      this._began ??= this._last;
    }
    this.tokens.add(choice).forEach((round) => this.sum.add(round));
  }
}

/** As the API wants it; answers that never came are left out. */
function asked({ messages, system }) {
  const said = messages.filter(({ content }) => content).map(({ role, content }) => ({ role, content }));
  return system ? [{ role: "system", content: system }, ...said] : said;
}
