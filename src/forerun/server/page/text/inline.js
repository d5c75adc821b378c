// Emphasis, code and links inside a stretch of Markdown.

export const LONGEST = 400; // characters that one of them may span
const LINK = /\[([^\]\n]{1,300})\]\((https?:\/\/[^\s)]{1,300})\)/y;

/** What begins at `at` other than plain text: its tag, what it holds, and where it ends. */
export function inlineAt(text, at, to) {
  const limit = Math.min(to, at + LONGEST);
  switch (text[at]) {
    case "\\":
      if (!/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") || at + 1 >= to) return null;
      return { tag: null, from: at + 1, to: at + 2, end: at + 2 };
    case "`":
      return codeSpan(text, at, limit);
    case "*":
    case "_":
      return emphasis(text, at, limit);
    case "[": {
      LINK.lastIndex = at;
      const link = LINK.exec(text);
      if (!link || at + link[0].length > limit) return null;
      const props = { href: link[2], rel: "noopener noreferrer nofollow", target: "_blank" };
      return { tag: "a", props, from: at + 1, to: at + 1 + link[1].length, end: at + link[0].length };
    }
    default:
      return null;
  }
}

function codeSpan(text, at, limit) {
  const marks = /`+/y;
  marks.lastIndex = at;
  const fence = marks.exec(text)[0];
  let close = at + fence.length;
  while ((close = text.indexOf(fence, close)) >= 0 && close + fence.length <= limit) {
    if (text[close + fence.length] !== "`" && text[close - 1] !== "`") {
      return { tag: "code", from: at + fence.length, to: close, end: close + fence.length };
    }
    close += 1;
  }
  return { tag: null, from: at, to: at + fence.length, end: at + fence.length };
}

function emphasis(text, at, limit) {
  const mark = text[at];
  const size = text[at + 1] === mark ? 2 : 1;
  const from = at + size;
  const isWord = (character) => /[\p{L}\p{N}_]/u.test(character ?? "");
  if (/\s/.test(text[from] ?? " ") || text[from] === mark) return null;
  if (mark === "_" && isWord(text[at - 1])) return null;
  for (let close = from + 1; close + size <= limit; close++) {
    if (text[close] === "\n" && text[close + 1] === "\n") return null;
    const isMark = text.startsWith(mark.repeat(size), close) && !/\s/.test(text[close - 1]);
    if (!isMark || (size === 1 && (text[close + 1] === mark || text[close - 1] === mark))) continue;
    if (mark === "_" && isWord(text[close + size])) continue;
    return { tag: size === 2 ? "strong" : "em", from, to: close, end: close + size };
  }
  return null;
}
