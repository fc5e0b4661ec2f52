// The overview of an object: the fields of its kind, then labels and conditions.

import type { ComponentChildren } from "preact";

import { NODES, PODS, POD_METRICS, REPLICASETS, SLICES, path } from "../../api/resources";
import type { KubeObject } from "../../api/types";
import { api } from "../../api/client";
import { t } from "../../i18n";
import { useLive } from "../../live/watch";
import { nodeHealth, podHealth } from "../../model/health";
import { bytes, cores, duration, quantity } from "../../model/quantity";
import { array, at, map, number, text } from "../../model/value";
import { now, objectLink } from "../../state";
import { Age, Badge, Card, Facts, Labels } from "../../ui/basics";
import { explanation } from "../overview";
import { RollbackButton } from "./actions";
import type { TabProps } from "./index";
import { useEffect, useState } from "preact/hooks";

/** Overviews by `group/plural`. Other types have the common part only. */
const BY_TYPE: Record<string, (props: TabProps) => ComponentChildren> = {
  "/pods": PodOverview,
  "/services": ServiceOverview,
  "/nodes": NodeOverview,
  "/persistentvolumeclaims": ClaimOverview,
  "apps/deployments": DeploymentOverview,
  "batch/jobs": JobOverview,
};

const HIDDEN_ANNOTATIONS = ["kubectl.kubernetes.io/last-applied-configuration"];

export function OverviewTab({ type, object }: TabProps) {
  const Own = BY_TYPE[`${type.group}/${type.plural}`];
  const annotations = Object.fromEntries(Object.entries(object.metadata.annotations ?? {}).filter(([key]) => !HIDDEN_ANNOTATIONS.includes(key)));
  return (
    <div class="cards">
      {Own && <Own type={type} object={object} />}
      <Card title={t("object.details")}>
        <Facts
          rows={[
            [t("object.labels"), <Labels labels={object.metadata.labels ?? {}} />],
            [t("object.annotations"), <Labels labels={annotations} />],
          ]}
        />
      </Card>
      <Conditions object={object} />
    </div>
  );
}

