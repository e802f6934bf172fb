// A transcript as elements: messages, reasoning and tool calls in order. Long texts are clipped until asked for.

import { button, copyText, entry, make } from "./dom.js";
import { formatCount, plural } from "./format.js";
import { highlight } from "./highlight.js";
import { markdown } from "./markdown.js";
import { toast } from "./states.js";

const MAX_DEPTH = 40;
const MAX_PRETTY = 60000;
const CLIP = { characters: 1800, lines: 24 };
const CLIP_MESSAGE = { characters: 8000, lines: 120 };
const MAX_OPEN_PROMPT = 4000;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/;
const ROLES = new Set(["user", "assistant", "system", "developer", "instructions"]);

// Options: isRaw shows texts as they are written; onFull asks for what was cut.
export function transcriptNodes(items, options = {}) {
  return items.map((item) => (entry(TURNS, item.kind) ?? otherTurn)(item, options));
}

function contentBlock(content, { isRaw, onFull }, { isJson = false, isProse = false, clip = CLIP_MESSAGE } = {}) {
  const text = content.text ?? "";
  const block = make("div", { class: "text" });
  const prose = isProse && !isRaw && !content.cut ? markdown(text) : null;
  if (prose) {
    block.classList.add("prose");
    block.append(...make("div", {}, prose).childNodes);
  } else if (content.cut) {
    const note = make(
      "span",
      { class: "cut" },
      `${plural(content.cut, "character")} left out. `,
      onFull ? button("Show everything", "Load the whole rollout", onFull, { class: "plain" }) : null,
    );
    block.append(...make("div", {}, text, note, content.rest ?? "").childNodes);
  } else block.append(...make("div", {}, isJson && !isRaw ? jsonNodes(text) : text).childNodes);
  const images = (content.images ?? [])
    .filter((url) => IMAGE.test(url))
    .map((url) => make("img", { src: url, alt: "image in the transcript", class: "shown" }));
  return [clipped(block, clip), ...images];
}

export function clipped(block, { characters, lines } = CLIP) {
  const text = block.textContent;
  const count = text.split("\n").length;
  if (text.length <= characters && count <= lines) return block;
  block.classList.add("clipped");
  const more = button(
    `Show all (${plural(text.length, "character")}, ${plural(count, "line")})`,
    "Show the whole text",
    () => {
      block.classList.remove("clipped");
      more.remove();
    },
    { class: "show-all" },
  );
  return make("div", { class: "clip" }, block, more);
}

export function unfoldAll(node, isOpen) {
  for (const details of node.querySelectorAll("details")) details.open = isOpen;
  if (isOpen) for (const more of node.querySelectorAll(".show-all")) more.click();
}

function jsonNodes(text) {
  const pretty = indented(text);
  return pretty === null ? [text] : highlight(pretty, "json");
}

