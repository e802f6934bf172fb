// A table whose rows are links: sorted, paged and filtered by its owner, walked with j and k, a list of cards on a phone.

import { button, link, make, plainText } from "./dom.js";
import { formatCount, NONE } from "./format.js";

// Columns: {key, text, title, number, sort, className, cell(row) -> text, node or null}. The first one carries the row's link.
export function createTable({ caption, columns, keyOf, hrefOf, onSort, selection, onSelect, empty }) {
  const head = make("tr", {});
  const body = make("tbody", {});
  const node = make("table", { class: "rows" }, make("caption", { class: "offscreen" }, caption), make("thead", {}, head), body);
  const frame = make("div", { class: "table-frame", tabindex: "-1" }, node);
  let shown = new Map();
  let signature = "";

  function paintHead(list, sort) {
    const next = JSON.stringify([list.map((column) => column.key), sort, Boolean(selection)]);
    if (next === signature) return;
    signature = next;
    shown = new Map();
    body.replaceChildren();
    const focus = document.activeElement?.dataset?.focus;
    head.replaceChildren(
      ...(selection ? [make("th", { class: "pick", scope: "col" }, make("span", { class: "offscreen" }, "Select"))] : []),
      ...list.map((column) => headCell(column, sort, onSort)),
    );
    if (focus?.startsWith("sort-")) head.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  }

  function paintRow(row, list, stamp) {
    const key = keyOf(row);
    const state = JSON.stringify(row) + (selection?.has(key) ? "+" : "-") + stamp;
    const known = shown.get(key);
    // A control that is pressed right now stays until the click is done.
    if (known && (known.state === state || known.node.querySelector(":active"))) return known;
    const cells = list.map((column, at) => bodyCell(column, row, at === 0 ? hrefOf(row) : null));
    if (selection) cells.unshift(pickCell(row, key));
    if (!known) return { state, node: make("tr", { "data-key": key }, cells) };
    const focus = known.node.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const changed = cells.map((cell, at) =>
      known.node.cells[at]?.isEqualNode(cell) && !cell.querySelector("button, input") ? known.node.cells[at] : cell,
    );
    known.node.replaceChildren(...changed);
    if (focus) known.node.querySelector(`[data-focus="${focus}"]`)?.focus({ preventScroll: true });
    return { state, node: known.node };
  }

  function pickCell(row, key) {
    const box = make("input", {
      type: "checkbox",
      "aria-label": `Select ${plainText(selection.nameOf(row))}`,
      "data-focus": "pick",
      onchange: () => onSelect(key, box.checked),
    });
    box.checked = selection.has(key);
    return make("td", { class: "pick" }, box);
  }

  return {
    node: frame,
    // Shows these rows; rows that did not change keep their elements. The stamp says what else the cells depend on.
    show(rows, { sort = null, visible = columns, stamp = "" } = {}) {
      paintHead(visible, sort);
      const next = new Map(rows.map((row) => [keyOf(row), paintRow(row, visible, stamp)]));
      shown = next;
      const nodes = [...next.values()].map((entry) => entry.node);
      if (!nodes.length)
        nodes.push(
          make("tr", { class: "none" }, make("td", { colspan: visible.length + (selection ? 1 : 0) }, typeof empty === "function" ? empty() : empty)),
        );
      const order = [...body.children];
      if (order.length !== nodes.length || order.some((old, at) => old !== nodes[at])) body.replaceChildren(...nodes);
      frame.removeAttribute("aria-busy");
    },
    busy() {
      frame.setAttribute("aria-busy", "true");
    },
  };
}

function headCell(column, sort, onSort) {
  const isSorted = sort && sort.key === (column.sort ?? column.key);
  const attributes = {
    scope: "col",
    class: cellClass(column),
    title: column.title,
    "aria-sort": isSorted ? (sort.descending ? "descending" : "ascending") : null,
  };
  if (!onSort || column.sort === false) return make("th", attributes, make("span", { class: "head" }, column.text));
  const key = column.sort ?? column.key;
  const mark = make("span", { class: "sort-mark", "aria-hidden": "true" }, isSorted ? (sort.descending ? "↓" : "↑") : "");
  return make(
    "th",
    attributes,
    make(
      "button",
      {
        type: "button",
        class: "head",
        "data-focus": `sort-${column.key}`,
        onclick: () => onSort(key, isSorted ? !sort.descending : Boolean(column.number)),
      },
      column.text,
      mark,
    ),
  );
}

function bodyCell(column, row, href) {
  const content = column.cell(row);
  const inner = href ? link(href, { class: "row-link", "data-focus": "row" }, content ?? NONE) : (content ?? make("span", { class: "quiet" }, NONE));
  return make(
    href ? "th" : "td",
    { class: cellClass(column), scope: href ? "row" : null, "data-label": column.text, title: column.hint?.(row) ?? null },
    inner,
  );
}

function cellClass(column) {
  return [column.number ? "number" : null, column.className].filter(Boolean).join(" ") || null;
}

export function pager({ page, size, total, onPage, note }) {
  const from = total ? page * size + 1 : 0;
  const to = Math.min(total, (page + 1) * size);
  return make(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    make(
      "span",
      { "aria-live": "polite" },
      total ? `${formatCount(from)}–${formatCount(to)} of ${formatCount(total)}` : "0 rows",
      note ? ` · ${note}` : "",
    ),
    button("⇤", "First page", () => onPage(0), { disabled: page <= 0, "data-focus": "first-page" }),
    button("←", "Previous page", () => onPage(page - 1), { disabled: page <= 0, "data-focus": "previous-page" }),
    button("→", "Next page", () => onPage(page + 1), { disabled: to >= total, "data-focus": "next-page" }),
    button("⇥", "Last page", () => onPage(Math.ceil(total / size) - 1), { disabled: to >= total, "data-focus": "last-page" }),
  );
}

// Moves the focus to the next or previous row of the page.
export function stepRow(by) {
  const links = [...document.querySelectorAll("main .row-link")].filter((node) => node.getClientRects().length);
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = links[Math.min(links.length - 1, Math.max(0, at === -1 ? (by > 0 ? 0 : links.length - 1) : at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
