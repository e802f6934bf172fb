// A run that goes on: rates, stages, the oldest rollouts in flight, and the buttons that steer it.

import { api } from "./api.js";
import { button, link, make, refill } from "./dom.js";
import { formatCount, formatReward, formatSeconds, formatShort, isNumber, plural } from "./format.js";
import { barList, figure, linePlot } from "./plots.js";
import { hashOf } from "./router.js";
import { rolloutLink } from "./run_parts.js";
import { confirmAction, toast } from "./states.js";

const MAX_POINTS = 900;
const ENDED = "The run has ended; these are the last minutes that this page saw.";

export function createLivePanel({ run, session, signal }) {
  const node = make("section", { class: "stack live", "aria-label": "Live", hidden: true });
  const steering = createSteering(run, session);
  const flight = make("div", {});
  const stages = make("div", {});
  const plots = livePlots();
  const grid = make("div", { class: "plots" });
  let live = null;
  let history = [];

  function paint(row) {
    const now = live?.is_live ? live.now : null;
    node.hidden = !live?.is_live && history.length < 2;
    if (!node.childNodes.length) {
      node.append(make("div", { class: "panel" }, make("div", { class: "panel-head" }, make("h2", {}, "Live"), steering.node), stages, flight), grid);
    }
    steering.show(now ? live : null);
    refill(stages, now ? stagesNode(now) : live?.is_live ? chunksNode(run, live) : make("p", { class: "quiet" }, ENDED));
    // A button that is pressed right now stays until the click is done.
    if (!flight.querySelector(":active")) refill(flight, now ? flightTable(run, now, session) : null);
    const shown = plots.filter((plot) => plot.show(history, row)).map((plot) => plot.node);
    if (shown.length !== grid.children.length || shown.some((own, at) => own !== grid.children[at])) grid.replaceChildren(...shown);
  }

  return {
    node,
    now: () => (live?.is_live ? live.now : null),
    start(state, row) {
      if (!state || signal.aborted) return;
      live = state;
      history = state.history ?? [];
      paint(row);
    },
    push(state, row) {
      live = state;
      const last = history.at(-1)?.at ?? 0;
      history = [...history, ...(state.history ?? []).filter((point) => point.at > last)].slice(-MAX_POINTS);
      paint(row);
    },
  };
}

function createSteering(run, session) {
  const result = make("output", { "aria-live": "polite" });
  const isLocked = session.read_only || session.static;
  const act = async (command, argument) => {
    try {
      refill(result, (await api.control(run, command, argument)).result);
    } catch (error) {
      refill(result, make("span", { class: "bad" }, error.message));
    }
  };
  const limit = make("input", { type: "number", min: 1, step: 1, "aria-label": "Concurrency", disabled: isLocked });
  const pause = button("Pause", "Start no new rollouts", () => act(pause.dataset.command ?? "pause"), { disabled: isLocked });
  const drain = button(
    "Drain",
    "Finish what is in flight, then stop",
    async () => {
      if (
        await confirmAction(
          "Drain this run?",
          "What is in flight is finished, nothing new is started, and the run ends. It can be resumed later with --resume.",
          "Drain",
        )
      )
        act("drain");
    },
    { disabled: isLocked },
  );
  const stop = button(
    "Stop",
    "Stop at once; rollouts in flight are done again on resume",
    async () => {
      const detail = "Rollouts in flight are abandoned and done again when the run is resumed with --resume.";
      if (await confirmAction("Stop this run at once?", detail, "Stop")) act("stop");
    },
    { disabled: isLocked }
  );
  const form = make(
    "form",
    { class: "steer" },
    pause,
    drain,
    stop,
    make("label", { class: "quiet" }, "Concurrency ", limit),
    make("button", { type: "submit", disabled: isLocked }, "Set"),
    result,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (limit.value) act("set", `concurrency=${limit.value}`);
    limit.dataset.touched = "";
  });
  limit.addEventListener("input", () => (limit.dataset.touched = "true"));
  if (session.read_only) form.append(make("span", { class: "badge bare" }, "read-only"));
  return {
    node: form,
    show(live) {
      form.hidden = !live;
      if (!live) return;
      const isPaused = live.state === "paused";
      pause.dataset.command = isPaused ? "resume" : "pause";
      pause.textContent = isPaused ? "Resume" : "Pause";
      pause.title = isPaused ? "Start rollouts again" : "Start no new rollouts";
      pause.setAttribute("aria-label", pause.textContent);
      drain.disabled = isLocked || live.state === "draining";
      if (document.activeElement !== limit && !limit.dataset.touched) limit.value = live.now?.limit ?? "";
    },
  };
}

function stagesNode(now) {
  const rows = Object.entries(now.stages ?? {})
    .sort((a, b) => b[1] - a[1])
    .map(([name, value], at) => ({ name, value, tone: at % 6 }));
  const lag = isNumber(now.longest_lag_s) && now.longest_lag_s > 0.5 ? `, event loop held up for ${formatSeconds(now.longest_lag_s)}` : "";
  const text = `${formatCount(now.in_flight)} in flight of at most ${formatCount(now.limit)}, ${formatCount(now.owed)} to do${now.waiting_retries ? `, ${formatCount(now.waiting_retries)} waiting to be retried` : ""}${lag}`;
  const away = Object.entries(now.out_of_reach_s ?? {}).map(([name, seconds]) => `${name} unreachable for ${formatSeconds(seconds)}`);
  return make(
    "div",
    { class: "grid-2" },
    make("div", {}, make("h3", {}, "In flight by stage"), barList(rows, { empty: "Nothing is in flight." })),
    make(
      "div",
      {},
      make("h3", {}, "Now"),
      make("p", { class: "quiet", "data-live": "text" }, text),
      away.map((line) => make("p", { class: "bad" }, line)),
    ),
  );
}

