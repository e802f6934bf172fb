// One rollout: its transcript, verdict, timing, tokens, raw record and annotations; the next one is a key away.

import { api } from "./api.js";
import { button, copyText, entry, link, make, refill, setChildren } from "./dom.js";
import { follow, queueOne, throttle } from "./events.js";
import { createAnnotation } from "./annotation.js";
import { formatBytes, formatCost, formatCount, formatReward, formatSeconds, formatTime, isNumber, plural } from "./format.js";
import { waterfall } from "./plots.js";
import { hashOf, parseHash, setParams } from "./router.js";
import { outcomeClass, outcomeText, rolloutLink, runLink, taskLink } from "./run_parts.js";
import { errorState, isIndex, loading, notice, statePage, toast, wrongAddress } from "./states.js";
import { IS_STATIC } from "./static.js";
import { tokensView } from "./tokens.js";
import { clipped, factList, markFound, promptBlock, toolsBlock, transcriptNodes, unfoldAll } from "./transcript.js";

const STAGE_TONES = { model: 0, verify: 2, tool: 4, tools: 4, seed: 5, open: 5, agent: 3, wait: 5 };
const MAX_OTHER_RUNS = 12;
const VIEWS = [
  ["transcript", "Transcript"],
  ["tokens", "Tokens"],
  ["raw", "Raw JSON"],
];

