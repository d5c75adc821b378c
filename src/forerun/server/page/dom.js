// Elements are built, never parsed: what a model says can only become text.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `text` is its words, `on…` its listeners, all else attributes. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Spaces and line ends that can be seen, for a token shown by itself. */
export function visible(text) {
  return text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥") || "∅";
}

export function percent(share) {
  if (share === null || Number.isNaN(share)) return "–";
  const value = 100 * share;
  return value > 0 && value < 1 ? "< 1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

/** Into the clipboard, also on a plain http address where browsers offer no clipboard. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** `work` at most once a frame, however often it is asked for. */
export function onFrame(work) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      work();
    });
  };
}
