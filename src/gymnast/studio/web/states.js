// What a page shows when it has nothing else to show: loading, empty, gone, not responding.

import { button, link, make } from "./dom.js";

export function loading(label = "Loading") {
  return make("div", { class: "skeleton", role: "status", "aria-label": label }, make("i", {}), make("i", {}), make("i", {}), make("i", {}));
}

export function statePage(title, text, ...more) {
  return make("div", { class: "state-page" }, make("h1", {}, title), make("p", {}, text), ...more);
}

export function notice(text, ...more) {
  return make("p", { class: "notice", role: "status" }, text, ...more);
}

// An error in place of what could not be loaded.
export function errorState(error, retry) {
  if (error.isGone) return goneState(error);
  const title = error.status === 403 ? "No access" : error.status === 0 ? "Server not responding" : "Could not load this";
  return statePage(
    title,
    error.message,
    error.next ? make("p", {}, error.next) : null,
    make(
      "div",
      { class: "actions" },
      retry ? button("Try again", "Try again", retry, { class: "primary" }) : null,
      link("#/runs", { class: "button" }, "All runs"),
    ),
  );
}

function goneState(error) {
  return statePage(
    "Not found",
    error.message,
    error.next ? make("p", {}, error.next) : null,
    make("p", {}, "If it shows up, so does this page."),
    make("div", { class: "actions" }, link("#/runs", { class: "button" }, "All runs")),
  );
}

export function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (node.hidden = true), 3500);
}

// Asks before something that cannot be undone.
export function isIndex(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

export function wrongAddress(node, setTrail, what) {
  setTrail([["Not found"]]);
  node.append(
    statePage(
      "Incomplete address",
      `This address does not name ${what} by number.`,
      make("div", { class: "actions" }, link("#/runs", { class: "button" }, "All runs")),
    ),
  );
  document.documentElement.dataset.ready = "true";
  return {};
}

export function confirmAction(question, detail, action) {
  return new Promise((resolve) => {
    const dialog = make("dialog", { "aria-labelledby": "confirm-title" });
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    dialog.append(
      make("h2", { id: "confirm-title" }, question),
      make("p", { class: "quiet" }, detail),
      make(
        "div",
        { class: "actions" },
        button("Keep going", "Keep going", () => close(false)),
        button(action, action, () => close(true), { class: "primary" }),
      ),
    );
    dialog.addEventListener("cancel", () => close(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}
