// Reading fields of objects whose shape is not known.

/** Returns the value at a path of keys and indexes. */
export function at(value: unknown, ...keys: (string | number)[]): unknown {
  let found = value;
  for (const key of keys) {
    if (found === null || typeof found !== "object") return undefined;
    found = Object.hasOwn(found, key) ? (found as Record<string | number, unknown>)[key] : undefined;
  }
  return found;
}

export function text(value: unknown, ...keys: (string | number)[]): string {
  const found = at(value, ...keys);
  return typeof found === "string" ? found : typeof found === "number" || typeof found === "boolean" ? String(found) : "";
}

export function number(value: unknown, ...keys: (string | number)[]): number {
  const found = at(value, ...keys);
  return typeof found === "number" ? found : 0;
}

export function array(value: unknown, ...keys: (string | number)[]): unknown[] {
  const found = at(value, ...keys);
  return Array.isArray(found) ? found : [];
}

export function map(value: unknown, ...keys: (string | number)[]): Record<string, string> {
  const found = at(value, ...keys);
  return found !== null && typeof found === "object" && !Array.isArray(found) ? (found as Record<string, string>) : {};
}
