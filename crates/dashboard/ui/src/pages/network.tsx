// The network of a namespace as a diagram: Services and outside peers on the left, pods on the right.

import { useMemo } from "preact/hooks";

import { INGRESSES, NAMESPACES, PODS, POLICIES, SERVICES, fieldIs } from "../api/resources";
import type { KubeObject } from "../api/types";
import { t } from "../i18n";
import { useLive } from "../live/watch";
import { podHealth } from "../model/health";
import { type Edge, type Peer, type Picture, type PodGroup, picture } from "../model/network";
import { namespace, objectLink } from "../state";
import { Card, Loading, Problem } from "../ui/basics";

const BOX_WIDTH = 300;
const BOX_HEIGHT = 64;
const GAP_X = 240;
const GAP_Y = 20;
const MARGIN = 8;

export function NetworkPage() {
  const ns = namespace.value;
  const query = (resource: typeof PODS) => (ns ? { resource, namespace: ns } : undefined);
  const pods = useLive(query(PODS)).value;
  const services = useLive(query(SERVICES)).value;
  const policies = useLive(query(POLICIES)).value;
  const ingresses = useLive(query(INGRESSES)).value;
  const own = useLive(ns ? { resource: NAMESPACES, fieldSelector: fieldIs("metadata.name", ns) } : undefined).value;
  const objects = (live: typeof pods): KubeObject[] => [...live.items.values()].map((item) => item.object);
  const found = useMemo(() => {
    // Users without permission to read the namespace see at least its name.
    const labels = { "kubernetes.io/metadata.name": ns, ...objects(own)[0]?.metadata.labels };
    return picture({ pods: objects(pods), services: objects(services), policies: objects(policies), ingresses: objects(ingresses), labels });
  }, [pods.items, services.items, policies.items, ingresses.items, own.items]);
  const error = pods.error ?? services.error;
  return (
    <div class="page">
      <header class="page-head">
        <h1>{t("network.title")}</h1>
        <p class="quiet">{ns ? `${ns} · ${t("network.hint")}` : t("network.choose")}</p>
      </header>
      {error && <Problem error={error} />}
      {ns && !error && (pods.loaded && services.loaded ? <View found={found} ns={ns} /> : <Loading />)}
    </div>
  );
}

function peerName({ kind, namespaces, pods, block }: Peer): string {
  if (kind === "everyone") return t("network.everyone");
  if (kind === "block") return block;
  return [namespaces ? t("network.namespacesWith", { labels: namespaces }) : t("app.allNamespaces"), pods && t("network.podsWith", { labels: pods })].filter(Boolean).join(", ");
}

/** Returns the name of an end of an edge. */
function nameOf(found: Picture, id: string): string {
  const peer = found.peers.find((it) => it.id === id);
  return peer ? peerName(peer) : id;
}

function View({ found, ns }: { found: Picture; ns: string }) {
  if (found.services.length === 0 && found.groups.length === 0) return <p class="empty">{t("network.empty")}</p>;
  return (
    <>
      <div class="network-scroll" tabIndex={0} role="region" aria-label={t("network.title")}><Drawing found={found} ns={ns} /></div>
      <Card title={t("network.connections")} wide>
        <ul class="lines">
          {found.edges.map((edge, index) => (
            <li key={index}><span><b>{nameOf(found, edge.from)}</b> {t(edge.kind === "route" ? "network.route" : "network.allowed")} <b>{nameOf(found, edge.to)}</b> <span class="quiet">{edge.label}</span></span></li>
          ))}
          {found.edges.length === 0 && <li class="quiet">{t("app.none")}</li>}
        </ul>
      </Card>
    </>
  );
}

