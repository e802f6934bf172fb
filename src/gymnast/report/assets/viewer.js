// The panel that shows one task and one of its rollouts. What it shows is in the address: #task=41&rollout=3.

const viewer = { runs: [], opening: 0, shown: null, fragment: "" };

function startViewer(runs) {
  viewer.runs = runs;
  const dialog = document.getElementById("viewer");
  dialog.addEventListener("close", () => {
    // The event comes late: by then the address may already name the next rollout.
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

// Open what the address names; close what it no longer names.
async function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const dialog = document.getElementById("viewer");
  const run = viewer.runs[Number(asked.get("run") ?? 0)];
  const place = run?.place.get(Number(asked.get("task")));
  if (!asked.has("task") || place === undefined) {
    if (dialog.open) dialog.close();
    return;
  }
  const rollouts = rolloutsOf(run, place);
  const wanted = asked.has("rollout") ? Number(asked.get("rollout")) : firstToShow(run, place, rollouts);
  const opening = (viewer.opening += 1);
  const body = await bodyOf(run, run.ids[place], wanted, rollouts);
  if (opening !== viewer.opening) return; // another one was asked for meanwhile
  viewer.shown = { run, place, rollout: wanted, rollouts };
  viewer.fragment = location.hash;
  document.querySelector(".viewer").replaceChildren(header(run, place, wanted, rollouts), ...body.filter((one) => one));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function firstToShow(run, place, rollouts) {
  const here = rollouts.find((one) => hasTranscript(run, run.ids[place], one.rollout));
  return (here ?? rollouts[0])?.rollout ?? null;
}

function header(run, place, wanted, rollouts) {
  const task = run.ids[place];
  const title = wanted === null ? `Task ${task}` : `Task ${task}, rollout ${wanted}`;
  const found = rollouts.find((one) => one.rollout === wanted);
  const about = [
    viewer.runs.length > 1 ? run.name : null,
    found?.kind ? `failed: ${found.kind}` : null,
    found && !found.kind ? `reward ${rewardText(found.reward)}` : null,
    found?.tokens ? `${counted(found.tokens)} tokens` : null,
    `${run.scored[place]} of ${run.expected[place]} rollouts scored`,
  ];
  return make(
    "header",
    {},
    make(
      "div",
      { class: "bar-row" },
      make("h2", { id: "viewer-title", tabindex: "-1", autofocus: true }, title),
      button("←", "Previous rollout (left arrow)", () => step(-1)),
      button("→", "Next rollout (right arrow)", () => step(1)),
      button("✕", "Close (Escape)", () => document.getElementById("viewer").close())
    ),
    make("p", { class: "meta" }, ...spelled(about.filter(Boolean).join(" · "))),
    make("div", { class: "chips" }, ...rollouts.map((one) => chip(run, task, one, wanted)))
  );
}

function chip(run, task, one, wanted) {
  const state = [one.kind ? "lost" : null, hasTranscript(run, task, one.rollout) ? null : "away"].filter(Boolean);
  return make(
    "a",
    {
      class: ["chip", ...state].join(" "),
      href: fragmentOf(run, task, one.rollout),
      "aria-current": one.rollout === wanted ? "true" : null,
      title: state.includes("away") ? "the transcript is not in this file" : null,
    },
    String(one.rollout),
    make("small", {}, ...spelled(one.kind ?? outcome(run, one.reward)))
  );
}

function outcome(run, reward) {
  return run.binary ? (reward ? "✓" : "✗") : rewardText(reward);
}

async function bodyOf(run, task, wanted, rollouts) {
  if (hasTranscript(run, task, wanted)) return transcriptBody(await transcriptsOf(run, task), wanted);
  const known = rollouts.some((one) => one.rollout === wanted);
  const told = known
    ? "The transcript of this rollout is not in this file, which carries a selection. This prints it:"
    : "This rollout has no result and no failure on record.";
  const asked = make("div", { class: "turn user" }, make("div", { class: "who" }, "task"), textBlock({ text: run.prompts[run.place.get(task)] }));
  return [asked, make("p", { class: "label" }, told), known ? commandLine(`${run.command} ${task}:${wanted}`) : null];
}

function commandLine(text) {
  const code = make("code", {}, ...spelled(text));
  const copy = button("Copy", "Copy the command", async () => {
    getSelection().selectAllChildren(code); // where the clipboard is closed to us, it is at least marked
    await navigator.clipboard?.writeText(text).then(
      () => (copy.textContent = "Copied"),
      () => (copy.textContent = "Marked")
    );
  });
  return make("div", { class: "command" }, code, copy);
}

// The next rollout of this task, or the first of the next task in the table.
function step(by) {
  const { run, place, rollout, rollouts } = viewer.shown;
  const at = rollouts.findIndex((one) => one.rollout === rollout) + by;
  if (at >= 0 && at < rollouts.length) {
    location.hash = fragmentOf(run, run.ids[place], rollouts[at].rollout);
    return;
  }
  const order = table.run === run && table.order.includes(place) ? table.order : run.ids.map((_, one) => one);
  const next = order[order.indexOf(place) + by];
  if (next !== undefined) location.hash = fragmentOf(run, run.ids[next]);
}
