// The page of one object: its tabs and actions.

import { NODES, PODS, fieldIs, path } from "../../api/resources";
import type { KubeObject, Resource } from "../../api/types";
import { type MessageKey, t } from "../../i18n";
import { useLive } from "../../live/watch";
import { nodeHealth, podHealth } from "../../model/health";
import { objectLink, tableLink } from "../../state";
import { Age, Badge, Loading, Problem, Tabs } from "../../ui/basics";
import { lazy } from "../../ui/lazy";
import { pluralKind } from "../../ui/shell";
import { TableView } from "../table";
import { Actions } from "./actions";
import { ChainTab } from "./chain";
import { EventsTab } from "./events";
import { OverviewTab } from "./overview";
import { RelatedTab } from "./related";

const LogsTab = lazy(() => import("./logs").then((module) => module.LogsTab));
const TerminalTab = lazy(() => import("./terminal").then((module) => module.TerminalTab));
const YamlTab = lazy(() => import("./yaml").then((module) => module.YamlTab));

export interface TabProps {
  type: Resource;
  object: KubeObject;
}

/** Returns the tabs of a type, in their order. */
function tabsOf(type: Resource): string[] {
  const isPod = type.plural === "pods" && type.group === "";
  const isNode = type.plural === "nodes" && type.group === "";
  return ["overview", ...(isPod ? ["logs", "terminal"] : []), ...(isNode ? ["pods"] : []), "yaml", "events", "related", "chain"];
}

export function ObjectPage({ type, ns, name, tab }: { type: Resource; ns: string; name: string; tab: string }) {
  const live = useLive({ resource: type, namespace: ns, fieldSelector: fieldIs("metadata.name", name) }).value;
  const object = [...live.items.values()][0]?.object;
  const tabs = tabsOf(type).map((id) => ({ id, title: t(`tab.${id}` as MessageKey), href: objectLink(type, ns, name, id) }));
  if (!object) {
    return (
      <div class="page">
        <header class="page-head"><Path type={type} ns={ns} /><h1>{name}</h1></header>
        {live.error ? <Problem error={live.error} /> : live.loaded ? <p class="empty">{t("object.gone")}</p> : <Loading />}
      </div>
    );
  }
  return (
    <div class={`page object-page tab-${tab}`}>
      <header class="page-head">
        <div>
          <Path type={type} ns={ns} />
          <h1>{name} <State type={type} object={object} /></h1>
          <p class="quiet">{createdText(object)}</p>
        </div>
        <Actions type={type} object={object} />
      </header>
      <Tabs label={name} tabs={tabs} chosen={tab} />
      {live.error && <Problem error={live.error} />}
      <Tab id={tab} type={type} object={object} />
    </div>
  );
}

function Tab({ id, type, object }: TabProps & { id: string }) {
  switch (id) {
    case "overview": return <OverviewTab type={type} object={object} />;
    case "logs": return <LogsTab type={type} object={object} />;
    case "terminal": return <TerminalTab type={type} object={object} />;
    case "pods": return <TableView title={t("tab.pods")} type={PODS} ns="" fieldSelector={fieldIs("spec.nodeName", object.metadata.name)} />;
    case "yaml": return <YamlTab type={type} object={object} />;
    case "events": return <EventsTab object={object} />;
    case "related": return <RelatedTab type={type} object={object} />;
    case "chain": return <ChainTab type={type} object={object} />;
    default: return <p class="quiet">{t("app.notFoundPage")}</p>;
  }
}

function Path({ type, ns }: { type: Resource; ns: string }) {
  return <p class="path"><a href={tableLink(type)}>{pluralKind(type)}</a>{ns && <> · {ns}</>}</p>;
}

function createdText(object: KubeObject) {
  const [before, after] = t("object.created", { age: "\u0000" }).split("\u0000");
  return <>{before}<Age since={object.metadata.creationTimestamp} />{after}</>;
}

function State({ type, object }: TabProps) {
  if (object.metadata.deletionTimestamp) return <Badge tone="busy">{t("object.deleting")}</Badge>;
  const health = path(type) === path(PODS) ? podHealth(object) : path(type) === path(NODES) ? nodeHealth(object) : undefined;
  return health ? <Badge tone={health.tone}>{health.state}</Badge> : null;
}
