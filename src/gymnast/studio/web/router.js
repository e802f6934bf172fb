// The whole state of a view is in the address: #/run/ID/rollouts?sort=-tokens&q=boxed.

export function parseHash(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").filter(Boolean).map(decode), params: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function hashOf(parts, params) {
  const query = new URLSearchParams();
  const entries = params instanceof URLSearchParams ? params : Object.entries(params ?? {});
  for (const [key, value] of entries) if (value !== null && value !== undefined && value !== "" && value !== false) query.append(key, value);
  const text = query.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// Changes parameters of the current address. With replace, going back skips this state (typing in a search box).
export function setParams(changes, { replace = false } = {}) {
  const { parts, params } = parseHash();
  for (const [key, value] of Object.entries(changes)) {
    params.delete(key);
    for (const item of Array.isArray(value) ? value : [value])
      if (item !== null && item !== undefined && item !== "" && item !== false) params.append(key, item);
  }
  const hash = hashOf(parts, params);
  if (hash === location.hash) return;
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = hash;
}

export function go(parts, params) {
  location.hash = hashOf(parts, params);
}
