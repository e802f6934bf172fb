// The plots of one run, or of several overlaid: rewards, pass rates, pass@k, tokens, time, failures.

import { make, refill } from "./dom.js";
import { formatCount, formatNumber, formatPercent, formatReward, formatSeconds, formatShort, isNumber, plural } from "./format.js";
import { barList, figure, histogram, linePlot } from "./plots.js";
import { listLink } from "./run_parts.js";
import { notice } from "./states.js";

export function createRunPlots(...runs) {
  const isSingle = runs.length === 1;
  const link = (filters) => (isSingle ? listLink("rollouts", runs[0], filters) : null);
  const failures = make("figure", { class: "panel plot" });
  const plots = [
    shares(
      "Rewards",
      "rewards",
      (bin) => link(bin.from === bin.to ? [`reward=${bin.from}`] : [`reward>=${bin.from}`, `reward${bin.isLast ? "<=" : "<"}${bin.to}`]),
      (value) => formatReward(value, 3),
    ),
    passRates(),
    passAt(),
    rewardByTokens(),
    shares(
      "Output tokens",
      "tokens",
      (bin) => link([`output_tokens>=${bin.from}`, `output_tokens${bin.isLast ? "<=" : "<"}${bin.to}`]),
      (value) => formatShort(Math.round(value)),
    ),
    shares("Time per rollout", "seconds", (bin) => link([`seconds>=${bin.from}`, `seconds${bin.isLast ? "<=" : "<"}${bin.to}`]), formatSeconds),
    overTime("Settled over time", (own) => [{ name: "rollouts/s", values: own.settled.map((count) => count / own.step_s), area: true }], formatShort),
    overTime(
      "Reward over time",
      (own) => [{ name: "mean reward", values: own.mean_reward, tone: 2 }],
      (value) => formatReward(value, 3),
    ),
    overTime(
      "Failures over time",
      (own) =>
        Object.entries(own.failures ?? {})
          .slice(0, 6)
          .map(([name, values], tone) => ({ name, values, tone: (tone + 1) % 6 })),
      formatShort,
    ),
  ];
  const grid = make("div", { class: "plots" });
  return {
    node: grid,
    show(data) {
      const shown = plots.filter((plot) => plot.show(data, data.runs.length));
      const nodes = [...shown.map((plot) => plot.node), ...(fillFailures(failures, data, link) ? [failures] : [])];
      if (!nodes.length) nodes.push(make("p", { class: "nothing" }, "There is nothing to plot until a rollout is scored."));
      if ([...grid.children].some((old, at) => old !== nodes[at]) || grid.children.length !== nodes.length) grid.replaceChildren(...nodes);
    },
    fail(error) {
      if (error.name !== "AbortError") grid.replaceChildren(notice(`The plots could not be made: ${error.message}`));
    },
  };
}

function named(runs, at) {
  return runs.length > 1 ? runs[at] : null;
}

// Edges are one more than the bins, or the values themselves.
function binsOf(histo, counts) {
  return counts.map((count, at) => ({
    count,
    from: histo.edges[at],
    to: histo.are_values ? histo.edges[at] : histo.edges[at + 1],
    isLast: at === counts.length - 1,
    label: histo.labels?.[at],
  }));
}

function shares(title, key, href, format) {
  const plot = figure(title, "", (data, width, height) => {
    const own = data[key];
    if (own.counts.length === 1)
      return histogram(binsOf(own, own.counts[0]), width, height, { label: title, href: href({ from: 0, to: 0 }) ? href : null, xFormat: format });
    const series = own.counts.map((counts, at) => {
      const total = counts.reduce((sum, count) => sum + count, 0) || 1;
      return { name: data.runs[at], tone: at % 6, dots: true, points: counts.map((count, bin) => [bin, count / total]) };
    });
    return linePlot(series, width, height, { label: title, yFormat: (value) => formatPercent(value, 0), xFormat: (bin) => own.labels?.[bin] ?? "" });
  });
  return {
    node: plot.node,
    show(data) {
      const own = data[key];
      if (!own?.counts?.some((counts) => counts.some(Boolean))) return false;
      const total = own.counts[0].reduce((sum, count) => sum + count, 0);
      plot.update(
        data,
        own.counts.length === 1
          ? `${plural(total, "rollout")}${own.is_log ? ", logarithmic bins" : ""}; a bar opens its rollouts`
          : "share of the rollouts of each run",
      );
      return true;
    },
  };
}