function Conditions({ object }: { object: KubeObject }) {
  const conditions = array(object, "status", "conditions");
  if (conditions.length === 0) return null;
  return (
    <Card title={t("object.conditions")} wide>
      <div class="scroll">
        <table class="conditions">
          <thead>
            <tr><th scope="col">{t("object.type")}</th><th scope="col">{t("object.status")}</th><th scope="col">{t("object.since")}</th><th scope="col">{t("object.reason")}</th><th scope="col">{t("object.message")}</th></tr>
          </thead>
          <tbody>
            {conditions.map((it) => (
              <tr key={text(it, "type")}>
                <th scope="row">{text(it, "type")}</th>
                <td>{text(it, "status")}</td>
                <td><Age since={text(it, "lastTransitionTime")} /></td>
                <td>{text(it, "reason")}</td>
                <td>{text(it, "message")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

interface ContainerUsage {
  cpu: number;
  memory: number;
}

/** Reads the usage of a pod's containers every 15 seconds. */
function useContainerUsage(pod: KubeObject): Map<string, ContainerUsage> {
  const [usage, setUsage] = useState(new Map<string, ContainerUsage>());
  const { namespace = "", name } = pod.metadata;
  useEffect(() => {
    const controller = new AbortController();
    const read = () =>
      api<KubeObject>(path(POD_METRICS, namespace, name), { signal: controller.signal }).then(
        (metrics) => setUsage(new Map(array(metrics, "containers").map((it) => [text(it, "name"), { cpu: quantity(text(it, "usage", "cpu")), memory: quantity(text(it, "usage", "memory")) }]))),
        () => undefined,
      );
    void read();
    const timer = setInterval(() => document.visibilityState === "visible" && void read(), 15_000);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, [namespace, name]);
  return usage;
}

function PodOverview({ object }: TabProps) {
  const health = podHealth(object);
  const node = text(object, "spec", "nodeName");
  const usage = useContainerUsage(object);
  const container = (spec: unknown, isInit: boolean) => ({ spec, isInit });
  const containers = [
    ...array(object, "spec", "initContainers").map((spec) => container(spec, true)),
    ...array(object, "spec", "containers").map((spec) => container(spec, false)),
  ];
  return (
    <>
      {health.tone === "bad" && (
        <div class="problem wide" role="status">
          <div><strong>{explanation(health)}</strong>{health.reason && <p>{health.reason}</p>}</div>
        </div>
      )}
      <Card title={t("object.status")}>
        <Facts
          rows={[
            [t("pod.state"), <Badge tone={health.tone}>{health.state}</Badge>],
            [t("pod.node"), node && <a href={objectLink(NODES, "", node)}>{node}</a>],
            [t("pod.ip"), array(object, "status", "podIPs").map((it) => text(it, "ip")).join(", ")],
            [t("pod.serviceAccount"), text(object, "spec", "serviceAccountName")],
            [t("pod.qos"), text(object, "status", "qosClass")],
          ]}
        />
      </Card>
      <Card title={t("pod.containers")} wide>
        <ul class="containers">
          {containers.map(({ spec, isInit }) => <Container key={text(spec, "name")} pod={object} spec={spec} isInit={isInit} usage={usage.get(text(spec, "name"))} />)}
        </ul>
      </Card>
    </>
  );
}

function Container({ pod, spec, isInit, usage }: { pod: KubeObject; spec: unknown; isInit: boolean; usage: ContainerUsage | undefined }) {
  const name = text(spec, "name");
  const status = array(pod, "status", isInit ? "initContainerStatuses" : "containerStatuses").find((it) => text(it, "name") === name);
  const state = ["running", "waiting", "terminated"].find((it) => at(status, "state", it) !== undefined) ?? "waiting";
  const reason = text(status, "state", state, "reason");
  const code = number(status, "state", "terminated", "exitCode");
  const tone = state === "running" ? (at(status, "ready") === true || isInit ? "good" : "busy") : state === "terminated" && code === 0 ? "idle" : state === "terminated" || /BackOff|Err/.test(reason) ? "bad" : "busy";
  const last = at(status, "lastState", "terminated");
  const resources = (of: string) => Object.entries(map(spec, "resources", of)).map(([key, value]) => `${key} ${value}`).join(", ");
  const ports = array(spec, "ports").map((port) => `${text(port, "name") ? `${text(port, "name")} ` : ""}${text(port, "containerPort")}${text(port, "hostPort") ? ` → ${text(port, "hostPort")}` : ""}/${text(port, "protocol") || "TCP"}`);
  return (
    <li>
      <h3>{name} {isInit && <span class="quiet">({t("pod.init")})</span>} <Badge tone={tone}>{reason || state}</Badge></h3>
      <Facts
        rows={[
          [t("pod.image"), text(spec, "image")],
          [t("pod.ports"), ports.join(", ")],
          [t("pod.restarts"), String(number(status, "restartCount"))],
          [t("pod.lastExit"), last !== undefined && t("pod.exit", { reason: text(last, "reason") || "Error", code: number(last, "exitCode"), age: duration(now.value - Date.parse(text(last, "finishedAt"))) })],
          [t("object.message"), text(status, "state", state, "message")],
          [t("pod.requests"), resources("requests")],
          [t("pod.limits"), resources("limits")],
          [t("pod.usage"), usage && `CPU ${cores(usage.cpu)}, ${t("overview.memory")} ${bytes(usage.memory)}`],
        ]}
      />
    </li>
  );
}

export const REVISION = "deployment.kubernetes.io/revision";

function DeploymentOverview({ object }: TabProps) {
  const ns = object.metadata.namespace ?? "";
  const sets = useLive({ resource: REPLICASETS, namespace: ns }).value;
  const own = [...sets.items.values()]
    .map((item) => item.object)
    .filter((set) => set.metadata.ownerReferences?.some((owner) => owner.uid === object.metadata.uid))
    .sort((a, b) => Number(b.metadata.annotations?.[REVISION] ?? 0) - Number(a.metadata.annotations?.[REVISION] ?? 0));
  const current = object.metadata.annotations?.[REVISION];
  const images = (it: KubeObject) => array(it, "spec", "template", "spec", "containers").map((container) => text(container, "image")).join(", ");
  const [ready, total] = [number(object, "status", "readyReplicas"), number(object, "spec", "replicas")];
  return (
    <>
      <Card title={t("deployment.replicas")}>
        <p class="big">{ready} <small>/ {total}</small></p>
        <Facts
          rows={[
            [t("deployment.updated"), String(number(object, "status", "updatedReplicas"))],
            [t("deployment.available"), String(number(object, "status", "availableReplicas"))],
            [t("deployment.strategy"), text(object, "spec", "strategy", "type")],
            [t("deployment.images"), images(object)],
            [t("service.selector"), <Labels labels={map(object, "spec", "selector", "matchLabels")} />],
            [t("object.status"), at(object, "spec", "paused") === true && <Badge tone="busy">{t("deployment.paused")}</Badge>],
          ]}
        />
      </Card>
      <Card title={t("deployment.revisions")} wide>
        <ul class="lines">
          {own.map((set) => {
            const revision = set.metadata.annotations?.[REVISION] ?? "";
            return (
              <li key={set.metadata.uid}>
                <span><b>{t("deployment.revision", { n: revision })}</b> <a href={objectLink(REPLICASETS, ns, set.metadata.name)}>{set.metadata.name}</a> <span class="quiet">{images(set)}</span></span>
                <span>
                  <Badge tone={number(set, "spec", "replicas") > 0 ? "good" : "idle"}>{number(set, "status", "readyReplicas")}/{number(set, "spec", "replicas")}</Badge>{" "}
                  {revision === current ? <span class="quiet">{t("deployment.current")}</span> : <RollbackButton deployment={object} set={set} revision={revision} />}
                </span>
              </li>
            );
          })}
        </ul>
      </Card>
    </>
  );
}

function ServiceOverview({ object }: TabProps) {
  const ns = object.metadata.namespace ?? "";
  const slices = useLive({ resource: SLICES, namespace: ns, labelSelector: `kubernetes.io/service-name=${object.metadata.name}` }).value;
  const endpoints = [...slices.items.values()].flatMap(({ object: slice }) => array(slice, "endpoints").map((endpoint) => ({ endpoint, ports: array(slice, "ports") })));
  const ingress = array(object, "status", "loadBalancer", "ingress").map((it) => text(it, "ip") || text(it, "hostname"));
  const ports = array(object, "spec", "ports").map((port) => `${text(port, "name") ? `${text(port, "name")} ` : ""}${text(port, "port")} → ${text(port, "targetPort")}${number(port, "nodePort") ? ` (${text(port, "nodePort")})` : ""}/${text(port, "protocol")}`);
  return (
    <>
      <Card title={t("object.status")}>
        <Facts
          rows={[
            [t("service.type"), text(object, "spec", "type")],
            [t("service.clusterIP"), array(object, "spec", "clusterIPs").join(", ") || text(object, "spec", "externalName")],
            [t("service.external"), [...ingress, ...array(object, "spec", "externalIPs")].join(", ")],
            [t("service.ports"), ports.join(", ")],
            [t("service.selector"), <Labels labels={map(object, "spec", "selector")} />],
          ]}
        />
      </Card>
      <Card title={t("service.endpoints")}>
        <ul class="lines">
          {endpoints.map(({ endpoint, ports: numbers }, index) => {
            const isReady = at(endpoint, "conditions", "ready") !== false;
            const pod = text(endpoint, "targetRef", "name");
            return (
              <li key={index}>
                <span>{array(endpoint, "addresses").join(", ")}:{numbers.map((port) => text(port, "port")).join(",")} {pod && <a href={objectLink(PODS, ns, pod)}>{pod}</a>}</span>
                <Badge tone={isReady ? "good" : "busy"}>{t(isReady ? "service.ready" : "service.notReady")}</Badge>
              </li>
            );
          })}
          {endpoints.length === 0 && <li class="quiet">{t("app.none")}</li>}
        </ul>
      </Card>
    </>
  );
}

function NodeOverview({ object }: TabProps) {
  const health = nodeHealth(object);
  const amounts = (of: string) => ["cpu", "memory", "pods", "ephemeral-storage"].map((name) => [name, text(object, "status", of, name)] as const).filter(([, value]) => value)
    .map(([name, value]) => `${name} ${name === "memory" || name === "ephemeral-storage" ? bytes(quantity(value)) : value}`).join(", ");
  return (
    <Card title={t("object.status")}>
      <Facts
        rows={[
          [t("pod.state"), <Badge tone={health.tone}>{health.state}</Badge>],
          [t("node.capacity"), amounts("capacity")],
          [t("node.allocatable"), amounts("allocatable")],
          [t("node.addresses"), array(object, "status", "addresses").map((it) => `${text(it, "address")} (${text(it, "type")})`).join(", ")],
          [t("node.system"), ["kubeletVersion", "containerRuntimeVersion", "osImage", "kernelVersion", "architecture"].map((key) => text(object, "status", "nodeInfo", key)).filter(Boolean).join(" · ")],
          [t("node.taints"), array(object, "spec", "taints").map((it) => `${text(it, "key")}=${text(it, "value")}:${text(it, "effect")}`).join(", ")],
        ]}
      />
    </Card>
  );
}

function JobOverview({ object }: TabProps) {
  const [start, end] = [text(object, "status", "startTime"), text(object, "status", "completionTime")];
  return (
    <Card title={t("object.status")}>
      <Facts
        rows={[
          [t("job.completions"), `${number(object, "status", "succeeded")} / ${at(object, "spec", "completions") ?? "–"}`],
          [t("job.active"), String(number(object, "status", "active"))],
          [t("job.failed"), String(number(object, "status", "failed"))],
          [t("job.duration"), start && duration((end ? Date.parse(end) : now.value) - Date.parse(start))],
        ]}
      />
    </Card>
  );
}

function ClaimOverview({ object }: TabProps) {
  const ns = object.metadata.namespace ?? "";
  const pods = useLive({ resource: PODS, namespace: ns }).value;
  const users = [...pods.items.values()].map((item) => item.object).filter((pod) => array(pod, "spec", "volumes").some((volume) => text(volume, "persistentVolumeClaim", "claimName") === object.metadata.name));
  const phase = text(object, "status", "phase");
  return (
    <Card title={t("object.status")}>
      <Facts
        rows={[
          [t("pod.state"), <Badge tone={phase === "Bound" ? "good" : phase === "Lost" ? "bad" : "busy"}>{phase}</Badge>],
          [t("claim.volume"), text(object, "spec", "volumeName")],
          [t("claim.class"), text(object, "spec", "storageClassName")],
          [t("claim.capacity"), text(object, "status", "capacity", "storage") || text(object, "spec", "resources", "requests", "storage")],
          [t("claim.access"), array(object, "spec", "accessModes").join(", ")],
          [t("claim.usedBy"), users.length > 0 && users.map((pod) => <a key={pod.metadata.uid} href={objectLink(PODS, ns, pod.metadata.name)}>{pod.metadata.name} </a>)],
        ]}
      />
    </Card>
  );
}

