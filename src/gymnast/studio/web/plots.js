// Plots as SVG, drawn at the width they have, with the values under the pointer.

import { draw, make, refill } from "./dom.js";
import { formatNumber, formatSeconds, formatShort, formatTime, isNumber } from "./format.js";

const MARGIN = { top: 10, right: 12, bottom: 24, left: 46 };

// A figure whose plot is drawn again whenever its width changes. `update(data)` draws other data.
export function figure(title, note, render, { height = 168, className = "" } = {}) {
  const frame = make("div", { class: "plot-frame" });
  const caption = make("p", { class: "plot-note" }, note ?? "");
  const node = make("figure", { class: `panel plot ${className}` }, make("figcaption", {}, make("h3", {}, title), caption), frame);
  let data = null;
  let width = 0;
  const paint = () => {
    if (!width) return;
    const content = data === null ? null : render(data, width, height);
    if (content) frame.replaceChildren(...[content].flat());
    else refill(frame, make("p", { class: "nothing" }, "Nothing to plot yet."));
  };
  new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next === width) return;
    width = next;
    paint();
  }).observe(frame);
  return {
    node,
    update(next, text) {
      data = next;
      if (text !== undefined) refill(caption, text);
      paint();
    },
  };
}

export function ticks(low, high, count = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) values.push(Number((at * step).toPrecision(12)));
  return values;
}

function logTicks(low, high) {
  const values = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) values.push(power, 2 * power, 5 * power);
  return values.filter((value) => value >= low && value <= high);
}

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

function timeTicks(low, high, count) {
  const step = CLOCK_STEPS.find((size) => size >= (high - low) / count) ?? (high - low) / count;
  const values = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) values.push(at);
  return values.length ? values : [low];
}

function clock(seconds, span) {
  const text = formatTime(seconds);
  return span > 172800 ? text.slice(5, 10) : span > 5400 ? text.slice(11, 16) : text.slice(11);
}

function scale(low, high, from, to) {
  const size = high - low || 1;
  return (value) => from + ((value - low) / size) * (to - from);
}

