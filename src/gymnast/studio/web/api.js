// What the server says: its JSON API, or the same shapes from the files of a static export.

import { IS_STATIC, staticRequest } from "./static.js";

export class ApiError extends Error {
  constructor(status, what, next, retryS) {
    super(what);
    this.status = status;
    this.next = next ?? null;
    this.retryS = retryS ?? null;
  }
  get isGone() {
    return this.status === 404;
  }
}

export function queryOf(params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const item of Array.isArray(value) ? value : [value])
      if (item !== null && item !== undefined && item !== "" && item !== false) query.append(key, item === true ? "1" : item);
  }
  return query.toString();
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The studio server is not responding.", "Is `gymnast view` still running? This page reconnects automatically.");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 403 && !body.error) throw new ApiError(403, "This browser has no access.", "Open the URL that `gymnast view` printed.");
  throw new ApiError(
    answer.status,
    body.error?.what ?? `The server answered ${answer.status}.`,
    body.error?.next,
    body.retry_s ?? body.error?.retry_s,
  );
}

async function get(name, params = {}, signal) {
  if (IS_STATIC) return staticRequest(name, params, ApiError);
  const query = queryOf(params);
  return (await request(`api/${name}${query ? `?${query}` : ""}`, { signal })).json();
}

async function post(name, body) {
  if (IS_STATIC) throw new ApiError(403, "This is a static export: nothing can be changed here.");
  const answer = await request(`api/${name}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  return answer.json();
}

// Asks again while the index is still being built for something that needs all of it.
async function patiently(ask, signal) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 409 || signal?.aborted) throw error;
      await new Promise((resume) => setTimeout(resume, 1000 * (error.retryS ?? 1)));
    }
  }
}

export const api = {
  session: () => get("session"),
  runs: (signal) => get("runs", {}, signal),
  run: (run, signal) => get("run", { run }, signal),
  plots: (runs, signal) => patiently(() => get("run/plots", { run: runs }, signal), signal),
  live: (run, signal) => get("run/live", { run }, signal),
  training: (run, signal) => get("run/training", { run }, signal),
  columns: (run, signal) => get("columns", { run }, signal),
  rollouts: (params, signal) => get("rollouts", params, signal),
  tasks: (params, signal) => get("tasks", params, signal),
  rollout: (run, task, rollout, full, signal) => get("rollout", { run, task, rollout, full }, signal),
  raw: async (run, task, rollout) =>
    IS_STATIC
      ? JSON.stringify(await get("rollout", { run, task, rollout }), null, 2)
      : (await request(`api/rollout/raw?${queryOf({ run, task, rollout })}`)).text(),
  compare: (params, signal) => patiently(() => get("compare", params, signal), signal),
  sameTask: (run, task, other, signal) => patiently(() => get("task/same", { run, task, other }, signal), signal),
  doctor: (run, signal) => patiently(() => get("doctor", { run }, signal), signal),
  annotations: (run, signal) => get("annotations", { run }, signal),
  control: (run, command, argument = null) => post("control", { run, command, argument }),
  annotate: (annotation) => post("annotations", annotation),
  downloadUrl: (params) => `api/download?${queryOf(params)}`,
};
