// Finds a text in everything that this file has: prompts, answers, reasoning, tool calls and results, agents, models,
// failures and fields. Transcripts are unpacked once, a few at a time, and searched as they come.

const SLICE_MS = 60;
const MAX_HITS = 3;
const BEFORE = 60;
const AFTER = 120;

const search = { indexing: null };

function normalise(text) {
  return text.replace(/\s+/g, " ").toLowerCase();
}

function contentText(content) {
  return content ? [content.text, content.rest] : [];
}

function itemTexts(item) {
  return [item.role, item.name, ...contentText(item), ...contentText(item.result)];
}

function join(texts) {
  return texts.filter(Boolean).join(" · ").replace(/\s+/g, " ");
}

function transcriptText(transcript) {
  return join([
    transcript.ending,
    ...Object.values(transcript.failure ?? {}),
    ...(transcript.prompt ?? []).flatMap(itemTexts),
    ...transcript.items.flatMap(itemTexts),
    ...Object.entries(transcript.facts ?? {}).map(([name, value]) => `${name}: ${value}`),
    transcript.agent,
    transcript.model,
  ]);
}

// Adds the texts of the next chunk to the run's index.
async function indexChunk(run) {
  const chunk = await readChunk(run, run.index.next);
  for (const [task, block] of Object.entries(chunk.tasks)) {
    const index = run.indices.get(Number(task));
    if (index === undefined) continue; // excluded, of a run without materialized inputs
    if (!run.index.prompts.has(index)) run.index.prompts.set(index, normalise(join((block.prompt.prompt ?? []).flatMap(itemTexts))));
    for (const [rollout, transcript] of Object.entries(block.rollouts)) {
      const text = transcriptText(transcript);
      run.index.entries.push({ index, rollout: Number(rollout), text, lower: text.toLowerCase() });
    }
  }
  run.index.next += 1;
}

// Indexes all transcripts of a run, and tells now and then: showing results takes a small part of the time.
async function indexRun(run, tell) {
  let next = performance.now() + SLICE_MS;
  while (run.index.next < run.chunkCount) {
    await indexChunk(run);
    const now = performance.now();
    if (now < next) continue;
    tell();
    const spent = performance.now() - now;
    await new Promise((resume) => setTimeout(resume));
    next = performance.now() + Math.max(SLICE_MS, 6 * spent);
  }
}

function startIndexing(run, tell) {
  if (search.indexing || run.index.next >= run.chunkCount) return;
  search.indexing = indexRun(run, tell).finally(() => {
    search.indexing = null;
    tell();
  });
}

// The tasks that match: index -> the matching rollouts, with some text around each match.
function findMatches(run, text) {
  const query = normalise(text);
  const exact = /^(\d+)(?::(\d+))?$/.exec(query);
  if (exact?.[2]) return findRollout(run, Number(exact[1]), Number(exact[2]));
  const hits = new Map();
  const hitsOf = (index) => hits.get(index) ?? hits.set(index, []).get(index);
  for (let index = 0; index < run.ids.length; index += 1) {
    if (matchesTask(run, index, query, exact)) hitsOf(index);
  }
  for (const entry of run.index.entries) {
    const at = entry.lower.indexOf(query);
    if (at < 0) continue;
    hitsOf(entry.index).push({ entry, at, length: query.length });
  }
  return hits;
}

function findRollout(run, task, rollout) {
  const index = run.indices.get(task);
  if (index === undefined || !rolloutsOf(run, index).some((other) => other.rollout === rollout)) return new Map();
  return new Map([[index, [{ entry: { rollout, text: "" }, at: 0, length: 0 }]]]);
}

function matchesTask(run, index, query, exact) {
  if (exact && Number(exact[1]) === run.ids[index]) return true;
  if (run.prompts[index].toLowerCase().includes(query) || run.index.prompts.get(index)?.includes(query)) return true;
  if (run.agentNames[run.agents[index]].toLowerCase().includes(query)) return true;
  return Object.values(run.failures[run.ids[index]] ?? {}).some((kind) => kind.toLowerCase().includes(query));
}

// The first matching rollouts of a task with the text around each match.
function hitList(run, index, hits) {
  const sorted = hits.toSorted((a, b) => a.entry.rollout - b.entry.rollout);
  const rows = sorted.slice(0, MAX_HITS).map((hit) => hitLink(run, run.ids[index], hit));
  const more = hits.length - rows.length;
  if (more > 0) rows.push(make("span", { class: "hit" }, `and ${formatCount(more)} more ${more === 1 ? "rollout" : "rollouts"}`));
  return make("div", { class: "hits" }, ...rows);
}

function hitLink(run, task, { entry, at, length }) {
  const end = at + length;
  return make(
    "a",
    { class: "hit", href: fragmentOf(run, task, entry.rollout), dir: "auto" },
    make("span", { class: "hit-name" }, `rollout ${entry.rollout}`),
    ...toNodes((at > BEFORE ? "…" : "") + entry.text.slice(Math.max(0, at - BEFORE), at)),
    make("mark", {}, ...toNodes(entry.text.slice(at, end))),
    ...toNodes(entry.text.slice(end, end + AFTER) + (entry.text.length > end + AFTER ? "…" : ""))
  );
}

// Marks the query in what a panel shows, unfolding whatever hides a match.
function highlight(root, text) {
  if (!CSS.highlights) return;
  CSS.highlights.delete("found");
  const query = text.trim().toLowerCase();
  if (!query) return;
  const ranges = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const lower = node.data.toLowerCase();
    for (let at = lower.indexOf(query); at >= 0 && ranges.length < 2000; at = lower.indexOf(query, at + query.length)) {
      if (at + query.length > node.data.length) break;
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + query.length);
      ranges.push(range);
    }
  }
  if (!ranges.length) return;
  CSS.highlights.set("found", new Highlight(...ranges));
  for (const range of ranges) reveal(range.startContainer.parentElement, root);
  const first = ranges.find((range) => !range.startContainer.parentElement.closest("header")) ?? ranges[0];
  first.startContainer.parentElement.scrollIntoView({ block: "center" });
}

function reveal(node, root) {
  for (let at = node; at && at !== root; at = at.parentElement) {
    if (at.localName === "details") at.open = true;
    if (at.classList.contains("clipped")) unclip(at);
  }
}
