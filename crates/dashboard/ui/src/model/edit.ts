// Editing an object as YAML: the text in the editor, and the request that saves a change.

import { parseDocument, parseAllDocuments, stringify } from "yaml";

import type { KubeObject, StatusCause } from "../api/types";
import { at } from "./value";

/** Metadata that the server sets and an edit cannot change. */
const READ_ONLY = ["managedFields", "resourceVersion", "creationTimestamp", "generation", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"];

/** Returns an object as YAML, without fields that only the server writes. */
export function editable(object: KubeObject): string {
  const { status: _, ...rest } = object;
  const metadata = Object.fromEntries(Object.entries(object.metadata).filter(([key]) => !READ_ONLY.includes(key)));
  return toYaml({ ...ordered(rest as KubeObject), metadata });
}

/** Returns the complete object as YAML. */
export function complete(object: KubeObject, withManagedFields: boolean): string {
  const metadata = { ...object.metadata };
  if (!withManagedFields) delete metadata.managedFields;
  return toYaml({ ...ordered(object), metadata });
}

export function toYaml(value: unknown): string {
  return stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });
}

function ordered(object: KubeObject): KubeObject {
  const { apiVersion, kind, metadata, ...rest } = object;
  return { ...(apiVersion ? { apiVersion } : {}), ...(kind ? { kind } : {}), metadata, ...rest };
}

export interface Parsed {
  objects: KubeObject[];
  /** The first error, with its line. */
  error: string | undefined;
}

/** Parses YAML documents. Aliases are limited, so that a short text cannot become a huge object. */
export function parseYaml(source: string): Parsed {
  const objects: KubeObject[] = [];
  try {
    for (const document of parseAllDocuments(source, { uniqueKeys: true })) {
      const [problem] = (document as ReturnType<typeof parseDocument>).errors;
      if (problem) return { objects: [], error: problem.message };
      const value: unknown = (document as ReturnType<typeof parseDocument>).toJS({ maxAliasCount: 100 });
      if (value === null || value === undefined) continue;
      if (typeof value !== "object" || Array.isArray(value)) return { objects: [], error: "a document is not an object" };
      if (typeof at(value, "kind") !== "string" || typeof at(value, "apiVersion") !== "string") {
        return { objects: [], error: "a document has no apiVersion or kind" };
      }
      if (at(value, "kind") === "List" && Array.isArray(at(value, "items"))) objects.push(...(at(value, "items") as KubeObject[]));
      else objects.push(value as KubeObject);
    }
  } catch (error) {
    return { objects: [], error: error instanceof Error ? error.message : String(error) };
  }
  return { objects, error: undefined };
}

/** Whether the edit removes a field or an item. Server-side apply keeps fields that another manager owns. */
export function removes(before: unknown, after: unknown): boolean {
  if (before === null || typeof before !== "object") return false;
  if (after === null || typeof after !== "object" || Array.isArray(before) !== Array.isArray(after)) return after === null || after === undefined;
  if (Array.isArray(before)) {
    const other = after as unknown[];
    return before.length > other.length || before.some((item, index) => removes(item, other[index]));
  }
  return Object.entries(before).some(([key, value]) => {
    const other = at(after, key);
    return other === undefined || removes(value, other);
  });
}

/** Returns the object to apply: without a version and without fields that only the server writes. */
export function forApply(object: KubeObject): KubeObject {
  const { status: _, ...rest } = object;
  const drop = [...READ_ONLY, "uid", "ownerReferences"];
  const metadata = Object.fromEntries(Object.entries(object.metadata).filter(([key]) => !drop.includes(key)));
  return { ...rest, metadata } as KubeObject;
}

export interface FieldConflict {
  manager: string;
  fields: string[];
}

/** Returns the conflicting fields of a failed apply by their managers. */
export function conflicts(causes: StatusCause[]): FieldConflict[] {
  const found = new Map<string, string[]>();
  for (const cause of causes) {
    if (cause.reason !== "FieldManagerConflict") continue;
    const manager = /conflict with "((?:[^"\\]|\\.)*)"/.exec(cause.message ?? "")?.[1] ?? "";
    found.set(manager, [...(found.get(manager) ?? []), cause.field ?? ""]);
  }
  return [...found].map(([manager, fields]) => ({ manager, fields }));
}
