// A label and a note on a rollout or a task, saved next to the run.

import { api } from "./api.js";
import { button, make, refill } from "./dom.js";
import { formatAgo } from "./format.js";

const LABELS = ["good", "bad", "reward hack", "bad task"];

export function createAnnotation({ run, task, rollout, session, signal, title, current }) {
  const isLocked = session.read_only || session.static;
  const state = { label: null, note: "", by: null, at: null };
  const labels = make("div", { class: "labels", role: "group", "aria-label": "Label" });
  const note = make("textarea", {
    "aria-label": "Note",
    placeholder: isLocked ? "No note" : "A note for your colleagues",
    maxlength: 10000,
    readonly: isLocked,
  });
  const saved = make("p", { class: "saved", role: "status" });
  const save = button("Save note", "Save note", () => store({ note: note.value }), { disabled: true });
  const node = make(
    "section",
    { class: "panel annotation" },
    make("h3", {}, title),
    labels,
    note,
    isLocked ? null : make("div", { class: "actions" }, save),
    saved,
  );
  note.addEventListener("input", () => (save.disabled = isLocked || note.value === state.note));
  note.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !save.disabled) save.click();
  });

  function apply(annotation) {
    const isEditing = note.value !== state.note;
    Object.assign(state, { label: null, note: "", by: null, at: null }, annotation);
    if (!isEditing) note.value = state.note ?? "";
    paint();
  }

  function paint() {
    const all = [...new Set([...(session.labels ?? LABELS), ...(state.label ? [state.label] : [])])];
    refill(
      labels,
      all.map((label) =>
        button(label, label, () => store({ label: state.label === label ? null : label, note: note.value }), {
          "aria-pressed": state.label === label ? "true" : "false",
          disabled: isLocked,
          "data-focus": `label-${label}`,
        }),
      ),
    );
    save.disabled = isLocked || note.value === (state.note ?? "");
    refill(saved, state.at ? `Saved ${formatAgo(state.at)}${state.by ? ` by ${state.by}` : ""}` : isLocked ? "Labels cannot be changed here." : "");
  }

  async function store(change) {
    const sent = note.value;
    try {
      const answer = await api.annotate({ run, task, rollout, label: state.label, note: state.note, ...change });
      state.note = answer.annotation.note ?? "";
      if (note.value === sent) note.value = state.note; // else more was typed meanwhile
      apply(answer.annotation);
    } catch (error) {
      refill(saved, make("span", { class: "bad" }, `Not saved: ${error.message}`));
    }
  }

  async function load() {
    const answer = await api.annotations(run, signal).catch(() => null);
    if (!signal.aborted) apply(answer?.annotations?.findLast((own) => own.task === task && (own.rollout ?? null) === rollout));
  }

  // Keys of the labels, in their order.
  const press = (event) => {
    const chosen = /^[1-9]$/.test(event.detail) ? labels.querySelectorAll("button")[Number(event.detail) - 1] : null;
    if (!chosen || isLocked) return;
    event.preventDefault();
    chosen.click();
  };
  addEventListener("studio-key", press, { signal });

  if (current) apply(current.findLast((own) => (own.rollout ?? null) === rollout));
  else {
    paint();
    load();
  }
  return { node, reload: load };
}
