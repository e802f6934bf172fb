// Two rollouts next to each other: of one task, or of one task in two runs. Items that differ are marked.

import { api } from "./api.js";
import { link, make, setChildren } from "./dom.js";
import { hashOf, setParams } from "./router.js";
import { outcomeText, rolloutLink, runLink, taskLink } from "./run_parts.js";
import { errorState, isIndex, loading, statePage, wrongAddress } from "./states.js";
import { promptBlock, transcriptNodes } from "./transcript.js";

export function sidePage({ node, params, signal, setTrail, reload }) {
  const sides = sidesOf(params);
  const isKnown = (value) => value === null || isIndex(value);
  if (!isIndex(sides[0].task) || !sides.every((side) => isKnown(side.task) && isKnown(side.rollout))) return wrongAddress(node, setTrail, "two rollouts");
  setTrail([[sides[0].run, runLink(sides[0].run)], [`Task ${sides[0].task}`, taskLink(sides[0].run, sides[0].task)], ["Side by side"]]);
  node.append(loading("Loading both rollouts"));
  load();

  async function load() {
    const answers = await Promise.all(
      sides.map((side) =>
        ready(side)
          .then((own) => api.rollout(own.run, own.task, own.rollout, false, signal))
          .then(
            (data) => ({ data }),
            (error) => ({ error }),
          ),
      ),
    );
    if (signal.aborted) return;
    document.documentElement.dataset.ready = "true";
    if (answers.every((answer) => answer.error)) return node.replaceChildren(errorState(answers[0].error, reload));
    const [a, b] = answers.map((answer) => answer.data);
    const marks = differences(a?.items ?? [], b?.items ?? []);
    const isSamePrompt = JSON.stringify(a?.prompt) === JSON.stringify(b?.prompt);
    setChildren(
      node,
      make("div", { class: "page-head" }, make("div", {}, make("h1", {}, "Side by side"), make("p", { class: "meta" }, summaryOf(a, b, marks)))),
      isSamePrompt && a?.prompt?.length ? promptBlock(a.prompt) : null,
      make(
        "div",
        { class: "side-by-side" },
        answers.map((answer, at) => column(sides[at], answer, marks[at], { at, withPrompt: !isSamePrompt })),
      ),
    );
  }

  // Of another run, the task with the same content; the first recorded rollout of a task stands for it.
  async function ready(side) {
    if (side.task === null) {
      side.task = (await api.sameTask(sides[0].run, sides[0].task, side.run, signal)).task;
      if (side.task === null) throw new Error(`${side.run} has no results of this task.`);
    }
    if (side.rollout !== null) return side;
    const answer = await api.rollouts({ run: side.run, f: [`task=${side.task}`], size: 1 }, signal);
    side.rollout = answer.rows[0]?.rollout ?? 0;
    return side;
  }
  return {};
}

function sidesOf(params) {
  const number = (name) => (params.get(name) === null ? null : Number(params.get(name)));
  const [run, task] = [params.get("run"), Number(params.get("task") ?? NaN)];
  const other = params.get("run2") ?? run;
  return [
    { run, task, rollout: number("rollout") },
    { run: other, task: number("task2") ?? (other === run ? task : null), rollout: number("rollout2") },
  ];
}

function textOf(item) {
  return JSON.stringify([item.kind, item.role, item.name, item.text, item.result?.text]);
}

// For each side, which items the other one does not have in the same order (a longest common subsequence of items).
function differences(a, b) {
  const [left, right] = [a.map(textOf), b.map(textOf)];
  if (left.length * right.length > 250000) return [left.map((text) => !right.includes(text)), right.map((text) => !left.includes(text))];
  const sizes = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i -= 1)
    for (let j = right.length - 1; j >= 0; j -= 1)
      sizes[i][j] = left[i] === right[j] ? sizes[i + 1][j + 1] + 1 : Math.max(sizes[i + 1][j], sizes[i][j + 1]);
  const marks = [left.map(() => true), right.map(() => true)];
  for (let i = 0, j = 0; i < left.length && j < right.length;) {
    if (left[i] === right[j]) marks[0][i++] = marks[1][j++] = false;
    else if (sizes[i + 1][j] >= sizes[i][j + 1]) i += 1;
    else j += 1;
  }
  return marks;
}

function summaryOf(a, b, [left, right]) {
  if (!a || !b) return "One of the two is not on record.";
  const count = Math.max(left.filter(Boolean).length, right.filter(Boolean).length);
  return count ? `${count} of ${Math.max(left.length, right.length)} items differ; they are marked.` : "Both rollouts are the same, item by item.";
}

// Any other rollout of the task, in place of this one.
function rolloutChoice(data, which) {
  const rollouts = data.neighbours?.rollouts ?? [];
  const select = make(
    "select",
    { "aria-label": `Rollout on the ${which ? "right" : "left"}`, onchange: () => setParams({ [which ? "rollout2" : "rollout"]: select.value }) },
    rollouts.map((own) => make("option", { value: own.rollout, selected: own.rollout === data.rollout }, `rollout ${own.rollout} (${outcomeText(own)})`)),
  );
  return rollouts.length > 1 ? select : "";
}

function column(side, { data, error }, marks, { at: which, withPrompt }) {
  const title = side.task === null ? "The same task" : `Task ${side.task}, rollout ${side.rollout ?? 0}`;
  const name = make(
    "div",
    { class: "panel-head" },
    make("h2", {}, side.task === null ? title : link(rolloutLink(side.run, side.task, side.rollout ?? 0), {}, title)),
    make("span", { class: "meta" }, side.run),
  );
  if (error) return make("section", {}, name, statePage("Not on record", error.message));
  const nodes = transcriptNodes(data.items);
  nodes.forEach((turn, at) => turn.classList.toggle("differs", Boolean(marks[at])));
  const outcome = make(
    "p",
    { class: "meta" },
    data.state === "scored" ? `reward ${outcomeText(data.row)}` : outcomeText(data.row),
    data.row?.truncated ? ` · truncated: ${data.row.truncated}` : "",
    data.model ? ` · ${data.model}` : "",
  );
  const others = (data.neighbours?.rollouts ?? []).length;
  name.append(rolloutChoice(data, which));
  return make(
    "section",
    { "aria-label": title },
    name,
    outcome,
    withPrompt && data.prompt?.length ? promptBlock(data.prompt) : null,
    make("div", { class: "section" }, nodes),
    others > 1 ? link(hashOf(["task"], { run: side.run, task: side.task }), {}, `All ${others} rollouts of this task`) : null,
  );
}
