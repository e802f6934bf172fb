// The tokens of a rollout: for each model call what was prompt and what was sampled, each sampled token coloured by its logprob.

import { button, make, plainText } from "./dom.js";
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
    ),
    tokens.calls.map((call) => callBlock(call, tokens.has_text ? (tokens.texts ?? {}) : null, onFull)),
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

function callBlock(call, texts, onFull) {
  const shown = call.parts.filter((part) => part.count);
  const body = make("div", {});
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
    { disabled: !texts },
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
  const add = (ids, logprobs) => ids.forEach((id, at) => node.append(tokenNode(id, logprobs?.[at], texts)));
  add(part.ids, part.logprobs);
  if (part.end) {
    node.append(
      make(
        "span",
        { class: "cut" },
        `${plural(part.count - part.ids.length - part.end.length, "token")} left out. `,
        onFull ? button("Show everything", "Load the whole rollout", onFull, { class: "plain" }) : null,
      ),
    );
    add(part.end, part.end_logprobs);
  }
  return node;
}

function tokenNode(id, logprob, texts) {
  const text = texts?.[id];
  const title = [
    `id ${id}`,
    text === undefined ? null : JSON.stringify(plainText(text)),
    isNumber(logprob) ? `logprob ${formatReward(logprob, 4)} (${Number((100 * Math.exp(logprob)).toPrecision(3))}%)` : null,
  ]
    .filter(Boolean)
    .join(" · ");
  const node = make(
    "span",
    { class: isNumber(logprob) ? "token lp" : "token", title },
    texts ? (text ?? `‹${id}›`).replaceAll("\n", "⏎\n") : `${id} `,
  );
  if (isNumber(logprob)) node.style.setProperty("--surprise", String(Math.min(MAX_SURPRISE, Math.round(-logprob * 18))));
  return node;
}
