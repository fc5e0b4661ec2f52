// The cluster at a glance: nodes with usage, pods by state, problems with their reasons, recent warnings.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { ApiError, api } from "../api/client";
import { DEPLOYMENTS, EVENTS, NODES, NODE_METRICS, PODS, path } from "../api/resources";
import type { KubeObject, List } from "../api/types";
import { type MessageKey, t } from "../i18n";
import { useLive } from "../live/watch";
import { EXPLAINED, type Health, nodeHealth, podHealth } from "../model/health";
import { bytes, cores, quantity } from "../model/quantity";
import { number, text } from "../model/value";
import { namespace, objectLink, tableLink, types } from "../state";
import { Age, Badge, Card, Loading, Meter, Problem, Sparkline } from "../ui/basics";

const METRICS_MS = 15_000;
const HISTORY_MAX = 40;
const PROBLEMS_MAX = 30;
const WARNINGS_MAX = 12;

interface Usage {
  /** Usage by node: cores and bytes. */
  nodes: Map<string, { cpu: number; memory: number }>;
  /** The reason why there are no values. */
  problem?: "missing" | "forbidden";
}

const usage = signal<Usage | undefined>(undefined);
/** Sums of past usages, for the chart. They are kept while another page is shown. */
const history = signal<{ cpu: number; memory: number }[]>([]);

