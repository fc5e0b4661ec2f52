// Resource types: their URLs, and discovery of the server's types.

import { api } from "./client";
import type { KubeObject, Resource } from "./types";

function builtIn(group: string, plural: string, kind: string, namespaced = true, version = "v1"): Resource {
  return { group, version, plural, kind, namespaced, verbs: [], shortNames: [] };
}

/** The types that pages refer to by name. */
export const PODS = builtIn("", "pods", "Pod");
export const NODES = builtIn("", "nodes", "Node", false);
export const NAMESPACES = builtIn("", "namespaces", "Namespace", false);
export const SERVICES = builtIn("", "services", "Service");
export const EVENTS = builtIn("", "events", "Event");
export const CLAIMS = builtIn("", "persistentvolumeclaims", "PersistentVolumeClaim");
export const DEPLOYMENTS = builtIn("apps", "deployments", "Deployment");
export const REPLICASETS = builtIn("apps", "replicasets", "ReplicaSet");
export const STATEFULSETS = builtIn("apps", "statefulsets", "StatefulSet");
export const DAEMONSETS = builtIn("apps", "daemonsets", "DaemonSet");
export const REVISIONS = builtIn("apps", "controllerrevisions", "ControllerRevision");
export const JOBS = builtIn("batch", "jobs", "Job");
export const CRONJOBS = builtIn("batch", "cronjobs", "CronJob");
export const SLICES = builtIn("discovery.k8s.io", "endpointslices", "EndpointSlice");
export const POLICIES = builtIn("networking.k8s.io", "networkpolicies", "NetworkPolicy");
export const INGRESSES = builtIn("networking.k8s.io", "ingresses", "Ingress");
export const NODE_METRICS = builtIn("metrics.k8s.io", "nodes", "NodeMetrics", false, "v1beta1");
export const POD_METRICS = builtIn("metrics.k8s.io", "pods", "PodMetrics", true, "v1beta1");

/** Returns the path of a collection, or of an object if a name is given. */
export function path(resource: Resource, namespace = "", name = "", subresource = ""): string {
  const root = resource.group ? `/apis/${resource.group}/${resource.version}` : `/api/${resource.version}`;
  const parts = [root];
  if (resource.namespaced && namespace) parts.push("namespaces", encodeURIComponent(namespace));
  parts.push(resource.plural);
  if (name) parts.push(encodeURIComponent(name));
  if (subresource) parts.push(subresource);
  return parts.join("/");
}

/** Returns a field selector for a value that may contain characters of the selector's syntax. */
export function fieldIs(field: string, value: string): string {
  return `${field}=${value.replace(/[\\,=]/g, "\\$&")}`;
}

export function apiVersion(resource: Resource): string {
  return resource.group ? `${resource.group}/${resource.version}` : resource.version;
}

/** A key that is unique among the types of a server. */
export function typeKey(resource: Resource): string {
  return `${resource.group}/${resource.version}/${resource.plural}`;
}

interface DiscoveryList {
  items?: {
    metadata?: { name?: string };
    versions?: {
      version: string;
      resources?: {
        resource: string;
        responseKind?: { kind?: string };
        scope?: string;
        verbs?: string[];
        shortNames?: string[];
      }[];
    }[];
  }[];
}

const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/** Returns the types that can be listed, in their preferred versions. */
export async function discover(signal: AbortSignal): Promise<Resource[]> {
  const lists = await Promise.all(["/api", "/apis"].map((root) => api<DiscoveryList>(root, { accept: AGGREGATED, signal })));
  return fromDiscovery(lists);
}

/** Reads discovery documents: of several versions of a type, the first is the preferred one. */
export function fromDiscovery(lists: DiscoveryList[]): Resource[] {
  const found = new Map<string, Resource>();
  for (const group of lists.flatMap((list) => list.items ?? [])) {
    const name = group.metadata?.name ?? "";
    for (const version of group.versions ?? []) {
      for (const resource of version.resources ?? []) {
        const key = `${name}/${resource.resource}`;
        if (!resource.verbs?.includes("list") || found.has(key)) continue;
        found.set(key, {
          group: name,
          version: version.version,
          plural: resource.resource,
          kind: resource.responseKind?.kind ?? resource.resource,
          namespaced: resource.scope === "Namespaced",
          verbs: resource.verbs,
          shortNames: resource.shortNames ?? [],
        });
      }
    }
  }
  return [...found.values()].sort((a, b) => a.kind.localeCompare(b.kind) || a.group.localeCompare(b.group));
}

/** Finds the type of an object. */
export function typeOf(types: Resource[], object: { apiVersion?: string; kind?: string }): Resource | undefined {
  return types.find((type) => type.kind === object.kind && apiVersion(type) === object.apiVersion)
    ?? types.find((type) => type.kind === object.kind && type.group === groupOf(object.apiVersion ?? ""));
}

function groupOf(version: string): string {
  return version.includes("/") ? version.split("/")[0]! : "";
}

/** Reads one object. */
export function getObject(resource: Resource, namespace: string, name: string, signal?: AbortSignal): Promise<KubeObject> {
  return api<KubeObject>(path(resource, namespace, name), signal ? { signal } : {});
}
