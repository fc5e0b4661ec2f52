// Rows of a table: cells, filter and sort. Pure functions.

import type { ColumnDefinition } from "../api/types";
import type { Item } from "../live/reducer";
import { age } from "./quantity";

export interface Column {
  name: string;
  /** Index of the cell; -1 for the namespace, which is not a column of the server. */
  index: number;
  isAge: boolean;
}

export interface Sort {
  column: string;
  isDescending: boolean;
}

/** Returns the shown columns. Narrow tables have those of `kubectl get`, wide ones those of `-o wide`. */
export function columns(definitions: ColumnDefinition[], hasNamespace: boolean, isWide: boolean): Column[] {
  const shown = definitions
    .map((definition, index) => ({ name: definition.name, index, isAge: definition.name === "Age", priority: definition.priority }))
    .filter((column) => isWide || column.priority === 0)
    .map(({ name, index, isAge }) => ({ name, index, isAge }));
  const [first, ...rest] = shown;
  if (!first) return [];
  return hasNamespace ? [first, { name: "Namespace", index: -1, isAge: false }, ...rest] : shown;
}

/** Returns the text of a cell. Ages are computed here, so that they stay correct while nothing changes. */
export function cell(item: Item, column: Column, now: number): string {
  if (column.index < 0) return item.object.metadata.namespace ?? "";
  if (column.isAge && item.object.metadata.creationTimestamp) return age(item.object.metadata.creationTimestamp, now);
  const value = item.cells[column.index];
  return value === null || value === undefined ? "" : String(value);
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Returns the items whose cells or labels contain all words of the filter, in order. */
export function arrange(items: Iterable<Item>, shown: Column[], filter: string, sort: Sort, now: number): Item[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (item: Item) => {
    const text = [
      ...shown.map((column) => cell(item, column, now)),
      ...Object.entries(item.object.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`),
    ].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const found = [...items].filter((item) => words.length === 0 || matches(item));
  const column = shown.find((it) => it.name === sort.column) ?? shown[0];
  if (!column) return found;
  const direction = sort.isDescending ? -1 : 1;
  const byName = (a: Item, b: Item) =>
    COLLATOR.compare(a.object.metadata.namespace ?? "", b.object.metadata.namespace ?? "") ||
    COLLATOR.compare(a.object.metadata.name, b.object.metadata.name);
  const compare = column.isAge
    ? // The youngest has the lowest age.
      (a: Item, b: Item) => (b.object.metadata.creationTimestamp ?? "").localeCompare(a.object.metadata.creationTimestamp ?? "")
    : (a: Item, b: Item) => COLLATOR.compare(cell(a, column, now), cell(b, column, now));
  return found.sort((a, b) => direction * compare(a, b) || byName(a, b));
}

/** Returns the range of rows to render: those in view and some around them. */
export function visibleRange(scrollTop: number, height: number, rowHeight: number, count: number, around = 8): [number, number] {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - around);
  const last = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + around);
  return [Math.min(first, last), last];
}