function passRates() {
  const plot = figure("Pass rate per task", "", (data, width, height) => {
    const lines = data.pass_rates.map((own, at) => {
      const scale = 1 / (own.tasks || 1);
      return {
        name: named(data.runs, at) ?? "mean reward",
        tone: at % 6,
        points: own.steps.flatMap((step) => [
          [step.from * scale, step.mean],
          [step.to * scale, step.mean],
        ]),
        band:
          data.runs.length > 1
            ? null
            : own.steps.flatMap((step) => [
                [step.from * scale, step.low, step.high],
                [step.to * scale, step.low, step.high],
              ]),
      };
    });
    return linePlot(lines, width, height, {
      label: "Pass rate per task",
      high: 1,
      xFormat: (value) => formatPercent(value, 0),
      yFormat: (value) => formatReward(value, 2),
    });
  });
  return {
    node: plot.node,
    show(data) {
      if (!data.pass_rates?.some((own) => own?.steps?.length)) return false;
      plot.update(data, `tasks from the easiest to the hardest, ${data.pass_rates.map((own) => formatCount(own.tasks)).join(" and ")}`);
      return true;
    },
  };
}

function passAt() {
  const plot = figure("pass@k", "", (data, width, height) => {
    const lines = data.pass_at.map((own, at) => ({
      name: named(data.runs, at) ?? "pass@k",
      tone: at % 6,
      dots: true,
      points: own.map((point) => [point.k, point.value]),
      band: data.runs.length > 1 ? null : own.map((point) => [point.k, point.low, point.high]),
    }));
    return linePlot(lines, width, height, {
      label: "pass@k",
      high: 1,
      xFormat: (k) => (Number.isInteger(k) ? String(k) : ""),
      yFormat: (value) => formatReward(value, 2),
    });
  });
  return {
    node: plot.node,
    show(data) {
      if (!data.pass_at?.some((own) => own?.length > 1)) return false;
      plot.update(data, "chance that one of k rollouts is right");
      return true;
    },
  };
}

function rewardByTokens() {
  const plot = figure("Reward and length", "", (data, width, height) => {
    const lines = data.reward_by_tokens.map((own, at) => ({
      name: named(data.runs, at) ?? "mean reward",
      tone: at % 6,
      dots: true,
      points: own.map((bin) => [bin.median, bin.reward?.value]),
      band: data.runs.length > 1 ? null : own.map((bin) => [bin.median, bin.reward?.low, bin.reward?.high]),
    }));
    return linePlot(lines, width, height, {
      label: "Reward by output tokens",
      isLog: true,
      xFormat: formatShort,
      yFormat: (value) => formatReward(value, 2),
      high: 1,
    });
  });
  return {
    node: plot.node,
    show(data) {
      if (!data.reward_by_tokens?.some((own) => own?.length > 1)) return false;
      plot.update(data, "mean reward by output tokens, equal numbers of rollouts");
      return true;
    },
  };
}

function overTime(title, series, format) {
  const plot = figure(title, "", (lines, width, height) => linePlot(lines, width, height, { x: "time", label: title, yFormat: format }));
  return {
    node: plot.node,
    show(data) {
      const own = data.runs.length === 1 ? data.over_time?.[0] : null;
      const lines = own ? series(own).map((line) => ({ ...line, points: line.values.map((value, at) => [own.start + at * own.step_s, value]) })) : [];
      if (!lines.some((line) => line.points.filter(([, value]) => isNumber(value)).length > 1)) return false;
      plot.update(lines, `steps of ${formatSeconds(own.step_s)}`);
      return true;
    },
  };
}

function fillFailures(node, data, link) {
  const rows = (data.failures ?? []).flatMap((kinds, at) =>
    Object.entries(kinds ?? {}).map(([kind, value]) => ({
      name: named(data.runs, at) ? `${kind}, ${data.runs[at]}` : kind,
      value,
      tone: data.runs.length > 1 ? at % 6 : 1,
      href: link([`failure=${kind}`]),
    })),
  );
  if (!rows.length) return false;
  refill(
    node,
    make(
      "figcaption",
      {},
      make("h3", {}, "Failed attempts by kind"),
      make("p", { class: "plot-note" }, `${formatNumber(rows.reduce((sum, row) => sum + row.value, 0))} in all`),
    ),
    barList(rows.sort((a, b) => b.value - a.value).slice(0, 12)),
  );
  return true;
}
