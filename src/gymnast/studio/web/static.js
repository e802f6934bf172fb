// A static export: the API's answers from files, with filters, sorting and paging done here.

import { entry } from "./dom.js";

export const IS_STATIC = document.documentElement.dataset.mode === "static";
const cache = new Map();
const NAME = /^[\w-]+(\/[\w-]+)*$/; // of data in this export: an address must not load any other script

// Data are scripts that call this with their JSON as a string: browsers load nothing else from files on disk.
if (IS_STATIC) globalThis.studioData = (name, text) => cache.set(name, JSON.parse(text));

function load(name) {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    const end = () => {
      script.remove();
      resolve();
    };
    script.onload = script.onerror = end;
    script.src = `data/${name}.js`;
    document.head.append(script);
  });
}

async function readData(name, ApiError) {
  if (!cache.has(name) && NAME.test(name)) await load(name);
  if (!cache.has(name))
    throw new ApiError(404, "This is not in the export.", "The export has a limit; `gymnast view` on the run itself shows everything.");
  return cache.get(name);
}

export async function staticRequest(name, params, ApiError) {
  const read = (path) => readData(path, ApiError);
  const session = await read("session");
  if (name === "session") return session;
  if (name === "runs") return read("runs");
  const runs = [params.run].flat();
  const folders = runs.map((run) => entry(session.files, run));
  if (folders.includes(undefined)) throw new ApiError(404, "This run is not in the export.");
  const [folder] = folders;
  if (name === "run/live") return { state: "complete", is_live: false, now: null, history: [], chunks: null };
  if (name === "run/training") return read(`${folder}/training`).catch(() => ({ steps: [], held_out: [] }));
  if (name === "run/plots") return mergePlots(await Promise.all(folders.map((one) => read(`${one}/plots`))));
  if (name === "rollout") return read(`${folder}/rollout/${params.task}-${params.rollout}`);
  if (name === "compare") return pageOf(await comparison(read, folders, runs), { ...params, sort: params.sort ?? "abs" }, COMPARE_VALUES);
  if (name === "rollouts" || name === "tasks") return select(await read(`${folder}/${name}`), params, name);
  return read(`${folder}/${name}`);
}

// Several runs overlay only where their bins agree; the others keep the first run's.
function mergePlots(plots) {
  if (plots.length === 1) return plots[0];
  const merged = { ...plots[0], runs: plots.flatMap((one) => one.runs) };
  for (const key of ["pass_rates", "pass_at", "reward_by_tokens", "failures", "over_time"]) merged[key] = plots.flatMap((one) => one[key] ?? []);
  for (const key of ["rewards", "tokens", "seconds"]) {
    const same = plots.every((one) => JSON.stringify(one[key]?.edges) === JSON.stringify(plots[0][key]?.edges));
    merged[key] = same && plots[0][key] ? { ...plots[0][key], counts: plots.flatMap((one) => one[key].counts) } : null;
  }
  return merged;
}

async function comparison(read, [first, second], runs) {
  return read(`${first}/compare-${second}`).catch(async () => {
    const swapped = await read(`${second}/compare-${first}`);
    return { ...swapped, note: `${runs[1]} is the baseline in this export.` };
  });
}

const COMPARE_VALUES = {
  difference: (row) => row.differences[1],
  abs: (row) => (row.differences[1] === null ? null : Math.abs(row.differences[1])),
  task: (row) => row.task,
  mean_a: (row) => row.means[0],
  mean_b: (row) => row.means[1],
};

export function valueOf(row, field) {
  return Object.hasOwn(row, field) ? row[field] : entry(row.values, field);
}

const FILTER = /^([^=!<>~]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*)$/s;

export function parseFilter(text) {
  const match = FILTER.exec(text);
  return match ? { field: match[1], op: match[2], value: match[3] } : null;
}

function holds(row, { field, op, value }) {
  const own = valueOf(row, field);
  const isMissing = own === null || own === undefined || own === "";
  if (value === "") return op === "!=" ? !isMissing : isMissing;
  if (op === "~")
    return String(own ?? "")
      .toLowerCase()
      .includes(value.toLowerCase());
  const isSame = !isMissing && (typeof own === "number" ? own === Number(value) : String(own) === value);
  if (op === "=") return isSame;
  if (op === "!=") return !isSame;
  if (isMissing) return false;
  const [a, b] = typeof own === "number" ? [own, Number(value)] : [String(own), value];
  return op === "<" ? a < b : op === "<=" ? a <= b : op === ">" ? a > b : a >= b;
}

function select(table, params, name) {
  const filters = [params.f ?? []].flat().map(parseFilter).filter(Boolean);
  const groups = Map.groupBy(filters, (filter) => (filter.op === "=" ? `=${filter.field}` : JSON.stringify(filter)));
  const words = [...(params.q ?? "").toLowerCase().matchAll(/"([^"]+)"|(\S+)/g)].map((match) => match[1] ?? match[2]);
  const rows = table.rows.filter((row) => {
    const text = `${row.prompt ?? ""}\n${row.answer ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word)) && [...groups.values()].every((group) => group.some((filter) => holds(row, filter)));
  });
  const values = new Proxy({}, { get: (_, field) => (row) => valueOf(row, field) });
  return pageOf({ ...table, rows }, { size: 50, ...params, sort: params.sort ?? "task" }, values, name);
}

function pageOf(table, { sort, desc, page = 0, size = 100 }, values) {
  const value = values[sort];
  const direction = desc ? -1 : 1;
  const rows = value ? table.rows.toSorted((a, b) => order(value(a), value(b), direction) || a.task - b.task) : table.rows;
  return {
    ...table,
    rows: rows.slice(page * size, (Number(page) + 1) * size),
    total: rows.length,
    total_is_exact: true,
    page: Number(page),
    size: Number(size),
  };
}

// Rows without a value come last in either direction.
export function order(a, b, direction) {
  const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
  if (noA || noB) return Number(noA) - Number(noB);
  return direction * (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b);
}
