// The Markdown that models write, as elements. Positions are kept, so that every stretch of text is
// painted token by token. A block that is complete is never built again; of one that still grows,
// only its last few hundred characters are.

import { el } from "./dom.js";

const LONGEST = 400; // characters that emphasis, code or a link may span
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^\n]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/;
const ITEM = /^([ \t]*)(?:[-*+]|(\d{1,9})[.)])[ \t]+/;
const QUOTE = /^ {0,3}> ?/;
const ROW = /^ {0,3}\|/;
const LINK = /\[([^\]\n]{1,300})\]\((https?:\/\/[^\s)]{1,300})\)/y;

/** `paint(parent, start, end)` shows that stretch of the text. */
export class Markdown {
  constructor(container, paint) {
    this._container = container;
    this._paint = paint;
    this._start = 0; // of the block that still grows
    this._open = null; // { kind, parent, frozen }
  }

  update(text, isDone) {
    while (this._start < text.length) {
      const block = nextBlock(text, this._start, isDone);
      const isClosed = isDone || block.end < text.length || block.isComplete;
      this._show(text, block, isClosed);
      if (!isClosed) return;
      this._start = block.end;
      this._open = null;
    }
  }

  _show(text, block, isClosed) {
    if (this._open && this._open.kind !== block.kind) this._drop();
    this._open ??= this._begin(text, block);
    const { parent, frozen } = this._open;
    if (!parent) return;
    if (block.kind === "code") {
      const end = isClosed ? block.to : heldBack(text, block);
      if (end > frozen) this._paint(parent, frozen, end);
      this._open.frozen = Math.max(frozen, end);
    } else if (block.kind === "quote" || block.kind === "table") {
      parent.replaceChildren();
      (block.kind === "table" ? this._table : this._quote).call(this, parent, text, block);
    } else {
      this._grow(parent, text, block);
    }
  }

  /** What cannot change any more stays; the rest is built anew. */
  _grow(parent, text, block) {
    const open = this._open;
    while (open.numKept < parent.childNodes.length) parent.lastChild.remove();
    let point = open.frozen;
    if (block.to - open.frozen > 2 * LONGEST) {
      this._inline(null, text, open.frozen, block.to, (at) => {
        if (at <= block.to - LONGEST) point = at;
      });
      this._inline(parent, text, open.frozen, point);
      Object.assign(open, { frozen: point, numKept: parent.childNodes.length });
    }
    this._inline(parent, text, point, block.to);
  }

  _drop() {
    if (this._open.root) this._open.root.remove();
    this._open = null;
  }

  _begin(text, block) {
    const { root, parent } = this._element(block);
    if (root && !root.parentNode) this._container.append(root);
    return { kind: block.kind, root, parent, frozen: block.from, numKept: 0 };
  }

  _element(block) {
    const simple = (tag) => {
      const root = el(tag);
      return { root, parent: root };
    };
    switch (block.kind) {
      case "blank":
        return {};
      case "rule":
        return { root: el("hr") };
      case "heading":
        return simple(`h${Math.min(6, block.level + 2)}`);
      case "code":
        return codeBox(block.language);
      case "quote":
        return simple("blockquote");
      case "table": {
        const table = el("table");
        return { root: el("div", { class: "scroll", tabindex: "0" }, table), parent: table };
      }
      case "item":
        return this._item(block);
      default:
        return simple("p");
    }
  }

  /** Goes on with the list before it, if that is of the same kind. */
  _item(block) {
    const tag = block.number === null ? "ul" : "ol";
    const last = this._container.lastElementChild;
    const item = el("li", { class: `in${Math.min(3, block.indent >> 1)}` });
    if (last?.localName === tag && block.number !== 1) {
      last.append(item);
      return { root: item, parent: item };
    }
    const list = el(tag, { start: block.number > 1 ? block.number : null }, item);
    return { root: list, parent: item };
  }

  _quote(parent, text, block) {
    for (const [start, end] of lines(text, block.from, block.to)) {
      const mark = QUOTE.exec(text.slice(start, end));
      this._inline(parent, text, start + (mark ? mark[0].length : 0), end);
    }
  }

  _table(parent, text, block) {
    const rows = [...lines(text, block.from, block.to)];
    const isRuled = /^[\s|:-]+$/.test(text.slice(...(rows[1] ?? [0, 0]))) && rows.length > 1;
    rows.forEach(([start, end], nth) => {
      if (isRuled && nth === 1) return;
      const row = el("tr");
      for (const [from, to] of cells(text, start, end)) {
        const cell = el(isRuled && nth === 0 ? "th" : "td");
        this._inline(cell, text, from, to);
        row.append(cell);
      }
      parent.append(row);
    });
  }

  /** Without a parent nothing is shown; `pass` hears where a stretch may be cut. */
  _inline(parent, text, from, to, pass = null) {
    let plain = from;
    const flush = (end) => {
      if (parent && end > plain) this._paint(parent, plain, end);
    };
    for (let at = from; at < to; ) {
      const found = inlineAt(text, at, to);
      if (!found) {
        if (pass && text[at] === " ") pass(at);
        at += 1;
        continue;
      }
      flush(at);
      if (parent && found.tag === null) this._paint(parent, found.from, found.to);
      else if (parent) {
        const node = el(found.tag, found.props);
        if (found.tag === "code") this._paint(node, found.from, found.to);
        else this._inline(node, text, found.from, found.to);
        parent.append(node);
      }
      at = plain = found.end;
    }
    flush(to);
  }
}

function codeBox(language) {
  const code = el("code");
  const head = el("div", { class: "code-head" }, el("span", { text: language || "text" }),
    el("button", { type: "button", class: "quiet", "data-copy": "code", text: "Copy" }));
  const box = el("pre", { tabindex: "0", "aria-label": `Code, ${language || "text"}` }, code);
  return { root: el("div", { class: "code" }, head, box), parent: code };
}

/** Where the code's text ends that is certain: its last line may become the closing fence. */
function heldBack(text, block) {
  const last = text.lastIndexOf("\n", block.to - 1);
  const isOpen = /^ {0,3}(`*|~*)\s*$/.test(text.slice(Math.max(last + 1, block.from), block.to));
  return isOpen ? Math.max(last, block.from) : block.to;
}

function lineEnd(text, at) {
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end;
}

function* lines(text, from, to) {
  for (let at = from; at < to; ) {
    const end = Math.min(to, lineEnd(text, at) + 1);
    yield [at, end];
    at = end;
  }
}

function* cells(text, start, end) {
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
function nextBlock(text, start, isDone) {
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

/** What begins at `at` other than plain text: its tag, what it holds, and where it ends. */
function inlineAt(text, at, to) {
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
