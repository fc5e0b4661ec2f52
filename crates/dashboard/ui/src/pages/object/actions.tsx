// Actions on an object, each with a dialog that names what will happen.

import { useState } from "preact/hooks";

import { type DrainOptions, evict, planDrain, podsOf, remove, restart, rollBack, scale, setPaused, setSuspended, setUnschedulable } from "../../api/actions";
import type { KubeObject, Resource } from "../../api/types";
import { t } from "../../i18n";
import { at, number } from "../../model/value";
import { go, messageOf, notify, tableLink } from "../../state";
import { Dialog, Menu, type MenuItem } from "../../ui/basics";
import type { TabProps } from "./index";

const SCALABLE = ["deployments", "statefulsets", "replicasets"];
const RESTARTABLE = ["deployments", "statefulsets", "daemonsets"];
const DRAIN_RETRY_MS = 5000;
const DRAIN_POLL_MS = 1000;

type Open = "scale" | "restart" | "drain" | "delete" | undefined;

/** Runs an action and reports its result. Returns whether it succeeded. */
async function attempt(name: string, run: () => Promise<unknown>): Promise<boolean> {
  try {
    await run();
    notify("good", t("action.done", { action: name }));
    return true;
  } catch (error) {
    notify("bad", t("action.failed", { action: name, message: messageOf(error) }));
    return false;
  }
}

export function Actions({ type, object }: TabProps) {
  const [open, setOpen] = useState<Open>();
  const close = () => setOpen(undefined);
  const isApps = type.group === "apps";
  const items: MenuItem[] = [];
  const add = (label: string, run: () => void, danger = false) => items.push({ label, run, danger });
  if (isApps && SCALABLE.includes(type.plural)) add(t("action.scale"), () => setOpen("scale"));
  if (isApps && RESTARTABLE.includes(type.plural)) add(t("action.restart"), () => setOpen("restart"));
  if (isApps && type.plural === "deployments") {
    const paused = at(object, "spec", "paused") === true;
    const name = t(paused ? "action.resume" : "action.pause");
    add(name, () => void attempt(name, () => setPaused(object, !paused)));
  }
  if (type.group === "batch" && type.plural === "cronjobs") {
    const suspended = at(object, "spec", "suspend") === true;
    const name = t(suspended ? "action.unsuspend" : "action.suspend");
    add(name, () => void attempt(name, () => setSuspended(object, !suspended)));
  }
  if (type.group === "" && type.plural === "nodes") {
    const cordoned = at(object, "spec", "unschedulable") === true;
    const name = t(cordoned ? "action.uncordon" : "action.cordon");
    add(name, () => void attempt(name, () => setUnschedulable(object, !cordoned)));
    add(t("action.drain"), () => setOpen("drain"), true);
  }
  add(t("action.delete"), () => setOpen("delete"), true);
  return (
    <>
      <Menu label={t("action.menu")} icon="down" items={items} />
      {open === "scale" && <ScaleDialog type={type} object={object} onClose={close} />}
      {open === "restart" && <RestartDialog type={type} object={object} onClose={close} />}
      {open === "drain" && <DrainDialog node={object} onClose={close} />}
      {open === "delete" && <DeleteDialog type={type} object={object} onClose={close} />}
    </>
  );
}

function Buttons({ label, danger, disabled, onRun, onClose }: { label: string; danger?: boolean; disabled?: boolean; onRun: () => void; onClose: () => void }) {
  return (
    <>
      <button type="button" class="button" onClick={onClose}>{t("app.cancel")}</button>
      <button type="button" class={danger ? "button danger" : "button primary"} disabled={disabled ?? false} onClick={onRun}>{label}</button>
    </>
  );
}

interface DialogProps {
  type: Resource;
  object: KubeObject;
  onClose: () => void;
}

function ScaleDialog({ type, object, onClose }: DialogProps) {
  const [replicas, setReplicas] = useState(String(number(object, "spec", "replicas")));
  const isValid = /^\d{1,5}$/.test(replicas);
  const run = async () => {
    if (await attempt(t("action.scale"), () => scale(type, object, Number(replicas)))) onClose();
  };
  return (
    <Dialog title={`${t("action.scale")} ${object.metadata.name}`} onClose={onClose} actions={<Buttons label={t("action.scale")} disabled={!isValid} onRun={() => void run()} onClose={onClose} />}>
      <form onSubmit={(event) => { event.preventDefault(); if (isValid) void run(); }}>
        <label class="field">
          <span>{t("action.scaleHint")}</span>
          <input type="number" min="0" step="1" inputMode="numeric" value={replicas} onInput={(event) => setReplicas(event.currentTarget.value)} />
        </label>
      </form>
    </Dialog>
  );
}

function RestartDialog({ type, object, onClose }: DialogProps) {
  const run = async () => {
    if (await attempt(t("action.restart"), () => restart(type, object))) onClose();
  };
  return (
    <Dialog title={`${t("action.restart")} ${object.metadata.name}`} onClose={onClose} actions={<Buttons label={t("action.restart")} onRun={() => void run()} onClose={onClose} />}>
      <p>{t("action.restartHint")}</p>
    </Dialog>
  );
}

