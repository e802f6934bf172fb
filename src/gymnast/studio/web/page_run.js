// One run: headline with intervals, what goes on right now, plots, diagnosis, setup.

import { api } from "./api.js";
import { button, copyText, link, make, refill } from "./dom.js";
import { throttle } from "./events.js";
import {
  formatBytes,
  formatCost,
  formatCount,
  formatFixed,
  formatFixedInterval,
  formatInterval,
  formatPercent,
  formatReward,
  formatSeconds,
  formatShort,
  formatTime,
  isNumber,
  plural,
} from "./format.js";
import { findingNode } from "./findings.js";
import { createLivePanel } from "./live_panel.js";
import { composition, intervalBar } from "./plots.js";
import { hashOf } from "./router.js";
import { failureCount, failureText, listLink, progressBar, runFrame } from "./run_parts.js";
import { createRunPlots } from "./run_plots.js";
import { toast } from "./states.js";
import { IS_STATIC } from "./static.js";

const REFRESH_MS = 3000;

export function runPage(context) {
  const { signal, session } = context;
  const cards = make("div", {});
  const findings = make("div", {});
  const setup = make("div", { class: "grid-2 section" });
  const plots = createRunPlots(context.params.get("run"));
  const live = createLivePanel({ run: context.params.get("run"), session, signal });
  let doctor = null;
  let overview = null;

  const refresh = throttle(
    async () => {
      try {
        paint(await frame.refresh());
        await Promise.all([loadPlots(), frame.row.is_live ? null : loadDoctor()]);
      } catch (error) {
        if (!signal.aborted && !error.isGone) throw error;
      }
    },
    REFRESH_MS,
    signal,
  );

  async function loadPlots() {
    plots.show(await api.plots([frame.id], signal));
  }

  async function loadDoctor() {
    doctor = await api.doctor(frame.id, signal).catch((error) => ({ error }));
    if (!signal.aborted) refill(findings, findingsPanel(frame.id, doctor));
  }

  function paint(info) {
    overview = info;
    refill(cards, headlineCards(info, live.now()), compositionPanel(info));
    refill(setup, setupPanel(info), agentsPanel(info), usagePanel(info), invocationsPanel(info));
  }

  const frame = runFrame(context, "run", {
    actions: (own) => shareActions(own),
    async onReady(own) {
      own.body.append(make("div", { class: "stack" }, cards, live.node, findings, plots.node), setup);
      paint(own.info);
      refill(findings, findingsPanel(own.id, null));
      live.start(IS_STATIC ? null : await api.live(own.id, signal).catch(() => null), own.row);
      paint(own.info);
      const rest = [loadPlots().catch((error) => plots.fail(error)), loadDoctor()];
      await rest[0];
    },
    onEvent(name, data, own) {
      if (name === "live" && data.run === own.id) {
        live.push(data.live, own.row);
        if (overview) paint(overview);
        if (!data.live.is_live) refresh();
      }
      if ((name === "rows" && data.run === own.id) || (name === "hello" && overview)) refresh();
      if (name === "hello")
        api.live(own.id, signal).then(
          (state) => live.start(state, own.row),
          () => {},
        );
    },
  });
  return {};
}

function shareActions(frame) {
  const commands = frame.info?.commands ?? {};
  const copy = (name, text) =>
    button(text, `Copy the command that ${name}`, async () =>
      toast((await copyText(commands[text.toLowerCase()])) ? "Command copied" : commands[text.toLowerCase()]),
    );
  return [
    commands.report ? copy("writes the report", "Report") : null,
    commands.resume ? copy("resumes this run", "Resume") : null,
    link(hashOf(["compare"], { run: frame.id }), { class: "button" }, "Compare with…"),
  ];
}

function card(name, value, sub, className) {
  return make("div", { class: className ?? null }, make("dt", {}, name), make("dd", {}, value, sub ? make("span", { class: "sub" }, sub) : null));
}

