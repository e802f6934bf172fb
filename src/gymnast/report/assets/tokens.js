// The tokens of a rollout: for each model call, which were prompt and which were sampled, as text where it is known.

function countTokens(tokens, accepts) {
  return tokens.calls.reduce((sum, call) => sum + call.parts.reduce((own, part) => own + (accepts(part) ? part.count : 0), 0), 0);
}

function isTrained(part) {
  return part.source === "sampled" && !part.masked;
}

function tokensBlock(tokens, texts) {
  const parts = [
    `${formatCount(tokens.calls.length)} model ${tokens.calls.length === 1 ? "call" : "calls"}`,
    `${formatCount(countTokens(tokens, (part) => part.source !== "sampled"))} prompt tokens`,
    `${formatCount(countTokens(tokens, isTrained))} sampled and trainable`,
  ];
  const masked = countTokens(tokens, (part) => Boolean(part.masked));
  if (masked) parts.push(`${formatCount(masked)} sampled but masked`);
  const block = make("details", { class: "tokens" }, make("summary", { class: "label" }, `tokens: ${parts.join(", ")}`));
  block.addEventListener("toggle", () => fillTokens(block, tokens, texts), { once: true });
  return block;
}

// Filled when it is first opened: thousands of tokens are thousands of elements.
function fillTokens(block, tokens, texts) {
  if (tokens.note) block.append(make("p", { class: "notice" }, ...toNodes(tokens.note)));
  if (tokens.calls.length) block.append(legendOf(tokens));
  if (!tokens.has_text) block.append(make("p", { class: "small" }, "The tokenizer of these ids is not on the machine that wrote this report, so they have no text here."));
  block.append(...tokens.calls.map((call) => callBlock(call, tokens.has_text ? texts : null)));
}

function legendOf(tokens) {
  const sources = new Set(tokens.calls.flatMap((call) => call.parts.filter((part) => part.count).map((part) => part.source)));
  return make("p", { class: "legend" }, ...Array.from(sources, (source) => make("span", {}, make("span", { class: `swatch source ${sourceClass(source)}` }), source)));
}

const SOURCES = new Set(["sampled", "template", "system", "user", "tool", "assistant", "prompt"]);

function sourceClass(source) {
  return SOURCES.has(source) ? `from-${source}` : "from-prompt";
}

function callBlock(call, texts) {
  const shown = call.parts.filter((part) => part.count);
  const body = make("div", { class: "token-body" });
  const show = (asIds) => body.replaceChildren(...shown.map((part) => partBlock(part, asIds ? null : texts)));
  const ids = button("Show ids", "Show token ids", () => {
    const asIds = ids.textContent === "Show ids";
    ids.textContent = asIds ? (texts ? "Show text" : "Hide ids") : "Show ids";
    if (asIds || texts) show(asIds);
    else body.replaceChildren();
  });
  if (texts) show(false);
  return make("section", { class: "token-call" }, make("p", { class: "token-title" }, make("span", {}, ...toNodes(callTitle(call))), ids), sourceBar(shown), countList(shown), body);
}

function callTitle(call) {
  const kept = call.keep ? `continues call ${call.parent} (${formatCount(call.keep)} tokens)` : null;
  const weights = call.weights?.length ? `weights ${call.weights.join(", ")}` : null;
  const drift = call.drift === undefined ? null : `differs from its parent at token ${formatCount(call.drift)}`;
  const reason = call.reason === "extends" ? null : call.reason.replaceAll("_", " ");
  return [`Call ${call.call}`, reason, kept, call.finish ? `finish: ${call.finish}` : null, weights, drift, call.detail].filter(Boolean).join(" · ");
}

function sourceBar(parts) {
  const bar = make("div", { class: "source-bar", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = make("i", { class: `source ${sourceClass(part.source)}` });
    piece.style.flexGrow = String(part.count);
    bar.append(piece);
  }
  return bar;
}

function countList(parts) {
  const texts = parts.map((part) => {
    const mean = part.logprob === undefined ? "" : `, mean logprob ${part.logprob}`;
    const mask = part.source !== "sampled" ? "" : part.masked ? `, masked: ${part.masked}` : ", trainable";
    return `${part.source} ${formatCount(part.count)}${mask}${mean}`;
  });
  return make("p", { class: "small" }, ...toNodes(texts.join(" · ")));
}

function partBlock(part, texts) {
  const node = make("div", { class: `token-part source ${sourceClass(part.source)}` });
  const add = (ids, logprobs) => ids.forEach((id, at) => node.append(tokenNode(id, logprobs?.[at], texts)));
  add(part.ids, part.logprobs);
  if (part.end) {
    node.append(make("span", { class: "cut" }, `${formatCount(part.count - part.ids.length - part.end.length)} tokens not in this file`));
    add(part.end, part.end_logprobs);
  }
  return node;
}

function tokenNode(id, logprob, texts) {
  const title = `id ${id}` + (logprob === undefined || logprob === null ? "" : `, logprob ${logprob}`);
  if (!texts) return make("span", { class: "token id", title }, `${id} `);
  return make("span", { class: "token", title }, ...toNodes((texts[id] ?? `‹${id}›`).replaceAll("\n", "⏎\n")));
}
