// Keys: the same on every page, listed by ?.

import { button, copyText, make } from "./dom.js";
import { toast } from "./states.js";
import { stepRow } from "./table.js";

const KEYS = [
  ["j, k", "Next or previous row; in a transcript, next or previous item"],
  ["Enter", "Open the row"],
  ["n, p", "Next or previous rollout"],
  ["/", "Search"],
  ["r", "Raw text instead of rendered, in a transcript"],
  ["t", "Tokens, in a rollout"],
  ["1, 2, 3, 4", "Label a rollout or task good, bad, reward hack or bad task; again to take it back"],
  ["←, →", "Next or previous token, in a call that has the focus"],
  ["c", "Copy a link to this view"],
  ["g", "All runs"],
  ["Esc", "Leave a field or close a dialog"],
  ["?", "This list"],
];

// A page answers to a key by handling the event `studio-key` (detail: the key) and preventing its default.
export function startShortcuts() {
  document.getElementById("help").addEventListener("click", showHelp);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    if (target.closest?.("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "Escape") return closeMenus();
    if (document.querySelector("dialog[open]")) return;
    const own = new CustomEvent("studio-key", { detail: event.key, cancelable: true });
    if (!dispatchEvent(own)) return event.preventDefault();
    const act = { "?": showHelp, "/": focusSearch, j: () => stepRow(1), k: () => stepRow(-1), c: copyLink, g: () => (location.hash = "#/runs") }[
      event.key
    ];
    if (!act) return;
    event.preventDefault();
    act();
  });
  addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
}

function closeMenus() {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
}

function focusSearch() {
  const field = document.querySelector("main input[type=search]");
  field?.focus();
  field?.select();
}

async function copyLink() {
  toast((await copyText(location.href)) ? "Link copied" : "Could not copy; the address bar has the link");
}

function showHelp() {
  const dialog = make("dialog", { "aria-labelledby": "help-title" });
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  dialog.append(
    make("h2", { id: "help-title" }, "Keyboard shortcuts"),
    make(
      "dl",
      { class: "keys" },
      KEYS.map(([keys, text]) => [
        make(
          "dt",
          {},
          keys.split(", ").map((key, at) => [at ? " " : null, make("kbd", {}, key)]),
        ),
        make("dd", {}, text),
      ]),
    ),
    make("div", { class: "actions" }, button("Close", "Close", close, { class: "primary" })),
  );
  dialog.addEventListener("cancel", close);
  document.body.append(dialog);
  dialog.showModal();
}
