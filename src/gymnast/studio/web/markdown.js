// Markdown as elements: headings, lists, tables, code, emphasis, formulas. HTML in it stays text, links are shown and not followed.

import { make } from "./dom.js";
import { highlight } from "./highlight.js";
import { formula } from "./math.js";

const MAX_LENGTH = 120000;
const MAX_DEPTH = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,30})/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// The blocks of a text, or null if it is better shown as it is.
export function markdown(text) {
  if (text.length > MAX_LENGTH) return null;
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) at += 1;
    else {
      const read =
        [readFence, readFormula, readHeading, readRule, readQuote, readTable, readList].reduce(
          (done, reader) => done ?? reader(lines, at, depth),
          null,
        ) ?? readParagraph(lines, at);
      nodes.push(read.node);
      at = read.next;
    }
  }
  return nodes;
}

function readFence(lines, at) {
  const open = FENCE.exec(lines[at]);
  if (!open) return null;
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(open[1]) && !lines[end].trim().slice(open[1].length).replaceAll(open[1][0], "").trim()))
    end += 1;
  const code = lines.slice(at + 1, end).join("\n");
  return {
    node: make("pre", {}, open[2] ? make("span", { class: "language" }, open[2]) : null, make("code", {}, highlight(code, open[2]))),
    next: end + 1,
  };
}

function readFormula(lines, at) {
  const start = lines[at].trimStart();
  const pair = start.startsWith("$$") ? ["$$", "$$"] : start.startsWith("\\[") ? ["\\[", "\\]"] : null;
  if (!pair) return null;
  const limit = Math.min(lines.length, at + 60);
  let text = start.slice(2);
  let end = at;
  while (!text.includes(pair[1]) && end + 1 < limit) text += `\n${lines[(end += 1)]}`;
  const close = text.indexOf(pair[1]);
  if (close < 0 || text.slice(close + 2).trim()) return null;
  return { node: make("div", {}, formula(text.slice(0, close), true)), next: end + 1 };
}

function readHeading(lines, at) {
  const match = HEADING.exec(lines[at]);
  return match ? { node: make("h4", {}, inline(match[2])), next: at + 1 } : null;
}

function readRule(lines, at) {
  return RULE.test(lines[at]) ? { node: make("hr", {}), next: at + 1 } : null;
}

function readQuote(lines, at, depth) {
  if (!/^ {0,3}>/.test(lines[at]) || depth >= MAX_DEPTH) return null;
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
  return {
    node: make(
      "blockquote",
      {},
      blocks(
        lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, "")),
        depth + 1,
      ),
    ),
    next: end,
  };
}

function cellsOf(line) {
  return line
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split("|")
    .map((cell) => cell.trim());
}

function readTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-") || lines[at + 1].length > 2000 || !TABLE_RULE.test(lines[at + 1])) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (name) => (line) =>
    make(
      "tr",
      {},
      cellsOf(line).map((cell) => make(name, {}, inline(cell))),
    );
  return {
    node: make(
      "div",
      { class: "overflow" },
      make("table", {}, make("thead", {}, row("th")(lines[at])), make("tbody", {}, lines.slice(at + 2, end).map(row("td")))),
    ),
    next: end,
  };
}

function readList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first || depth >= MAX_DEPTH) return null;
  const indent = first[1].length;
  const items = [];
  let end = at;
  while (end < lines.length) {
    const match = ITEM.exec(lines[end]);
    const isOwn = match && match[1].length >= indent && match[1].length < indent + 2 && Boolean(match[3]) === Boolean(first[3]);
    const isMore =
      items.length &&
      (/^\s*$/.test(lines[end])
        ? ITEM.test(lines[end + 1] ?? "") || /^\s{2,}\S/.test(lines[end + 1] ?? "")
        : lines[end].length - lines[end].trimStart().length > indent ||
          (!match && lines[end - 1]?.trim() && !FENCE.test(lines[end]) && !HEADING.test(lines[end])));
    if (isOwn) items.push([match[4]]);
    else if (isMore) items.at(-1).push(lines[end].slice(Math.min(lines[end].length - lines[end].trimStart().length, indent + 2)));
    else break;
    end += 1;
  }
  const list = make(first[3] ? "ol" : "ul", { start: first[3] && first[3] !== "1" ? first[3] : null });
  for (const item of items) list.append(make("li", {}, item.length === 1 ? inline(item[0]) : [inline(item[0]), blocks(item.slice(1), depth + 1)]));
  return { node: list, next: end };
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (
    end < lines.length &&
    lines[end].trim() &&
    !FENCE.test(lines[end]) &&
    !HEADING.test(lines[end]) &&
    !ITEM.test(lines[end]) &&
    !/^ {0,3}(>|\$\$|\\\[)/.test(lines[end])
  )
    end += 1;
  return { node: make("p", {}, inline(lines.slice(at, end).join("\n"))), next: end };
}