// Indented JSON, or null if the text is not JSON, or too deep or too long to indent quickly.
export function indented(text) {
  if (!/^\s*[[{]/.test(text) || text.length > MAX_PRETTY || depthOf(text) > MAX_DEPTH) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function depthOf(text) {
  let [current, deepest] = [0, 0];
  for (const character of text) {
    if (character === "[" || character === "{") deepest = Math.max(deepest, (current += 1));
    else if (character === "]" || character === "}") current -= 1;
  }
  return deepest;
}

function copyButton({ text, cut, rest }) {
  if (!text) return null;
  const copy = async () => {
    const isDone = await copyText(cut ? `${text} … ${rest ?? ""}` : text);
    toast(isDone ? (cut ? "Copied without the middle; show everything first to copy all of it" : "Copied") : "Could not copy");
  };
  return button("Copy", "Copy this message", copy, { class: "plain copy" });
}

function messageTurn(item, options) {
  const role = ROLES.has(item.role) ? item.role : "other";
  return make(
    "div",
    { class: `turn ${role}`, "data-turn": true, tabindex: "-1" },
    make("div", { class: "who" }, item.role, copyButton(item)),
    contentBlock(item, options, { isProse: true }),
  );
}

function reasoningTurn(item, options) {
  const size = (item.text ?? "").length + (item.cut ?? 0) + (item.rest ?? "").length;
  return make(
    "details",
    { class: "turn reasoning", open: true, "data-turn": true },
    make("summary", {}, `reasoning, ${plural(size, "character")}`),
    contentBlock(item, options, { isProse: true, clip: CLIP }),
  );
}

// Arguments that fit on the summary's line are not repeated below it.
function callTurn(item, options) {
  const isShort = (item.text ?? "").length <= 120 && !(item.text ?? "").includes("\n") && !item.cut;
  const summary = make(
    "summary",
    {},
    make("span", {}, "call ", make("span", { class: "name" }, item.name)),
    make("code", {}, (item.text ?? "").replace(/\s+/g, " ").slice(0, 160)),
  );
  const blocks = options.isRaw ? null : argumentBlocks(item.text ?? "");
  const parts = blocks ?? (isShort ? [] : [make("div", { class: "part" }, "arguments"), contentBlock(item, options, { isJson: true, clip: CLIP })]);
  if (item.result)
    parts.push(
      make("div", { class: "part" }, "result"),
      item.result.text || item.result.images
        ? contentBlock(item.result, options, { isJson: true, clip: CLIP })
        : make("div", { class: "text quiet" }, "(empty)"),
    );
  else parts.push(make("div", { class: "part none" }, "no result on record"));
  return make("details", { class: "turn call", open: true, "data-turn": true }, summary, parts);
}

// Arguments with texts of several lines (code, files), each under its name.
function argumentBlocks(text) {
  const pretty = text.includes("\\n") ? indented(text) : null;
  const value = pretty === null ? null : JSON.parse(text);
  if (!value || Array.isArray(value) || Object.keys(value).length > 12) return null;
  return Object.entries(value).flatMap(([name, own]) => {
    const content = typeof own === "string" ? own : JSON.stringify(own, null, 2);
    return [make("div", { class: "part" }, name), clipped(make("div", { class: "text" }, highlight(content)), CLIP)];
  });
}

function otherTurn(item, options) {
  return make(
    "details",
    { class: `turn ${item.kind === "result" ? "result" : "other"}`, open: true, "data-turn": true },
    make("summary", {}, item.name ?? item.kind),
    contentBlock(item, options, { isJson: true, clip: CLIP }),
  );
}

function gapTurn(item, { onFull }) {
  return make(
    "div",
    { class: "cut" },
    `${plural(item.items, "item")} left out. `,
    onFull ? button("Show everything", "Load the whole rollout", onFull, { class: "plain" }) : null,
  );
}

const TURNS = { message: messageTurn, reasoning: reasoningTurn, call: callTurn, gap: gapTurn };

export function promptBlock(items, options) {
  const size = items.reduce((sum, item) => sum + (item.text ?? "").length, 0);
  return make(
    "details",
    { class: "fold", open: size <= MAX_OPEN_PROMPT },
    make("summary", {}, `Prompt, ${plural(items.length, "message")}`),
    transcriptNodes(items, options),
  );
}

export function toolsBlock(tools, options) {
  return make(
    "details",
    { class: "fold" },
    make("summary", {}, `Tools offered: ${formatCount(tools.length)}`),
    tools.map((tool) =>
      make(
        "div",
        { class: "turn other" },
        make("div", { class: "who" }, make("span", { class: "name" }, tool.name)),
        contentBlock(tool, options, { clip: CLIP }),
      ),
    ),
  );
}

export function factList(pairs) {
  return make(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      const pretty = indented(text);
      return [
        make("dt", {}, name),
        make(
          "dd",
          { class: pretty === null ? null : "json" },
          clipped(make("div", {}, pretty === null ? text : highlight(pretty, "json")), { characters: 700, lines: 14 }),
        ),
      ];
    }),
  );
}

// Marks what is searched for in everything below a node, without touching its elements.
export function markFound(node, query) {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  const words = [...(query ?? "").matchAll(/"([^"]+)"|(\S+)/g)].map((match) => (match[1] ?? match[2]).toLowerCase());
  if (!words.length) return;
  const ranges = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text && ranges.length < 2000; text = walker.nextNode()) {
    const lower = text.data.toLowerCase();
    for (const word of words) {
      for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(text, at);
        range.setEnd(text, at + word.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
  return ranges.length;
}
