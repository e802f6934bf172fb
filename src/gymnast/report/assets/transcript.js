// A transcript as elements: messages, reasoning and tool calls in order, long ones clipped until asked for.

const MAX_DEPTH = 40;
const MAX_PRETTY = 60000;
const MAX_OPEN_PROMPT = 3000;
const CLIP = { characters: 1800, lines: 24 };
const CLIP_MESSAGE = { characters: 8000, lines: 120 };
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/;

function textBlock(content, isJson, clip = CLIP_MESSAGE) {
  const block = make("div", { class: "text" });
  const text = content.text ?? "";
  if (content.cut) {
    const note = make("span", { class: "cut" }, `${formatCount(content.cut)} characters are not in this file; the command below prints all of them`);
    block.append(...toNodes(text), note, ...toNodes(content.rest));
  } else {
    block.append(...toNodes(isJson ? pretty(text) : text));
  }
  const parts = [clipped(block, clip)];
  for (const url of content.images ?? []) if (IMAGE.test(url)) parts.push(make("img", { src: url, alt: "image", class: "shown" }));
  return parts.length === 1 ? parts[0] : make("div", {}, ...parts);
}

// A block, clipped with a button if it is long.
function clipped(block, { characters, lines }) {
  const text = block.textContent;
  const count = text.split("\n").length;
  if (text.length <= characters && count <= lines) return block;
  block.classList.add("clipped");
  const more = button(`Show all (${formatCount(text.length)} characters, ${formatCount(count)} ${count === 1 ? "line" : "lines"})`, "Show the whole text", () => unclip(block));
  more.className = "show-all";
  return make("div", { class: "clip" }, block, more);
}

function unclip(block) {
  block.classList.remove("clipped");
  block.nextElementSibling?.remove();
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
  return make("details", { class: "turn reasoning", open: true }, summary, textBlock(item, false, CLIP));
}

// Arguments that fit on the summary's line are not repeated below it.
function callTurn(item) {
  const line = item.text.length <= 160 && !item.text.includes("\n") && !item.cut;
  const summary = make("summary", {}, "call ", ...toNodes(item.name), " ", make("code", {}, ...toNodes(shorten(item.text))));
  const parts = line ? [] : [make("div", { class: "part" }, "arguments"), textBlock(item, true, CLIP)];
  const fits = item.result && !item.result.images && item.result.text.length <= 80 && !item.result.text.includes("\n");
  if (fits) parts.push(make("div", { class: "result-line" }, make("div", { class: "part" }, "result"), resultBlock(item.result)));
  else if (item.result) parts.push(make("div", { class: "part" }, "result"), resultBlock(item.result));
  else parts.push(make("div", { class: "part none" }, "no result on record"));
  return make("details", { class: "turn call", open: true }, summary, ...parts);
}

function resultBlock(result) {
  if (!result.text && !result.images) return make("div", { class: "text faint" }, "(empty)");
  return textBlock(result, true, CLIP);
}

function otherTurn(item) {
  const summary = make("summary", {}, ...toNodes(item.name ?? item.kind));
  return make("details", { class: `turn ${item.kind === "result" ? "result" : "other"}`, open: true }, summary, textBlock(item, true, CLIP));
}

function gapTurn(item) {
  return make("div", { class: "cut" }, `${formatCount(item.items)} items are not in this file; the command below prints them`);
}

const TURNS = { message: messageTurn, reasoning: reasoningTurn, call: callTurn, gap: gapTurn };

function turns(items) {
  return items.map((item) => (TURNS[item.kind] ?? otherTurn)(item));
}

function fields(pairs) {
  const list = make("dl", { class: "fields" });
  for (const [name, value] of pairs) list.append(make("dt", {}, ...toNodes(name)), fieldValue(String(value)));
  return list;
}

function fieldValue(text) {
  const isJson = /^\s*[[{]/.test(text);
  return make("dd", { class: isJson ? "json" : null }, clipped(make("div", {}, ...toNodes(pretty(text))), CLIP));
}

function failureTurn(failure) {
  return make("div", { class: "turn failure" }, make("div", { class: "who" }, "failure"), make("div", { class: "text" }, fields(Object.entries(failure))));
}

function promptBlock(items) {
  const size = items.reduce((sum, item) => sum + (item.text ?? "").length, 0);
  const label = `prompt, ${formatCount(items.length)} ${items.length === 1 ? "message" : "messages"}`;
  return make("details", { class: "prompt-block", open: size <= MAX_OPEN_PROMPT }, make("summary", { class: "label" }, label), ...turns(items));
}

function toolsBlock(tools) {
  const label = `tools offered: ${tools.map((tool) => tool.name).join(", ")}`;
  const list = tools.map((tool) => make("div", { class: "turn other" }, make("div", { class: "who" }, ...toNodes(tool.name)), textBlock(tool, false, CLIP)));
  return make("details", { class: "prompt-block" }, make("summary", { class: "label" }, ...toNodes(shorten(label))), ...list);
}

function transcriptBody(transcript, taskTurn) {
  const prompt = transcript.prompt ?? [];
  return [
    transcript.note ? make("p", { class: "notice" }, transcript.note) : null,
    transcript.failure ? failureTurn(transcript.failure) : null,
    transcript.ending ? make("p", { class: "notice" }, ...toNodes(`The response did not complete: ${transcript.ending}`)) : null,
    prompt.length ? promptBlock(prompt) : taskTurn,
    transcript.tools ? toolsBlock(transcript.tools) : null,
    make("div", { class: "label" }, transcript.items.length ? "rollout" : "no output"),
    ...turns(transcript.items),
    transcript.facts ? make("div", { class: "label" }, "fields of the record") : null,
    transcript.facts ? fields(Object.entries(transcript.facts)) : null,
    transcript.tokens ? tokensBlock(transcript.tokens, transcript.texts) : null,
  ];
}
