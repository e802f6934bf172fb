// Numbers, times and intervals as text.

export const NONE = "–";

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function formatCount(value) {
  return isNumber(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : NONE;
}

export function formatReward(value, digits = 4) {
  return isNumber(value) ? String(Number(value.toFixed(digits))) : NONE;
}

// For columns: the same decimals in every row.
export function formatFixed(value, digits = 3) {
  return isNumber(value) ? value.toFixed(digits) : NONE;
}

export function formatFixedInterval(low, high, digits = 3) {
  return isNumber(low) && isNumber(high) ? `[${low.toFixed(digits)}, ${high.toFixed(digits)}]` : "";
}

export function formatNumber(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  if (size >= 100) return String(Number(value.toFixed(1)));
  return String(Number(value.toPrecision(3)));
}

// 12.4k, 3.1M: for tight places.
export function formatShort(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  for (const [unit, sign] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ]) {
    if (size >= unit) return `${Number((value / (unit === 1e4 ? 1e3 : unit)).toPrecision(3))}${sign}`;
  }
  return formatNumber(value);
}

export function formatSigned(value, digits = 4) {
  if (!isNumber(value)) return NONE;
  const text = formatReward(Math.abs(value), digits);
  return value > 0 ? `+${text}` : value < 0 ? `−${text}` : text;
}

export function formatInterval(low, high, digits = 4) {
  return isNumber(low) && isNumber(high) ? `[${formatReward(low, digits)}, ${formatReward(high, digits)}]` : "";
}

export function formatPercent(value, digits = 1) {
  return isNumber(value) ? `${Number((100 * value).toFixed(digits))}%` : NONE;
}

export function formatSeconds(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(2))} s`;
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole} s`;
  if (whole < 5400) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function formatCost(value) {
  if (!isNumber(value)) return NONE;
  return value === 0
    ? "$0"
    : value < 0.01
      ? `$${Number(value.toPrecision(2))}`
      : `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function formatBytes(value) {
  if (!isNumber(value)) return NONE;
  for (const [unit, sign] of [
    [2 ** 30, "GB"],
    [2 ** 20, "MB"],
    [2 ** 10, "KB"],
  ])
    if (value >= unit) return `${Number((value / unit).toPrecision(3))} ${sign}`;
  return `${value} B`;
}

// A time (seconds since 1970, or ISO text) as a Date, or null.
export function toDate(value) {
  const date = isNumber(value) ? new Date(value * 1000) : typeof value === "string" && value ? new Date(value) : null;
  return date && !Number.isNaN(date.getTime()) ? date : null;
}

export function formatTime(value) {
  const date = toDate(value);
  if (!date) return NONE;
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function formatAgo(value, now = Date.now()) {
  const date = toDate(value);
  if (!date) return NONE;
  const seconds = Math.max(0, (now - date.getTime()) / 1000);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 86400 * 30) return `${Math.floor(seconds / 86400)} d ago`;
  return formatTime(value).slice(0, 10);
}

export function plural(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}
