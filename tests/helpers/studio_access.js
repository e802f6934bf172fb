// What is wrong with the page for someone who cannot see it well or uses no mouse, as a list of texts.
() => {
  const problems = [];
  const shown = (node) => node.getClientRects().length > 0;
  const name = (node) => (node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent || node.title || "").trim();
  const tell = (what, node) => problems.push(`${what}: ${node.outerHTML.slice(0, 120)}`);
  for (const node of document.querySelectorAll("button, a[href], input, select, textarea, summary"))
    if (shown(node) && !name(node)) tell("no name", node);
  for (const node of document.querySelectorAll("img, svg[role=img]"))
    if (!node.getAttribute("alt") && !node.getAttribute("aria-label")) tell("no text", node);
  for (const node of document.querySelectorAll("[tabindex]")) if (Number(node.getAttribute("tabindex")) > 0) tell("tab order", node);
  if (document.querySelectorAll("main h1").length !== 1) problems.push(`${document.querySelectorAll("main h1").length} main headings`);
  if (document.querySelectorAll("main, header, [role=status]").length < 3) problems.push("landmarks");
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) problems.push("an id twice");
  for (const table of document.querySelectorAll("table.rows")) if (!table.caption) tell("no caption", table);
  if (!document.title.endsWith("Gymnast Studio") || !document.documentElement.lang) problems.push("title or language");

  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const paint = (colour) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
  };
  const read = () => [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  const light = ([r, g, b]) => {
    const f = (c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const grounds = (node) => {
    const list = [];
    for (let up = node; up; up = up.parentElement) list.unshift(getComputedStyle(up).backgroundColor);
    return list;
  };
  const seen = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].filter((child) => child.nodeType === 3 && child.data.trim()).length;
    if (!text || !shown(node) || node.closest("[aria-disabled], :disabled, .offscreen, .skip, svg, noscript")) continue;
    const style = getComputedStyle(node);
    const key = [style.color, ...grounds(node)].join();
    if (seen.has(key)) continue;
    seen.add(key);
    for (const ground of grounds(node)) paint(ground);
    const back = light(read());
    paint(style.color);
    const front = light(read());
    const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    if (ratio < 4.5) tell(`contrast ${ratio.toFixed(2)}`, node);
  }
  return problems;
};