// Workers collect this run: they are steered on a page of their own.
function chunksNode(run, live) {
  const { states = {}, workers = [] } = live.chunks ?? {};
  const working = workers.filter((worker) => worker.chunks_held);
  const inFlight = workers.reduce((sum, worker) => sum + (worker.in_flight ?? 0), 0);
  const total = Object.values(states).reduce((sum, count) => sum + count, 0);
  return make(
    "p",
    { class: "quiet", "data-live": "text" },
    `${formatCount(inFlight)} in flight on ${plural(working.length, "worker")}, ${formatCount(states.done ?? 0)} of ${plural(total, "chunk")} done. `,
    link(hashOf(["workers"], { run }), {}, "Workers and how to steer them"),
  );
}

function flightTable(run, now, session) {
  const rows = now.oldest ?? [];
  const head = ["Rollout", "Agent", "Stage", "In stage", "Age", "Retries", ""];
  const cancel = (key) =>
    button(
      "Cancel",
      `Cancel rollout ${key}`,
      async () => {
        try {
          toast((await api.control(run, "cancel", key)).result);
        } catch (error) {
          toast(error.message);
        }
      },
      { disabled: session.read_only, "data-focus": `cancel-${key}` },
    );
  if (!rows.length) return null;
  return make(
    "div",
    { class: "section overflow" },
    make("h3", {}, "Oldest in flight"),
    make(
      "table",
      { class: "in-flight" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          head.map((text) => make("th", { scope: "col" }, text || make("span", { class: "offscreen" }, "Action"))),
        ),
      ),
      make(
        "tbody",
        {},
        rows
          .slice(0, 8)
          .map((own) =>
            make(
              "tr",
              {},
              make(
                "th",
                { scope: "row" },
                link(rolloutLink(run, own.task, own.rollout), { "data-focus": `open-${own.key}` }, `task ${own.task}, rollout ${own.rollout}`),
              ),
              make("td", {}, own.agent),
              make("td", {}, [own.stage, own.instance, own.endpoint].filter(Boolean).join(" · ")),
              make("td", {}, formatSeconds(own.in_stage_s)),
              make("td", {}, formatSeconds(own.seconds)),
              make("td", {}, String(own.attempt)),
              make("td", {}, cancel(own.key)),
            ),
          ),
      ),
    ),
  );
}

const MAX_GAP_S = 15;

// Nothing is known of the time when no page was open: a gap, not a line.
function points(history, value) {
  return history.flatMap((point, at) => {
    const isAfterGap = at > 0 && point.at - history[at - 1].at > MAX_GAP_S;
    return [...(isAfterGap ? [[point.at - 0.001, null]] : []), [point.at, value(point)]];
  });
}

function livePlot(title, series, options = {}) {
  const plot = figure(title, "", (lines, width, height) => linePlot(lines, width, height, { x: "time", label: title, ...options }), { height: 140 });
  return {
    node: plot.node,
    show(history, row) {
      const lines = history.length > 1 ? series(history, row) : [];
      const text = lines.map((line) => {
        const last = line.points.findLast(([, value]) => isNumber(value))?.[1];
        return isNumber(last) ? `${line.name} ${(options.yFormat ?? formatShort)(last)}` : null;
      });
      plot.update(lines, text.filter(Boolean).slice(0, 4).join(", "));
      return lines.some((line) => line.points.some(([, value]) => isNumber(value)));
    },
  };
}

function kindsOver(history, field) {
  const kinds = [...new Set(history.flatMap((point) => Object.keys(point[field] ?? {})))].slice(0, 6);
  return kinds.map((kind, tone) => ({ name: kind, tone, points: points(history, (point) => point[field]?.[kind] ?? 0) }));
}

function livePlots() {
  return [
    livePlot("Rate", (history) => [{ name: "rollouts/s", area: true, points: points(history, (point) => point.per_second) }]),
    livePlot("Reward so far", (history) => [{ name: "mean", tone: 2, points: points(history, (point) => point.mean_reward) }], {
      yFormat: (value) => formatReward(value, 3),
      minSpan: 0.01,
    }),
    livePlot("Concurrency", (history) => [
      { name: "in flight", area: true, points: points(history, (point) => point.in_flight) },
      { name: "limit", tone: 5, dashed: true, points: points(history, (point) => point.limit) },
    ]),
    livePlot(
      "Latency of model calls",
      (history) => [{ name: "mean", tone: 3, points: points(history, (point) => (isNumber(point.call_ms) ? point.call_ms / 1000 : null)) }],
      { yFormat: formatSeconds },
    ),
    livePlot("Tokens per second", (history) => [
      { name: "output", points: points(history, (point) => point.output_tokens_per_s) },
      { name: "input", tone: 4, dashed: true, points: points(history, (point) => point.input_tokens_per_s) },
    ]),
    livePlot("In flight by stage", (history) => kindsOver(history, "stages")),
    livePlot("Failures by kind", (history) => kindsOver(history, "failures")),
  ];
}
