// One task: its prompt, the distribution of its rewards, and all of its rollouts.

import { api } from "./api.js";
import { link, make, refill } from "./dom.js";
import { follow, queueOne, throttle } from "./events.js";
import { formatCount, formatInterval, formatNumber, formatReward, formatSeconds, isNumber } from "./format.js";
import { createAnnotation } from "./annotation.js";
import { intervalBar } from "./plots.js";
import { hashOf } from "./router.js";
import { labelBadge, listLink, rolloutLink, runLink, taskLink } from "./run_parts.js";
import { errorState, isIndex, loading, statePage, wrongAddress } from "./states.js";
import { createTable } from "./table.js";
import { transcriptNodes } from "./transcript.js";

const MAX_ROWS = 500;
const COLUMNS = [
  { key: "rollout", text: "Rollout", cell: (row) => String(row.rollout) },
  {
    key: "reward",
    text: "Reward",
    number: true,
    cell: (row) => (row.state === "scored" ? formatReward(row.reward) : make("span", { class: "bad" }, row.failure ?? row.state)),
  },
  { key: "finish", text: "Finish", cell: (row) => (row.truncated ? make("span", { class: "badge tone-4" }, row.truncated) : row.finish) },
  { key: "turns", text: "Turns", number: true, cell: (row) => formatCount(row.turns) },
  { key: "tool_calls", text: "Tool calls", number: true, cell: (row) => formatCount(row.tool_calls) },
  { key: "output_tokens", text: "Output tokens", number: true, cell: (row) => formatCount(row.output_tokens) },
  { key: "seconds", text: "Time", number: true, cell: (row) => (isNumber(row.seconds) ? formatSeconds(row.seconds) : null) },
  { key: "label", text: "Label", cell: (row) => labelBadge(row.label), className: "bare-label" },
  { key: "answer", text: "Answer", className: "wide", cell: (row) => row.answer || null },
];

export function taskPage({ node, params, session, signal, setTrail, reload }) {
  const run = params.get("run");
  const task = Number(params.get("task") ?? NaN);
  if (!isIndex(task)) return wrongAddress(node, setTrail, "a task");
  setTrail([[run, runLink(run)], ["Tasks", hashOf(["tasks"], { run })], [`Task ${params.get("task")}`]]);
  const cards = make("div", {});
  const prompt = make("div", {});
  const table = createTable({
    caption: `Rollouts of task ${task}`,
    columns: COLUMNS.map((column) => ({ ...column, sort: false })),
    keyOf: (row) => String(row.rollout),
    hrefOf: (row) => rolloutLink(run, row.task, row.rollout),
    empty: "No rollout of this task is recorded yet.",
  });
  const aside = make("aside", { "aria-label": "About this task" });
  node.append(loading("Loading the task"));
  let isShown = false;

  const load = queueOne(async () => {
    try {
      const [rows, tasks] = await Promise.all([
        api.rollouts({ run, f: [`task=${task}`], size: MAX_ROWS }, signal),
        api.tasks({ run, f: [`task=${task}`], size: 1 }, signal),
      ]);
      if (!rows.rows.length && !tasks.rows.length) return nothing();
      if (!isShown) await first(rows.rows, tasks.rows[0]);
      isShown = true;
      paint(rows.rows, tasks.rows[0]);
    } catch (error) {
      if (signal.aborted) return;
      if (!isShown) node.replaceChildren(errorState(error, reload));
      if (!(error.status >= 0)) throw error;
    } finally {
      document.documentElement.dataset.ready = "true";
    }
  });

  // What separates a good rollout from a bad one is the question most often asked of a task.
  function extremesLink(rows) {
    const scored = rows.filter((row) => row.state === "scored" && isNumber(row.reward)).sort((a, b) => a.reward - b.reward);
    const [worst, best] = [scored[0], scored.at(-1)];
    if (scored.length < 2 || worst.reward === best.reward) return null;
    const sides = { run, task, rollout: best.rollout, rollout2: worst.rollout };
    return link(hashOf(["side"], sides), { class: "button" }, "Best and worst side by side");
  }

  function nothing() {
    node.replaceChildren(
      statePage(
        `Task ${task} has no rollouts`,
        "Nothing of this task is recorded in this run yet. If it comes, this page shows it.",
        make("div", { class: "actions" }, link(hashOf(["tasks"], { run }), { class: "button" }, "All tasks")),
      ),
    );
  }

  async function first(rows, summary) {
    const own = rows[0] ? await api.rollout(run, task, rows[0].rollout, false, signal).catch(() => null) : null;
    const neighbours = own?.neighbours ?? {};
    const step = (text, other) =>
      Number.isInteger(other)
        ? link(taskLink(run, other), { class: "button" }, text)
        : make("span", { class: "button", "aria-disabled": "true" }, text);
    const annotation = createAnnotation({ run, task, rollout: null, session, signal, title: "Label this task" });
    aside.append(annotation.node);
    node.replaceChildren(
      make(
        "div",
        { class: "page-head" },
        make("div", {}, make("h1", {}, `Task ${task}`), make("p", { class: "meta" }, [run, summary?.agent].filter(Boolean).join(" · "))),
        make(
          "div",
          { class: "actions" },
          step("← Task", neighbours.previous_task),
          step("Task →", neighbours.next_task),
          extremesLink(rows),
          link(listLink("rollouts", run, [`task=${task}`]), { class: "button" }, "In the table"),
        ),
      ),
      make("div", { class: "reader" }, make("div", { class: "stack" }, cards, table.node, prompt), aside),
    );
    const items = own?.prompt?.length ? own.prompt : [{ kind: "message", role: "user", text: summary?.prompt ?? "" }];
    refill(prompt, make("h2", { class: "label" }, "Prompt"));
    prompt.append(...transcriptNodes(items));
  }

  function paint(rows, summary) {
    const card = (name, value, sub) => make("div", {}, make("dt", {}, name), make("dd", {}, value, sub ? make("span", { class: "sub" }, sub) : null));
    refill(
      cards,
      summary
        ? make(
            "dl",
            { class: "cards" },
            make(
              "div",
              { class: "hero" },
              make("dt", {}, "Mean reward"),
              make(
                "dd",
                {},
                formatReward(summary.mean),
                intervalBar(summary.mean, summary.low, summary.high),
                make("span", { class: "sub" }, isNumber(summary.low) ? `95% interval ${formatInterval(summary.low, summary.high)}` : "no interval"),
              ),
            ),
            card("Scored", formatCount(summary.scored), isNumber(summary.expected) ? `of ${formatCount(summary.expected)}` : null),
            card("Failed", formatCount(summary.failed)),
            card("Best", formatReward(summary.best)),
            card("Spread", formatReward(summary.spread, 3), "standard deviation"),
            card("Output tokens", formatNumber(summary.output_tokens), "mean"),
          )
        : null,
    );
    table.show(rows);
  }

  const refresh = throttle(load, 2500, signal);
  follow(
    [run],
    (name, data) => {
      if (((name === "rows" || name === "annotations") && data.run === run) || name === "hello") refresh();
    },
    signal,
  );
  load();
  return {};
}
