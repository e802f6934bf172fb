// Starts the studio: shows the page that the address names, and keeps the frame around it.

import { api } from "./api.js";
import { entry, link, make, plainText, refill } from "./dom.js";
import { hashOf, parseHash } from "./router.js";
import { startShortcuts } from "./shortcuts.js";
import { errorState, statePage } from "./states.js";
import { comparePage } from "./page_compare.js";
import { doctorPage } from "./page_doctor.js";
import { rolloutsPage, tasksPage } from "./page_lists.js";
import { rolloutPage } from "./page_rollout.js";
import { runPage } from "./page_run.js";
import { runsPage } from "./page_runs.js";
import { sidePage } from "./page_side.js";
import { taskPage } from "./page_task.js";
import { trainingPage } from "./page_training.js";
import { workersPage } from "./page_workers.js";
import { IS_STATIC } from "./static.js";

// Each page: its function, and the parameters that make it another page rather than another view of the same one.
const PAGES = {
  runs: [runsPage, []],
  run: [runPage, ["run"]],
  tasks: [tasksPage, ["run"]],
  rollouts: [rolloutsPage, ["run"]],
  task: [taskPage, ["run", "task"]],
  rollout: [rolloutPage, ["run", "task", "rollout"]],
  side: [sidePage, ["run", "task", "rollout", "run2", "task2", "rollout2"]],
  compare: [comparePage, ["run"]],
  doctor: [doctorPage, ["run"]],
  workers: [workersPage, ["run"]],
  training: [trainingPage, ["run"]],
};

const main = document.getElementById("main");
let current = null;
let session = null;

function show() {
  const { parts, params } = parseHash();
  const name = parts[0] ?? (session.single_run ? "run" : "runs");
  if (!parts.length && session.single_run) params.set("run", session.single_run);
  const page = entry(PAGES, name);
  if (!page) return showUnknown(name);
  const key = JSON.stringify([name, ...page[1].map((own) => params.getAll(own))]);
  if (current?.key === key) return current.update?.(params);
  current?.controller.abort();
  const controller = new AbortController();
  const shown = { key, controller, update: null };
  const isFirst = current === null;
  current = shown;
  const node = make("div", { class: `page page-${name}` });
  main.replaceChildren(node);
  delete document.documentElement.dataset.ready;
  scrollTo(0, 0);
  const context = { node, params, session, signal: controller.signal, setTrail, isCurrent: () => current === shown, reload: () => reload() };
  try {
    shown.update = page[0](context)?.update ?? null;
  } catch (error) {
    node.replaceChildren(errorState(error, reload));
    throw error;
  }
  if (!isFirst) main.focus({ preventScroll: true });
  if (history.state?.y) restoreScroll(shown, history.state.y);
}

// Going back leads to the place that one left: each entry of the history knows how far it was scrolled.
function startScrollMemory() {
  history.scrollRestoration = "manual";
  let timer = null;
  const keep = () => history.replaceState({ y: scrollY }, "");
  addEventListener("scroll", () => {
    clearTimeout(timer);
    timer = setTimeout(keep, 120);
  });
  addEventListener("hashchange", () => clearTimeout(timer), { capture: true });
}

function restoreScroll(shown, y) {
  const root = document.documentElement;
  const observer = new MutationObserver(() => {
    if (current === shown && !("ready" in root.dataset)) return;
    observer.disconnect();
    if (current === shown) requestAnimationFrame(() => scrollTo(0, y));
  });
  observer.observe(root, { attributes: true, attributeFilter: ["data-ready"] });
}

function reload() {
  current?.controller.abort();
  current = { key: null, controller: new AbortController() };
  show();
}

function showUnknown(name) {
  current?.controller.abort();
  current = null;
  setTrail([["Not found"]]);
  main.replaceChildren(
    statePage(
      "No such page",
      `The studio has no page “${name}”.`,
      make("div", { class: "actions" }, link("#/runs", { class: "button" }, "All runs")),
    ),
  );
}

// The breadcrumbs and the title: pairs of text and address.
function setTrail(trail) {
  const items = [["Runs", hashOf(["runs"])], ...trail];
  const last = items.length - 1;
  refill(
    document.getElementById("crumbs"),
    items.map(([text, href], at) =>
      make("li", { title: plainText(text) }, at === last ? make("span", { "aria-current": "page" }, text) : link(href, {}, text)),
    ),
  );
  document.title = [
    ...items
      .slice(trail.length ? 1 : 0)
      .map(([text]) => plainText(text))
      .reverse(),
    "Gymnast Studio",
  ].join(" · ");
}

function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.classList.contains("dark") || (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    root.classList.remove("light", "dark");
    root.classList.add(isDark ? "light" : "dark");
    try {
      localStorage.setItem("gymnast-theme", isDark ? "light" : "dark");
    } catch {
      // the choice lasts as long as the page
    }
  });
}

function startConnection() {
  const node = document.getElementById("connection");
  const say = (text, state) => {
    refill(node, make("span", {}, text));
    node.className = `connection ${state}`;
    node.title = text;
  };
  if (IS_STATIC) return say("static export", "");
  say("connecting", "");
  addEventListener("studio-connection", ({ detail }) =>
    say(detail ? (session?.read_only ? "live, read-only" : "live") : "reconnecting…", detail ? "live" : "lost"),
  );
}

async function start() {
  startTheme();
  startConnection();
  startShortcuts();
  startScrollMemory();
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  try {
    session = await api.session();
  } catch (error) {
    main.replaceChildren(errorState(error, () => location.reload()));
    return;
  }
  addEventListener("hashchange", show);
  show();
}

start();
