// Conversations, stored only in this browser and shared by its tabs. The latest change of a
// conversation counts; a deletion is a change, too.

const NAME = "forerun.conversations";
const GONE = "forerun.deleted"; // [id, when], the latest last
const MOST_GONE = 500;
let onFull = () => {};

export const whenFull = (tell) => (onFull = tell);

function load() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "[]");
    if (Array.isArray(found) && found.every(isConversation)) return found;
  } catch {
    // A browser may keep nothing at all, or something else under this name.
  }
  onFull("Kept conversations could not be read; this starts without them.");
  return [];
}

function isConversation(one) {
  const isMessage = ({ role, content }) => ["user", "assistant"].includes(role) && typeof content === "string";
  return typeof one?.id === "string" && Array.isArray(one.messages) &&
    one.messages.every((message) => message && isMessage(message));
}

const changedAt = (one) => one.changed ?? one.created;

/** These, and what is kept by now; the one changed last comes first. */
export function merged(conversations) {
  const gone = new Map(deletions());
  const found = new Map();
  for (const one of [...conversations, ...load()]) {
    const other = found.get(one.id);
    if (gone.get(one.id) >= changedAt(one) || (other && changedAt(other) >= changedAt(one))) continue;
    found.set(one.id, one);
  }
  return [...found.values()].sort((one, other) => changedAt(other) - changedAt(one));
}

function deletions() {
  try {
    const found = JSON.parse(localStorage.getItem(GONE) ?? "[]");
    return Array.isArray(found) && found.every(Array.isArray) ? found : [];
  } catch {
    return [];
  }
}

export function forget({ id }) {
  write(load().filter((one) => one.id !== id)); // first, as it makes room
  const gone = [...deletions(), [id, Date.now()]].slice(-MOST_GONE);
  try {
    localStorage.setItem(GONE, JSON.stringify(gone));
  } catch {
    onFull("This browser has no room to note the deletion; another tab may bring the conversation back.");
  }
}

/** Where another tab changes what is kept. */
export function whenChanged(tell) {
  addEventListener("storage", ({ key }) => [NAME, GONE].includes(key) && tell());
}

/** With what other tabs kept. */
export function save(conversations) {
  write(merged(conversations));
}

/** Where there is no room, traces stay out, the oldest conversation's before others'. */
function write(conversations) {
  const kept = conversations
    .filter((one) => one.messages.length > 0)
    .map((one) => ({ ...one, messages: one.messages.map((message) => ({ ...message })) }));
  for (;;) {
    try {
      localStorage.setItem(NAME, JSON.stringify(kept));
      return;
    } catch (error) {
      if (error.name !== "QuotaExceededError") return onFull("This browser keeps nothing; export the conversation.");
      const oldest = kept.findLast((one) => one.messages.some((message) => message.trace));
      if (!oldest) return onFull("This browser has no room to keep the conversation; export it.");
      for (const message of oldest.messages) delete message.trace;
      onFull("This browser's storage is full: the tints of older answers are not kept.");
    }
  }
}

export function created() {
  return { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, created: Date.now(), messages: [] };
}

/** What the list calls it. */
export function titleOf(conversation) {
  const words = conversation.messages[0]?.content.trim().replace(/\s+/g, " ") ?? "";
  return words.length > 60 ? `${words.slice(0, 59)}…` : words || "New conversation";
}

export function download(conversation) {
  const text = JSON.stringify({ forerun: "conversation", version: 1, ...conversation }, null, 1);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = `forerun-${new Date(conversation.created).toISOString().slice(0, 16).replace(/:/g, "")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