export function rolloutPage({ node, params, session, signal, setTrail, reload }) {
  const [run, task, rollout] = [params.get("run"), Number(params.get("task") ?? NaN), Number(params.get("rollout") ?? NaN)];
  if (!isIndex(task) || !isIndex(rollout)) return wrongAddress(node, setTrail, "a rollout");
  setTrail([[run, runLink(run)], [`Task ${task}`, taskLink(run, task)], [`Rollout ${rollout}`]]);
  let view = params;
  let data = null;
  let annotation = null;
  let isFullShown = false;
  const state = { isRaw: false, isFull: false, isUnfolded: true };
  const main = make("div", {});
  node.append(loading("Loading the rollout"));

  const load = queueOne(async () => {
    if (data && state.isFull === isFullShown) return;
    const isFull = state.isFull;
    try {
      data = await api.rollout(run, task, rollout, isFull, signal);
      isFullShown = isFull;
      paint();
    } catch (error) {
      if (signal.aborted) return;
      if (data) return;
      if (error.isGone) await waiting(error);
      else node.replaceChildren(errorState(error, reload));
      if (!(error.status >= 0)) throw error;
    } finally {
      document.documentElement.dataset.ready = "true";
    }
  });

  // A rollout without a record may be in flight right now.
  async function waiting(error) {
    const live = await api.live(run, signal).catch(() => null);
    const own = live?.now?.oldest?.find((other) => other.task === task && other.rollout === rollout);
    const actions = make(
      "div",
      { class: "actions" },
      link(runLink(run), { class: "button" }, "The run"),
      link(taskLink(run, task), { class: "button" }, "The task"),
    );
    if (!own)
      return node.replaceChildren(
        statePage(
          `Rollout ${rollout} of task ${task}`,
          live?.is_live
            ? "This rollout has no record yet: it is in flight or still to do. Its transcript shows here as soon as it is recorded."
            : error.message,
          error.next && !live?.is_live ? make("p", {}, error.next) : null,
          actions,
        ),
      );
    const facts = [
      ["stage", own.stage],
      ["at", [own.instance, own.endpoint].filter(Boolean).join(" · ")],
      ["in this stage", formatSeconds(own.in_stage_s)],
      ["age", formatSeconds(own.seconds)],
      ["attempt", String(own.attempt)],
      ["agent", own.agent],
    ];
    const cancel = button(
      "Cancel this rollout",
      "Cancel this rollout",
      async () => {
        refill(
          result,
          await api.control(run, "cancel", own.key).then(
            (answer) => answer.result,
            (problem) => problem.message,
          ),
        );
      },
      { disabled: session.read_only || session.static },
    );
    const result = make("output", { class: "quiet", "aria-live": "polite" });
    node.replaceChildren(
      make(
        "div",
        { class: "page-head" },
        make(
          "div",
          {},
          make("h1", {}, `Task ${task}, rollout ${rollout}`),
          make("p", { class: "meta" }, make("span", { class: "badge running tone-2" }, "in flight")),
        ),
        make("div", { class: "actions" }, cancel, result),
      ),
      make(
        "section",
        { class: "panel" },
        make(
          "dl",
          { class: "facts" },
          facts.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value || "–")]),
        ),
      ),
      make("p", { class: "meta section" }, "The transcript shows here as soon as the rollout is recorded."),
    );
  }

  function paint() {
    // Made once: a note that is being typed outlives what is painted around it.
    annotation ??= createAnnotation({ run, task, rollout, session, signal, title: "Label this rollout", current: data.annotations ?? [] });
    const aside = make(
      "aside",
      { "aria-label": "About this rollout", tabindex: "0" },
      verdictPanel(data),
      annotation.node,
      timingPanel(data),
      attemptsPanel(data),
      factsPanel("Fields of the record", Object.entries(data.facts ?? {})),
      factsPanel("Sampling", Object.entries(data.params ?? {})),
      aboutPanel(data),
    );
    setChildren(node, head(), views(), make("div", { class: "reader" }, main, aside));
    paintMain();
  }

  function head() {
    const list = listAround(run, task, rollout, data.neighbours);
    const step = (text, label, target) =>
      target
        ? link(
            rolloutLink(run, target[0], target[1], { view: view.get("view"), q: view.get("q") }),
            { class: "button", "aria-label": label, title: label },
            text,
          )
        : make("span", { class: "button", "aria-disabled": "true", role: "link", "aria-label": label }, text);
    const others = data.neighbours?.rollouts ?? [];
    return [
      make(
        "div",
        { class: "page-head" },
        make(
          "div",
          {},
          make("h1", {}, `Task ${task}, rollout ${rollout}`),
          make("p", { class: "meta" }, [data.agent, data.model, list.text].filter(Boolean).join(" · ")),
        ),
        make(
          "div",
          { class: "actions" },
          step("←", "Previous rollout (p)", list.previous),
          step("→", "Next rollout (n)", list.next),
          others.length > 1 || data.neighbours ? sideMenu(others) : null,
        ),
      ),
      others.length > 1
        ? make(
            "nav",
            { class: "chips section-chips", "aria-label": "Rollouts of this task" },
            others
              .slice(0, 64)
              .map((other) =>
                link(
                  rolloutLink(run, task, other.rollout, { view: view.get("view") }),
                  { class: `chip ${outcomeClass(other)}`, "aria-current": other.rollout === rollout ? "page" : null },
                  `#${other.rollout}`,
                  make("small", {}, outcomeText(other)),
                ),
              ),
          )
        : null,
    ];
  }

  function sideMenu(others) {
    const rest = others.filter((other) => other.rollout !== rollout);
    const inOtherRuns = make("div", {});
    return make(
      "details",
      { class: "menu", ontoggle: (event) => event.target.open && !inOtherRuns.hasChildNodes() && listRuns(inOtherRuns) },
      make("summary", {}, "Side by side"),
      make(
        "div",
        {},
        rest.length
          ? rest
              .slice(0, 20)
              .map((other) =>
                link(hashOf(["side"], { run, task, rollout, rollout2: other.rollout }), {}, `with rollout ${other.rollout} (${outcomeText(other)})`),
              )
          : make("span", { class: "quiet" }, "This task has one rollout."),
        inOtherRuns,
        IS_STATIC ? null : link(hashOf(["compare"], { run }), {}, "Compare whole runs…"),
      ),
    );
  }

  // The same task in other runs, those with the same agents first.
  async function listRuns(node) {
    if (IS_STATIC) return;
    const { runs } = await api.runs(signal);
    const agents = new Set(runs.find((own) => own.id === run)?.agents ?? []);
    const isAlike = (own) => Number((own.agents ?? []).some((name) => agents.has(name)));
    const others = runs.filter((own) => own.id !== run && own.scored > 0).sort((a, b) => isAlike(b) - isAlike(a));
    node.replaceChildren(
      ...others.slice(0, MAX_OTHER_RUNS).map((own) => link(hashOf(["side"], { run, task, rollout, run2: own.id }), {}, `with this task in ${own.id}`)),
    );
  }

  function views() {
    const active = view.get("view") ?? "transcript";
    const tabs = VIEWS.map(([key, text]) =>
      link(
        hashOf(["rollout"], { run, task, rollout, view: key === "transcript" ? null : key, q: view.get("q") }),
        { "aria-current": key === active ? "page" : null },
        text,
      ),
    );
    return make("nav", { class: "tabs", "aria-label": "View" }, tabs);
  }

  function paintMain() {
    const active = view.get("view") ?? "transcript";
    node.querySelector("nav.tabs")?.replaceWith(views());
    if (active === "tokens")
      main.replaceChildren(
        data.tokens
          ? tokensView(data.tokens, full)
          : make("p", { class: "nothing" }, "The record of this rollout has no token ids. Runs with a token-exact model record them."),
      );
    else if (active === "raw") paintRaw();
    else paintTranscript();
  }

  function paintTranscript() {
    const options = { isRaw: state.isRaw, onFull: state.isFull ? null : full };
    const search = make("input", {
      type: "search",
      class: "search",
      placeholder: "Find in this transcript",
      "aria-label": "Find in this transcript",
    });
    search.value = view.get("q") ?? "";
    const hits = make("span", { class: "quiet", role: "status" });
    const body = make(
      "div",
      { class: "transcript" },
      data.note ? notice(data.note) : null,
      data.failure ? failureTurn(data.failure) : null,
      data.ending ? notice(`The response did not complete: ${data.ending}`) : null,
      data.prompt?.length ? promptBlock(data.prompt, options) : null,
      data.tools?.length ? toolsBlock(data.tools, options) : null,
      make("h2", { class: "label" }, data.items.length ? `Rollout, ${plural(data.items.length, "item")}` : "No output"),
      transcriptNodes(data.items, options),
    );
    const mark = () => {
      const found = markFound(body, search.value);
      refill(hits, search.value ? plural(found ?? 0, "hit") : "");
    };
    search.addEventListener("input", mark);
    const raw = button("Raw text", "Show texts as written (r)", () => toggleRaw(), { "aria-pressed": String(state.isRaw) });
    const fold = button(state.isUnfolded ? "Fold" : "Unfold", "Fold or unfold everything", () => {
      state.isUnfolded = !state.isUnfolded;
      unfoldAll(body, state.isUnfolded);
      fold.textContent = state.isUnfolded ? "Fold" : "Unfold";
    });
    main.replaceChildren(make("div", { class: "filters" }, search, hits, make("span", { class: "grow" }), raw, fold), body);
    mark();
  }

  async function paintRaw() {
    main.replaceChildren(loading("Loading the record"));
    try {
      const text = await api.raw(run, task, rollout);
      const pretty =
        text.length < 2e6
          ? await Promise.resolve()
              .then(() => JSON.stringify(JSON.parse(text), null, 2))
              .catch(() => text)
          : text;
      main.replaceChildren(
        make(
          "p",
          { class: "meta" },
          `${formatBytes(text.length)}, as it stands in the file${pretty === text ? "" : ", indented"} `,
          button("Copy", "Copy the record", async () => toast((await copyText(text)) ? "Copied" : "Could not copy")),
        ),
        clipped(make("pre", { class: "raw", tabindex: "0" }, pretty), { characters: 400000, lines: 20000 }),
      );
    } catch (error) {
      main.replaceChildren(errorState(error, paintRaw));
    }
  }

  function toggleRaw() {
    state.isRaw = !state.isRaw;
    if (data && (view.get("view") ?? "transcript") === "transcript") paintTranscript();
  }

  function full() {
    state.isFull = true;
    load();
  }

  const keys = (event) => {
    const list = data ? listAround(run, task, rollout, data.neighbours) : null;
    const move = (target) => target && (location.hash = rolloutLink(run, target[0], target[1], { view: view.get("view"), q: view.get("q") }));
    const act = {
      n: () => move(list?.next),
      p: () => move(list?.previous),
      r: toggleRaw,
      t: () => setParams({ view: view.get("view") === "tokens" ? null : "tokens" }),
      j: () => stepTurn(main, 1),
      k: () => stepTurn(main, -1),
    }[event.detail];
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("studio-key", keys, { signal });
  const refresh = throttle(load, 1500, signal);
  follow(
    [run],
    (name, own) => {
      if ((name === "rows" || name === "live") && own.run === run) refresh();
      if (name === "annotations" && own.run === run) annotation?.reload();
      if (name === "hello") refresh();
    },
    signal,
  );
  load();
  return {
    update(next) {
      view = next;
      if (data) paintMain();
    },
  };
}

