// Turns the Markdown that models write into elements. Positions are kept, so that all text is painted
// token by token. A complete block is never rebuilt; of a growing one, only the last few hundred
// characters are.

import { cells, heldBack, lines, nextBlock, QUOTE } from "./blocks.js";
import { el } from "../dom.js";
import { inlineAt, LONGEST } from "./inline.js";

const MOST_LINES = 2000; // characters of code in one box, and the rest of its last line

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
    const { parent } = this._open;
    if (!parent) return;
    if (block.kind === "code") {
      this._code(parent, text, isClosed ? block.to : heldBack(text, block));
    } else if (block.kind === "quote" || block.kind === "table") {
      parent.replaceChildren();
      (block.kind === "table" ? this._table : this._quote).call(this, parent, text, block);
    } else {
      this._grow(parent, text, block);
    }
  }

  /** In boxes of some lines each: a browser lays out a box anew, all of it, where text is added. */
  _code(parent, text, end) {
    const open = this._open;
    while (open.frozen < end) {
      open.lines ??= parent.appendChild(el("span", { class: "lines" }));
      const last = text.indexOf("\n", Math.max(open.frozen, open.linesFrom + MOST_LINES));
      const isFull = last >= 0 && last < end;
      const to = isFull ? last + 1 : end;
      this._paint(open.lines, open.frozen, to);
      open.frozen = to;
      if (isFull) Object.assign(open, { lines: null, linesFrom: to });
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
    return { kind: block.kind, root, parent, frozen: block.from, numKept: 0, lines: null, linesFrom: block.from };
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
