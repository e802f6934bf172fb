// The data blocks of this file, unpacked when they are needed.

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
  run.place = new Map(run.ids.map((task, place) => [task, place]));
  run.blocks = JSON.parse(document.getElementById(`transcripts-${number}`).textContent);
  run.opened = new Map();
  measure(run);
  return run;
}

// Where each task's rollouts are, and their extremes. Rollouts are sorted by task, as tasks are.
function measure(run) {
  run.start = [];
  run.least = [];
  run.most = [];
  let at = 0;
  for (const scored of run.scored) {
    const mine = run.rewards.slice(at, at + scored);
    run.start.push(at);
    run.least.push(scored ? Math.min(...mine) : null);
    run.most.push(scored ? Math.max(...mine) : null);
    at += scored;
  }
  run.floor = run.rewards.reduce((least, one) => Math.min(least, one), 0);
  run.ceiling = run.rewards.reduce((most, one) => Math.max(most, one), 1);
  const scored = run.ids.map((_, place) => place).filter((place) => run.scored[place]);
  const width = (place) => run.high[place] - run.low[place];
  run.byReward = scored.sort((a, b) => run.mean[b] - run.mean[a] || width(a) - width(b) || run.ids[a] - run.ids[b]);
}

function rolloutsOf(run, place) {
  const found = [];
  for (let at = run.start[place]; at < run.start[place] + run.scored[place]; at += 1) {
    found.push({ rollout: run.rollouts[at], reward: run.rewards[at], tokens: run.rolloutTokens[at] });
  }
  const failed = run.failures[run.ids[place]] ?? {};
  for (const [rollout, kind] of Object.entries(failed)) found.push({ rollout: Number(rollout), kind });
  return found.sort((a, b) => a.rollout - b.rollout);
}

function hasTranscript(run, task, rollout) {
  return (run.transcripts[task] ?? []).includes(rollout);
}

async function transcriptsOf(run, task) {
  if (!run.opened.has(task)) run.opened.set(task, await unpack(run.blocks[task]));
  return run.opened.get(task);
}

function fragmentOf(run, task, rollout) {
  const parts = [`task=${task}`];
  if (rollout !== null && rollout !== undefined) parts.push(`rollout=${rollout}`);
  if (run.number) parts.push(`run=${run.number}`);
  return "#" + parts.join("&");
}
