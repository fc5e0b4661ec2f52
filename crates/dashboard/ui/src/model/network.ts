// The network of a namespace: Services, the pods that they select, and the policies of the pods.

import type { KubeObject } from "../api/types";
import { array, at, map, number, text } from "./value";

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

/** An end of a connection that is not a pod of the namespace. */
export interface Peer {
  id: string;
  kind: "everyone" | "namespaces" | "block";
  /** Selectors of namespaces and pods, or an IP block with its exceptions. */
  namespaces: string;
  pods: string;
  block: string;
}

export interface Edge {
  from: string;
  to: string;
  kind: "route" | "allowed";
  /** Target ports; empty for all. */
  label: string;
}

export interface Picture {
  services: ServiceNode[];
  groups: PodGroup[];
  peers: Peer[];
  edges: Edge[];
}

type Labels = Record<string, string>;

/** Whether labels match a selector with matchLabels and matchExpressions. */
export function matches(selector: unknown, labels: Labels): boolean {
  const equal = Object.entries(map(selector, "matchLabels")).every(([key, value]) => at(labels, key) === value);
  return equal && array(selector, "matchExpressions").every((expression) => {
    const value = at(labels, text(expression, "key"));
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
  return entries.length > 0 && entries.every(([key, value]) => at(labels, key) === value);
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
  /** Labels of the namespace itself. */
  labels: Labels;
}

/** Computes the diagram of one namespace. */
export function picture({ pods, services, policies, ingresses, labels }: NetworkObjects): Picture {
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
  const rules: Rules = new Map(sorted.map((group) => [group.name, { ingress: [], egress: [] }]));
  for (const policy of policies) {
    const types = array(policy, "spec", "policyTypes");
    for (const group of sorted.filter((it) => matches(at(policy, "spec", "podSelector"), it.labels))) {
      group.policies.push(policy.metadata.name);
      for (const [type, direction, peers] of [["Ingress", "ingress", "from"], ["Egress", "egress", "to"]] as const) {
        if (!types.includes(type)) continue;
        group.isolated[direction] = true;
        rules.get(group.name)![direction].push(...array(policy, "spec", direction).map((rule) => readRule(rule, peers)));
      }
    }
  }
  const peers = new Map<string, Peer>();
  for (const group of sorted) edges.push(...withOutside(group, rules, peers));
  edges.push(...between(sorted, rules, labels));
  return { services: nodes, groups: sorted, peers: [...peers.values()], edges: distinct(edges) };
}

interface Rule {
  /** Selectors and IP blocks; none for all peers. */
  peers: unknown[];
  /** None for all ports. */
  ports: string[];
}

type Rules = Map<string, { ingress: Rule[]; egress: Rule[] }>;

function readRule(rule: unknown, field: "from" | "to"): Rule {
  const ports = array(rule, "ports").map((port) => {
    const last = text(port, "endPort");
    return `${text(port, "port") || "*"}${last ? `–${last}` : ""}/${text(port, "protocol") || "TCP"}`;
  });
  return { peers: array(rule, field), ports };
}

/** Returns the connections of a group with other namespaces, IP blocks and everyone. */
function withOutside(group: PodGroup, rules: Rules, peers: Map<string, Peer>): Edge[] {
  const edges: Edge[] = [];
  for (const direction of ["ingress", "egress"] as const) {
    for (const rule of rules.get(group.name)![direction]) {
      const found = rule.peers.length === 0 ? [EVERYONE] : rule.peers.flatMap((peer) => outside(peer) ?? []);
      for (const peer of found) {
        peers.set(peer.id, peer);
        const [from, to] = direction === "ingress" ? [peer.id, group.name] : [group.name, peer.id];
        edges.push({ from, to, kind: "allowed", label: rule.ports.join(", ") });
      }
    }
  }
  return edges;
}

const EVERYONE: Peer = { id: "Peer/*", kind: "everyone", namespaces: "", pods: "", block: "" };

/** Returns the peer of a rule, unless it is pods of the same namespace. */
function outside(peer: unknown): Peer | undefined {
  const block = text(peer, "ipBlock", "cidr");
  if (block) {
    const except = array(peer, "ipBlock", "except");
    const whole = except.length > 0 ? `${block} − ${except.join(", ")}` : block;
    return { id: `Peer/${whole}`, kind: "block", namespaces: "", pods: "", block: whole };
  }
  if (at(peer, "namespaceSelector") === undefined) return undefined;
  const [namespaces, pods] = [selectorText(at(peer, "namespaceSelector")), selectorText(at(peer, "podSelector"))];
  return { id: `Peer/${namespaces}/${pods}`, kind: "namespaces", namespaces, pods, block: "" };
}

/** Formats a selector as `kubectl` does; empty for everything. */
function selectorText(selector: unknown): string {
  const equal = Object.entries(map(selector, "matchLabels")).map(([key, value]) => `${key}=${value}`);
  const others = array(selector, "matchExpressions").map((expression) => {
    const [key, values] = [text(expression, "key"), array(expression, "values").join(",")];
    switch (text(expression, "operator")) {
      case "In": return `${key} in (${values})`;
      case "NotIn": return `${key} notin (${values})`;
      case "DoesNotExist": return `!${key}`;
      default: return key;
    }
  });
  return [...equal, ...others].join(",");
}

/**
 * Returns the connections between groups that policies allow. A connection needs a rule of each side that is isolated;
 * rules for everyone are not repeated for each group.
 */
function between(groups: PodGroup[], rules: Rules, labels: Labels): Edge[] {
  const edges: Edge[] = [];
  for (const from of groups) {
    for (const to of groups) {
      if (from === to || !(from.isolated.egress || to.isolated.ingress)) continue;
      const out = from.isolated.egress ? openPorts(rules.get(from.name)!.egress, to, labels) : OPEN;
      const into = to.isolated.ingress ? openPorts(rules.get(to.name)!.ingress, from, labels) : OPEN;
      if (!out || !into || !(out.isNamed || into.isNamed)) continue;
      const ports = out.ports.length === 0 ? into.ports : into.ports.length === 0 ? out.ports : out.ports.filter((port) => into.ports.includes(port));
      if (ports.length === 0 && (out.ports.length > 0 || into.ports.length > 0)) continue;
      edges.push({ from: from.name, to: to.name, kind: "allowed", label: ports.join(", ") });
    }
  }
  return edges;
}

interface Opening {
  /** None for all ports. */
  ports: string[];
  /** Whether a rule selects the peer, not everyone. */
  isNamed: boolean;
}

const OPEN: Opening = { ports: [], isNamed: false };

/** Returns the ports that rules open for a group; nothing if no rule does. */
function openPorts(rules: Rule[], peer: PodGroup, labels: Labels): Opening | undefined {
  const named = (rule: Rule) => rule.peers.some((it) => includes(it, peer, labels));
  const open = rules.filter((rule) => rule.peers.length === 0 || named(rule));
  if (open.length === 0) return undefined;
  const ports = open.some((rule) => rule.ports.length === 0) ? [] : [...new Set(open.flatMap((rule) => rule.ports))];
  return { ports, isNamed: open.some(named) };
}

/** Whether a peer of a rule includes pods of the policy's own namespace. */
function includes(peer: unknown, group: PodGroup, labels: Labels): boolean {
  if (at(peer, "ipBlock") !== undefined) return false;
  const namespaces = at(peer, "namespaceSelector");
  return (namespaces === undefined || matches(namespaces, labels)) && matches(at(peer, "podSelector"), group.labels);
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