function Drawing({ found, ns }: { found: Picture; ns: string }) {
  const y = (index: number) => MARGIN + index * (BOX_HEIGHT + GAP_Y);
  const right = MARGIN + BOX_WIDTH + GAP_X;
  const rows = Math.max(found.services.length + found.peers.length, found.groups.length, 1);
  const serviceAt = new Map(found.services.map((service, index) => [`Service/${service.name}`, index]));
  // Peers outside of the namespace are below the Services.
  const peerAt = new Map(found.peers.map((peer, index) => [peer.id, found.services.length + index]));
  const groupAt = new Map(found.groups.map((group, index) => [group.name, index]));
  const hasAllowed = found.edges.some((edge) => edge.kind === "allowed" && groupAt.has(edge.from) && groupAt.has(edge.to));
  const [width, height] = [right + BOX_WIDTH + (hasAllowed ? 110 : MARGIN), y(rows) - GAP_Y + MARGIN];
  return (
    <svg class="network" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="group" aria-label={t("network.hint")}>
      {found.edges.map((edge, index) => <Line key={index} edge={edge} />)}
      {found.services.map((service, index) => {
        const isUsed = found.edges.some((edge) => edge.from === `Service/${service.name}`);
        const detail = service.ingresses.length > 0 ? t("network.ingressFrom", { names: service.ingresses.join(", ") }) : isUsed ? "" : t("network.headless");
        return (
          <Box key={service.name} x={MARGIN} y={y(index)} kind="service" href={objectLink(SERVICES, ns, service.name)} title={service.name} lines={[`${service.type} · ${service.ports.join(", ")}`, detail]} />
        );
      })}
      {found.peers.map((peer) => (
        <Box key={peer.id} x={MARGIN} y={y(peerAt.get(peer.id)!)} kind="peer" title={peerName(peer)} lines={[t(peer.kind === "block" ? "network.block" : "network.outside")]} />
      ))}
      {found.groups.map((group, index) => (
        <Box key={group.name} x={right} y={y(index)} kind={toneOf(group)} href={objectLink(PODS, ns, group.pods[0]!.metadata.name)} title={group.name} lines={groupLines(group)} />
      ))}
    </svg>
  );

  /** A line between the columns, in the direction of the connection. */
  function Across({ left, group, kind, isReversed, text }: { left: number; group: number; kind: string; isReversed: boolean; text: string }) {
    const [x1, y1, x2, y2] = [MARGIN + BOX_WIDTH, y(left) + BOX_HEIGHT / 2, right, y(group) + BOX_HEIGHT / 2];
    const bend = GAP_X / 2;
    const [start, end] = isReversed ? [x1 + 7, x2] : [x1, x2 - 7];
    return (
      <g class={`edge ${kind}`}>
        <path d={`M${start} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${end} ${y2}`} />
        <path class="arrow" d={isReversed ? `M${x1 + 8} ${y1 - 5}L${x1} ${y1}L${x1 + 8} ${y1 + 5}z` : `M${x2 - 8} ${y2 - 5}L${x2} ${y2}L${x2 - 8} ${y2 + 5}z`} />
        <text x={(x1 + x2) / 2} y={(y1 + y2) / 2 - 6}>{text}</text>
      </g>
    );
  }

  function Line({ edge }: { edge: Edge }) {
    const [from, to] = [groupAt.get(edge.from), groupAt.get(edge.to)];
    const service = serviceAt.get(edge.from);
    const [source, target] = [peerAt.get(edge.from), peerAt.get(edge.to)];
    if (to !== undefined && service !== undefined) return <Across left={service} group={to} kind="route" isReversed={false} text={edge.label} />;
    if (to !== undefined && source !== undefined) return <Across left={source} group={to} kind="allowed" isReversed={false} text={edge.label} />;
    if (from !== undefined && target !== undefined) return <Across left={target} group={from} kind="allowed" isReversed text={edge.label} />;
    if (from === undefined || to === undefined) return null;
    const [x, y1, y2] = [right + BOX_WIDTH, y(from) + BOX_HEIGHT / 2, y(to) + BOX_HEIGHT / 2 + 8];
    return (
      <g class="edge allowed">
        <path d={`M${x} ${y1}C${x + 70} ${y1} ${x + 70} ${y2} ${x + 7} ${y2}`} />
        <path class="arrow" d={`M${x + 8} ${y2 - 5}L${x} ${y2}L${x + 8} ${y2 + 5}z`} />
        <text x={x + 60} y={(y1 + y2) / 2}>{edge.label}</text>
      </g>
    );
  }
}

function readyCount(group: PodGroup): number {
  return group.pods.filter((pod) => podHealth(pod).tone === "good").length;
}

function toneOf(group: PodGroup): string {
  const ready = readyCount(group);
  return ready === group.pods.length ? "good" : group.pods.some((pod) => podHealth(pod).tone === "bad") ? "bad" : "busy";
}

function groupLines(group: PodGroup): string[] {
  const ready = t("network.ready", { n: readyCount(group), total: group.pods.length });
  return [ready, group.policies.length > 0 ? t("network.restricted", { policies: group.policies.join(", ") }) : ""];
}

/** Cuts a text that is longer than its box. */
function fitted(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function Box({ x, y, kind, href, title, lines }: { x: number; y: number; kind: string; href?: string; title: string; lines: string[] }) {
  const content = (
    <>
      <title>{[title, ...lines].filter(Boolean).join("\n")}</title>
      <rect x={x} y={y} width={BOX_WIDTH} height={BOX_HEIGHT} rx="8" />
      <rect class="edge-mark" x={x} y={y} width="5" height={BOX_HEIGHT} rx="2.5" />
      <text class="box-title" x={x + 16} y={y + 23}>{fitted(title, 36)}</text>
      {lines.map((line, index) => <text key={index} class="box-line" x={x + 16} y={y + 40 + index * 15}>{fitted(line, 46)}</text>)}
    </>
  );
  return href ? <a class={`box ${kind}`} href={href}>{content}</a> : <g class={`box ${kind}`}>{content}</g>;
}
