// The network of a namespace: which Services lead to which pods, and which policies select them.

import type { KubeObject } from "../api/types";
import { array, map, number, text } from "./value";

export interface PodGroup {
  /** Name of the owner, or of the pod itself. */
  name: string;
  pods: KubeObject[];
  labels: Record<string, string>;
  /** Policies that select the pods. */
  policies: string[];
  /** Whether incoming and outgoing traffic is restricted. */
  isolated: { ingress: boolean; egress: boolean };
}

export interface ServiceNode {
  name: string;
  type: string;
  ports: string[];
  /** Ingresses that route to the Service. */
  ingresses: string[];
}

export interface Edge {
  from: string;
  to: string;
  kind: "route" | "allowed";
  label: string;
}

export interface Picture {
  services: ServiceNode[];
  groups: PodGroup[];
  edges: Edge[];
}

type Labels = Record<string, string>;

/** Whether labels match a selector with matchLabels and matchExpressions. */
export function matches(selector: unknown, labels: Labels): boolean {
  const equal = Object.entries(map(selector, "matchLabels")).every(([key, value]) => labels[key] === value);
  return equal && array(selector, "matchExpressions").every((expression) => {
    const value = labels[text(expression, "key")];
    const values = array(expression, "values");
    switch (text(expression, "operator")) {
      case "In": return value !== undefined && values.includes(value);
      case "NotIn": return value === undefined || !values.includes(value);
      case "Exists": return value !== undefined;
      case "DoesNotExist": return value === undefined;
      default: return false;
    }
  });
}

function selects(selector: Labels, labels: Labels): boolean {
  const entries = Object.entries(selector);
  return entries.length > 0 && entries.every(([key, value]) => labels[key] === value);
}

/** Returns the name under which a pod is grouped: ReplicaSets of one Deployment are one group. */
function groupName(pod: KubeObject): string {
  const owner = pod.metadata.ownerReferences?.find((reference) => reference.controller);
  if (!owner) return `Pod/${pod.metadata.name}`;
  const hash = pod.metadata.labels?.["pod-template-hash"];
  if (owner.kind === "ReplicaSet" && hash && owner.name.endsWith(`-${hash}`)) {
    return `Deployment/${owner.name.slice(0, -hash.length - 1)}`;
  }
  return `${owner.kind}/${owner.name}`;
}

export interface NetworkObjects {
  pods: KubeObject[];
  services: KubeObject[];
  policies: KubeObject[];
  ingresses: KubeObject[];
}

/** Computes the picture of one namespace. */
export function picture({ pods, services, policies, ingresses }: NetworkObjects): Picture {
  const groups = new Map<string, PodGroup>();
  const isLive = (pod: KubeObject) => !["Succeeded", "Failed"].includes(text(pod, "status", "phase"));
  for (const pod of pods.filter(isLive)) {
    const name = groupName(pod);
    const group = groups.get(name);
    if (group) group.pods.push(pod);
    else groups.set(name, { name, pods: [pod], labels: pod.metadata.labels ?? {}, policies: [], isolated: { ingress: false, egress: false } });
  }
  const sorted = [...groups.values()].sort((a, b) => a.name.localeCompare(b.name));
  const edges: Edge[] = [];
  const nodes = services.map((service) => serviceNode(service, ingresses)).sort((a, b) => a.name.localeCompare(b.name));
  for (const service of services) {
    const selector = map(service, "spec", "selector");
    for (const group of sorted.filter((it) => it.pods.some((pod) => selects(selector, pod.metadata.labels ?? {})))) {
      edges.push({ from: `Service/${service.metadata.name}`, to: group.name, kind: "route", label: targetPorts(service) });
    }
  }
  for (const policy of policies) {
    const types = array(policy, "spec", "policyTypes");
    for (const group of sorted.filter((it) => matches(policy.spec && (policy.spec as { podSelector?: unknown }).podSelector, it.labels))) {
      group.policies.push(policy.metadata.name);
      group.isolated.ingress ||= types.includes("Ingress");
      group.isolated.egress ||= types.includes("Egress");
      for (const rule of array(policy, "spec", "ingress")) edges.push(...allowed(rule, group, sorted));
    }
  }
  return { services: nodes, groups: sorted, edges: distinct(edges) };
}

function allowed(rule: unknown, group: PodGroup, groups: PodGroup[]): Edge[] {
  const ports = array(rule, "ports").map((port) => `${text(port, "port") || "*"}/${text(port, "protocol") || "TCP"}`).join(", ");
  const peers = array(rule, "from").filter((peer) => (peer as { podSelector?: unknown }).podSelector && !(peer as { namespaceSelector?: unknown }).namespaceSelector);
  const sources = groups.filter((source) => peers.some((peer) => matches((peer as { podSelector?: unknown }).podSelector, source.labels)));
  return sources.map((source) => ({ from: source.name, to: group.name, kind: "allowed", label: ports }));
}

function serviceNode(service: KubeObject, ingresses: KubeObject[]): ServiceNode {
  const name = service.metadata.name;
  const routes = (ingress: KubeObject) =>
    [
      text(ingress, "spec", "defaultBackend", "service", "name"),
      ...array(ingress, "spec", "rules").flatMap((rule) => array(rule, "http", "paths").map((path) => text(path, "backend", "service", "name"))),
    ].includes(name);
  const ports = array(service, "spec", "ports").map((port) => {
    const node = number(port, "nodePort");
    return `${number(port, "port")}${node ? `:${node}` : ""}/${text(port, "protocol") || "TCP"}`;
  });
  return { name, type: text(service, "spec", "type") || "ClusterIP", ports, ingresses: ingresses.filter(routes).map((it) => it.metadata.name) };
}

function targetPorts(service: KubeObject): string {
  return array(service, "spec", "ports").map((port) => text(port, "targetPort") || text(port, "port")).join(", ");
}

function distinct(edges: Edge[]): Edge[] {
  const seen = new Set<string>();
  return edges.filter((edge) => {
    const key = JSON.stringify(edge);
    return !seen.has(key) && seen.add(key);
  });
}
