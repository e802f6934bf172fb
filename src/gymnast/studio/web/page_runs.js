// The table of all runs: live, filtered, sorted, with several selected to compare.

import { api } from "./api.js";
import { button, entry, link, make, refill } from "./dom.js";
import { follow, throttle } from "./events.js";
import {
  formatAgo,
  formatCost,
  formatCount,
  formatFixed,
  formatFixedInterval,
  formatInterval,
  formatSeconds,
  formatTime,
  isNumber,
} from "./format.js";
import { intervalBar } from "./plots.js";
import { hashOf, setParams } from "./router.js";
import { failureText, progressBar, runLink, stateBadge } from "./run_parts.js";
import { errorState, loading, statePage } from "./states.js";
import { order } from "./static.js";
import { createTable, pager } from "./table.js";

const SIZE = 100;
const STATES = ["running", "paused", "draining", "complete", "incomplete", "interrupted", "unknown"];
const COLUMNS = [
  { key: "id", text: "Run", cell: (row) => row.id, className: "run-name", hint: (row) => row.problem ?? row.note ?? row.id },
  { key: "state", text: "State", cell: (row) => stateBadge(row.state), className: "bare-label" },
  { key: "models", text: "Model", cell: (row) => row.models?.join(", ") || null, className: "text-cell", hint: (row) => row.models?.join(", ") },
  {
    key: "environments",
    text: "Environments",
    cell: (row) => shortList(row.environments),
    className: "text-cell",
    hint: (row) => row.environments?.join(", "),
  },
  { key: "progress", text: "Progress", number: true, cell: progressCell },
  { key: "reward", text: "Mean reward", number: true, cell: rewardCell },
  {
    key: "failed",
    text: "Failed",
    number: true,
    cell: (row) => (row.failed ? make("span", { class: "bad" }, formatCount(row.failed)) : "0"),
    hint: (row) => failureText(row.failures) || null,
  },
  { key: "cost", text: "Cost", number: true, cell: (row) => (isNumber(row.cost) ? formatCost(row.cost) : null) },
  {
    key: "started_at",
    text: "Started",
    number: true,
    cell: (row) => formatAgo(row.started_at ?? row.updated_at),
    hint: (row) => formatTime(row.started_at ?? row.updated_at),
  },
  { key: "seconds", text: "Duration", number: true, cell: (row) => (isNumber(row.seconds) ? formatSeconds(row.seconds) : null) },
];
const VALUES = {
  id: (row) => row.id,
  models: (row) => row.models?.join(", ") || null,
  environments: (row) => row.environments?.join(", ") || null,
  state: (row) => STATES.indexOf(row.state),
  progress: (row) => row.scored,
  reward: (row) => row.mean_reward?.value,
  started_at: (row) => row.started_at ?? row.updated_at,
};

function shortList(names) {
  if (!names?.length) return null;
  return names.length > 2 ? `${names.slice(0, 2).join(", ")} +${names.length - 2}` : names.join(", ");
}

function progressCell(row) {
  if (row.kind === "training") return null;
  const text = isNumber(row.requested) ? `${formatCount(row.scored)} / ${formatCount(row.requested)}` : formatCount(row.scored);
  return make("span", { class: "progress-cell" }, text, progressBar(row));
}

function rewardCell(row) {
  const estimate = row.mean_reward;
  if (!isNumber(estimate?.value)) return null;
  return make(
    "span",
    { title: formatInterval(estimate.low, estimate.high) },
    formatFixed(estimate.value),
    isNumber(estimate.low) ? make("span", { class: "sub" }, ` ${formatFixedInterval(estimate.low, estimate.high, 2)}`) : null,
    intervalBar(estimate.value, estimate.low, estimate.high),
  );
}