function headlineCards(info, now) {
  const { run, headline, usage } = info;
  const estimate = headline?.mean_reward ?? run.mean_reward;
  const value = now && isNumber(now.mean_reward) ? now.mean_reward : estimate?.value;
  const scored = now?.scored ?? run.scored;
  const failures = now?.failed ?? headline?.failed ?? run.failures;
  const failed = failureCount(failures) || run.failed || 0;
  const best = headline?.pass_at?.at(-1);
  return make(
    "dl",
    { class: "cards" },
    make(
      "div",
      { class: "hero" },
      make("dt", {}, now ? "Mean reward so far" : "Mean reward"),
      make(
        "dd",
        {},
        isNumber(value) ? formatReward(value) : "–",
        intervalBar(estimate?.value, estimate?.low, estimate?.high),
        make(
          "span",
          { class: "sub" },
          isNumber(estimate?.low)
            ? `95% interval ${formatInterval(estimate.low, estimate.high)}, over ${plural(estimate.n, "task")}`
            : isNumber(value)
              ? "no interval yet"
              : "nothing is scored yet",
        ),
      ),
    ),
    !now && best && best.k > 1 ? card(`pass@${best.k}`, formatReward(best.value), formatInterval(best.low, best.high)) : null,
    card("Scored", formatCount(scored), [
      isNumber(run.requested) ? `of ${formatCount(run.requested)}` : null,
      progressBar({ ...run, scored, failed }),
    ]),
    card("Failed", failedLink(run, failed), failureText(failures) || "none"),
    card(
      "Truncated",
      truncatedLink(run, headline?.truncated ?? run.truncated),
      isNumber(headline?.truncated) && run.scored ? `${formatPercent(headline.truncated / run.scored)} of scored` : "cut by a limit",
    ),
    headline
      ? card("Tasks", formatCount(headline.tasks), `${plural(headline.mixed_tasks, "has", "have")} mixed outcomes`)
      : card("Tasks", formatCount(run.tasks)),
    card(
      "Output tokens",
      formatShort(now?.spent?.output_tokens ?? usage?.output_tokens ?? run.output_tokens),
      isNumber(run.input_tokens) ? `${formatShort(now?.spent?.input_tokens ?? run.input_tokens)} input` : null,
    ),
    isNumber(run.cost) ? card("Cost", formatCost(run.cost)) : null,
    now
      ? card(
          "Rate",
          isNumber(now.per_second) ? `${formatShort(now.per_second)}/s` : "–",
          isNumber(now.eta_s) ? `about ${formatSeconds(now.eta_s)} left` : null,
        )
      : card("Duration", formatSeconds(run.seconds), run.seconds && run.scored ? `${formatShort(run.scored / run.seconds)} rollouts/s` : null),
  );
}

function failedLink(run, count) {
  return count ? link(listLink("rollouts", run.id, ["state=failed"]), { class: "bad" }, formatCount(count)) : formatCount(count);
}

function truncatedLink(run, count) {
  return count ? link(listLink("rollouts", run.id, ["truncated!="]), {}, formatCount(count)) : formatCount(count);
}

function compositionPanel({ run, headline }) {
  if (!headline) return null;
  const failed = failureCount(headline.failed);
  const parts = [
    { name: "scored", value: headline.scored, tone: 2, filter: ["state=scored"] },
    { name: "failed", value: failed, tone: 1, filter: ["state=failed"] },
    { name: "excluded", value: headline.excluded, tone: 3, filter: ["state=excluded"] },
    { name: run.is_live ? "to do" : "missing", value: headline.missing, tone: 5 },
  ].filter((part) => part.value > 0);
  if (parts.length < 2) return null;
  const legend = make(
    "p",
    { class: "legend" },
    parts.map((part) =>
      make(
        "span",
        {},
        make("i", { class: `swatch tone-${part.tone}` }),
        part.filter
          ? link(listLink("rollouts", run.id, part.filter), {}, `${part.name} ${formatCount(part.value)}`)
          : `${part.name} ${formatCount(part.value)}`,
      ),
    ),
  );
  return make("div", { class: "section" }, composition(parts, "Rollouts"), legend);
}