export function RollbackButton({ deployment, set, revision }: { deployment: KubeObject; set: KubeObject; revision: string }) {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  const run = async () => {
    if (await attempt(t("action.rollback"), () => rollBack(deployment, set))) close();
  };
  return (
    <>
      <button type="button" class="link" onClick={() => setOpen(true)}>{t("action.rollback")}</button>
      {isOpen && (
        <Dialog title={t("action.rollback")} onClose={close} actions={<Buttons label={t("action.rollback")} onRun={() => void run()} onClose={close} />}>
          <p>{t("action.rollbackHint", { n: revision })}</p>
        </Dialog>
      )}
    </>
  );
}

function DeleteDialog({ type, object, onClose }: DialogProps) {
  const [typed, setTyped] = useState("");
  const { name } = object.metadata;
  // Deleting one of these also deletes the objects in it.
  const mustType = ["namespaces", "nodes", "customresourcedefinitions", "persistentvolumes", "persistentvolumeclaims"].includes(type.plural);
  const run = async () => {
    if (!(await attempt(t("action.delete"), () => remove(type, object)))) return;
    onClose();
    go(tableLink(type));
  };
  return (
    <Dialog
      title={`${t("action.delete")} ${type.kind}/${name}`}
      onClose={onClose}
      actions={<Buttons label={t("action.delete")} danger disabled={mustType && typed !== name} onRun={() => void run()} onClose={onClose} />}
    >
      <p>{t("action.deleteHint", { kind: type.kind, name })}</p>
      {mustType && (
        <label class="field">
          <span>{t("action.deleteType")}</span>
          <input autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      )}
    </Dialog>
  );
}

function DrainDialog({ node, onClose }: { node: KubeObject; onClose: () => void }) {
  const [options, setOptions] = useState<DrainOptions>({ local: false, force: false });
  const [lines, setLines] = useState<string[]>([]);
  const [isRunning, setRunning] = useState(false);
  const run = async () => {
    setRunning(true);
    try {
      await drain(node, options, setLines);
    } catch (error) {
      setLines((before) => [...before, t("action.failed", { action: t("action.drain"), message: messageOf(error) })]);
    }
    setRunning(false);
  };
  return (
    <Dialog title={`${t("action.drain")} ${node.metadata.name}`} onClose={onClose} actions={<Buttons label={t("action.drain")} danger disabled={isRunning} onRun={() => void run()} onClose={onClose} />}>
      <p>{t("action.drainHint")}</p>
      <label class="check"><input type="checkbox" checked={options.local} disabled={isRunning} onChange={(event) => setOptions({ ...options, local: event.currentTarget.checked })} /> {t("action.drainLocal")}</label>
      <label class="check"><input type="checkbox" checked={options.force} disabled={isRunning} onChange={(event) => setOptions({ ...options, force: event.currentTarget.checked })} /> {t("action.drainForce")}</label>
      <div role="status"><ul class="lines">{lines.map((line) => <li key={line}>{line}</li>)}</ul></div>
    </Dialog>
  );
}

const REFUSED = { local: "action.drainLocalData", owner: "action.drainNoOwner" } as const;

/**
 * Cordons a node, evicts its pods and waits until they have terminated. Evictions that a disruption budget delays are
 * retried.
 */
async function drain(node: KubeObject, options: DrainOptions, onProgress: (lines: string[]) => void): Promise<void> {
  const plan = planDrain(await podsOf(node.metadata.name), options);
  const refused = plan.refused.map(({ pod, reason }) => t("action.drainRefused", { name: pod.metadata.name, reason: t(REFUSED[reason]) }));
  // A drain that cannot succeed changes nothing.
  if (refused.length > 0) return onProgress(refused);
  await setUnschedulable(node, true);
  const total = plan.evict.length;
  let left = plan.evict;
  while (left.length > 0) {
    const waiting: KubeObject[] = [];
    const messages: string[] = [];
    for (const pod of left) {
      const message = await evict(pod);
      if (message === undefined) continue;
      waiting.push(pod);
      messages.push(t("action.drainWaiting", { name: pod.metadata.name, message }));
    }
    left = waiting;
    onProgress([t("action.drainProgress", { n: total - left.length, total }), ...messages]);
    if (left.length > 0) await new Promise((resolve) => setTimeout(resolve, DRAIN_RETRY_MS));
  }
  const evicted = new Set(plan.evict.map((pod) => pod.metadata.uid));
  for (;;) {
    const ending = (await podsOf(node.metadata.name)).filter((pod) => evicted.has(pod.metadata.uid)).length;
    if (ending === 0) break;
    onProgress([t("action.drainEnding", { n: ending })]);
    await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
  }
  onProgress([t("action.drainDone")]);
}
