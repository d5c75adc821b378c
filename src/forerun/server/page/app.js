// The start of the page: waits until the server is ready, reads its defaults, and shows a view.

import { at, get, setKeyDialog } from "./api.js";
import { Chat } from "./chat.js";
import { showDefaults } from "./controls.js";
import { byId, el } from "./dom.js";
import { Race } from "./race.js";
import { whenFull } from "./store.js";
import { Theory } from "./theory.js";

const VIEWS = ["chat", "race", "theory"];
const told = new Set();
let isReady = false; // before that, a view that is shown asks nothing
const WAIT = 500; // ms between two looks at a server that loads

function show(view) {
  for (const name of VIEWS) {
    const isShown = name === view;
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    byId(`view-${name}`).hidden = !isShown;
  }
  if (isReady) byId(`view-${view}`).dispatchEvent(new Event("shown"));
  history.replaceState(null, "", view === "chat" ? location.pathname : `#${view}`);
}

function wireTabs() {
  for (const name of VIEWS) byId(`tab-${name}`).addEventListener("click", () => show(name));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = VIEWS.findIndex((name) => byId(`tab-${name}`).getAttribute("aria-selected") === "true");
    const next = VIEWS[(at + step + VIEWS.length) % VIEWS.length];
    show(next);
    byId(`tab-${next}`).focus();
  });
}

function wirePanels() {
  for (const [button, panel] of [["open-side", "side"], ["open-insight", "insight"]]) {
    const toggle = (isOpen) => {
      byId(panel).classList.toggle("open", isOpen);
      byId(button).setAttribute("aria-expanded", String(isOpen));
    };
    byId(button).addEventListener("click", () => toggle(!byId(panel).classList.contains("open")));
    byId(`${panel}-close`).addEventListener("click", () => {
      toggle(false);
      byId(button).focus();
    });
  }
}

function keyDialog(wasWrong) {
  const dialog = byId("key-dialog");
  byId("key-wrong").hidden = !wasWrong;
  byId("key").value = "";
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "use" ? byId("key").value.trim() || null : null);
    dialog.returnValue = "";
    dialog.showModal();
  });
}

/** Each note once: what is full stays full. */
function tell(words) {
  if (told.has(words)) return;
  told.add(words);
  const note = el("p", { text: words });
  byId("notes").append(note);
  setTimeout(() => note.remove(), 8000);
}

async function untilReady() {
  const status = byId("status");
  for (;;) {
    const answer = await fetch(at("ready")).catch(() => null);
    if (answer?.ok) return;
    status.textContent = answer ? "the model is loading" : "no server at this address";
    status.className = "status waiting";
    await new Promise((resolve) => setTimeout(resolve, WAIT));
  }
}

async function start() {
  setKeyDialog(keyDialog);
  whenFull(tell);
  wireTabs();
  wirePanels();
  const chat = new Chat();
  new Race();
  new Theory(() => chat.rounds);
  show(VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "chat");
  await untilReady();
  try {
    const settings = await get("forerun/settings");
    showDefaults(settings);
    byId("status").textContent = settings.model;
    byId("status").className = "status ready";
  } catch (error) {
    byId("status").textContent = error.message;
    byId("status").className = "status failed";
  }
  byId("send").disabled = false; // without a key it asks again
  isReady = true;
  show(VIEWS.find((name) => !byId(`view-${name}`).hidden));
}

start();