function frameOf(width, height, label, xs, ys, options) {
  const { x, y, xFormat, yFormat, xTitle } = options;
  const bottom = height - MARGIN.bottom;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  let before = null; // of labels that are the same at this precision, one says enough
  for (const value of ys) {
    svg.append(draw("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    const text = yFormat(value);
    if (text !== before) svg.append(draw("text", { class: "end", x: MARGIN.left - 7, y: y(value) + 4 }, text));
    before = text;
  }
  let last = -Infinity;
  before = null;
  for (const value of xs) {
    const text = xFormat(value);
    if (text === before) continue;
    const half = text.length * 3.4;
    const at = Math.min(Math.max(x(value), MARGIN.left + half - 6), width - half - 1);
    if (at - half < last + 8) continue;
    last = at + half;
    before = text;
    svg.append(draw("text", { x: at, y: height - 7 }, text));
  }
  svg.append(draw("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
  if (xTitle) svg.append(draw("text", { class: "end quiet", x: width - MARGIN.right, y: MARGIN.top + 2 }, xTitle));
  return svg;
}

// Lines over time or numbers. Each series: {name, points: [[x, y], …], band: [[x, low, high], …], tone, area}.
export function linePlot(series, width, height, options = {}) {
  const shown = series.filter((line) => line.points.some(([, value]) => isNumber(value)));
  if (!shown.length) return null;
  const all = shown.flatMap((line) => line.points.filter(([, value]) => isNumber(value)));
  const bands = shown.flatMap((line) => line.band ?? []);
  const xs = all.map(([value]) => value);
  const values = [...all.map(([, value]) => value), ...bands.flatMap(([, low, high]) => [low, high]).filter(isNumber)];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const low = options.low ?? Math.min(0, ...values);
  const high = Math.max(options.high ?? -Infinity, ...values, low + (options.minSpan ?? 1e-9));
  const top = ticks(low, high).at(-1) >= high ? high : high + (high - low) * 0.06;
  const isLog = options.isLog && left > 0;
  const level = isLog ? Math.log : (value) => value;
  const place = scale(level(left), right === left ? level(left) + 1 : level(right), MARGIN.left, width - MARGIN.right);
  const x = (value) => place(level(value));
  const y = scale(low, top, height - MARGIN.bottom, MARGIN.top);
  const isTime = options.x === "time";
  const span = right - left;
  const xFormat = isTime ? (value) => clock(value, span) : (options.xFormat ?? formatShort);
  const yFormat = options.yFormat ?? formatShort;
  const columns = Math.max(2, Math.floor(width / 90));
  const svg = frameOf(
    width,
    height,
    describe(shown, options.label, yFormat),
    isTime ? timeTicks(left, right, columns) : isLog ? logTicks(left, right) : ticks(left, right, columns),
    ticks(low, top),
    { x, y, xFormat, yFormat, xTitle: options.xTitle },
  );
  for (const line of shown) svg.append(...drawLine(line, x, y, y(low)));
  return [
    svg,
    shown.length > 1 ? legend(shown) : null,
    crosshair(svg, shown, x, { xFormat: isTime ? formatTime : (options.xFormat ?? formatNumber), yFormat, width, height }),
  ].filter(Boolean);
}

function drawLine(line, x, y, ground) {
  const parts = [];
  const tone = `tone-${line.tone ?? 0}`;
  if (line.band?.length) {
    const clean = line.band.filter(([, low, high]) => isNumber(low) && isNumber(high));
    const edge = [...clean.map(([at, , high]) => `${x(at)},${y(high)}`), ...clean.toReversed().map(([at, low]) => `${x(at)},${y(low)}`)];
    parts.push(draw("polygon", { class: `band ${tone}`, points: edge.join(" ") }));
  }
  const runs = [[]];
  for (const [at, value] of line.points) {
    if (isNumber(value)) runs.at(-1).push([x(at), y(value)]);
    else if (runs.at(-1).length) runs.push([]);
  }
  for (const run of runs.filter((points) => points.length)) {
    const points = run.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
    if (line.area && run.length > 1)
      parts.push(draw("polygon", { class: `band ${tone}`, points: `${run[0][0]},${ground} ${points} ${run.at(-1)[0]},${ground}` }));
    if (run.length === 1) parts.push(draw("circle", { class: `dot ${tone}`, cx: run[0][0], cy: run[0][1], r: 3 }));
    else parts.push(draw("polyline", { class: `curve ${tone} ${line.dashed ? "dashed" : ""}`, points }));
    if (line.dots && run.length <= 60) parts.push(...run.map(([a, b]) => draw("circle", { class: `dot ${tone}`, cx: a, cy: b, r: 2.6 })));
  }
  return parts;
}

function describe(series, label, format) {
  const parts = series.map((line) => {
    const last = line.points.findLast(([, value]) => isNumber(value));
    return `${line.name}: ${last ? format(last[1]) : "no value"}`;
  });
  return `${label ?? "Plot"}. Latest values: ${parts.join(", ")}`;
}

export function legend(series) {
  return make(
    "p",
    { class: "legend" },
    series.map((line) => make("span", {}, make("i", { class: `swatch tone-${line.tone ?? 0} ${line.dashed ? "dashed" : ""}` }), line.name)),
  );
}

// The values under the pointer, in a box that follows it.
function crosshair(svg, series, x, { xFormat, yFormat, width, height }) {
  const line = draw("line", { class: "pointer", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  svg.append(line);
  const tip = make("div", { class: "plot-tip", hidden: true });
  const xs = [...new Set(series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = nearest(xs, event.clientX - box.left, x);
    line.setAttribute("x1", x(at));
    line.setAttribute("x2", x(at));
    line.setAttribute("visibility", "visible");
    const rows = series.map((one) => [one, one.points.find(([own]) => own === at)?.[1]]).filter(([, value]) => isNumber(value));
    tip.replaceChildren(
      make("strong", {}, xFormat(at)),
      ...rows.map(([one, value]) => make("span", {}, make("i", { class: `swatch tone-${one.tone ?? 0}` }), `${one.name} ${yFormat(value)}`)),
    );
    tip.hidden = !rows.length;
    tip.classList.toggle("to-left", x(at) > width / 2);
    tip.style.setProperty("--at", `${x(at)}px`);
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    line.setAttribute("visibility", "hidden");
  });
  return tip;
}

function nearest(xs, wanted, x) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x(xs[middle]) < wanted) low = middle;
    else high = middle;
  }
  return Math.abs(x(xs[low]) - wanted) <= Math.abs(x(xs[high]) - wanted) ? xs[low] : xs[high];
}

// Bars for bins {from, to, count, href}; each is a link where it has one.
export function histogram(bins, width, height, options = {}) {
  if (!bins.length || !bins.some((bin) => bin.count)) return null;
  const most = Math.max(...bins.map((bin) => bin.count));
  const isNarrow = bins.every((bin) => bin.from === bin.to);
  const x = scale(0, bins.length, MARGIN.left, width - MARGIN.right);
  const y = scale(0, most * 1.04, height - MARGIN.bottom, MARGIN.top);
  const format = options.xFormat ?? formatNumber;
  const label = (bin) => (bin.from === bin.to ? format(bin.from) : `${format(bin.from)} to ${format(bin.to)}`);
  const every = Math.max(1, Math.ceil((bins.length * 46) / (width - 60)));
  const svg = frameOf(
    width,
    height,
    `${options.label ?? "Histogram"}: ${bins.length} bars, the highest ${formatShort(most)}`,
    [],
    ticks(0, most, 4).filter(Number.isInteger),
    { x, y, yFormat: formatShort, xFormat: format },
  );
  svg.setAttribute("role", options.href ? "group" : "img");
  let before = null;
  bins.forEach((bin, at) => {
    const gap = bins.length > 60 ? 0.5 : Math.min(8, (x(1) - x(0)) * 0.12);
    const bar = draw("rect", {
      class: `bar tone-${bin.tone ?? options.tone ?? 0}`,
      x: x(at) + gap,
      width: Math.max(1, x(at + 1) - x(at) - 2 * gap),
      y: y(bin.count),
      height: Math.max(bin.count ? 1 : 0, y(0) - y(bin.count)),
      rx: 1.5,
    });
    bar.append(draw("title", {}, `${label(bin)}: ${formatShort(bin.count)}`));
    const href = bin.count ? options.href?.(bin) : null;
    svg.append(href ? draw("a", { href, "aria-label": `${label(bin)}: ${formatShort(bin.count)}` }, bar) : bar);
    if (at % every === 0 && format(bin.from) !== before) {
      before = format(bin.from);
      svg.append(draw("text", { class: isNarrow ? "" : "start", x: isNarrow ? (x(at) + x(at + 1)) / 2 : x(at), y: height - 7 }, before));
    }
  });
  return svg;
}

// Rows of horizontal bars: {name, value, href, tone, text}.
export function barList(rows, { format = formatShort, empty = "Nothing yet." } = {}) {
  if (!rows.length) return make("p", { class: "nothing" }, empty);
  const most = Math.max(...rows.map((row) => row.value), 1e-9);
  return make(
    "ul",
    { class: "bar-list" },
    rows.map((row) =>
      make(
        "li",
        {},
        make(row.href ? "a" : "span", { class: "bar-name", href: row.href, title: row.name }, row.name),
        make(
          "span",
          { class: "bar-track", "aria-hidden": "true" },
          make("i", { class: `tone-${row.tone ?? 0}`, style: { width: `${(100 * row.value) / most}%` } }),
        ),
        make("span", { class: "bar-value" }, row.text ?? format(row.value)),
      ),
    ),
  );
}

// A mean in its interval on a scale, as in the report's headline.
export function intervalBar(mean, low, high, { from = 0, to = 1, tone = 0 } = {}) {
  if (!isNumber(mean)) return null;
  const at = (value) => `${Math.min(100, Math.max(0, (100 * (value - from)) / (to - from || 1)))}%`;
  const parts = [make("b", { style: { left: at(mean) } })];
  if (isNumber(low) && isNumber(high)) parts.unshift(make("i", { style: { left: at(low), width: `calc(${at(high)} - ${at(low)})` } }));
  return make("span", { class: `meter tone-${tone}`, "aria-hidden": "true" }, parts);
}

// Shares of a whole: {name, value, tone}.
export function composition(parts, label) {
  const shown = parts.filter((part) => part.value > 0);
  return make(
    "div",
    { class: "composition" },
    make(
      "div",
      {
        class: "composition-bar",
        role: "img",
        "aria-label": `${label}: ${shown.map((part) => `${part.name} ${formatShort(part.value)}`).join(", ")}`,
      },
      shown.map((part) => make("i", { class: `tone-${part.tone}`, style: { "flex-grow": String(part.value) } })),
    ),
  );
}

// Stages of a rollout as bars on one time axis: {name, start, end, tone}.
export function waterfall(stages) {
  const end = Math.max(...stages.map((stage) => stage.end), 1e-9);
  return make(
    "ul",
    { class: "waterfall" },
    stages.map((stage) =>
      make(
        "li",
        {},
        make("span", { class: "stage-name", title: stage.name }, stage.name),
        make(
          "span",
          { class: "stage-track", "aria-hidden": "true" },
          make("i", {
            class: `tone-${stage.tone ?? 0}`,
            style: { left: `${(100 * stage.start) / end}%`, width: `${Math.max(0.4, (100 * (stage.end - stage.start)) / end)}%` },
          }),
        ),
        make("span", { class: "stage-time" }, formatSeconds(stage.end - stage.start)),
      ),
    ),
  );
}

export function sparkline(values, { width = 96, height = 22, label = "trend" } = {}) {
  const clean = values.filter(isNumber);
  if (clean.length < 2) return null;
  const x = scale(0, values.length - 1, 1, width - 1);
  const y = scale(Math.min(...clean), Math.max(...clean), height - 2, 2);
  const points = values.map((value, at) => (isNumber(value) ? `${x(at).toFixed(1)},${y(value).toFixed(1)}` : null)).filter(Boolean);
  return draw(
    "svg",
    { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    draw("polyline", { class: "curve tone-0", points: points.join(" ") }),
  );
}