/** The metrics API has no watch: its values change only when the metrics server scrapes kubelets. */
function useUsage(): Usage | undefined {
  useEffect(() => {
    const controller = new AbortController();
    const read = async () => {
      if (document.visibilityState === "hidden") return;
      try {
        const list = await api<List<KubeObject>>(path(NODE_METRICS), { signal: controller.signal });
        const nodes = new Map(list.items.map((item) => [
          item.metadata.name,
          { cpu: quantity(text(item, "usage", "cpu")), memory: quantity(text(item, "usage", "memory")) },
        ]));
        const sum = (of: "cpu" | "memory") => [...nodes.values()].reduce((total, node) => total + node[of], 0);
        // The metrics server has not scraped the kubelets yet.
        if (nodes.size === 0) return;
        usage.value = { nodes };
        history.value = [...history.value.slice(1 - HISTORY_MAX), { cpu: sum("cpu"), memory: sum("memory") }];
      } catch (error) {
        const problem = error instanceof ApiError && error.isForbidden ? "forbidden" : "missing";
        if (!controller.signal.aborted) usage.value = { nodes: new Map(), problem };
      }
    };
    void read();
    const timer = setInterval(() => void read(), METRICS_MS);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, []);
  return usage.value;
}

export function Overview() {
  const ns = namespace.value;
  const nodes = useLive({ resource: NODES }).value;
  const pods = useLive({ resource: PODS, namespace: ns }).value;
  const deployments = useLive({ resource: DEPLOYMENTS, namespace: ns }).value;
  const warnings = useLive({ resource: EVENTS, namespace: ns, fieldSelector: "type=Warning" }).value;
  const used = useUsage();
  const [nodeItems, podItems, deploymentItems, events] = [nodes, pods, deployments, warnings].map((live) => [...live.items.values()].map((item) => item.object)) as [KubeObject[], KubeObject[], KubeObject[], KubeObject[]];
  return (
    <div class="page">
      <header class="page-head">
        <h1>{t("overview.title")}</h1>
        <p class="quiet">{ns || t("app.allNamespaces")}</p>
      </header>
      <div class="cards">
        <PodStates pods={podItems} loaded={pods.loaded} error={pods.error} />
        <Workloads deployments={deploymentItems} error={deployments.loaded ? undefined : deployments.error} />
        <ClusterUsage nodes={nodeItems} used={used} />
        {!(pods.error && !pods.loaded) && <Problems pods={podItems} nodes={nodeItems} loaded={pods.loaded} />}
        <Card title={t("overview.nodes")} wide>
          {nodes.error ? <Problem error={nodes.error} /> : nodeItems.length === 0 && !nodes.loaded ? <Loading /> : <Nodes nodes={nodeItems} used={used} />}
          {used?.problem === "missing" && <p class="quiet">{t("overview.noMetrics")}</p>}
        </Card>
        <Card title={t("overview.warnings")} wide>
          {warnings.error ? <Problem error={warnings.error} /> : <Warnings events={events} loaded={warnings.loaded} />}
        </Card>
      </div>
    </div>
  );
}

const STATES = [
  ["good", "overview.running"],
  ["busy", "overview.pending"],
  ["bad", "overview.failed"],
  ["idle", "overview.completed"],
] as const;

function PodStates({ pods, loaded, error }: { pods: KubeObject[]; loaded: boolean; error: Error | undefined }) {
  const counts = { good: 0, busy: 0, bad: 0, idle: 0 };
  for (const pod of pods) counts[podHealth(pod).tone] += 1;
  let offset = 25;
  const total = Math.max(1, pods.length);
  return (
    <Card title={t("overview.pods")}>
      {error && !loaded ? <Problem error={error} /> : (
        <a class="donut" href={tableLink(PODS)}>
          <svg viewBox="0 0 42 42" role="img" aria-label={STATES.map(([tone, key]) => `${t(key)}: ${counts[tone]}`).join(", ")}>
            <circle class="track" cx="21" cy="21" r="15.9" />
            {STATES.map(([tone]) => {
              const share = (counts[tone] / total) * 100;
              const circle = share > 0 && <circle key={tone} class={tone} cx="21" cy="21" r="15.9" stroke-dasharray={`${share} ${100 - share}`} stroke-dashoffset={offset} />;
              offset -= share;
              return circle;
            })}
            <text x="21" y="21">{pods.length}</text>
          </svg>
          <ul>
            {STATES.map(([tone, key]) => <li key={tone}><span class={`dot ${tone}`} />{t(key)} <b>{counts[tone]}</b></li>)}
          </ul>
        </a>
      )}
    </Card>
  );
}

function Workloads({ deployments, error }: { deployments: KubeObject[]; error: Error | undefined }) {
  const shown = deployments
    .map((it) => ({ it, ready: number(it, "status", "readyReplicas"), wanted: number(it, "spec", "replicas") }))
    .sort((a, b) => a.ready / Math.max(1, a.wanted) - b.ready / Math.max(1, b.wanted) || a.it.metadata.name.localeCompare(b.it.metadata.name));
  return (
    <Card title={t("overview.workloads")}>
      {error && <Problem error={error} />}
      <ul class="lines">
        {shown.slice(0, 6).map(({ it, ready, wanted }) => (
          <li key={it.metadata.uid}>
            <a href={objectLink(DEPLOYMENTS, it.metadata.namespace ?? "", it.metadata.name)}>{it.metadata.name}</a>
            <Badge tone={ready >= wanted ? "good" : "busy"}>{ready}/{wanted}</Badge>
          </li>
        ))}
        {shown.length > 6 && <li><a href={tableLink(DEPLOYMENTS)}>{t("app.more", { n: shown.length - 6 })}</a></li>}
        {shown.length === 0 && !error && <li class="quiet">{t("app.none")}</li>}
      </ul>
    </Card>
  );
}

function ClusterUsage({ nodes, used }: { nodes: KubeObject[]; used: Usage | undefined }) {
  const capacity = (of: string) => nodes.reduce((sum, node) => sum + quantity(text(node, "status", "allocatable", of)), 0);
  const [cpu, memory] = [capacity("cpu"), capacity("memory")];
  const last = history.value.at(-1);
  return (
    <Card title={t("overview.usage")}>
      {used && !used.problem && last ? (
        <div class="usage">
          <div>
            <h3>{t("overview.cpu")}</h3>
            <p class="big">{cores(last.cpu)} <small>{t("overview.ofCores", { n: cores(cpu) })}</small></p>
            <Sparkline points={history.value.map((it) => it.cpu / Math.max(cpu, 1e-9))} label={t("overview.cpu")} />
          </div>
          <div>
            <h3>{t("overview.memory")}</h3>
            <p class="big">{bytes(last.memory)} <small>{t("overview.ofBytes", { n: bytes(memory) })}</small></p>
            <Sparkline points={history.value.map((it) => it.memory / Math.max(memory, 1))} label={t("overview.memory")} />
          </div>
        </div>
      ) : used?.problem ? <p class="quiet">{t(used.problem === "missing" ? "overview.noMetrics" : "app.forbidden")}</p> : <Loading />}
    </Card>
  );
}

function Nodes({ nodes, used }: { nodes: KubeObject[]; used: Usage | undefined }) {
  const shown = [...nodes].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name)).slice(0, 50);
  return (
    <ul class="nodes">
      {shown.map((node) => {
        const health = nodeHealth(node);
        const now = used?.nodes.get(node.metadata.name);
        const [cpu, memory] = [quantity(text(node, "status", "allocatable", "cpu")), quantity(text(node, "status", "allocatable", "memory"))];
        return (
          <li key={node.metadata.uid}>
            <div><a href={objectLink(NODES, "", node.metadata.name)}>{node.metadata.name}</a> <Badge tone={health.tone}>{health.state}</Badge></div>
            {now && <Meter label={t("overview.cpu")} value={now.cpu} of={cpu} text={`${t("overview.cpu")} ${cores(now.cpu)} / ${cores(cpu)}`} />}
            {now && <Meter label={t("overview.memory")} value={now.memory} of={memory} text={`${t("overview.memory")} ${bytes(now.memory)} / ${bytes(memory)}`} />}
          </li>
        );
      })}
      {nodes.length > shown.length && <li><a href={tableLink(NODES)}>{t("app.more", { n: nodes.length - shown.length })}</a></li>}
    </ul>
  );
}

