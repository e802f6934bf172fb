// The tokens of a rollout: for each model call what was prompt and what was sampled, each sampled token coloured by its logprob.

import { button, entry, make, plainText, refill } from "./dom.js";
import { formatCount, formatReward, isNumber, plural } from "./format.js";

const SOURCES = new Set(["sampled", "template", "system", "user", "tool", "assistant", "prompt"]);
const MAX_SURPRISE = 70;

function sourceClass(source) {
  return `source from-${SOURCES.has(source) ? source : "prompt"}`;
}

function count(tokens, accepts) {
  return tokens.calls.reduce((sum, call) => sum + call.parts.reduce((own, part) => own + (accepts(part) ? part.count : 0), 0), 0);
}

export function tokensView(tokens, onFull) {
  const masked = count(tokens, (part) => Boolean(part.masked));
  const summary = [
    plural(tokens.calls.length, "model call"),
    `${formatCount(count(tokens, (part) => part.source !== "sampled"))} prompt tokens`,
    `${formatCount(count(tokens, (part) => part.source === "sampled" && !part.masked))} sampled and trained on`,
    masked ? `${formatCount(masked)} sampled but masked` : null,
  ];
  const hasLogprobs = tokens.calls.some((call) => call.parts.some((part) => part.logprobs?.some(isNumber)));
  const sources = [...new Set(tokens.calls.flatMap((call) => call.parts.filter((part) => part.count).map((part) => part.source)))];
  const card = tokenCard();
  const hasChoices = tokens.calls.some((call) => call.parts.some((part) => part.alternatives));
  return make(
    "div",
    { class: "tokens" },
    make("p", { class: "meta" }, summary.filter(Boolean).join(" · ")),
    tokens.note ? make("p", { class: "notice" }, tokens.note) : null,
    tokens.has_text ? null : make("p", { class: "notice" }, "The tokenizer of these ids is not on this machine, so they are shown as numbers."),
    make(
      "p",
      { class: "legend" },
      sources.map((source) => make("span", {}, make("i", { class: `swatch ${sourceClass(source)}` }), source)),
      hasLogprobs ? make("span", {}, "likely", make("i", { class: "token-scale" }), "surprising") : null,
      make("span", {}, `Point at a token, or focus a call and use the arrow keys, for its ${listOf("id", hasLogprobs && "logprob", hasChoices && "alternatives")}.`),
    ),
    tokens.calls.map((call) => callBlock(call, tokens.has_text ? (tokens.texts ?? {}) : null, onFull, card)),
    card.node,
  );
}

function callTitle(call) {
  const parts = [
    `Call ${call.call}`,
    call.reason && call.reason !== "extends" ? call.reason.replaceAll("_", " ") : null,
    call.keep ? `continues call ${call.parent} (${formatCount(call.keep)} tokens)` : null,
    call.finish ? `finish: ${call.finish}` : null,
    call.weights?.length ? `weights ${call.weights.join(", ")}` : null,
    isNumber(call.drift) ? `differs from its parent at token ${formatCount(call.drift)}` : null,
    call.detail,
  ];
  return parts.filter(Boolean).join(" · ");
}

function callBlock(call, texts, onFull, card) {
  const shown = call.parts.filter((part) => part.count);
  const body = make("div", { tabindex: 0, role: "group", "aria-label": `Tokens of call ${call.call}` });
  followTokens(body, card);
  let asIds = !texts;
  const paint = () => body.replaceChildren(...shown.map((part) => partBlock(part, asIds ? null : texts, onFull)));
  const toggle = button(
    asIds ? "Ids" : "Show ids",
    "Show ids or text",
    () => {
      asIds = !asIds;
      toggle.textContent = asIds ? "Show text" : "Show ids";
      paint();
    },
    { disabled: !texts || shown.every((part) => part.words) },
  );
  paint();
  const bar = make(
    "div",
    { class: "source-bar", "aria-hidden": "true" },
    shown.map((part) => make("i", { class: sourceClass(part.source), style: { "flex-grow": String(part.count) } })),
  );
  return make(
    "section",
    { class: "token-call" },
    make("div", { class: "token-title" }, make("h3", {}, callTitle(call)), toggle),
    bar,
    make("p", { class: "meta" }, shown.map(partText).join(" · ")),
    body,
  );
}

