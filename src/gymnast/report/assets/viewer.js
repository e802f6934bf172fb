// The panel with one task and one of its rollouts, selected by the address: #task=41&rollout=3.

const viewer = { runs: [], opening: 0, shown: null, fragment: "" };

function startViewer(runs) {
  viewer.runs = runs;
  const dialog = document.getElementById("viewer");
  dialog.addEventListener("close", () => {
    // The event is late: the address may already have the next rollout.
    if (location.hash === viewer.fragment) history.replaceState(null, "", location.pathname + location.search);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  addEventListener("hashchange", follow);
  return follow();
}

// Opens the rollout in the address, or closes the panel.
async function follow() {
  const params = new URLSearchParams(location.hash.slice(1));
  const dialog = document.getElementById("viewer");
  if (params.has("sort")) return followSort(params);
  const run = viewer.runs[Number(params.get("run") ?? 0)];
  const index = run?.indices.get(Number(params.get("task")));
  if (!params.has("task") || index === undefined) {
    if (dialog.open) dialog.close();
    return;
  }
  const rollouts = rolloutsOf(run, index);
  const selected = params.has("rollout") ? Number(params.get("rollout")) : firstToShow(run, index, rollouts);
  const opening = (viewer.opening += 1);
  const transcript = hasTranscript(run, run.ids[index], selected) ? await transcriptOf(run, run.ids[index], selected) : null;
  if (opening !== viewer.opening) return; // superseded meanwhile
  viewer.shown = { run, index, rollout: selected, rollouts };
  viewer.fragment = location.hash;
  const panel = document.querySelector(".viewer");
  const body = transcript ? transcriptBody(transcript, taskTurn(run, run.ids[index])) : absentBody(run, run.ids[index], selected, rollouts);
  const command = transcript ? [make("div", { class: "label" }, "print this in a terminal"), commandLine(`${run.command} ${run.ids[index]}:${selected}`)] : [];
  panel.replaceChildren(header(run, index, selected, rollouts, transcript), ...body.filter(Boolean), ...command);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  highlight(panel, document.getElementById("find").value);
}

// A link to the table of all tasks in some order.
function followSort(params) {
  const run = viewer.runs[Number(params.get("run") ?? 0)];
  if (!run || !COLUMNS.some((column) => column.key === params.get("sort"))) return;
  showSorted(run, params.get("sort"));
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("tasks").scrollIntoView();
}

function firstToShow(run, index, rollouts) {
  const included = rollouts.find((other) => hasTranscript(run, run.ids[index], other.rollout));
  return (included ?? rollouts[0])?.rollout ?? null;
}

function header(run, index, selected, rollouts, transcript) {
  const task = run.ids[index];
  const title = selected === null ? `Task ${task}` : `Task ${task}, rollout ${selected}`;
  const current = rollouts.find((other) => other.rollout === selected);
  const about = [
    viewer.runs.length > 1 ? run.name : null,
    current?.kind ? `failed: ${current.kind}` : null,
    current?.isExcluded ? "excluded: no reward, or masked" : null,
    current?.reward !== undefined ? `reward ${rewardText(current.reward)}` : null,
    current?.tokens ? `${formatCount(current.tokens)} tokens` : null,
    transcript?.seconds !== undefined ? `${formatSeconds(transcript.seconds)}` : null,
    transcript?.agent ?? run.agentNames[run.agents[index]],
    transcript?.model,
    `${run.scored[index]} of ${run.expected[index]} rollouts scored`,
  ];
  return make(
    "header",
    {},
    make(
      "div",
      { class: "bar-row" },
      make("h2", { id: "viewer-title", tabindex: "-1", autofocus: true }, title),
      foldButton(),
      button("←", "Previous rollout (left arrow)", () => step(-1)),
      button("→", "Next rollout (right arrow)", () => step(1)),
      button("✕", "Close (Escape)", () => document.getElementById("viewer").close())
    ),
    make("p", { class: "meta" }, ...toNodes(about.filter(Boolean).join(" · "))),
    make("div", { class: "chips" }, ...rollouts.map((other) => chip(run, task, other, selected)))
  );
}

// Folds or unfolds everything in the panel.
function foldButton() {
  const fold = button("Fold", "Fold or unfold everything", () => {
    const opens = fold.textContent === "Unfold";
    for (const node of document.querySelectorAll(".viewer details:not(.tokens)")) node.open = opens;
    if (opens) for (const node of document.querySelectorAll(".viewer .clipped")) unclip(node);
    fold.textContent = opens ? "Fold" : "Unfold";
  });
  return fold;
}

function chip(run, task, rollout, selected) {
  const state = [rollout.kind || rollout.isExcluded ? "lost" : null, hasTranscript(run, task, rollout.rollout) ? null : "away"].filter(Boolean);
  return make(
    "a",
    {
      class: ["chip", ...state].join(" "),
      href: fragmentOf(run, task, rollout.rollout),
      "aria-current": rollout.rollout === selected ? "true" : null,
      title: state.includes("away") ? "the transcript is not in this file" : null,
    },
    String(rollout.rollout),
    make("small", {}, ...toNodes(rollout.isExcluded ? "excluded" : rollout.kind ?? outcome(run, rollout.reward)))
  );
}

function outcome(run, reward) {
  return run.binary ? (reward ? "✓" : "✗") : rewardText(reward);
}

function absentBody(run, task, selected, rollouts) {
  const known = rollouts.some((other) => other.rollout === selected);
  const note = known
    ? "The transcript of this rollout is not in this file, which includes a selection (gymnast report --transcripts all includes every one). Print it with:"
    : "This rollout has no recorded result or failure.";
  return [taskTurn(run, task), make("p", { class: "label" }, note), known ? commandLine(`${run.command} ${task}:${selected}`) : null];
}

// The start of a task's prompt, for rollouts whose record has none.
function taskTurn(run, task) {
  return make("div", { class: "turn user" }, make("div", { class: "who" }, "task"), textBlock({ text: run.prompts[run.indices.get(task)] }));
}

function commandLine(text) {
  const code = make("code", {}, ...toNodes(text));
  const copy = button("Copy", "Copy the command", async () => {
    getSelection().selectAllChildren(code); // without clipboard access, the text is at least selected
    await navigator.clipboard?.writeText(text).then(
      () => (copy.textContent = "Copied"),
      () => (copy.textContent = "Selected")
    );
  });
  return make("div", { class: "command" }, code, copy);
}

// The next rollout of this task, or the first of the next task in the table.
function step(by) {
  const { run, index, rollout, rollouts } = viewer.shown;
  const at = rollouts.findIndex((other) => other.rollout === rollout) + by;
  if (at >= 0 && at < rollouts.length) {
    location.hash = fragmentOf(run, run.ids[index], rollouts[at].rollout);
    return;
  }
  const order = table.run === run && table.order.includes(index) ? table.order : run.ids.map((_, position) => position);
  const next = order[order.indexOf(index) + by];
  if (next !== undefined) location.hash = fragmentOf(run, run.ids[next]);
}
