// Makes elements. Data only becomes text nodes: the page's security policy forbids markup from strings.

// Characters that are not text: controls, terminal escapes, direction overrides, lone surrogates.
const UNSAFE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]" +
    "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "g"
);

function make(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function button(text, label, act) {
  const node = make("button", { type: "button", title: label, "aria-label": label }, text);
  node.addEventListener("click", act);
  return node;
}

const CONTROLS =
  "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

function symbol(character) {
  const code = character.charCodeAt(0);
  const name = "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  return make("span", { class: "sign", title: name }, CONTROLS[code] ?? (code === 0x7f ? "DEL" : name));
}

// A text as nodes, with unsafe characters as symbols.
function toNodes(text) {
  const nodes = [];
  const clean = text.replaceAll("\r\n", "\n");
  let from = 0;
  for (const match of clean.matchAll(UNSAFE)) {
    nodes.push(clean.slice(from, match.index), symbol(match[0]));
    from = match.index + 1;
  }
  nodes.push(clean.slice(from));
  return nodes;
}

function formatCount(number) {
  return number.toLocaleString("en-US");
}

function rewardText(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toFixed(4)));
}

function formatSeconds(seconds) {
  return seconds < 10 ? `${Number(seconds.toFixed(2))} s` : seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 6) / 10} min`;
}
