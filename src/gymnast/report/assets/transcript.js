// A transcript as elements: messages in order, reasoning and tool calls folded.

const DEEPEST = 40;
const PRETTY_AT_MOST = 60000;
const OPEN_PROMPT = 3000;

function textBlock(said, makesPretty) {
  const block = make("div", { class: "text" });
  if (said.cut) {
    const told = make("span", { class: "cut" }, `${counted(said.cut)} characters are cut here`);
    block.append(...spelled(said.text), told, ...spelled(said.rest));
  } else {
    block.append(...spelled(makesPretty ? pretty(said.text) : said.text));
  }
  return block;
}

// JSON in lines, unless it is so deep that indenting it would take forever.
function pretty(text) {
  if (!/^\s*[[{]/.test(text) || text.length > PRETTY_AT_MOST || depth(text) > DEEPEST) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function depth(text) {
  let now = 0;
  let most = 0;
  for (const sign of text) {
    if (sign === "[" || sign === "{") most = Math.max(most, (now += 1));
    else if (sign === "]" || sign === "}") now -= 1;
  }
  return most;
}

function shortened(text) {
  return text.replace(/\s+/g, " ").slice(0, 160);
}

const ROLES = new Set(["user", "assistant", "system", "developer", "instructions"]);

function messageTurn(item) {
  const known = ROLES.has(item.role) ? item.role : "other";
  return make("div", { class: `turn ${known}` }, make("div", { class: "who" }, ...spelled(item.role)), textBlock(item));
}

function reasoningTurn(item) {
  const summary = make("summary", {}, `reasoning, ${counted(item.text.length + (item.cut ?? 0) + (item.rest ?? "").length)} characters`);
  return make("details", { class: "turn reasoning" }, summary, textBlock(item));
}

function callTurn(item) {
  const summary = make("summary", {}, "call ", ...spelled(item.name), " ", make("code", {}, ...spelled(shortened(item.text))));
  const parts = [make("div", { class: "part" }, "arguments"), textBlock(item, true)];
  if (item.result) parts.push(make("div", { class: "part" }, "result"), textBlock(item.result, true));
  else parts.push(make("div", { class: "part" }, "no result on record"));
  return make("details", { class: "turn call" }, summary, ...parts);
}

function foldedTurn(item) {
  const summary = make("summary", {}, ...spelled(item.name ?? item.kind));
  return make("details", { class: `turn ${item.kind === "result" ? "result" : "other"}` }, summary, textBlock(item, true));
}

function gapTurn(item) {
  return make("div", { class: "cut" }, `${counted(item.items)} items are cut here`);
}

const TURNS = { message: messageTurn, reasoning: reasoningTurn, call: callTurn, gap: gapTurn };

function turns(items) {
  return items.map((item) => (TURNS[item.kind] ?? foldedTurn)(item));
}

function fields(pairs) {
  const list = make("dl", { class: "fields" });
  for (const [name, value] of pairs) list.append(make("dt", {}, ...spelled(name)), make("dd", {}, ...spelled(String(value))));
  return list;
}

function failureTurn(failure) {
  return make("div", { class: "turn failure" }, make("div", { class: "who" }, "failure"), make("div", { class: "text" }, fields(Object.entries(failure))));
}

function promptBlock(items) {
  const size = items.reduce((sum, item) => sum + (item.text ?? "").length, 0);
  const label = `prompt, ${counted(items.length)} ${items.length === 1 ? "message" : "messages"}`;
  return make("details", { class: "prompt-block", open: size <= OPEN_PROMPT }, make("summary", { class: "label" }, label), ...turns(items));
}

function transcriptBody(block, rollout) {
  const found = block.rollouts[rollout];
  const prompt = found.prompt ?? block.prompt ?? [];
  return [
    found.note ? make("p", { class: "notice" }, found.note) : null,
    found.failure ? failureTurn(found.failure) : null,
    prompt.length ? promptBlock(prompt) : null,
    make("div", { class: "label" }, found.items.length ? "rollout" : "nothing was said"),
    ...turns(found.items),
    found.facts ? make("div", { class: "label" }, "fields of the record") : null,
    found.facts ? fields(Object.entries(found.facts)) : null,
  ];
}
