// The table of all tasks, one page of rows at a time.

const COLUMNS = [
  { key: "task", text: "task", width: "76px", value: (run, index) => run.ids[index] },
  { key: "prompt", text: "", width: "auto", value: (run, index) => run.prompts[index] },
  { key: "reward", text: "mean reward", width: "200px", number: true, value: (run, index) => run.mean[index] },
  { key: "scored", text: "scored", width: "92px", number: true, value: (run, index) => run.scored[index] },
  { key: "failed", text: "failed", width: "74px", number: true, value: (run, index) => run.failed[index] },
  { key: "spread", text: "spread", width: "84px", number: true, value: (run, index) => run.spread[index] },
  { key: "seconds", text: "seconds", width: "94px", number: true, value: (run, index) => run.seconds?.[index] ?? null },
  { key: "tokens", text: "tokens", width: "90px", number: true, value: (run, index) => run.tokens[index] },
];
const FILTERS = {
  all: () => true,
  mixed: (run, index) => run.highest[index] > run.lowest[index],
  never: (run, index) => run.highest[index] !== null && run.highest[index] <= 0,
  same: (run, index) => run.lowest[index] !== null && run.lowest[index] === run.highest[index],
  always: (run, index) => run.lowest[index] !== null && run.lowest[index] > 0,
  owed: (run, index) => run.failed[index] > 0 || run.scored[index] < run.expected[index],
  here: (run, index) => run.ids[index] in run.transcripts,
};

const table = { run: null, sort: "task", down: false, page: 0, order: [], hits: null };

// The tasks to show, in order. Keeps the page if only more transcripts were searched.
function arrange({ keepsPage = false } = {}) {
  const { run } = table;
  const query = document.getElementById("find").value.trim();
  const accepts = FILTERS[document.getElementById("which").value];
  const agent = document.getElementById("agent").value;
  const { value } = COLUMNS.find((column) => column.key === table.sort);
  const direction = table.down ? -1 : 1;
  table.hits = query ? findMatches(run, query) : null;
  table.order = run.ids
    .map((_, index) => index)
    .filter((index) => (!table.hits || table.hits.has(index)) && accepts(run, index) && (!agent || run.agents[index] === Number(agent)))
    .sort((a, b) => compare(value(run, a), value(run, b), direction) || a - b);
  if (!keepsPage) table.page = 0;
  showPage();
  if (query) startIndexing(run, () => arrange({ keepsPage: true }));
}

function searchState(run) {
  if (!table.hits) return "";
  const included = Object.values(run.transcripts).reduce((sum, own) => sum + Object.keys(own).length, 0);
  const found = table.order.reduce((sum, index) => sum + table.hits.get(index).length, 0);
  const done = run.index.next >= run.chunkCount;
  const where = done ? `${formatCount(included)} transcripts` : `transcripts (${Math.floor((100 * run.index.next) / run.chunkCount)}% searched)`;
  return `${formatCount(found)} ${found === 1 ? "rollout" : "rollouts"} found in ${where}`;
}

