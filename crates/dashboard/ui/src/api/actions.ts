// Changes of objects, with the rights of the user.

import { FIELD_MANAGER } from "../model/manager";
import { ApiError, api } from "./client";
import { CRONJOBS, DEPLOYMENTS, NODES, PODS, fieldIs, path } from "./resources";
import type { KubeObject, List, Resource } from "./types";
import { array, at, text } from "../model/value";

const MANAGER = `fieldManager=${FIELD_MANAGER}`;
const MERGE = "application/merge-patch+json";

function patch(type: Resource, object: KubeObject, change: unknown, subresource = ""): Promise<KubeObject> {
  const { namespace = "", name } = object.metadata;
  return api<KubeObject>(`${path(type, namespace, name, subresource)}?${MANAGER}`, { method: "PATCH", contentType: MERGE, body: JSON.stringify(change) });
}

export function scale(type: Resource, object: KubeObject, replicas: number): Promise<unknown> {
  return patch(type, object, { spec: { replicas } }, "scale");
}

/** Restarts the pods of a workload as `kubectl rollout restart` does. */
export function restart(type: Resource, object: KubeObject): Promise<unknown> {
  const annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
  return patch(type, object, { spec: { template: { metadata: { annotations } } } });
}

export function setPaused(object: KubeObject, paused: boolean): Promise<unknown> {
  return patch(DEPLOYMENTS, object, { spec: { paused } });
}

export function setSuspended(object: KubeObject, suspend: boolean): Promise<unknown> {
  return patch(CRONJOBS, object, { spec: { suspend } });
}

export function setUnschedulable(object: KubeObject, unschedulable: boolean): Promise<unknown> {
  return patch(NODES, object, { spec: { unschedulable } });
}

/** Sets the pod template of a Deployment to that of a ReplicaSet, if the Deployment has not changed since it was read. */
export function rollBack(deployment: KubeObject, set: KubeObject): Promise<unknown> {
  const template = structuredClone(at(set, "spec", "template")) as { metadata?: { labels?: Record<string, string> } };
  delete template.metadata?.labels?.["pod-template-hash"];
  const { namespace = "", name } = deployment.metadata;
  const change = [
    { op: "test", path: "/spec/template", value: at(deployment, "spec", "template") },
    { op: "replace", path: "/spec/template", value: template },
  ];
  return api(`${path(DEPLOYMENTS, namespace, name)}?${MANAGER}`, { method: "PATCH", contentType: "application/json-patch+json", body: JSON.stringify(change) });
}

/** Deletes exactly this object: not one of the same name that was created later. */
export function remove(type: Resource, object: KubeObject): Promise<unknown> {
  const { namespace = "", name, uid } = object.metadata;
  const options = { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: "Background", preconditions: { uid } };
  return api(path(type, namespace, name), { method: "DELETE", body: JSON.stringify(options) });
}

export function create(type: Resource, namespace: string, object: KubeObject, dryRun: boolean, onWarning: (text: string) => void): Promise<KubeObject> {
  const query = `${MANAGER}&fieldValidation=Strict${dryRun ? "&dryRun=All" : ""}`;
  return api<KubeObject>(`${path(type, namespace)}?${query}`, { method: "POST", body: JSON.stringify(object), onWarning });
}

export interface DrainOptions {
  /** Evict pods with emptyDir volumes. */
  local: boolean;
  /** Evict pods without a controller. */
  force: boolean;
}

export type Stay = "local" | "owner";

export interface DrainPlan {
  evict: KubeObject[];
  /** Pods that prevent the drain, with the reason. */
  refused: { pod: KubeObject; reason: Stay }[];
}

/** Decides which pods of a node are evicted. Pods of DaemonSets and static pods are kept. */
export function planDrain(pods: KubeObject[], options: DrainOptions): DrainPlan {
  const plan: DrainPlan = { evict: [], refused: [] };
  for (const pod of pods) {
    const owner = pod.metadata.ownerReferences?.find((it) => it.controller);
    const isStatic = pod.metadata.annotations?.["kubernetes.io/config.mirror"] !== undefined;
    const isOver = ["Succeeded", "Failed"].includes(text(pod, "status", "phase"));
    if (isStatic || owner?.kind === "DaemonSet") continue;
    const hasLocal = array(pod, "spec", "volumes").some((volume) => at(volume, "emptyDir") !== undefined);
    if (!owner && !options.force && !isOver) plan.refused.push({ pod, reason: "owner" });
    else if (hasLocal && !options.local && !isOver) plan.refused.push({ pod, reason: "local" });
    else plan.evict.push(pod);
  }
  return plan;
}

export async function podsOf(node: string): Promise<KubeObject[]> {
  return (await api<List<KubeObject>>(`${path(PODS)}?fieldSelector=${encodeURIComponent(fieldIs("spec.nodeName", node))}`)).items;
}

/** Evicts a pod. Returns the message of the server if a disruption budget does not allow it now. */
export async function evict(pod: KubeObject): Promise<string | undefined> {
  const { namespace = "", name, uid } = pod.metadata;
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace }, deleteOptions: { preconditions: { uid } } };
  try {
    await api(path(PODS, namespace, name, "eviction"), { method: "POST", body: JSON.stringify(eviction) });
    return undefined;
  } catch (error) {
    if (error instanceof ApiError && error.code === 429) return error.message;
    // The pod has already been deleted.
    if (error instanceof ApiError && (error.isNotFound || error.isConflict)) return undefined;
    throw error;
  }
}