function findingsPanel(run, doctor) {
  const all = link(hashOf(["doctor"], { run }), {}, "All of the diagnosis");
  const head = make("div", { class: "panel-head" }, make("h2", {}, "Diagnosis"), all);
  if (!doctor) return make("section", { class: "panel" }, head, make("p", { class: "quiet", role: "status" }, "Looking at the run…"));
  if (doctor.error)
    return make("section", { class: "panel" }, head, make("p", { class: "quiet" }, `The diagnosis could not be made: ${doctor.error.message}`));
  if (!doctor.findings.length) return make("section", { class: "panel" }, head, make("p", { class: "good" }, "No problem was detected."));
  return make(
    "section",
    { class: "panel" },
    head,
    make(
      "div",
      { class: "findings" },
      doctor.findings.slice(0, 3).map((finding) => findingNode(run, finding, { isShort: true })),
    ),
  );
}

function factsPanel(title, pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return shown.length
    ? make(
        "section",
        { class: "panel" },
        make("h2", {}, title),
        make(
          "dl",
          { class: "facts" },
          shown.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
        ),
      )
    : null;
}

function setupPanel({ setup, files, run }) {
  return factsPanel("Setup", [...(setup ?? []), ["output", files?.output], ["logs", files?.logs], ["size", formatBytes(run.size_bytes)]]);
}

function usagePanel({ usage }) {
  if (!usage?.calls) return null;
  return factsPanel("Model calls", [
    ["calls", formatCount(usage.calls)],
    ["failed calls", usage.failed_calls ? formatCount(usage.failed_calls) : null],
    ["input tokens", formatCount(usage.input_tokens)],
    [
      "cached tokens",
      isNumber(usage.cached_tokens)
        ? `${formatCount(usage.cached_tokens)} (${formatPercent(usage.cached_tokens / (usage.input_tokens || 1))})`
        : null,
    ],
    ["output tokens", formatCount(usage.output_tokens)],
    ["reasoning tokens", isNumber(usage.reasoning_tokens) ? formatCount(usage.reasoning_tokens) : null],
    ["mean latency", isNumber(usage.latency_ms) ? formatSeconds(usage.latency_ms / 1000 / usage.calls) : null],
    ["mean time to first token", isNumber(usage.ttft_ms) ? formatSeconds(usage.ttft_ms / 1000 / usage.calls) : null],
  ]);
}

function agentsPanel({ run, headline, agents }) {
  const rows = headline?.agents?.length
    ? headline.agents
    : Object.entries(agents ?? {}).map(([agent, own]) => ({
        agent,
        rollouts: own.scored,
        mean_reward: { value: own.mean_reward },
        truncated: own.truncated,
      }));
  if (!rows.length) return null;
  const head = ["Agent", "Tasks", "Rollouts", "Mean reward", "Truncated"];
  return make(
    "section",
    { class: "panel span-2" },
    make("h2", {}, "By agent"),
    make(
      "div",
      { class: "overflow" },
      make(
        "table",
        { class: "numbers" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            head.map((text, at) => make("th", { scope: "col", class: at ? "number" : null }, text)),
          ),
        ),
        make(
          "tbody",
          {},
          rows.map((row) => agentRow(run, row)),
        ),
      ),
    ),
  );
}

function agentRow(run, row) {
  const estimate = row.mean_reward ?? {};
  const reward = [
    formatFixed(estimate.value),
    isNumber(estimate.low) ? make("span", { class: "quiet" }, ` ${formatFixedInterval(estimate.low, estimate.high)}`) : null,
  ];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, link(listLink("rollouts", run.id, [`agent=${row.agent}`]), {}, row.agent)),
    [formatCount(row.tasks), formatCount(row.rollouts), reward, formatCount(row.truncated)].map((value) => make("td", { class: "number" }, value)),
  );
}

function invocationsPanel({ invocations }) {
  if (!invocations?.length) return null;
  return factsPanel(
    "Invocations",
    invocations.map((own) => [
      formatTime(own.started_at),
      [
        own.ended_as ?? (own.ended_at ? "ended" : "running"),
        own.ended_at ? `after ${formatSeconds(own.ended_at - own.started_at)}` : null,
        own.host,
        own.pid ? `pid ${own.pid}` : null,
      ]
        .filter(Boolean)
        .join(" · "),
    ]),
  );
}
