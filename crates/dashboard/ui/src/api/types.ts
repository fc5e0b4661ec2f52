// Shapes of Kubernetes objects, as far as the dashboard reads them.

export interface Meta {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  generation?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  managedFields?: unknown[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

/** Any object. Fields beyond the metadata are read through `at` of `model/value`. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
  [field: string]: unknown;
}

export interface List<T> {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[];
}

export interface ColumnDefinition {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority: number;
}

export interface TableRow {
  cells: unknown[];
  object: KubeObject;
}

export interface Table {
  kind: "Table";
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  columnDefinitions?: ColumnDefinition[];
  rows?: TableRow[];
}

export interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T;
}

export interface StatusCause {
  reason?: string;
  message?: string;
  field?: string;
}

export interface Status {
  kind: "Status";
  status?: string;
  message?: string;
  reason?: string;
  code?: number;
  details?: { causes?: StatusCause[]; retryAfterSeconds?: number };
}

/** A resource type of the API. */
export interface Resource {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
}
