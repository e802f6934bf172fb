// The tables of tasks and of rollouts: searched, filtered, sorted and paged by the server, all of it in the address.

import { api } from "./api.js";
import { button, entry, make, plainText, refill } from "./dom.js";
import { throttle } from "./events.js";
import { formatBytes, formatCost, formatCount, formatInterval, formatNumber, formatReward, formatSeconds, isNumber } from "./format.js";
import { intervalBar } from "./plots.js";
import { parseHash, setParams } from "./router.js";
import { labelBadge, rolloutLink, runFrame, taskLink } from "./run_parts.js";
import { errorState, notice } from "./states.js";
import { parseFilter, valueOf } from "./static.js";
import { createTable, pager } from "./table.js";
import { IS_STATIC } from "./static.js";

const SIZES = [50, 100, 200];
const REFRESH_MS = 2500;
const STATE_TONES = { scored: 2, failed: 1, excluded: 3 };

// Cells that are more than their value.
const ROLLOUT_CELLS = {
  task: (row) => String(row.task),
  state: (row) => (row.state === "scored" ? null : make("span", { class: `badge tone-${STATE_TONES[row.state] ?? 5}` }, row.state)),
  truncated: (row) => (row.truncated ? make("span", { class: "badge tone-4" }, row.truncated) : null),
  failure: (row) => (row.failure ? make("span", { class: "bad" }, row.failure) : null),
  reward: (row) =>
    isNumber(row.reward) ? formatReward(row.reward) : row.state === "scored" ? null : make("span", { class: "bad" }, row.failure ?? row.state),
  seconds: (row) => (isNumber(row.seconds) ? formatSeconds(row.seconds) : null),
  cost: (row) => (isNumber(row.cost) ? formatCost(row.cost) : null),
  bytes: (row) => formatBytes(row.bytes),
  label: (row) => labelBadge(row.label),
};
const TASK_CELLS = {
  task: (row) => String(row.task),
  mean: (row) =>
    isNumber(row.mean)
      ? make("span", { title: formatInterval(row.low, row.high) }, formatReward(row.mean, 3), intervalBar(row.mean, row.low, row.high))
      : null,
  low: (row) => formatReward(row.low, 3),
  high: (row) => formatReward(row.high, 3),
  spread: (row) => (isNumber(row.spread) ? formatReward(row.spread, 3) : null),
  best: (row) => (isNumber(row.best) ? formatReward(row.best, 3) : null),
  failed: (row) => (row.failed ? make("span", { class: "bad" }, formatCount(row.failed)) : "0"),
  seconds: (row) => (isNumber(row.seconds) ? formatSeconds(row.seconds) : null),
  label: (row) => labelBadge(row.label),
};
const PROMPT = {
  key: "prompt",
  text: "Prompt",
  className: "wide",
  sort: false,
  cell: (row) => promptCell(row),
  hint: (row) => plainText(row.prompt).slice(0, 400),
};
const ANSWER = {
  key: "answer",
  text: "Answer",
  className: "wide",
  sort: false,
  cell: (row) => (row.answer ? make("span", {}, row.answer) : null),
  hint: (row) => plainText(row.answer).slice(0, 400),
};
const REWARDS = { key: "rewards", text: "Rewards", sort: false, className: "bare-label", cell: (row) => rewardStrip(row.rewards) };

function promptCell(row) {
  const parts = [make("span", {}, row.prompt || "–")];
  if (row.match) parts.push(make("span", { class: "hit" }, marked(row.match, 8)));
  return make("span", {}, parts);
}

