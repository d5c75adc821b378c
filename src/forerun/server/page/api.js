// The server's public API. The API key is kept only in this module's memory.

// This file is in page/ below the server's root, wherever a proxy puts that.
const ROOT = new URL("..", import.meta.url);
let key = null;
let askForKey = async () => null;

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const at = (path) => new URL(path, ROOT);

/** `ask(wasWrong)` resolves to a key, or to null where the reader has none. */
export function setKeyDialog(ask) {
  let asking = null; // several requests may need it at once; the reader is asked once
  askForKey = (wasWrong) => {
    asking ??= ask(wasWrong).finally(() => (asking = null));
    return asking;
  };
}

async function answered(path, options = {}) {
  for (;;) {
    const tried = key;
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(at(path), { ...options, headers, cache: "no-store" });
    if (response.ok) return response;
    if (response.status === 401) {
      if (tried !== key) continue; // somebody else was given it meanwhile
      let given = await askForKey(tried !== null);
      while (given !== null && /[^!-~]/.test(given)) given = await askForKey(true); // no header has it
      if (given !== null) {
        key = given;
        continue;
      }
    }
    throw new Refused(await reason(response), response.status);
  }
}

async function reason(response) {
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `The server answered ${response.status}.`;
}

export async function get(path, query = null) {
  const search = query ? `?${new URLSearchParams(query)}` : "";
  return (await answered(path + search)).json();
}

/** Each event of a streamed answer goes to `hear`; aborting `signal` ends it. */
export async function stream(path, body, hear, signal) {
  const response = await answered(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Refused(event.error.message, 500);
      hear(event);
    }
  }
}
