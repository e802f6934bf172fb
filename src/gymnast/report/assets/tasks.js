// The table of all tasks: one page of rows at a time, however many tasks there are.

const ROWS = 25;
const COLUMNS = [
  { key: "task", text: "task", width: "84px", value: (run, at) => run.ids[at] },
  { key: "prompt", text: "", width: "auto", value: (run, at) => run.prompts[at] },
  { key: "reward", text: "mean reward", width: "216px", number: true, value: (run, at) => run.mean[at] },
  { key: "scored", text: "scored", width: "120px", number: true, value: (run, at) => run.scored[at] },
  { key: "failed", text: "failed", width: "82px", number: true, value: (run, at) => run.failed[at] },
  { key: "tokens", text: "tokens", width: "100px", number: true, value: (run, at) => run.tokens[at] },
];
const KEPT = {
  all: () => true,
  mixed: (run, at) => run.most[at] > run.least[at],
  never: (run, at) => run.most[at] !== null && run.most[at] <= 0,
  always: (run, at) => run.least[at] !== null && run.least[at] > 0,
  owed: (run, at) => run.failed[at] > 0 || run.scored[at] < run.expected[at],
  here: (run, at) => run.ids[at] in run.transcripts,
};

const table = { run: null, sort: "task", down: false, page: 0, order: [] };

function arrange() {
  const { run } = table;
  const words = document.getElementById("find").value.trim().toLowerCase();
  const kept = KEPT[document.getElementById("which").value];
  const { value } = COLUMNS.find((one) => one.key === table.sort);
  const way = table.down ? -1 : 1;
  table.order = run.ids
    .map((_, at) => at)
    .filter((at) => kept(run, at) && matches(run, at, words))
    .sort((a, b) => compared(value(run, a), value(run, b), way) || a - b);
  table.page = 0;
  showPage();
}

function matches(run, at, words) {
  return !words || String(run.ids[at]) === words || run.prompts[at].toLowerCase().includes(words);
}

// What is not known comes last, whichever way is sorted.
function compared(a, b, way) {
  if (a === null || b === null) return (a === null) - (b === null);
  return way * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

function showPage() {
  const { run, order } = table;
  const pages = Math.max(1, Math.ceil(order.length / ROWS));
  table.page = Math.min(Math.max(0, table.page), pages - 1);
  const shown = order.slice(table.page * ROWS, (table.page + 1) * ROWS);
  document.querySelector("#task-table tbody").replaceChildren(...shown.map((at) => taskRow(run, at)));
  document.getElementById("found").textContent = `${counted(order.length)} of ${counted(run.ids.length)} tasks`;
  document.getElementById("page").textContent = `Page ${counted(table.page + 1)} of ${counted(pages)}`;
  document.getElementById("previous").disabled = table.page === 0;
  document.getElementById("next").disabled = table.page === pages - 1;
  for (const head of document.querySelectorAll("#task-table thead th")) {
    if (head.dataset.key !== table.sort) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", table.down ? "descending" : "ascending");
  }
}

function taskRow(run, at) {
  const task = run.ids[at];
  const here = task in run.transcripts;
  const link = make("a", { href: fragmentOf(run, task), class: here ? "here" : null }, String(task));
  const row = make(
    "tr",
    {},
    make("th", { scope: "row" }, link),
    make("td", { class: "prompt", dir: "auto", title: run.prompts[at] }, ...spelled(run.prompts[at])),
    make("td", { class: "number" }, rewardText(run.mean[at]), meter(run, at)),
    make("td", { class: "number" }, `${run.scored[at]} of ${run.expected[at]}`),
    make("td", { class: "number" }, run.failed[at] ? counted(run.failed[at]) : ""),
    make("td", { class: "number" }, run.tokens[at] === null ? "–" : counted(run.tokens[at]))
  );
  row.addEventListener("click", (event) => {
    if (event.target !== link) location.hash = fragmentOf(run, task);
  });
  return row;
}

// The mean as a mark and its interval as a bar, on the scale of the run's rewards.
function meter(run, at) {
  const node = make("span", { class: `meter run-${run.number % 6}`, "aria-hidden": "true" });
  if (run.mean[at] === null) return node;
  const share = (value) => (100 * (Math.min(Math.max(value, run.floor), run.ceiling) - run.floor)) / (run.ceiling - run.floor);
  if (run.low[at] !== null && run.high[at] !== null) {
    const bar = make("i", {});
    bar.style.left = `${share(run.low[at])}%`;
    bar.style.right = `${100 - share(run.high[at])}%`;
    node.append(bar);
  }
  const mark = make("b", {});
  mark.style.left = `calc(${share(run.mean[at])}% - ${(3 * share(run.mean[at])) / 100}px)`;
  node.append(mark);
  return node;
}

function sortBy(key) {
  table.down = table.sort === key ? !table.down : key !== "task" && key !== "prompt";
  table.sort = key;
  arrange();
}

function startTable(runs) {
  table.run = runs[0];
  const heads = COLUMNS.map(({ key, text, width, number }) => {
    const head = make("th", { scope: "col", "data-key": key, class: number ? "number" : null }, button(text || "prompt", `Sort by ${text || "prompt"}`, () => sortBy(key)));
    head.style.width = width;
    return head;
  });
  document.querySelector("#task-table thead tr").replaceChildren(...heads);
  const choice = document.getElementById("run");
  choice.replaceChildren(...runs.map((run) => make("option", { value: run.number }, ...spelled(run.name))));
  choice.closest("label").hidden = runs.length < 2;
  choice.addEventListener("change", () => {
    table.run = runs[Number(choice.value)];
    arrange();
  });
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("find").addEventListener("input", arrange);
  document.getElementById("which").addEventListener("change", arrange);
  document.getElementById("previous").addEventListener("click", () => turn(-1));
  document.getElementById("next").addEventListener("click", () => turn(1));
  arrange();
}

function turn(step) {
  table.page += step;
  showPage();
}
