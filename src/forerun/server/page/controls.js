// Sampling and speculation controls. An empty field means the server's default.

import { byId, el } from "./dom.js";

const NUMBERS = {
  temperature: { id: "temperature" },
  top_p: { id: "top-p" },
  top_k: { id: "top-k" },
  min_p: { id: "min-p" },
  max_completion_tokens: { id: "max-tokens" },
  seed: { id: "seed" },
};

export function showDefaults(settings) {
  for (const [name, value] of Object.entries(settings.sampling)) {
    byId(NUMBERS[name].id).placeholder = value;
  }
  byId("max-tokens").placeholder = settings.max_answer_tokens ?? "until it ends";
  const spec = settings.speculation;
  const methods = spec?.methods ?? [];
  byId("method").replaceChildren(
    el("option", { value: "", text: spec ? "the server's choice" : "off on this server" }),
    ...(methods.length > 1 ? methods.map((name) => el("option", { value: name, text: name })) : []),
    ...(spec ? [el("option", { value: "off", text: "off: plain decoding" })] : []));
  byId("depth").placeholder = spec?.num_speculative_tokens ?? "–";
  byId("branches").placeholder = spec?.num_branches ?? "–";
  for (const id of ["method", "depth", "branches", "acceptance"]) byId(id).disabled = !spec;
}

/** The fields of a request's body that a reader filled in. */
export function chosen() {
  const fields = {};
  for (const [name, { id }] of Object.entries(NUMBERS)) {
    const value = byId(id).value.trim();
    if (value !== "") fields[name] = Number(value);
  }
  const speculative = chosenSpeculation();
  if (speculative !== null) fields.speculative = speculative;
  return fields;
}

function chosenSpeculation() {
  const method = byId("method").value;
  if (method === "off") return false;
  const wanted = {};
  if (method) wanted.method = method;
  if (byId("depth").value) wanted.num_speculative_tokens = Number(byId("depth").value);
  if (byId("branches").value) wanted.num_branches = Number(byId("branches").value);
  if (byId("acceptance").value) wanted.acceptance = byId("acceptance").value;
  return Object.keys(wanted).length ? wanted : null;
}
