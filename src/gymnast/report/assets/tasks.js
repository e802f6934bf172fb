// The table of all tasks, one page of rows at a time.

const ROWS = 25;
const COLUMNS = [
  { key: "task", text: "task", width: "84px", value: (run, index) => run.ids[index] },
  { key: "prompt", text: "", width: "auto", value: (run, index) => run.prompts[index] },
  { key: "reward", text: "mean reward", width: "216px", number: true, value: (run, index) => run.mean[index] },
  { key: "scored", text: "scored", width: "120px", number: true, value: (run, index) => run.scored[index] },
  { key: "failed", text: "failed", width: "82px", number: true, value: (run, index) => run.failed[index] },
  { key: "tokens", text: "tokens", width: "100px", number: true, value: (run, index) => run.tokens[index] },
];
const FILTERS = {
  all: () => true,
  mixed: (run, index) => run.highest[index] > run.lowest[index],
  never: (run, index) => run.highest[index] !== null && run.highest[index] <= 0,
  always: (run, index) => run.lowest[index] !== null && run.lowest[index] > 0,
  owed: (run, index) => run.failed[index] > 0 || run.scored[index] < run.expected[index],
  here: (run, index) => run.ids[index] in run.transcripts,
};

const table = { run: null, sort: "task", down: false, page: 0, order: [] };

function arrange() {
  const { run } = table;
  const query = document.getElementById("find").value.trim().toLowerCase();
  const accepts = FILTERS[document.getElementById("which").value];
  const { value } = COLUMNS.find((column) => column.key === table.sort);
  const direction = table.down ? -1 : 1;
  table.order = run.ids
    .map((_, index) => index)
    .filter((index) => accepts(run, index) && matches(run, index, query))
    .sort((a, b) => compare(value(run, a), value(run, b), direction) || a - b);
  table.page = 0;
  showPage();
}

function matches(run, index, query) {
  return !query || String(run.ids[index]) === query || run.prompts[index].toLowerCase().includes(query);
}

// Unknown values come last in both directions.
function compare(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

function showPage() {
  const { run, order } = table;
  const pages = Math.max(1, Math.ceil(order.length / ROWS));
  table.page = Math.min(Math.max(0, table.page), pages - 1);
  const rows = order.slice(table.page * ROWS, (table.page + 1) * ROWS);
  document.querySelector("#task-table tbody").replaceChildren(...rows.map((index) => taskRow(run, index)));
  document.getElementById("found").textContent = `${formatCount(order.length)} of ${formatCount(run.ids.length)} tasks`;
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
    make("td", { class: "number" }, run.tokens[index] === null ? "–" : formatCount(run.tokens[index]))
  );
  row.addEventListener("click", (event) => {
    if (event.target !== link) location.hash = fragmentOf(run, task);
  });
  return row;
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

function startTable(runs) {
  table.run = runs[0];
  const heads = COLUMNS.map(({ key, text, width, number }) => {
    const head = make("th", { scope: "col", "data-key": key, class: number ? "number" : null }, button(text || "prompt", `Sort by ${text || "prompt"}`, () => sortBy(key)));
    head.style.width = width;
    return head;
  });
  document.querySelector("#task-table thead tr").replaceChildren(...heads);
  const choice = document.getElementById("run");
  choice.replaceChildren(...runs.map((run) => make("option", { value: run.number }, ...toNodes(run.name))));
  choice.closest("label").hidden = runs.length < 2;
  choice.addEventListener("change", () => {
    table.run = runs[Number(choice.value)];
    arrange();
  });
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("find").addEventListener("input", arrange);
  document.getElementById("which").addEventListener("change", arrange);
  document.getElementById("previous").addEventListener("click", () => turnPage(-1));
  document.getElementById("next").addEventListener("click", () => turnPage(1));
  arrange();
}

function turnPage(step) {
  table.page += step;
  showPage();
}