// Marks the words that are searched for, beginning shortly before the first.
function marked(whole, before) {
  const query = parseHash().params.get("q") ?? "";
  const words = [...query.matchAll(/"([^"]+)"|(\S+)/g)].map((match) => (match[1] ?? match[2]).toLowerCase());
  const starts = words.map((word) => whole.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const cut = starts.length ? Math.max(0, Math.min(...starts) - before) : 0;
  const text = `${cut ? "…" : ""}${whole.slice(cut)}`;
  const lower = text.toLowerCase();
  const parts = [];
  let from = 0;
  while (from < text.length) {
    const next = words
      .map((word) => [lower.indexOf(word, from), word.length])
      .filter(([at]) => at >= 0)
      .sort((a, b) => a[0] - b[0])[0];
    if (!next) break;
    parts.push(text.slice(from, next[0]), make("mark", {}, text.slice(next[0], next[0] + next[1])));
    from = next[0] + next[1];
  }
  return [...parts, text.slice(from)];
}

function rewardStrip(rewards) {
  if (!rewards?.length) return null;
  const text = rewards.map((reward) => formatReward(reward, 2)).join(", ");
  return make(
    "span",
    { class: "strip", role: "img", "aria-label": `rewards ${text}`, title: text },
    rewards
      .slice(0, 32)
      .map((reward) => make("i", { class: reward === null ? "none" : null, style: { "--share": String(Math.max(0, Math.min(1, reward ?? 0))) } })),
  );
}

function tableColumns(columns, cells, extra) {
  let extraShown = 0;
  const own = columns
    .filter((column) => column.name !== "prompt")
    .map((column) => ({
      key: column.name,
      text: column.title ?? column.name,
      number: column.type === "number" && column.name !== "task",
      isShown: column.shown && !HIDDEN.has(column.name) && !isEmpty(column) && (BUILT_IN.has(column.name) || (extraShown += 1) <= MAX_EXTRA),
      className: column.type === "number" ? null : column.name === "state" || column.name === "label" ? "bare-label" : "text-cell",
      cell: entry(cells, column.name) ?? ((row) => plainCell(valueOf(row, column.name))),
      hint: (row) => (typeof valueOf(row, column.name) === "string" ? plainText(valueOf(row, column.name)) : null),
    }));
  const texts = extra.map((column) => ({ isShown: true, ...column }));
  return [...own.filter((column) => BUILT_IN.has(column.key)), ...texts, ...own.filter((column) => !BUILT_IN.has(column.key))];
}

const MAX_EXTRA = 2;
const BUILT_IN = new Set(
  "task rollout state agent reward truncated finish failure attempts turns tool_calls input_tokens output_tokens seconds calls cost bytes label expected scored failed excluded mean low high spread best".split(
    " ",
  ),
);

// Told by the reward's cell, or without a value in this run.
const HIDDEN = new Set(["state", "failure", "low", "high", "expected"]);
const MAY_BE_ZERO = new Set(["failed", "excluded", "truncated", "attempts", "tool_calls", "cost"]);

function isEmpty(column) {
  if (MAY_BE_ZERO.has(column.name) && column.type === "number" && !column.max) return true;
  return column.type === "number"
    ? column.min === null && column.max === null && column.name !== "task" && column.name !== "rollout"
    : column.values?.length === 0;
}

function plainCell(value) {
  if (value === null || value === undefined || value === "") return null;
  return isNumber(value) ? (Number.isInteger(value) ? formatCount(value) : formatNumber(value)) : String(value);
}

const KINDS = {
  rollouts: {
    page: "rollouts",
    noun: "rollouts",
    load: api.rollouts,
    cells: ROLLOUT_CELLS,
    extra: [PROMPT, ANSWER],
    keyOf: (row) => `${row.task}:${row.rollout}`,
    hrefOf: (run) => (row) => rolloutLink(run, row.task, row.rollout, { q: parseHash().params.get("q") }),
    quick: [
      ["All", []],
      ["Failed", ["state=failed"]],
      ["Truncated", ["truncated!="]],
      ["Retried", ["attempts>0"]],
      ["Labelled", ["label!="]],
    ],
  },
  tasks: {
    page: "tasks",
    noun: "tasks",
    load: api.tasks,
    cells: TASK_CELLS,
    extra: [REWARDS, PROMPT],
    keyOf: (row) => String(row.task),
    hrefOf: (run) => (row) => taskLink(run, row.task),
    quick: [
      ["All", []],
      ["Mixed", ["spread>0"]],
      ["Never solved", ["best<=0"]],
      ["Always solved", ["mean>=1"]],
      ["With failures", ["failed>0"]],
      ["Labelled", ["label!="]],
    ],
  },
};

export const rolloutsPage = (context) => listPage(context, KINDS.rollouts);
export const tasksPage = (context) => listPage(context, KINDS.tasks);

function listPage(context, kind) {
  const { signal } = context;
  const run = context.params.get("run");
  let view = context.params;
  let columns = [];
  let fields = [];
  let table = null;
  let asking = 0;
  const search = make("input", {
    type: "search",
    class: "search",
    placeholder: "Search prompts, answers, tool calls…",
    "aria-label": `Search ${kind.noun}`,
  });
  search.value = view.get("q") ?? "";
  const typed = throttle(() => setParams({ q: search.value, page: null }, { replace: true }), 180, signal);
  search.addEventListener("input", typed);
  const quick = make("div", { class: "chips", role: "group", "aria-label": "Quick filters" });
  const chips = make("div", { class: "chips" });
  const problem = make("div", { class: "notices" });
  const pages = make("div", {});
  const tools = make("div", { class: "actions" });

  function query(more = {}) {
    const sort = view.get("sort") ?? "";
    return {
      run,
      q: view.get("q"),
      f: view.getAll("f"),
      sort: sort.replace(/^-/, ""),
      desc: sort.startsWith("-"),
      page: view.get("page"),
      size: view.get("size") ?? SIZES[0],
      ...more,
    };
  }

  function visible() {
    const chosen = view.get("columns")?.split(",");
    return columns.filter((column) => (chosen ? chosen.includes(column.key) : column.isShown));
  }

  async function load() {
    const own = (asking += 1);
    table.busy();
    try {
      const answer = await kind.load(query(), signal);
      if (own !== asking) return;
      const sort = view.get("sort");
      table.show(answer.rows, {
        sort: sort ? { key: sort.replace(/^-/, ""), descending: sort.startsWith("-") } : { key: "task", descending: false },
        visible: visible(),
        stamp: view.get("q") ?? "",
      });
      refill(problem);
      const note = [
        answer.total_is_exact === false ? "about; the search has more candidates" : null,
        isNumber(answer.ms) ? `${formatNumber(answer.ms)} ms` : null,
      ]
        .filter(Boolean)
        .join(" · ");
      refill(pages, pager({ page: answer.page, size: answer.size, total: answer.total, note, onPage: (next) => setParams({ page: next || null }) }));
      if (kind.page === "rollouts") rememberList(run, answer.rows);
    } catch (error) {
      if (signal.aborted || own !== asking) return;
      if (error.status === 400) {
        refill(problem, notice(error.message, error.next ? ` ${error.next}` : ""));
        table.show([], { visible: visible() });
        refill(pages);
      } else if (!table.node.querySelector("tbody .row-link")) frame.body.replaceChildren(errorState(error, context.reload));
      else refill(problem, notice(error.message));
    }
  }

  function paintTools() {
    const active = view.getAll("f");
    refill(
      quick,
      kind.quick.map(([text, filters]) =>
        button(text, text, () => setParams({ f: filters, page: null }), {
          "aria-pressed": JSON.stringify(filters) === JSON.stringify(active) ? "true" : "false",
          "data-focus": `quick-${text}`,
        }),
      ),
    );
    refill(
      chips,
      active.map((filter, at) =>
        make(
          "span",
          { class: "chip" },
          filterText(filter),
          button("✕", `Remove the filter ${plainText(filter)}`, () => setParams({ f: active.filter((_, other) => other !== at), page: null })),
        ),
      ),
      active.length || view.get("q")
        ? button(
            "Clear all",
            "Clear all filters and the search",
            () => {
              search.value = "";
              setParams({ f: [], q: null, page: null });
            },
            { class: "plain" },
          )
        : null,
    );
    refill(tools, filterMenu(fields, view), columnMenu(columns, visible()), IS_STATIC ? null : downloadMenu(kind, query));
  }

  const frame = runFrame(context, kind.page, {
    async onReady(own) {
      const answer = await api.columns(run, signal);
      fields = answer[kind.page];
      columns = tableColumns(fields, kind.cells, kind.extra);
      table = createTable({
        caption: `${kind.noun} of ${run}`,
        columns,
        keyOf: kind.keyOf,
        hrefOf: kind.hrefOf(run),
        onSort: (key, descending) => setParams({ sort: `${descending ? "-" : ""}${key}`, page: null }),
        empty: () =>
          view.get("q") || view.getAll("f").length
            ? `No ${kind.noun} match. Remove a filter to see more.`
            : `No ${kind.noun} yet. They show up here as they are recorded.`,
      });
      paintTools();
      own.body.append(
        make("div", { class: "filters" }, search, quick, make("span", { class: "grow" }), tools),
        make("div", { class: "filters chips-row" }, chips),
        problem,
        table.node,
        pages,
      );
      await load();
    },
    onEvent(name, data, own) {
      if (((name === "rows" || name === "annotations") && data.run === own.id) || name === "hello") refresh();
    },
  });
  const refresh = throttle(() => table && load(), REFRESH_MS, signal);
  return {
    update(next) {
      view = next;
      if (document.activeElement !== search) search.value = view.get("q") ?? "";
      if (!table) return;
      paintTools();
      load();
    },
  };
}

// The list that a rollout was opened from, so that n and p walk through it.
function rememberList(run, rows) {
  try {
    sessionStorage.setItem("gymnast-list", JSON.stringify({ run, keys: rows.map((row) => [row.task, row.rollout]), from: location.hash }));
  } catch {
    // without storage, n and p follow the order of the run
  }
}

function filterText(filter) {
  const own = parseFilter(filter);
  if (!own) return filter;
  if (own.value === "") return own.op === "!=" ? `has ${own.field}` : `no ${own.field}`;
  const signs = { "~": "contains", "!=": "≠", "<=": "≤", ">=": "≥" };
  return `${own.field} ${signs[own.op] ?? own.op} ${own.value}`;
}

function filterMenu(fields, view) {
  const field = make(
    "select",
    { "aria-label": "Field" },
    fields.filter((one) => one.name !== "prompt").map((one) => make("option", { value: one.name }, one.title ?? one.name)),
  );
  const operator = make("select", { "aria-label": "Condition" });
  const value = make("div", {});
  let input = null;
  const pick = () => {
    const own = fields.find((one) => one.name === field.value);
    const signs =
      own?.type === "number"
        ? [
            ["=", "is"],
            [">=", "at least"],
            ["<=", "at most"],
            [">", "more than"],
            ["<", "less than"],
            ["!=", "is not"],
          ]
        : [
            ["=", "is"],
            ["!=", "is not"],
            ["~", "contains"],
          ];
    refill(operator, ...signs.map(([sign, text]) => make("option", { value: sign }, text)));
    input = own?.values?.length
      ? make(
          "select",
          { "aria-label": "Value" },
          own.values.map((text) => make("option", { value: String(text) }, text)),
        )
      : make("input", {
          "aria-label": "Value",
          type: own?.type === "number" ? "number" : "text",
          step: "any",
          placeholder: isNumber(own?.min) ? `${formatNumber(own.min)} to ${formatNumber(own.max)}` : "empty: no value",
        });
    value.replaceChildren(input);
  };
  field.addEventListener("change", pick);
  pick();
  const form = make("form", { class: "filter-form" }, field, operator, value, make("button", { type: "submit", class: "primary" }, "Add filter"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setParams({ f: [...view.getAll("f"), `${field.value}${operator.value}${input.value}`], page: null });
  });
  return make("details", { class: "menu" }, make("summary", {}, "Filter"), make("div", {}, form));
}

function columnMenu(columns, visible) {
  const chosen = new Set(visible.map((column) => column.key));
  const boxes = columns.map((column) => {
    const box = make("input", {
      type: "checkbox",
      onchange: () => {
        if (box.checked) chosen.add(column.key);
        else chosen.delete(column.key);
        const keys = columns.filter((own) => chosen.has(own.key)).map((own) => own.key);
        setParams({ columns: (keys.length ? keys : ["task"]).join(",") }, { replace: true });
      },
    });
    box.checked = chosen.has(column.key);
    return make("label", {}, box, column.text);
  });
  return make(
    "details",
    { class: "menu" },
    make("summary", {}, "Columns"),
    make(
      "div",
      {},
      boxes,
      button("Reset", "Show the usual columns", () => setParams({ columns: null })),
    ),
  );
}

function downloadMenu(kind, query) {
  const href = (format) => api.downloadUrl({ ...query({ page: null, size: null }), table: kind.page, format });
  return make(
    "details",
    { class: "menu" },
    make("summary", {}, "Download"),
    make(
      "div",
      {},
      [
        ["csv", "CSV"],
        ["jsonl", "JSON lines"],
        ["parquet", "Parquet"],
      ].map(([format, text]) => make("a", { href: href(format), download: true }, text)),
    ),
  );
}
