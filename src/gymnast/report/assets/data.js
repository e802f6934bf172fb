// The data blocks of this file, unpacked on demand.

const MAX_CACHED_CHUNKS = 8;

async function unpack(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
}

async function readRun(number) {
  const run = await unpack(document.getElementById(`columns-${number}`).textContent.trim());
  run.number = number;
  run.indices = new Map(run.ids.map((task, index) => [task, index]));
  run.chunkCount = document.querySelectorAll(`script[id^="chunk-${number}-"]`).length;
  run.cache = new Map();
  run.index = { next: 0, prompts: new Map(), entries: [] };
  measure(run);
  return run;
}

// The start and the extreme rewards of each task's rollouts, which are sorted by task.
function measure(run) {
  run.start = [];
  run.lowest = [];
  run.highest = [];
  let at = 0;
  for (const scored of run.scored) {
    const rewards = run.rewards.slice(at, at + scored);
    run.start.push(at);
    run.lowest.push(scored ? rewards.reduce((low, reward) => Math.min(low, reward)) : null);
    run.highest.push(scored ? rewards.reduce((high, reward) => Math.max(high, reward)) : null);
    at += scored;
  }
  run.floor = run.rewards.reduce((low, reward) => Math.min(low, reward), 0);
  run.ceiling = run.rewards.reduce((high, reward) => Math.max(high, reward), 1);
  const scored = run.ids.map((_, index) => index).filter((index) => run.scored[index]);
  const width = (index) => run.high[index] - run.low[index];
  run.byReward = scored.sort((a, b) => run.mean[b] - run.mean[a] || width(a) - width(b) || run.ids[a] - run.ids[b]);
}

function rolloutsOf(run, index) {
  const rollouts = [];
  for (let at = run.start[index]; at < run.start[index] + run.scored[index]; at += 1) {
    rollouts.push({ rollout: run.rollouts[at], reward: run.rewards[at], tokens: run.rolloutTokens[at] });
  }
  const failed = run.failures[run.ids[index]] ?? {};
  for (const [rollout, kind] of Object.entries(failed)) rollouts.push({ rollout: Number(rollout), kind });
  for (const rollout of run.excluded[run.ids[index]] ?? []) rollouts.push({ rollout, isExcluded: true });
  return rollouts.sort((a, b) => a.rollout - b.rollout);
}

function hasTranscript(run, task, rollout) {
  return run.transcripts[task]?.[rollout] !== undefined;
}

function readChunk(run, number) {
  return unpack(document.getElementById(`chunk-${run.number}-${number}`).textContent);
}

// A rollout's transcript with its prompt, and the texts of its token ids.
async function transcriptOf(run, task, rollout) {
  const number = run.transcripts[task][rollout];
  if (!run.cache.has(number)) {
    if (run.cache.size >= MAX_CACHED_CHUNKS) run.cache.delete(run.cache.keys().next().value);
    run.cache.set(number, readChunk(run, number));
  }
  const chunk = await run.cache.get(number);
  const block = chunk.tasks[task];
  return { ...block.prompt, ...block.rollouts[rollout], texts: chunk.texts };
}

function fragmentOf(run, task, rollout) {
  const parts = [`task=${task}`];
  if (rollout !== null && rollout !== undefined) parts.push(`rollout=${rollout}`);
  if (run.number) parts.push(`run=${run.number}`);
  return "#" + parts.join("&");
}
