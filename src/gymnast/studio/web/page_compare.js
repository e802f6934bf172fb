// Two or more runs paired by task: the sentence, wins and losses, and the tasks that differ most.

import { api } from "./api.js";
import { link, make, refill } from "./dom.js";
import { follow } from "./events.js";
import { formatCount, formatInterval, formatPercent, formatReward, formatSigned, isNumber } from "./format.js";
import { composition, intervalBar } from "./plots.js";
import { hashOf, setParams } from "./router.js";
import { runLink } from "./run_parts.js";
import { createRunPlots } from "./run_plots.js";
import { errorState, loading, notice } from "./states.js";
import { createTable, pager } from "./table.js";

const SIZE = 25;

export function comparePage(context) {
  const { node, params, signal, setTrail } = context;
  const runs = params.getAll("run");
  setTrail([["Compare"]]);
  return runs.length < 2 ? choosePage(context, runs) : pairPage({ node, params, signal, runs, reload: context.reload });
}

// Choosing what to compare with.
function choosePage({ node, signal }, runs) {
  node.append(loading("Loading runs"));
  api.runs(signal).then(
    (answer) => {
      const others = answer.runs.filter((row) => !runs.includes(row.id));
      const table = createTable({
        caption: "Runs to compare with",
        columns: [
          { key: "id", text: "Run", cell: (row) => row.id },
          { key: "state", text: "State", cell: (row) => row.state },
          { key: "models", text: "Model", cell: (row) => row.models?.join(", ") || null },
          { key: "reward", text: "Mean reward", number: true, cell: (row) => formatReward(row.mean_reward?.value, 3) },
          { key: "scored", text: "Scored", number: true, cell: (row) => formatCount(row.scored) },
        ],
        keyOf: (row) => row.id,
        hrefOf: (row) => hashOf(["compare"], new URLSearchParams([...runs.map((id) => ["run", id]), ["run", row.id]])),
        empty: "This folder has no other runs.",
      });
      table.show(others);
      node.replaceChildren(
        make(
          "div",
          { class: "page-head" },
          make(
            "div",
            {},
            make("h1", {}, runs.length ? `Compare ${runs[0]} with…` : "Compare: choose the baseline"),
            make("p", { class: "meta" }, "Runs are paired by task."),
          ),
        ),
        table.node,
      );
      document.documentElement.dataset.ready = "true";
    },
    (error) => signal.aborted || node.replaceChildren(errorState(error)),
  );
  return {};
}

function pairPage({ node, params, signal, runs, reload }) {
  let view = params;
  const head = make("div", { class: "stack" });
  const plots = createRunPlots(...runs);
  const columns = taskColumns(runs);
  const table = createTable({
    caption: "Tasks of both runs",
    columns,
    keyOf: (row) => row.tasks.join("-"),
    hrefOf: (row) => sideLink(runs, row),
    onSort: (key, descending) => setParams({ sort: `${descending ? "-" : ""}${key}`, page: null }),
    empty: "The runs have no task in common.",
  });
  const pages = make("div", {});
  node.append(
    make(
      "div",
      { class: "page-head" },
      make(
        "div",
        {},
        make("h1", {}, `Compare ${runs.length} runs`),
        make(
          "p",
          { class: "meta" },
          runs.map((run, at) =>
            make(
              "span",
              { class: "run-key" },
              make("i", { class: `swatch tone-${at % 6}` }),
              link(runLink(run), {}, run),
              at === 0 ? " (baseline) " : " ",
            ),
          ),
        ),
      ),
      make(
        "div",
        { class: "actions" },
        runs.length === 2
          ? link(
              hashOf(
                ["compare"],
                new URLSearchParams([
                  ["run", runs[1]],
                  ["run", runs[0]],
                ]),
              ),
              { class: "button" },
              "Swap",
            )
          : null,
      ),
    ),
    head,
    make("h2", { class: "label" }, "Tasks"),
    table.node,
    pages,
    make("h2", { class: "label" }, "Overlay"),
    plots.node,
  );
  refill(head, loading("Comparing"));

  async function load() {
    const sort = view.get("sort") ?? "-abs";
    table.busy();
    try {
      const answer = await api.compare(
        { run: runs, size: SIZE, page: view.get("page"), sort: sort.replace(/^-/, ""), desc: sort.startsWith("-"), by_index: view.get("by_index") },
        signal,
      );
      refill(
        head,
        matchNote(answer),
        answer.note ? notice(answer.note) : null,
        answer.pairs.map((pair, at) => pairPanel(pair, at + 1)),
      );
      table.show(answer.rows, { sort: { key: sort.replace(/^-/, ""), descending: sort.startsWith("-") } });
      refill(
        pages,
        pager({
          page: answer.page ?? Number(view.get("page") ?? 0),
          size: answer.size ?? SIZE,
          total: answer.total,
          onPage: (next) => setParams({ page: next || null }),
        }),
      );
    } catch (error) {
      if (!signal.aborted) head.replaceChildren(errorState(error, reload));
    }
    document.documentElement.dataset.ready = "true";
  }

  load();
  api.plots(runs, signal).then(
    (data) => plots.show(data),
    (error) => plots.fail(error),
  );
  follow(
    runs,
    (name, data) => {
      if (name === "runs" && data.removed?.some((id) => runs.includes(id)))
        head.prepend(notice("One of these runs was removed or renamed. What is shown is the last that was read."));
    },
    signal,
  );
  return {
    update(next) {
      view = next;
      load();
    },
  };
}

