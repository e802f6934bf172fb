// A training run: its curve, its held-out scores, and the groups of each step.

import { api } from "./api.js";
import { make } from "./dom.js";
import { throttle } from "./events.js";
import { formatCount, formatNumber, formatPercent, formatReward, formatSeconds, isNumber } from "./format.js";
import { figure, linePlot } from "./plots.js";
import { runFrame } from "./run_parts.js";
import { createTable, pager } from "./table.js";
import { setParams } from "./router.js";

const SIZE = 50;

export function trainingPage(context) {
  const { signal } = context;
  let view = context.params;
  let data = { steps: [], held_out: [] };
  const plots = make("div", { class: "plots" });
  const pages = make("div", {});
  const figures = new Map();
  const table = createTable({
    caption: "Steps",
    columns: columnsOf([]),
    keyOf: (row) => String(row.step),
    hrefOf: () => null,
    empty: "No step is recorded yet.",
  });

  function plot(title, lines, format) {
    if (!lines.some((line) => line.points.some(([, value]) => isNumber(value)))) return null;
    if (!figures.has(title))
      figures.set(
        title,
        figure(title, "", (own, width, height) => linePlot(own, width, height, { label: title, yFormat: format, xFormat: formatCount })),
      );
    figures.get(title).update(lines, "by step");
    return figures.get(title).node;
  }

  function paint() {
    const over = (value) => data.steps.map((step) => [step.step, value(step)]);
    const names = [...new Set(data.steps.flatMap((step) => Object.keys(step.values ?? {})))].slice(0, 24);
    const reward = [
      { name: "reward", points: over((step) => step.reward) },
      { name: "held out", tone: 1, dots: true, points: (data.held_out ?? []).map((own) => [own.step, own.reward]) },
    ];
    const nodes = [
      plot("Reward", reward, (value) => formatReward(value, 3)),
      plot("Mixed groups", [{ name: "share", tone: 2, points: over((step) => (step.groups ? step.mixed_groups / step.groups : null)) }], (value) =>
        formatPercent(value, 0),
      ),
      plot("Seconds per step", [{ name: "seconds", tone: 3, points: over((step) => step.seconds) }], formatSeconds),
      ...names.map((name) => plot(name, [{ name, tone: 4, points: over((step) => step.values?.[name]) }], formatNumber)),
    ].filter(Boolean);
    plots.replaceChildren(...(nodes.length ? nodes : [make("p", { class: "nothing" }, "No step is recorded yet.")]));
    const page = Number(view.get("page") ?? 0);
    const rows = data.steps.toReversed().slice(page * SIZE, (page + 1) * SIZE);
    table.show(rows, { visible: columnsOf(names.slice(0, 6)) });
    pages.replaceChildren(pager({ page, size: SIZE, total: data.steps.length, onPage: (next) => setParams({ page: next || null }) }));
  }

  async function load() {
    data = await api.training(context.params.get("run"), signal);
    paint();
  }

  const refresh = throttle(() => load().catch(() => {}), 3000, signal);
  runFrame(context, "training", {
    async onReady(frame) {
      frame.body.append(make("div", { class: "stack" }, plots, make("h2", {}, "Steps"), table.node, pages));
      await load();
    },
    onEvent(name, event, frame) {
      if ((name === "rows" && event.run === frame.id) || name === "hello") refresh();
    },
  });
  return {
    update(next) {
      view = next;
      paint();
    },
  };
}

function columnsOf(names) {
  return [
    { key: "step", text: "Step", cell: (row) => make("b", {}, String(row.step)) },
    { key: "reward", text: "Reward", number: true, cell: (row) => formatReward(row.reward) },
    { key: "groups", text: "Groups", number: true, cell: (row) => formatCount(row.groups) },
    { key: "mixed", text: "Mixed", number: true, cell: (row) => formatCount(row.mixed_groups) },
    { key: "rollouts", text: "Rollouts", number: true, cell: (row) => formatCount(row.rollouts) },
    { key: "seconds", text: "Time", number: true, cell: (row) => (isNumber(row.seconds) ? formatSeconds(row.seconds) : null) },
    ...names.map((name) => ({ key: name, text: name, number: true, cell: (row) => formatNumber(row.values?.[name]) })),
  ];
}
