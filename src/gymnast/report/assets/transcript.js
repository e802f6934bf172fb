// A transcript as elements: messages in order, reasoning and tool calls folded.

const MAX_DEPTH = 40;
const MAX_PRETTY = 60000;
const MAX_OPEN_PROMPT = 3000;

function textBlock(content, isJson) {
  const block = make("div", { class: "text" });
  if (content.cut) {
    const note = make("span", { class: "cut" }, `${formatCount(content.cut)} characters cut`);
    block.append(...toNodes(content.text), note, ...toNodes(content.rest));
  } else {
    block.append(...toNodes(isJson ? pretty(content.text) : content.text));
  }
  return block;
}

// Indents JSON, unless it is too deep or too long to indent quickly.
function pretty(text) {
  if (!/^\s*[[{]/.test(text) || text.length > MAX_PRETTY || depth(text) > MAX_DEPTH) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function depth(text) {
  let current = 0;
  let deepest = 0;
  for (const character of text) {
    if (character === "[" || character === "{") deepest = Math.max(deepest, (current += 1));
    else if (character === "]" || character === "}") current -= 1;
  }
  return deepest;
}

function shorten(text) {
  return text.replace(/\s+/g, " ").slice(0, 160);
}

const ROLES = new Set(["user", "assistant", "system", "developer", "instructions"]);

function messageTurn(item) {
  const role = ROLES.has(item.role) ? item.role : "other";
  return make("div", { class: `turn ${role}` }, make("div", { class: "who" }, ...toNodes(item.role)), textBlock(item));
}

function reasoningTurn(item) {
  const summary = make("summary", {}, `reasoning, ${formatCount(item.text.length + (item.cut ?? 0) + (item.rest ?? "").length)} characters`);
  return make("details", { class: "turn reasoning" }, summary, textBlock(item));
}

function callTurn(item) {
  const summary = make("summary", {}, "call ", ...toNodes(item.name), " ", make("code", {}, ...toNodes(shorten(item.text))));
  const parts = [make("div", { class: "part" }, "arguments"), textBlock(item, true)];
  if (item.result) parts.push(make("div", { class: "part" }, "result"), textBlock(item.result, true));
  else parts.push(make("div", { class: "part" }, "no result on record"));
  return make("details", { class: "turn call" }, summary, ...parts);
}

function foldedTurn(item) {
  const summary = make("summary", {}, ...toNodes(item.name ?? item.kind));
  return make("details", { class: `turn ${item.kind === "result" ? "result" : "other"}` }, summary, textBlock(item, true));
}

function gapTurn(item) {
  return make("div", { class: "cut" }, `${formatCount(item.items)} items cut`);
}

const TURNS = { message: messageTurn, reasoning: reasoningTurn, call: callTurn, gap: gapTurn };

function turns(items) {
  return items.map((item) => (TURNS[item.kind] ?? foldedTurn)(item));
}

function fields(pairs) {
  const list = make("dl", { class: "fields" });
  for (const [name, value] of pairs) list.append(make("dt", {}, ...toNodes(name)), make("dd", {}, ...toNodes(String(value))));
  return list;
}

function failureTurn(failure) {
  return make("div", { class: "turn failure" }, make("div", { class: "who" }, "failure"), make("div", { class: "text" }, fields(Object.entries(failure))));
}

function promptBlock(items) {
  const size = items.reduce((sum, item) => sum + (item.text ?? "").length, 0);
  const label = `prompt, ${formatCount(items.length)} ${items.length === 1 ? "message" : "messages"}`;
  return make("details", { class: "prompt-block", open: size <= MAX_OPEN_PROMPT }, make("summary", { class: "label" }, label), ...turns(items));
}

function transcriptBody(block, rollout) {
  const transcript = block.rollouts[rollout];
  const prompt = transcript.prompt ?? block.prompt ?? [];
  return [
    transcript.note ? make("p", { class: "notice" }, transcript.note) : null,
    transcript.failure ? failureTurn(transcript.failure) : null,
    prompt.length ? promptBlock(prompt) : null,
    make("div", { class: "label" }, transcript.items.length ? "rollout" : "no output"),
    ...turns(transcript.items),
    transcript.facts ? make("div", { class: "label" }, "fields of the record") : null,
    transcript.facts ? fields(Object.entries(transcript.facts)) : null,
  ];
}
