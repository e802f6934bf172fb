// A finding of the doctor: what, why, what next, and the rollouts that are its evidence.

import { button, copyText, link, make } from "./dom.js";
import { formatCount, plural } from "./format.js";
import { rolloutLink } from "./run_parts.js";
import { toast } from "./states.js";

const MAX_LINKS = 12;

export function findingNode(run, finding, { isShort = false } = {}) {
  const lost = [
    finding.rollouts_lost ? `${plural(finding.rollouts_lost, "rollout")} lost` : null,
    finding.rollouts_affected ? `${plural(finding.rollouts_affected, "rollout")} affected` : null,
    finding.confidence ? `confidence ${finding.confidence}` : null,
  ];
  return make(
    "article",
    { class: "finding" },
    make("h3", {}, finding.symptom, " ", make("span", { class: "badge bare" }, finding.layer)),
    finding.cause ? make("p", {}, finding.cause) : null,
    finding.next ? make("p", {}, make("b", {}, "Next: "), finding.next) : null,
    isShort ? null : make("p", { class: "meta" }, lost.filter(Boolean).join(" · ")),
    isShort ? null : evidenceNode(finding),
    linksNode(run, finding),
    isShort
      ? null
      : make(
          "p",
          {},
          button(
            "Explain",
            "Copy the command that explains this finding",
            async () => toast((await copyText(finding.docs ?? "")) ? `Copied: ${finding.docs}` : finding.docs),
            { class: "plain" },
          ),
        ),
  );
}

function evidenceNode(finding) {
  const items = (finding.evidence ?? []).map((own) =>
    make(
      "div",
      {},
      make("dt", {}, own.what, own.count ? ` (${formatCount(own.count)})` : ""),
      own.file ? make("dd", { class: "meta" }, own.line ? `${own.file}:${own.line}` : own.file) : null,
      own.quote ? make("dd", {}, make("pre", { class: "raw" }, own.quote)) : null,
    ),
  );
  if (!items.length && !finding.ruled_out?.length) return null;
  const ruled = (finding.ruled_out ?? []).map((text) => make("li", {}, typeof text === "string" ? text : Object.values(text).join(": ")));
  return make(
    "details",
    { class: "fold" },
    make("summary", {}, `Evidence (${items.length})`),
    make("dl", { class: "evidence" }, items),
    ruled.length ? [make("p", { class: "label" }, "Ruled out"), make("ul", { class: "plain-list" }, ruled)] : null,
  );
}

function linksNode(run, finding) {
  const rollouts = finding.rollouts ?? [];
  const all = finding.filter
    ? link(`#/rollouts?${new URLSearchParams([["run", run], ...new URLSearchParams(finding.filter)])}`, { class: "chip" }, "All of them")
    : null;
  if (!rollouts.length && !all) return null;
  return make(
    "div",
    { class: "chips" },
    rollouts.slice(0, MAX_LINKS).map(({ task, rollout }) => link(rolloutLink(run, task, rollout), { class: "chip" }, `${task}:${rollout}`)),
    rollouts.length > MAX_LINKS ? make("span", { class: "quiet" }, `and ${formatCount(rollouts.length - MAX_LINKS)} more`) : null,
    all,
  );
}
