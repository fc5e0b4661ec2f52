// The state of objects in one word, and the reason of a problem.

import type { KubeObject } from "../api/types";
import { array, at, number, text } from "./value";

export type Tone = "good" | "busy" | "bad" | "idle";

export interface Health {
  tone: Tone;
  /** The state as kubectl prints it. */
  state: string;
  /** The reason for the user; empty if nothing is wrong. */
  reason: string;
}

/** Waiting reasons that usually last longer than a few seconds. */
const STUCK = new Set([
  "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
  "ImagePullBackOff", "InvalidImageName", "RunContainerError",
]);

/** Explanations of waiting reasons: a key of the messages. */
export const EXPLAINED = [
  "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
  "ImagePullBackOff", "InvalidImageName", "OOMKilled", "RunContainerError", "Unschedulable",
] as const;

export function podHealth(pod: KubeObject): Health {
  const phase = text(pod, "status", "phase") || "Pending";
  if (pod.metadata.deletionTimestamp) return { tone: "busy", state: "Terminating", reason: "" };
  const statuses = [...array(pod, "status", "initContainerStatuses"), ...array(pod, "status", "containerStatuses")];
  for (const status of statuses) {
    const waiting = at(status, "state", "waiting");
    const reason = text(waiting, "reason");
    if (STUCK.has(reason)) {
      const last = text(status, "lastState", "terminated", "reason");
      const exit = at(status, "lastState", "terminated", "exitCode");
      const why = reason === "CrashLoopBackOff" && last
        ? `${text(status, "name")}: ${last}${typeof exit === "number" ? ` (exit code ${exit})` : ""}`
        : `${text(status, "name")}: ${text(waiting, "message") || reason}`;
      return { tone: "bad", state: reason, reason: why };
    }
  }
  if (phase === "Failed") {
    const reason = text(pod, "status", "reason");
    const failed = statuses.find((status) => number(status, "state", "terminated", "exitCode") !== 0);
    const why = failed
      ? `${text(failed, "name")}: ${text(failed, "state", "terminated", "reason") || "Error"} (exit code ${number(failed, "state", "terminated", "exitCode")})`
      : text(pod, "status", "message");
    return { tone: "bad", state: reason || "Failed", reason: why };
  }
  if (phase === "Succeeded") return { tone: "idle", state: "Completed", reason: "" };
  const scheduled = condition(pod, "PodScheduled");
  if (phase === "Pending" && text(scheduled, "status") === "False") {
    return { tone: "bad", state: text(scheduled, "reason") || "Pending", reason: text(scheduled, "message") };
  }
  if (phase === "Running") {
    const ready = condition(pod, "Ready");
    if (text(ready, "status") === "True") return { tone: "good", state: "Running", reason: "" };
    return { tone: "busy", state: "NotReady", reason: text(ready, "message") };
  }
  const waiting = statuses.map((status) => text(status, "state", "waiting", "reason")).find((reason) => reason);
  return { tone: "busy", state: waiting || phase, reason: "" };
}

export function nodeHealth(node: KubeObject): Health {
  const ready = condition(node, "Ready");
  const status = text(ready, "status");
  if (status !== "True") {
    return { tone: "bad", state: status === "False" ? "NotReady" : "Unknown", reason: text(ready, "message") };
  }
  const pressure = array(node, "status", "conditions").find((it) => text(it, "type") !== "Ready" && text(it, "status") === "True");
  if (pressure) return { tone: "bad", state: text(pressure, "type"), reason: text(pressure, "message") };
  if (at(node, "spec", "unschedulable") === true) return { tone: "busy", state: "SchedulingDisabled", reason: "" };
  return { tone: "good", state: "Ready", reason: "" };
}

export function condition(object: unknown, type: string): unknown {
  return array(object, "status", "conditions").find((it) => text(it, "type") === type);
}

/** Returns the restarts of all containers of a pod. */
export function restarts(pod: unknown): number {
  return array(pod, "status", "containerStatuses").reduce<number>((sum, status) => sum + number(status, "restartCount"), 0);
}

/** Returns the tone of a word in a table cell. */
export function toneOfWord(word: string): Tone | undefined {
  if (/^(Running|Ready|Active|Bound|Available|Complete|True|Established)$/.test(word)) return "good";
  if (/^(Pending|ContainerCreating|Terminating|PodInitializing|Init:\d+\/\d+|NotReady|Ready,SchedulingDisabled)$/.test(word)) {
    return word === "NotReady" ? "bad" : "busy";
  }
  if (/^(Completed|Succeeded|Suspended)$/.test(word)) return "idle";
  if (/(BackOff|Error|Err[A-Z]\w+|Failed|Evicted|OOMKilled|Lost|NotReady|Invalid\w*)/.test(word)) return "bad";
  return undefined;
}
