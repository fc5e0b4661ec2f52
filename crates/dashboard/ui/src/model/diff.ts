// Differences of two texts by lines.

export interface DiffLine {
  kind: "same" | "added" | "removed" | "skipped";
  text: string;
}

/** Beyond this size the middle of two texts is shown as replaced completely. */
const CELLS_MAX = 4_000_000;
const CONTEXT = 3;

/** Returns the changed lines with some lines of context. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const middle = compare(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const same = (text: string): DiffLine => ({ kind: "same", text });
  return shorten([...old.slice(0, head).map(same), ...middle, ...old.slice(old.length - tail).map(same)]);
}

export function hasChanges(lines: DiffLine[]): boolean {
  return lines.some((line) => line.kind === "added" || line.kind === "removed");
}

/** Finds a longest common subsequence. */
function compare(old: string[], now: string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ kind: "removed", text });
  const added = (text: string): DiffLine => ({ kind: "added", text });
  if (old.length * now.length > CELLS_MAX) return [...old.map(removed), ...now.map(added)];
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = old[i] === now[j]
        ? lengths[(i + 1) * width + j + 1]! + 1
        : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ kind: "same", text: old[i]! });
      i += 1;
      j += 1;
    } else if (i < old.length && (j >= now.length || lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!)) {
      lines.push(removed(old[i]!));
      i += 1;
    } else {
      lines.push(added(now[j]!));
      j += 1;
    }
  }
  return lines;
}

/** Replaces unchanged lines that are far from a change. */
function shorten(lines: DiffLine[]): DiffLine[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.kind === "same") return;
    for (let other = Math.max(0, at - CONTEXT); other <= Math.min(lines.length - 1, at + CONTEXT); other += 1) near[other] = 1;
  });
  const shown: DiffLine[] = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.kind !== "skipped") shown.push({ kind: "skipped", text: "" });
  });
  return shown;
}