export function stepTurn(main, by) {
  const turns = [...main.querySelectorAll("[data-turn]")].filter((turn) => turn.getClientRects().length);
  const at = turns.findIndex((turn) => turn.classList.contains("current"));
  const next = turns[Math.min(turns.length - 1, Math.max(0, at + by))];
  if (!next) return;
  turns[at]?.classList.remove("current");
  next.classList.add("current");
  (next.querySelector("summary") ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// Where this rollout stands in the list it was opened from, or in the run.
function listAround(run, task, rollout, neighbours) {
  const plain = { previous: neighbours?.previous ?? null, next: neighbours?.next ?? null, text: null };
  try {
    const list = JSON.parse(sessionStorage.getItem("gymnast-list") ?? "null");
    const at = list?.run === run ? list.keys.findIndex(([a, b]) => a === task && b === rollout) : -1;
    if (at < 0 || !parseHash(list.from).params.size) return plain;
    return { previous: list.keys[at - 1] ?? null, next: list.keys[at + 1] ?? null, text: `${at + 1} of ${list.keys.length} in the list` };
  } catch {
    return plain;
  }
}

function failureTurn(failure) {
  return make(
    "div",
    { class: "turn failure" },
    make("div", { class: "who" }, "failure"),
    make("div", { class: "text" }, factList(Object.entries(failure).filter(([, value]) => value !== null && value !== ""))),
  );
}

function verdictPanel({ row, state }) {
  const parts = [
    row?.truncated ? `truncated: ${row.truncated}` : null,
    isNumber(row?.output_tokens) ? `${formatCount(row.output_tokens)} output tokens` : null,
    isNumber(row?.turns) ? plural(row.turns, "turn") : null,
    row?.tool_calls ? plural(row.tool_calls, "tool call") : null,
    isNumber(row?.seconds) ? formatSeconds(row.seconds) : null,
  ];
  const value = state === "scored" ? formatReward(row?.reward) : (row?.failure ?? state);
  return make(
    "section",
    { class: "panel" },
    make("h3", {}, state === "scored" ? "Reward" : "Outcome"),
    make("p", { class: "verdict" }, make("b", { class: state === "scored" ? "" : "bad small-verdict" }, value)),
    make("p", { class: "meta" }, parts.filter(Boolean).join(" · ")),
  );
}

function timingPanel({ timing }) {
  if (!timing?.length) return null;
  const stages = timing.map((stage) => ({
    name: stage.detail ? `${stage.detail}` : stage.name,
    start: stage.start_s,
    end: stage.start_s + stage.seconds,
    tone: entry(STAGE_TONES, stage.name) ?? 3,
  }));
  return make(
    "section",
    { class: "panel" },
    make("h3", {}, "Timing"),
    waterfall(stages.slice(0, 40)),
    stages.length > 40 ? make("p", { class: "meta" }, `and ${formatCount(stages.length - 40)} more`) : null,
  );
}

function attemptsPanel({ attempts }) {
  if (!attempts?.length) return null;
  return make(
    "section",
    { class: "panel" },
    make("h3", {}, `Failed attempts (${formatCount(attempts.length)})`),
    make(
      "ul",
      { class: "findings" },
      attempts.map((own) =>
        make(
          "li",
          { class: "finding" },
          make("b", {}, own.kind),
          make(
            "span",
            { class: "quiet" },
            ` ${[own.stage, isNumber(own.seconds) ? formatSeconds(own.seconds) : null, own.started_at ? formatTime(own.started_at) : null].filter(Boolean).join(" · ")}`,
          ),
          clipped(make("p", {}, own.message ?? ""), { characters: 500, lines: 8 }),
          own.hint ? make("p", {}, make("b", {}, "Next: "), own.hint) : null,
        ),
      ),
    ),
  );
}

function factsPanel(title, pairs) {
  return pairs.length ? make("section", { class: "panel" }, make("h3", {}, title), factList(pairs)) : null;
}

function aboutPanel({ usage, bytes, row }) {
  const pairs = [
    ...Object.entries(usage ?? {})
      .filter(([, value]) => value !== null)
      .map(([name, value]) => [name.replaceAll("_", " "), name === "cost" ? formatCost(value) : isNumber(value) ? formatCount(value) : value]),
    ["record", formatBytes(bytes ?? row?.bytes)],
  ];
  return factsPanel(
    "Model calls",
    pairs.map(([name, value]) => [name, String(typeof value === "object" ? JSON.stringify(value) : value)]),
  );
}
