// Conversations, kept in this browser alone.

const NAME = "forerun.conversations";
let onFull = () => {};

export const whenFull = (tell) => (onFull = tell);

export function load() {
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
  return Array.isArray(one?.messages) && one.messages.every((message) => message && isMessage(message));
}

/** Newest first. Where there is no room, traces stay out, the oldest conversation's before others'. */
export function save(conversations) {
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
