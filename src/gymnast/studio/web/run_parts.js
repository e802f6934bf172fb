// What several pages show of a run: its state, its header with tabs, links into it.

import { api } from "./api.js";
import { entry, link, make, refill } from "./dom.js";
import { follow } from "./events.js";
import { formatAgo, formatCount, formatPercent, formatReward, formatTime, isNumber, plural } from "./format.js";
import { hashOf } from "./router.js";
import { errorState, loading, notice } from "./states.js";
import { IS_STATIC } from "./static.js";

const STATE_TONES = { running: 2, paused: 4, draining: 4, complete: 0, incomplete: 1, interrupted: 1 };

export function stateBadge(state) {
  const tone = entry(STATE_TONES, state);
  return make(
    "span",
    { class: `badge ${tone === undefined ? "" : `tone-${tone}`} ${state === "running" ? "running" : ""}` },
    state === "unknown" ? "no manifest" : state,
  );
}

export function runLink(run) {
  return hashOf(["run"], { run });
}

export function rolloutLink(run, task, rollout, more) {
  return hashOf(["rollout"], { run, task, rollout, ...more });
}

export function taskLink(run, task) {
  return hashOf(["task"], { run, task });
}

export function listLink(page, run, filters, more) {
  const params = new URLSearchParams({ run });
  for (const filter of filters ?? []) params.append("f", filter);
  for (const [key, value] of Object.entries(more ?? {})) params.append(key, value);
  return hashOf([page], params);
}

export function failureCount(failures) {
  return Object.values(failures ?? {}).reduce((sum, count) => sum + count, 0);
}

export function failureText(failures) {
  return Object.entries(failures ?? {})
    .sort((a, b) => b[1] - a[1])
    .map(([kind, count]) => `${kind} ${formatCount(count)}`)
    .join(", ");
}

export function progressOf(row) {
  const settled = (row.scored ?? 0) + (row.failed ?? 0);
  return isNumber(row.requested) && row.requested > 0 ? Math.min(1, settled / row.requested) : null;
}

export function progressBar(row) {
  const share = progressOf(row);
  return share === null ? null : make("span", { class: "progress", "aria-hidden": "true" }, make("i", { style: { width: `${100 * share}%` } }));
}

export function outcomeText(row) {
  if (row.state === "failed") return row.failure ?? "failed";
  if (row.state === "excluded") return "excluded";
  return formatReward(row.reward);
}

export function outcomeClass(row) {
  return row.state === "scored" ? "" : "lost";
}

const LABEL_TONES = { good: 2, bad: 1, "reward hack": 3, "bad task": 4 };

export function labelBadge(label) {
  if (!label) return null;
  const tone = entry(LABEL_TONES, label) ?? 5;
  return make("span", { class: `badge tone-${tone}` }, label);
}

// A training run has steps instead.
function hasRollouts(row) {
  return row.kind !== "training";
}

const TABS = [
  ["run", "Overview", hasRollouts],
  ["tasks", "Tasks", hasRollouts],
  ["rollouts", "Rollouts", hasRollouts],
  ["doctor", "Diagnosis", hasRollouts],
  ["workers", "Workers", (row) => row.kind === "chunked"],
  ["training", "Training", (row) => row.kind === "training"],
];

function tabs(row, active) {
  const counts = { tasks: row.tasks, rollouts: row.requested ?? row.scored };
  return make(
    "nav",
    { class: "tabs", "aria-label": "Run" },
    TABS.filter(([, , accepts]) => accepts(row)).map(([page, text]) =>
      link(
        hashOf([page], { run: row.id }),
        { "aria-current": page === active ? "page" : null },
        text,
        isNumber(counts[page]) ? make("small", {}, formatCount(counts[page])) : null,
      ),
    ),
  );
}

function countText(row) {
  if (!hasRollouts(row)) return null;
  if (!isNumber(row.requested)) return plural(row.scored ?? 0, "rollout");
  return `${formatCount(row.scored)} of ${plural(row.requested, "rollout")} scored`;
}

function describe(row) {
  const share = progressOf(row);
  const parts = [
    row.models?.join(", "),
    countText(row),
    row.is_live && share !== null ? formatPercent(share) : null,
    row.failed ? `${formatCount(row.failed)} failed` : null,
    hasRollouts(row) ? null : row.note,
    row.started_at ? `started ${formatTime(row.started_at)}` : row.updated_at ? `changed ${formatAgo(row.updated_at)}` : null,
  ];
  return parts.filter(Boolean).join(" · ");
}

export function indexNote(index) {
  if (index?.state === "building")
    return `Indexing: ${formatPercent(index.total_bytes ? index.done_bytes / index.total_bytes : 0, 0)}, ${plural(index.rows, "row")} so far. Tables and figures cover these.`;
  if (index?.state === "failed") return `The index could not be built: ${index.problem ?? "unknown reason"}`;
  return null;
}

// A page of one run: header, tabs and a body. Follows the run: its header stays true, and its end is told in place.
export function runFrame(context, active, { onEvent, onReady, actions }) {
  const { node, params, session, signal, setTrail } = context;
  const id = params.get("run");
  const head = make("div", {});
  const notices = make("div", { class: "notices" });
  const body = make("div", {}, loading());
  node.append(head, notices, body);
  const frame = { id, row: null, body, info: null, refresh };
  let isGone = false;

  function paint() {
    const { row } = frame;
    setTrail([[row.id, runLink(id)], ...(active === "run" ? [] : [[TABS.find(([page]) => page === active)[1]]])]);
    refill(
      head,
      make(
        "div",
        { class: "page-head" },
        make("div", {}, make("h1", {}, row.id), make("p", { class: "meta" }, stateBadge(row.state), " ", describe(row))),
        make("div", { class: "actions" }, actions?.(frame) ?? null),
      ),
      tabs(row, active),
    );
    const notes = [
      isGone ? "This run was removed or renamed. What is shown is the last that was read." : null,
      row.problem,
      hasRollouts(row) ? row.note : null,
      indexNote(row.index),
      IS_STATIC ? session.left_out : null,
    ].filter(Boolean);
    refill(
      notices,
      notes.map((text) => notice(text)),
    );
  }

  async function refresh() {
    const info = await api.run(id, signal);
    frame.info = info;
    frame.row = info.run;
    isGone = false;
    paint();
    return info;
  }

  async function load() {
    try {
      await refresh();
      if (!hasRollouts(frame.row) && active !== "training") return location.replace(hashOf(["training"], { run: id }));
      body.replaceChildren();
      await onReady(frame);
      document.documentElement.dataset.ready = "true";
    } catch (error) {
      if (signal.aborted) return;
      if (!frame.row) setTrail([[id ?? "no run"]]);
      body.replaceChildren(errorState(error, load));
      document.documentElement.dataset.ready = "true";
      if (!(error.status >= 0)) throw error;
    }
  }

  follow(
    [id],
    (name, data) => {
      if (name === "runs" && data.removed?.includes(id)) {
        isGone = true;
        if (frame.row) paint();
      }
      const changed = name === "runs" ? data.changed?.find((row) => row.id === id) : null;
      if (changed) {
        const wasLost = isGone || !frame.row;
        isGone = false;
        frame.row = changed;
        if (wasLost) return load();
        paint();
      }
      if (name === "rows" && data.run === id && frame.row) {
        frame.row = { ...frame.row, index: data.index };
        paint();
      }
      if (name === "hello" && frame.row) refresh().catch(() => {});
      if (frame.row) onEvent?.(name, data, frame);
    },
    signal,
  );
  load();
  return frame;
}