const SPANS = [
  { open: "``", close: "``", node: (text) => make("code", {}, text.trim()) },
  { open: "`", close: "`", node: (text) => make("code", {}, text) },
  { open: "\\(", close: "\\)", node: (text) => formula(text, false) },
  { open: "$$", close: "$$", node: (text) => formula(text, true) },
  {
    open: "$",
    close: "$",
    accepts: (text, after) => /^\S/.test(text) && /\S$/.test(text) && !/^\d/.test(after) && !text.includes("\n\n"),
    node: (text) => formula(text, false),
  },
  {
    open: "**",
    close: "**",
    accepts: (text) => /^\S/.test(text) && /\S$/.test(text),
    node: (text, depth) => make("strong", {}, inline(text, depth + 1)),
  },
  {
    open: "__",
    close: "__",
    accepts: (text) => /^\S/.test(text) && /\S$/.test(text),
    isWord: true,
    node: (text, depth) => make("strong", {}, inline(text, depth + 1)),
  },
  { open: "~~", close: "~~", node: (text, depth) => make("s", {}, inline(text, depth + 1)) },
  { open: "*", close: "*", accepts: (text) => /^\S/.test(text) && /\S$/.test(text), node: (text, depth) => make("em", {}, inline(text, depth + 1)) },
  {
    open: "_",
    close: "_",
    accepts: (text) => /^\S/.test(text) && /\S$/.test(text),
    isWord: true,
    node: (text, depth) => make("em", {}, inline(text, depth + 1)),
  },
];
const STARTS = /[`$\\*_~[]/g;

function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  const missing = new Set();
  let from = 0;
  STARTS.lastIndex = 0;
  for (let match = STARTS.exec(text); match; match = STARTS.exec(text)) {
    const at = match.index;
    const span = readSpan(text, at, depth, missing) ?? readLink(text, at, depth, missing) ?? readEscape(text, at);
    if (!span) continue;
    nodes.push(text.slice(from, at - (span.before ?? 0)), span.node);
    from = span.next;
    STARTS.lastIndex = from;
  }
  nodes.push(text.slice(from));
  return nodes;
}

// `missing` has the closing signs that do not occur any more, so that a text of signs costs linear time.
function readSpan(text, at, depth, missing) {
  for (const span of SPANS) {
    if (missing.has(span.close) || !text.startsWith(span.open, at)) continue;
    if (span.isWord && /\w/.test(text[at - 1] ?? "")) continue;
    const start = at + span.open.length;
    const end = text.indexOf(span.close, start);
    if (end < 0) missing.add(span.close);
    else if (
      end > start &&
      end - start < 4000 &&
      (span.accepts?.(text.slice(start, end), text.slice(end + span.close.length, end + span.close.length + 1)) ?? true)
    ) {
      if (span.isWord && /\w/.test(text[end + span.close.length] ?? "")) continue;
      return { node: span.node(text.slice(start, end), depth), next: end + span.close.length };
    }
  }
  return null;
}

function readLink(text, at, depth, missing) {
  if (text[at] !== "[" || missing.has("](")) return null;
  const middle = text.indexOf("](", at);
  if (middle < 0) missing.add("](");
  const end = middle < 0 || middle - at > 400 ? -1 : text.indexOf(")", middle);
  if (end < 0 || end - middle > 1000) return null;
  const isImage = text[at - 1] === "!";
  return {
    before: isImage ? 1 : 0,
    node: make(
      "span",
      {},
      inline(text.slice(at + 1, middle), depth + 1),
      " ",
      make("span", { class: "url" }, `${isImage ? "image: " : ""}${text.slice(middle + 2, end)}`),
    ),
    next: end + 1,
  };
}

function readEscape(text, at) {
  return text[at] === "\\" && /[\\`*_{}[\]()#+\-.!$~|>]/.test(text[at + 1] ?? "") && text[at + 1] !== "(" && text[at + 1] !== "["
    ? { node: text[at + 1], next: at + 2 }
    : null;
}