// Unknown values come last in both directions.
function compare(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

function showPage() {
  const { run, order } = table;
  const size = Number(document.getElementById("rows").value);
  const pages = Math.max(1, Math.ceil(order.length / size));
  table.page = Math.min(Math.max(0, table.page), pages - 1);
  const rows = order.slice(table.page * size, (table.page + 1) * size);
  document.querySelector("#task-table tbody").replaceChildren(...rows.flatMap((index) => [taskRow(run, index), ...hitRow(run, index)]));
  document.getElementById("found").textContent = `${formatCount(order.length)} of ${formatCount(run.ids.length)} tasks`;
  document.getElementById("searched").textContent = searchState(run);
  document.getElementById("page").textContent = `Page ${formatCount(table.page + 1)} of ${formatCount(pages)}`;
  document.getElementById("previous").disabled = table.page === 0;
  document.getElementById("next").disabled = table.page === pages - 1;
  for (const head of document.querySelectorAll("#task-table thead th")) {
    if (head.dataset.key !== table.sort) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", table.down ? "descending" : "ascending");
  }
}

function taskRow(run, index) {
  const task = run.ids[index];
  const hasBlock = task in run.transcripts;
  const link = make("a", { href: fragmentOf(run, task), class: hasBlock ? "here" : null }, String(task));
  const row = make(
    "tr",
    {},
    make("th", { scope: "row" }, link),
    make("td", { class: "prompt", dir: "auto", title: run.prompts[index] }, ...toNodes(run.prompts[index])),
    make("td", { class: "number" }, rewardText(run.mean[index]), meter(run, index)),
    make("td", { class: "number" }, `${run.scored[index]} of ${run.expected[index]}`),
    make("td", { class: "number" }, run.failed[index] ? formatCount(run.failed[index]) : ""),
    make("td", { class: "number" }, rewardText(run.spread[index])),
    run.seconds ? make("td", { class: "number" }, run.seconds[index] === null ? "–" : String(Number(run.seconds[index].toPrecision(3)))) : null,
    make("td", { class: "number" }, run.tokens[index] === null ? "–" : formatCount(run.tokens[index]))
  );
  row.addEventListener("click", (event) => {
    if (!event.target.closest("a")) location.hash = fragmentOf(run, task);
  });
  return row;
}

function hitRow(run, index) {
  const hits = table.hits?.get(index) ?? [];
  if (!hits.length) return [];
  const columns = document.querySelectorAll("#task-table thead th").length;
  return [make("tr", { class: "hit-row" }, make("td", {}), make("td", { colspan: columns - 1 }, hitList(run, index, hits)))];
}

// The mean as a mark and its interval as a bar, on the scale of the run's rewards.
function meter(run, index) {
  const node = make("span", { class: `meter run-${run.number % 6}`, "aria-hidden": "true" });
  if (run.mean[index] === null) return node;
  const share = (value) => (100 * (Math.min(Math.max(value, run.floor), run.ceiling) - run.floor)) / (run.ceiling - run.floor);
  if (run.low[index] !== null && run.high[index] !== null) {
    const bar = make("i", {});
    bar.style.left = `${share(run.low[index])}%`;
    bar.style.right = `${100 - share(run.high[index])}%`;
    node.append(bar);
  }
  const mark = make("b", {});
  mark.style.left = `calc(${share(run.mean[index])}% - ${(3 * share(run.mean[index])) / 100}px)`;
  node.append(mark);
  return node;
}

function sortBy(key) {
  table.down = table.sort === key ? !table.down : key !== "task" && key !== "prompt";
  table.sort = key;
  arrange();
}

// All tasks of a run, the largest values of a column first.
function showSorted(run, key) {
  document.getElementById("run").value = String(run.number);
  document.getElementById("which").value = "all";
  document.getElementById("find").value = "";
  selectRun(run);
  table.sort = key;
  table.down = true;
  arrange();
}

function selectRun(run) {
  table.run = run;
  const agent = document.getElementById("agent");
  const names = run.agentNames.map((name, number) => make("option", { value: number }, ...toNodes(name || "(no name)")));
  agent.replaceChildren(make("option", { value: "" }, "all agents"), ...names);
  agent.closest("label").hidden = run.agentNames.length < 2;
  showHeads();
}

function showHeads() {
  const columns = COLUMNS.filter(({ key }) => key !== "seconds" || table.run.seconds);
  const heads = columns.map(({ key, text, width, number }) => {
    const head = make("th", { scope: "col", "data-key": key, class: number ? "number" : null }, button(text || "prompt", `Sort by ${text || "prompt"}`, () => sortBy(key)));
    head.style.width = width;
    return head;
  });
  document.querySelector("#task-table thead tr").replaceChildren(...heads);
}

function startTable(runs) {
  const choice = document.getElementById("run");
  choice.replaceChildren(...runs.map((run) => make("option", { value: run.number }, ...toNodes(run.name))));
  choice.closest("label").hidden = runs.length < 2;
  choice.addEventListener("change", () => {
    selectRun(runs[Number(choice.value)]);
    arrange();
  });
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("find").addEventListener("input", () => arrange());
  for (const id of ["which", "agent", "rows"]) document.getElementById(id).addEventListener("change", () => arrange());
  document.getElementById("previous").addEventListener("click", () => turnPage(-1));
  document.getElementById("next").addEventListener("click", () => turnPage(1));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea") || document.getElementById("viewer").open) return;
    event.preventDefault();
    document.getElementById("find").focus();
  });
  selectRun(runs[0]);
  arrange();
}

function turnPage(step) {
  table.page += step;
  showPage();
}