function matches(row, words) {
  const text = [row.id, row.state, ...(row.models ?? []), ...(row.environments ?? []), ...(row.agents ?? []), row.note ?? ""]
    .join("\n")
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

export function runsPage({ node, params, session, signal, setTrail }) {
  setTrail([]);
  const rows = new Map();
  const selection = new Set(params.getAll("pick"));
  selection.nameOf = (row) => row.id;
  let view = params;
  let leftOut = 0;
  const search = make("input", { type: "search", class: "search", placeholder: "Filter by name, model, environment…", "aria-label": "Filter runs" });
  search.value = params.get("q") ?? "";
  search.addEventListener("input", () => setParams({ q: search.value, page: null }, { replace: true }));
  const state = make(
    "select",
    { "aria-label": "State" },
    make("option", { value: "" }, "Any state"),
    STATES.map((name) => make("option", { value: name }, name === "unknown" ? "no manifest" : name)),
  );
  state.value = params.get("state") ?? "";
  state.addEventListener("change", () => setParams({ state: state.value, page: null }));
  const count = make("span", { class: "quiet", role: "status" });
  const table = createTable({
    caption: "Runs",
    columns: COLUMNS,
    keyOf: (row) => row.id,
    hrefOf: (row) => (row.kind === "training" ? hashOf(["training"], { run: row.id }) : runLink(row.id)),
    onSort: (key, descending) => setParams({ sort: `${descending ? "-" : ""}${key}`, page: null }),
    selection,
    onSelect(key, isPicked) {
      if (isPicked) selection.add(key);
      else selection.delete(key);
      paint();
    },
    empty: () => "No run matches. Clear the filter to see all of them.",
  });
  const pages = make("div", {});
  const bar = make("div", {});
  const body = make("div", {}, loading("Loading runs"));
  node.append(make("div", { class: "page-head" }, make("div", {}, make("h1", {}, "Runs"), make("p", { class: "meta" }, session.folder ?? ""))), body);

  function paint() {
    const words = (view.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const sorting = view.get("sort") || "-started_at";
    const sort = { key: sorting.replace(/^-/, ""), descending: sorting.startsWith("-") };
    const value = entry(VALUES, sort.key) ?? ((row) => row[sort.key]);
    const shown = [...rows.values()]
      .filter((row) => matches(row, words) && (!view.get("state") || row.state === view.get("state")))
      .sort((a, b) => order(value(a), value(b), sort.descending ? -1 : 1) || order(a.id, b.id, 1));
    const page = Math.min(Number(view.get("page") ?? 0), Math.max(0, Math.ceil(shown.length / SIZE) - 1));
    table.show(shown.slice(page * SIZE, (page + 1) * SIZE), { sort });
    const live = shown.filter((row) => row.is_live).length;
    refill(
      count,
      `${formatCount(shown.length)}${shown.length === rows.size ? "" : ` of ${formatCount(rows.size)}`} runs${live ? `, ${live} live` : ""}${leftOut ? `; ${formatCount(leftOut)} more are not listed` : ""}`,
    );
    refill(pages, shown.length > SIZE ? pager({ page, size: SIZE, total: shown.length, onPage: (next) => setParams({ page: next || null }) }) : null);
    paintSelection();
  }

  function paintSelection() {
    const picked = [...selection].filter((id) => rows.has(id));
    const ready = picked.length >= 2;
    const query = new URLSearchParams(picked.map((id) => ["run", id]));
    refill(
      bar,
      picked.length
        ? make(
            "div",
            { class: "selection-bar", role: "region", "aria-label": "Selected runs" },
            make(
              "span",
              { class: "grow" },
              ready ? `${picked.length} runs selected. The first one is the baseline: ${picked[0]}` : "Select one more run to compare.",
            ),
            ready ? link(hashOf(["compare"], query), { class: "button" }, "Compare") : null,
            button("Clear", "Clear the selection", () => {
              selection.clear();
              paint();
            }),
          )
        : null,
    );
  }

  async function load() {
    try {
      const answer = await api.runs(signal);
      rows.clear();
      for (const row of answer.runs) rows.set(row.id, row);
      leftOut = answer.left_out ?? 0;
      settle();
    } catch (error) {
      if (signal.aborted) return;
      if (!rows.size) body.replaceChildren(errorState(error, load));
    }
    document.documentElement.dataset.ready = "true";
  }

  function settle() {
    if (rows.size) {
      if (!table.node.isConnected)
        body.replaceChildren(make("div", { class: "filters" }, search, state, make("span", { class: "grow" }), count), table.node, pages, bar);
      paint();
    } else {
      body.replaceChildren(
        statePage(
          "No runs yet",
          "Runs below this folder show up here as soon as they start. Try one:",
          make("code", {}, "gymnast demo"),
          make("p", {}, session.folder ?? ""),
        ),
      );
    }
  }

  const reload = throttle(load, 500, signal);
  follow(
    [],
    (name, data) => {
      if (name === "hello") reload();
      if (name !== "runs") return;
      for (const row of data.changed ?? []) rows.set(row.id, row);
      for (const id of data.removed ?? []) rows.delete(id);
      settle();
    },
    signal,
  );
  load();
  return {
    update(next) {
      view = next;
      if (document.activeElement !== search) search.value = view.get("q") ?? "";
      state.value = view.get("state") ?? "";
      if (rows.size) paint();
    },
  };
}
