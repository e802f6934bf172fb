// Makes elements. Data only ever becomes text nodes: no string is parsed as markup anywhere in these modules.

// Characters that are not text: controls, terminal escapes, direction overrides, lone surrogates.
const UNSAFE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]" +
    "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "g",
);
const CONTROLS = "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");
const SVG = "http://www.w3.org/2000/svg";
const LINKS = /^#/;

// A table's own entry: names that come from data may be those of every object (`constructor`).
export function entry(table, key) {
  return table && Object.hasOwn(table, key) ? table[key] : undefined;
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
    else if (key === "href" && !LINKS.test(value) && !attributes.download) throw new Error("links stay in the studio");
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.append(child);
    else node.append(...toNodes(child));
  }
  return node;
}

export function make(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function draw(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// The label is the button's name where its text is a sign or a part of it; otherwise it explains the text.
export function button(text, label, act, attributes) {
  const isName = !/[a-z]/i.test(text) || label.includes(text);
  return make(
    "button",
    { type: "button", title: label === text ? null : label, "aria-label": isName ? label : null, onclick: act, ...attributes },
    text,
  );
}

export function link(href, attributes, ...children) {
  return make("a", { href, ...attributes }, ...children);
}

function symbol(character) {
  const code = character.charCodeAt(0);
  const name = "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  const node = document.createElement("span");
  node.className = "sign";
  node.title = name;
  node.textContent = CONTROLS[code] ?? (code === 0x7f ? "DEL" : name);
  return node;
}

// A text as nodes, with unsafe characters as visible symbols.
export function toNodes(value) {
  const text = String(value);
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

export function plainText(value) {
  return String(value ?? "").replace(UNSAFE, "�");
}

// Replaces a node's children; texts and lists as in make().
export function setChildren(node, ...children) {
  node.replaceChildren();
  return fill(node, {}, children);
}

// Replaces a node's children only if the new ones differ, so that live updates keep focus, selection and scroll.
export function refill(node, ...children) {
  const next = fill(document.createElement(node.localName), {}, children);
  if (!sameChildren(node, next)) {
    const key = focusKey(node);
    node.replaceChildren(...next.childNodes);
    if (key) node.querySelector(`[data-focus="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }
  return node;
}

function focusKey(node) {
  const active = document.activeElement;
  return active && node.contains(active) ? active.dataset.focus : null;
}

function sameChildren(a, b) {
  if (a.childNodes.length !== b.childNodes.length) return false;
  for (let at = 0; at < a.childNodes.length; at += 1) if (!a.childNodes[at].isEqualNode(b.childNodes[at])) return false;
  // Equal nodes may still have other listeners; those with actions are always replaced.
  return !b.querySelector("button, input, select, textarea, [data-acts]");
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
