// One stream of events for the page that is shown. The browser reconnects automatically; `hello` says that it did.

import { queryOf } from "./api.js";
import { IS_STATIC } from "./static.js";

const NAMES = ["hello", "runs", "live", "rows", "annotations"];
const stream = { source: null, key: null, listeners: new Set(), isOpen: false, retry: 0 };

// Follows these runs (and the table of runs, always). The listener gets (name, data).
export function follow(runs, listener, signal) {
  stream.listeners.add(listener);
  signal.addEventListener("abort", () => stream.listeners.delete(listener));
  const key = queryOf({ run: runs });
  if (!IS_STATIC && key !== stream.key) connect(key);
}

function connect(key) {
  stream.source?.close();
  clearTimeout(stream.retry);
  stream.key = key;
  const source = new EventSource(`api/events${key ? `?${key}` : ""}`);
  stream.source = source;
  for (const name of NAMES) {
    source.addEventListener(name, (event) => {
      if (source !== stream.source) return;
      const data = JSON.parse(event.data);
      if (name === "hello") announce(true);
      for (const listener of [...stream.listeners]) listener(name, data);
    });
  }
  source.addEventListener("error", () => {
    if (source !== stream.source) return;
    announce(false);
    // A refusal ends the stream for good; the server may be back later.
    if (source.readyState === EventSource.CLOSED) stream.retry = setTimeout(() => connect(key), 3000);
  });
}

function announce(isOpen) {
  stream.isOpen = isOpen;
  dispatchEvent(new CustomEvent("studio-connection", { detail: isOpen }));
}

// Calls at most once per interval, the last time surely.
export function throttle(act, intervalMs, signal) {
  let timer = 0;
  let last = 0;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    if (timer || signal?.aborted) return;
    timer = setTimeout(
      () => {
        timer = 0;
        last = Date.now();
        act();
      },
      Math.max(0, last + intervalMs - Date.now()),
    );
  };
}

// Runs one at a time. Calls that come meanwhile lead to one more run after it: what they announce may not be in it.
export function queueOne(act) {
  let running = null;
  let isAsked = false;
  return () => {
    isAsked = true;
    running ??= (async () => {
      try {
        while (isAsked) {
          isAsked = false;
          await act();
        }
      } finally {
        running = null;
      }
    })();
    return running;
  };
}
