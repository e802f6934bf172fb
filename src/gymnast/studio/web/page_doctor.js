// What the doctor says of the run, each finding linked to the rollouts that are its evidence.

import { api } from "./api.js";
import { link, make, refill } from "./dom.js";
import { throttle } from "./events.js";
import { formatCount, formatSeconds } from "./format.js";
import { findingNode } from "./findings.js";
import { rolloutLink, runFrame } from "./run_parts.js";
import { errorState, loading } from "./states.js";

const STEP_TONES = { ok: 2, found: 1, skipped: 5 };

export function doctorPage(context) {
  const { signal } = context;
  const node = make("div", { class: "stack" }, loading("Looking at the run"));

  async function load() {
    try {
      const doctor = await api.doctor(context.params.get("run"), signal);
      refill(node, ...sections(frame.id, doctor));
    } catch (error) {
      if (!signal.aborted) node.replaceChildren(errorState(error, load));
    }
  }

  const reload = throttle(load, 5000, signal);
  const frame = runFrame(context, "doctor", {
    async onReady(own) {
      own.body.append(node);
      await load();
    },
    onEvent(name, data, own) {
      if (name === "rows" && data.run === own.id) reload();
    },
  });
  return {};
}

function sections(run, doctor) {
  const findings = doctor.findings ?? [];
  const stuck = doctor.stuck ?? [];
  return [
    make(
      "section",
      { class: "panel" },
      make(
        "h2",
        {},
        findings.length ? `${formatCount(findings.length)} ${findings.length === 1 ? "finding" : "findings"}` : "No problem was detected",
      ),
      findings.length
        ? make(
            "div",
            { class: "findings" },
            findings.map((finding) => findingNode(run, finding)),
          )
        : make(
            "p",
            { class: "quiet" },
            doctor.healthy === false ? "The run is not healthy, but no cause was recognised." : "Every check below passed.",
          ),
    ),
    stuck.length
      ? make(
          "section",
          { class: "panel" },
          make("h2", {}, "Stuck"),
          make(
            "ul",
            { class: "plain-list" },
            stuck.map((own) => make("li", {}, stuckText(run, own))),
          ),
        )
      : null,
    doctor.notes?.length
      ? make(
          "section",
          { class: "panel" },
          make("h2", {}, "Notes"),
          make(
            "ul",
            { class: "plain-list" },
            doctor.notes.map((note) => make("li", {}, note.text)),
          ),
        )
      : null,
    doctor.steps?.length
      ? make(
          "section",
          { class: "panel" },
          make("h2", {}, "Checks"),
          make(
            "ul",
            { class: "plain-list" },
            doctor.steps.map((step) =>
              make(
                "li",
                {},
                make("span", { class: `badge tone-${STEP_TONES[step.state] ?? 5}` }, step.state),
                " ",
                step.name,
                step.saw?.length ? make("span", { class: "quiet" }, `: ${step.saw.join("; ")}`) : null,
              ),
            ),
          ),
        )
      : null,
  ];
}

function stuckText(run, own) {
  if (typeof own !== "object" || own === null) return String(own);
  const name =
    own.task === undefined ? null : link(rolloutLink(run, own.task, own.rollout ?? 0), {}, `task ${own.task}, rollout ${own.rollout ?? 0}`);
  return [
    name,
    " ",
    [own.stage, own.instance, own.seconds === undefined ? null : `for ${formatSeconds(own.seconds)}`, own.text].filter(Boolean).join(" · "),
  ];
}