function matchNote(answer) {
  return answer.matched_by === "index" ? notice("Tasks are paired by their number, not by their content.") : null;
}

const VERDICT_TONES = { better: 2, worse: 1 };

function pairPanel(pair, tone) {
  const { difference } = pair;
  const card = (name, value, sub) => make("div", {}, make("dt", {}, name), make("dd", {}, value, sub ? make("span", { class: "sub" }, sub) : null));
  const unmatched =
    pair.only_a || pair.only_b
      ? `${formatCount(pair.only_a)} only in the baseline, ${formatCount(pair.only_b)} only in the other`
      : "all tasks are in both";
  return make(
    "section",
    { class: "panel", "aria-label": `${pair.b} against ${pair.a}` },
    make("p", { class: "sentence" }, make("span", { class: `badge tone-${VERDICT_TONES[pair.verdict] ?? 5}` }, pair.verdict), " ", pair.sentence),
    make(
      "dl",
      { class: "cards section" },
      card(
        make("span", {}, make("i", { class: "swatch tone-0" }), "Baseline"),
        formatReward(pair.mean_a?.value),
        formatInterval(pair.mean_a?.low, pair.mean_a?.high),
      ),
      card(
        make("span", {}, make("i", { class: `swatch tone-${tone % 6}` }), pair.b),
        formatReward(pair.mean_b?.value),
        formatInterval(pair.mean_b?.low, pair.mean_b?.high),
      ),
      card(
        "Difference",
        make("span", { class: difference?.value > 0 ? "good" : difference?.value < 0 ? "bad" : "" }, formatSigned(difference?.value)),
        formatInterval(difference?.low, difference?.high),
      ),
      card("p-value", isNumber(pair.p_value) ? String(Number(pair.p_value.toPrecision(2))) : "–", "permutation test"),
      card("Paired tasks", formatCount(pair.tasks), unmatched),
      isNumber(pair.truncated_a) ? card("Truncated", `${formatPercent(pair.truncated_a)} → ${formatPercent(pair.truncated_b)}`) : null,
    ),
    make(
      "div",
      { class: "section" },
      composition(
        [
          { name: "wins", value: pair.wins, tone: 2 },
          { name: "ties", value: pair.ties, tone: 5 },
          { name: "losses", value: pair.losses, tone: 1 },
        ],
        "Tasks",
      ),
      make(
        "p",
        { class: "legend" },
        [
          ["wins", pair.wins, 2],
          ["ties", pair.ties, 5],
          ["losses", pair.losses, 1],
        ].map(([name, value, own]) => make("span", {}, make("i", { class: `swatch tone-${own}` }), `${formatCount(value)} ${name}`)),
      ),
    ),
  );
}

function sideLink(runs, row) {
  const other = row.tasks.findIndex((task, at) => at > 0 && task !== null && task !== undefined);
  if (other < 0) return hashOf(["task"], { run: runs[0], task: row.task });
  return hashOf(["side"], { run: runs[0], task: row.tasks[0], run2: runs[other], task2: row.tasks[other] });
}

function taskColumns(runs) {
  const means = runs.map((run, at) => ({
    key: at === 0 ? "mean_a" : at === 1 ? "mean_b" : `mean_${at}`,
    sort: at > 1 ? false : undefined,
    text: at === 0 ? "Baseline" : runs.length === 2 ? "Other" : run,
    title: run,
    number: true,
    cell: (row) =>
      isNumber(row.means[at]) ? make("span", {}, formatReward(row.means[at], 3), intervalBar(row.means[at], null, null, { tone: at % 6 })) : null,
  }));
  const deltas = runs
    .slice(1)
    .map((run, at) => ({
      key: at === 0 ? "abs" : `difference_${at + 1}`,
      sort: at > 0 ? false : undefined,
      text: runs.length === 2 ? "Difference" : `Δ ${run}`,
      title: at === 0 ? "Sorted by size" : run,
      number: true,
      cell: (row) => deltaCell(row.differences[at + 1], row.intervals?.[at + 1]),
    }));
  return [
    { key: "task", text: "Task", cell: (row) => String(row.task) },
    { key: "prompt", text: "Prompt", className: "wide", sort: false, cell: (row) => row.prompt || null },
    ...means,
    ...deltas,
    { key: "rollouts", text: "Rollouts", sort: false, number: true, cell: (row) => row.rollouts.map(formatCount).join(" / ") },
  ];
}

function deltaCell(value, interval) {
  if (!isNumber(value)) return null;
  const size = Math.min(1, Math.abs(value)) * 50;
  const bar = make(
    "span",
    { class: `delta tone-${value < 0 ? 1 : 2}`, "aria-hidden": "true" },
    make("i", { style: { left: `${value < 0 ? 50 - size : 50}%`, width: `${size}%` } }),
  );
  return make(
    "span",
    { title: interval ? formatInterval(interval.low, interval.high) : null },
    make("span", { class: value < 0 ? "bad" : value > 0 ? "good" : "" }, formatSigned(value, 3)),
    interval && isNumber(interval.low) ? make("span", { class: "sub" }, ` ${formatInterval(interval.low, interval.high, 2)}`) : null,
    bar,
  );
}