function partText(part) {
  const mask = part.source !== "sampled" ? "" : part.masked ? `, masked: ${part.masked}` : ", trained on";
  return `${part.source} ${formatCount(part.count)}${mask}${isNumber(part.logprob) ? `, mean logprob ${formatReward(part.logprob, 3)}` : ""}`;
}

function partBlock(part, texts, onFull) {
  const node = make("div", { class: `token-part ${sourceClass(part.source)} ${part.masked ? "masked" : ""}` });
  const add = (prefix) =>
    part[prefix || "ids"].forEach((id, at) => {
      const of = (name) => part[prefix ? `${prefix}_${name}` : name]?.[at];
      const text = of("words") ?? entry(texts, id);
      node.append(tokenNode({ id, text, logprob: of("logprobs"), alternatives: of("alternatives") }, Boolean(texts)));
    });
  add("");
  if (part.end) {
    node.append(
      make(
        "span",
        { class: "cut" },
        `${plural(part.count - part.ids.length - part.end.length, "token")} left out. `,
        onFull ? button("Show everything", "Load the whole rollout", onFull, { class: "plain" }) : null,
      ),
    );
    add("end");
  }
  return node;
}

const TOKENS = new WeakMap();

function tokenNode(token, asText) {
  const { id, text, logprob } = token;
  const node = make(
    "span",
    { class: isNumber(logprob) ? "token lp" : "token" },
    asText ? (text ?? `‹${id}›`).replaceAll("\n", "⏎\n") : `${id} `,
  );
  if (isNumber(logprob)) node.style.setProperty("--surprise", String(Math.min(MAX_SURPRISE, Math.round(-logprob * 18))));
  if (token.alternatives?.length) node.classList.add("has-choices");
  TOKENS.set(node, token);
  return node;
}

const listOf = (...names) => new Intl.ListFormat("en").format(names.filter(Boolean));
const percent = (logprob) => `${Number((100 * Math.exp(logprob)).toPrecision(3))}%`;
const quoted = (text) => JSON.stringify(plainText(text));

// What is known of the token under the pointer, or of the one that the arrow keys reached.
function tokenCard() {
  const node = make("aside", { class: "token-card", "aria-live": "polite", "aria-label": "Token", hidden: true });
  return {
    node,
    show(token) {
      const facts = [
        token.id === null ? null : `id ${token.id}`,
        isNumber(token.logprob) ? `logprob ${formatReward(token.logprob, 4)} (${percent(token.logprob)})` : "no logprob",
      ];
      refill(
        node,
        make("p", {}, make("b", {}, token.text === undefined ? "token" : quoted(token.text)), ` ${facts.filter(Boolean).join(" · ")}`),
        token.alternatives?.length ? choiceList(token) : null,
      );
      node.hidden = false;
    },
  };
}

function choiceList({ text, alternatives }) {
  return make(
    "ol",
    { class: "choices", "aria-label": "Alternatives" },
    alternatives.map(([word, logprob]) =>
      make(
        "li",
        { class: word === text ? "chosen" : null },
        make("code", {}, quoted(word)),
        make("i", { style: { width: isNumber(logprob) ? `${100 * Math.exp(logprob)}%` : "0" } }),
        make("span", {}, isNumber(logprob) ? `${formatReward(logprob, 4)} (${percent(logprob)})${word === text ? ", sampled" : ""}` : ""),
      ),
    ),
  );
}

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

// The pointer and the arrow keys walk through the tokens of a call.
function followTokens(body, card) {
  let current = null;
  const select = (node) => {
    current?.classList.remove("current");
    current = node;
    if (!node) return;
    node.classList.add("current");
    card.show(TOKENS.get(node));
  };
  body.addEventListener("pointerover", (event) => event.target.classList?.contains("token") && select(event.target));
  body.addEventListener("keydown", (event) => {
    const nodes = [...body.querySelectorAll(".token")];
    const at = nodes.indexOf(current);
    const next = event.key === "Home" ? 0 : event.key === "End" ? nodes.length - 1 : event.key in STEPS ? at + STEPS[event.key] : null;
    if (next === null || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    select(nodes[Math.max(0, Math.min(nodes.length - 1, next))]);
    current?.scrollIntoView({ block: "nearest" });
  });
  body.addEventListener("focus", () => {
    if (!body.contains(current)) select(body.querySelector(".token.has-choices") ?? body.querySelector(".token.lp") ?? body.querySelector(".token"));
  });
}