/** Returns the explanation of a state, if there is one. */
export function explanation(health: Health): string {
  const known = (EXPLAINED as readonly string[]).includes(health.state);
  return known ? t(`why.${health.state}` as MessageKey) : health.state;
}

function Problems({ pods, nodes, loaded }: { pods: KubeObject[]; nodes: KubeObject[]; loaded: boolean }) {
  const found = [
    ...nodes.map((object) => ({ object, type: NODES, health: nodeHealth(object) })),
    ...pods.map((object) => ({ object, type: PODS, health: podHealth(object) })),
  ].filter(({ health }) => health.tone === "bad");
  return (
    <Card title={t("overview.problems")} wide>
      {found.length === 0 && (loaded ? <p class="fine">{t("overview.noProblems")}</p> : <Loading />)}
      <ul class="problems">
        {found.slice(0, PROBLEMS_MAX).map(({ object, type, health }) => (
          <li key={object.metadata.uid}>
            <div>
              <a href={objectLink(type, object.metadata.namespace ?? "", object.metadata.name)}>{type.kind}/{object.metadata.name}</a>
              <Badge tone="bad">{health.state}</Badge>
            </div>
            <p><strong>{explanation(health)}</strong>{health.reason && <>: <span class="reason">{health.reason}</span></>}</p>
          </li>
        ))}
        {found.length > PROBLEMS_MAX && <li class="quiet">{t("app.more", { n: found.length - PROBLEMS_MAX })}</li>}
      </ul>
    </Card>
  );
}

export function eventTime(event: KubeObject): string {
  return text(event, "series", "lastObservedTime") || text(event, "lastTimestamp") || text(event, "eventTime") || event.metadata.creationTimestamp || "";
}

export function eventCount(event: KubeObject): number {
  return number(event, "series", "count") || number(event, "count") || 1;
}

function Warnings({ events, loaded }: { events: KubeObject[]; loaded: boolean }) {
  const shown = [...events].sort((a, b) => eventTime(b).localeCompare(eventTime(a))).slice(0, WARNINGS_MAX);
  if (shown.length === 0) return loaded ? <p class="fine">{t("overview.noWarnings")}</p> : <Loading />;
  return (
    <ul class="events">
      {shown.map((event) => {
        const [kind, name] = [text(event, "involvedObject", "kind"), text(event, "involvedObject", "name")];
        const type = types.value.find((it) => it.kind === kind && (text(event, "involvedObject", "apiVersion").split("/")[0] === it.group || it.group === ""));
        const label = `${kind}/${name}`;
        return (
          <li key={event.metadata.uid}>
            <Age since={eventTime(event)} />
            <b>{text(event, "reason")}</b>
            {type ? <a href={objectLink(type, text(event, "involvedObject", "namespace"), name)}>{label}</a> : <span>{label}</span>}
            <p>{text(event, "message")}{eventCount(event) > 1 && <span class="quiet"> ({t("overview.times", { n: eventCount(event) })})</span>}</p>
          </li>
        );
      })}
    </ul>
  );
}
