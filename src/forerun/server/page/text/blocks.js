// Where the blocks of a Markdown text begin and end, also while the text is still streamed.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^\n]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/;
const ITEM = /^([ \t]*)(?:[-*+]|(\d{1,9})[.)])[ \t]+/;
export const QUOTE = /^ {0,3}> ?/;
const ROW = /^ {0,3}\|/;

/** Where the code's text ends that is certain: its last line may become the closing fence. */
export function heldBack(text, block) {
  const last = text.lastIndexOf("\n", block.to - 1);
  const isOpen = /^ {0,3}(`*|~*)\s*$/.test(text.slice(Math.max(last + 1, block.from), block.to));
  return isOpen ? Math.max(last, block.from) : block.to;
}

function lineEnd(text, at) {
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end;
}

export function* lines(text, from, to) {
  for (let at = from; at < to; ) {
    const end = Math.min(to, lineEnd(text, at) + 1);
    yield [at, end];
    at = end;
  }
}

export function* cells(text, start, end) {
  let from = null;
  for (let at = start; at <= end; at++) {
    if (at < end && (text[at] !== "|" || text[at - 1] === "\\") && text[at] !== "\n") continue;
    if (from !== null && (at < end || text.slice(from, at).trim())) {
      if (text[at] === "|" || text.slice(from, at).trim()) yield [from, at];
    }
    from = at + 1;
  }
}

function startsBlock(line) {
  return !line.trim() || FENCE.test(line) || HEADING.test(line) || ITEM.test(line) ||
    QUOTE.test(line) || ROW.test(line) || RULE.test(line);
}

/** [start, end) with its markers, [from, to) without. `isComplete`: more text would not change it. */
export function nextBlock(text, start, isDone) {
  const eol = lineEnd(text, start);
  const line = text.slice(start, eol);
  const after = Math.min(eol + 1, text.length);
  const whole = { start, end: after, isComplete: eol < text.length };
  if (!line.trim()) return { ...whole, kind: "blank", from: start, to: start };
  const fence = FENCE.exec(line);
  // Its language is still coming.
  if (fence && eol === text.length && !isDone) return { ...whole, kind: "blank", from: start, to: start };
  if (fence) return codeBlock(text, start, after, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const from = start + heading[0].length;
    return { ...whole, kind: "heading", level: heading[1].length, from, to: eol };
  }
  if (RULE.test(line)) return { ...whole, kind: "rule", from: start, to: start };
  const item = ITEM.exec(line);
  if (item) {
    const number = item[2] === undefined ? null : Number(item[2]);
    const to = runEnd(text, after, (next) => !startsBlock(next));
    const found = { kind: "item", number, indent: item[1].length, from: start + item[0].length };
    return { ...found, ...ending(text, start, to) };
  }
  for (const [kind, mark] of [["quote", QUOTE], ["table", ROW]]) {
    if (!mark.test(line)) continue;
    const to = runEnd(text, after, (next) => mark.test(next));
    return { kind, from: start, ...ending(text, start, to) };
  }
  const to = runEnd(text, after, (next) => !startsBlock(next));
  return { kind: "paragraph", from: start, ...ending(text, start, to) };
}

/** The line end before the next block is not shown. */
function ending(text, start, end) {
  const to = text[end - 1] === "\n" ? end - 1 : end;
  return { start, end, to, isComplete: false };
}

function runEnd(text, at, goesOn) {
  while (at < text.length) {
    const eol = lineEnd(text, at);
    if (!goesOn(text.slice(at, eol))) break;
    at = Math.min(eol + 1, text.length);
  }
  return at;
}

function codeBlock(text, start, from, [, fence, language]) {
  const found = { kind: "code", start, from, language };
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
  for (let at = from; at < text.length; ) {
    const eol = lineEnd(text, at);
    const end = Math.min(eol + 1, text.length);
    if (closing.test(text.slice(at, eol)) && eol < text.length) {
      return { ...found, to: Math.max(from, at - 1), end, isComplete: true };
    }
    if (closing.test(text.slice(at, eol))) return { ...found, to: Math.max(from, at - 1), end };
    at = end;
  }
  return { ...found, to: text.length, end: text.length, isComplete: false };
}
