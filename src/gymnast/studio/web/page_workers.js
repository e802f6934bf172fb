// A chunked run: who works on what, and how fresh each lease is.

import { api } from "./api.js";
import { button, make, refill } from "./dom.js";
import { formatCount, formatSeconds, isNumber } from "./format.js";
import { composition } from "./plots.js";
import { failureText, runFrame } from "./run_parts.js";
import { confirmAction, toast } from "./states.js";
import { createTable } from "./table.js";

const STATES = [
  ["done", 2],
  ["held", 0],
  ["silent", 1],
  ["released", 4],
  ["free", 5],
];
const TONES = Object.fromEntries(STATES);
const ORDER = ["silent", "held", "released", "free", "done"];
const rank = (chunk) => ORDER.indexOf(chunk.state); // what is worked on, or stuck, comes first
const WORKER_TONES = { working: 2, silent: 1 };
const badge = (state) => make("span", { class: `badge tone-${TONES[state] ?? 5} ${state === "held" ? "running" : ""}` }, state);
const failed = (row) => (Object.keys(row.failed ?? {}).length ? make("span", { class: "bad" }, failureText(row.failed)) : "0");

const CHUNKS = [
  { key: "chunk", text: "Chunk", cell: (row) => make("b", {}, row.chunk) },
  { key: "state", text: "State", className: "bare-label", cell: (row) => badge(row.state), hint: (row) => row.why },
  { key: "progress", text: "Scored", number: true, cell: (row) => `${formatCount(row.scored)} / ${formatCount(row.requested)}` },
  { key: "failed", text: "Failed", number: true, cell: failed },
  { key: "in_flight", text: "In flight", number: true, cell: (row) => formatCount(row.in_flight) },
  { key: "owed", text: "To do", number: true, cell: (row) => formatCount(row.owed) },
  { key: "worker", text: "Worker", cell: (row) => row.worker },
  { key: "job", text: "Job", cell: (row) => row.job },
  { key: "host", text: "Host", cell: (row) => row.host },
  { key: "epoch", text: "Epoch", number: true, cell: (row) => String(row.epoch ?? "–") },
  { key: "heard_s", text: "Last heard", number: true, cell: (row) => (isNumber(row.heard_s) ? `${formatSeconds(row.heard_s)} ago` : null) },
];
const WORKERS = [
  { key: "worker", text: "Worker", cell: (row) => make("b", {}, row.worker) },
  {
    key: "state",
    text: "State",
    className: "bare-label",
    cell: (row) => make("span", { class: `badge tone-${WORKER_TONES[row.state] ?? 5}` }, row.state || "unknown"),
  },
  { key: "job", text: "Job", cell: (row) => row.job },
  { key: "host", text: "Host", cell: (row) => row.host },
  { key: "scored", text: "Scored", number: true, cell: (row) => formatCount(row.scored) },
  { key: "failed", text: "Failed", number: true, cell: failed },
  { key: "in_flight", text: "In flight", number: true, cell: (row) => formatCount(row.in_flight) },
  { key: "held", text: "Chunks held", number: true, cell: (row) => formatCount(row.chunks_held) },
  { key: "done", text: "Chunks done", number: true, cell: (row) => formatCount(row.chunks_done) },
];

export function workersPage(context) {
  const { signal, session } = context;
  const run = context.params.get("run");
  const summary = make("div", {});
  const steering = make("div", {});
  const isLocked = session.read_only || session.static;

  async function cancel(job) {
    const who = job ? `worker ${job}` : "all workers";
    const detail = "They hand back what they hold; settled rollouts stay, the others are owed. gymnast submit --resume continues the run.";
    if (!(await confirmAction(`Cancel ${who}?`, detail, "Cancel"))) return;
    try {
      toast((await api.control(run, "cancel_workers", job ?? null)).result);
    } catch (error) {
      toast(error.message);
    }
  }

  const action = {
    key: "action",
    text: "Action",
    cell: (row) =>
      row.job && row.chunks_held
        ? button("Cancel", `Cancel worker ${row.job}`, () => cancel(row.job), { disabled: isLocked, "data-focus": "cancel" })
        : null,
  };
  const plain = (caption, columns, key, empty) =>
    createTable({
      caption,
      columns: columns.map((column) => ({ ...column, sort: false })),
      keyOf: (row) => String(row[key]),
      hrefOf: () => null,
      empty,
    });
  const workers = plain("Workers", [...WORKERS, action], "worker", "No worker has reported yet.");
  const chunks = plain("Chunks", CHUNKS, "chunk", "No chunk is planned yet.");

  function paint(live) {
    const own = live?.chunks;
    const parts = STATES.map(([name, tone]) => ({ name, tone, value: own?.states?.[name] ?? 0 })).filter((part) => part.value);
    refill(
      summary,
      own
        ? [
            composition(parts, "Chunks"),
            make(
              "p",
              { class: "legend" },
              parts.map((part) => make("span", {}, make("i", { class: `swatch tone-${part.tone}` }), `${formatCount(part.value)} ${part.name}`)),
            ),
          ]
        : make("p", { class: "nothing" }, "This run has no chunks."),
    );
    refill(steering, own?.workers?.some((worker) => worker.chunks_held) ? steeringNode() : null);
    workers.show(own?.workers ?? []);
    chunks.show((own?.chunks ?? []).toSorted((a, b) => rank(a) - rank(b)));
  }

  function steeringNode() {
    return make(
      "div",
      { class: "steer" },
      button("Cancel all workers", "Cancel all workers", () => cancel(null), { disabled: isLocked, "data-focus": "cancel-all" }),
      session.read_only && !session.static ? make("span", { class: "badge bare" }, "read-only") : null,
      make(
        "span",
        { class: "quiet" },
        "Workers cannot be paused. To run with fewer, cancel some; to run with more or with another concurrency, use gymnast submit --resume.",
      ),
    );
  }

  runFrame(context, "workers", {
    async onReady(frame) {
      frame.body.append(
        make("div", { class: "stack" }, summary, make("h2", {}, "Workers"), steering, workers.node, make("h2", {}, "Chunks and leases"), chunks.node),
      );
      paint(await api.live(frame.id, signal));
    },
    onEvent(name, data, frame) {
      if (name === "live" && data.run === frame.id) paint(data.live);
    },
  });
  return {};
}
