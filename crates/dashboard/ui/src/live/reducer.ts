// The state of a live list: a pure reducer of lists and watch events.

import type { ColumnDefinition, KubeObject, Table, WatchEvent } from "../api/types";

/** An object with the cells of its table row, if it was requested as a table. */
export interface Item {
  object: KubeObject;
  cells: unknown[];
}

export interface LiveState {
  /** Objects by UID. A change makes a new map. */
  items: ReadonlyMap<string, Item>;
  columns: ColumnDefinition[];
  /** The version from which a watch continues. */
  version: string;
}

export const EMPTY: LiveState = { items: new Map(), columns: [], version: "" };

/** Whether an object is a table: the server renders the columns. */
function isTable(object: unknown): object is Table {
  return (object as { kind?: string }).kind === "Table";
}

/** Returns the items of a list, which may be a page of it. */
export function itemsOf(list: unknown): { items: Item[]; columns: ColumnDefinition[]; version: string; next: string } {
  const { metadata } = list as { metadata?: { resourceVersion?: string; continue?: string } };
  const [version, next] = [metadata?.resourceVersion ?? "", metadata?.continue ?? ""];
  if (isTable(list)) {
    const items = (list.rows ?? []).map((row) => ({ object: row.object, cells: row.cells }));
    return { items, columns: list.columnDefinitions ?? [], version, next };
  }
  const { items, kind, apiVersion } = list as { items?: KubeObject[]; kind?: string; apiVersion?: string };
  // Items of a list have no kind.
  const own = { ...(kind?.endsWith("List") ? { kind: kind.slice(0, -4) } : {}), ...(apiVersion ? { apiVersion } : {}) };
  return { items: (items ?? []).map((object) => ({ object: { ...own, ...object }, cells: [] })), columns: [], version, next };
}

/** Adds a page of a list. The first page replaces the previous items. */
export function addPage(state: LiveState, list: unknown, isFirst: boolean): LiveState {
  const page = itemsOf(list);
  const items = new Map(isFirst ? [] : state.items);
  for (const item of page.items) items.set(item.object.metadata.uid, item);
  const columns = page.columns.length > 0 ? page.columns : isFirst ? [] : state.columns;
  return { items, columns, version: page.version };
}

/** Applies watch events in order. Errors are not events of objects: the caller handles them. */
export function applyEvents(state: LiveState, events: WatchEvent<unknown>[]): LiveState {
  if (events.length === 0) return state;
  const items = new Map(state.items);
  let { columns, version } = state;
  for (const event of events) {
    if (event.type === "ERROR") continue;
    const changed = isTable(event.object) ? itemsOf(event.object) : undefined;
    if (changed && changed.columns.length > 0) columns = changed.columns;
    const objects = changed ? changed.items : [{ object: event.object as KubeObject, cells: [] }];
    for (const item of objects) {
      // A bookmark has only a version. In a table it is a row.
      version = item.object.metadata?.resourceVersion || version;
      if (event.type === "DELETED") items.delete(item.object.metadata.uid);
      else if (event.type !== "BOOKMARK") items.set(item.object.metadata.uid, item);
    }
    if (changed?.version) version = changed.version;
  }
  return { items, columns, version };
}
