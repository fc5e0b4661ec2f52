// The Events of an object, live.

import { EVENTS, fieldIs } from "../../api/resources";
import type { KubeObject } from "../../api/types";
import { t } from "../../i18n";
import { useLive } from "../../live/watch";
import { text } from "../../model/value";
import { Age, Badge, Card, Loading, Problem } from "../../ui/basics";
import { eventCount, eventTime } from "../overview";

export function EventsTab({ object }: { object: KubeObject }) {
  const live = useLive({ resource: EVENTS, namespace: object.metadata.namespace ?? "", fieldSelector: fieldIs("involvedObject.uid", object.metadata.uid) }).value;
  const events = [...live.items.values()].map((item) => item.object).sort((a, b) => eventTime(b).localeCompare(eventTime(a)));
  return (
    <Card title={t("tab.events")} wide>
      {live.error && <Problem error={live.error} />}
      {events.length === 0 && !live.error && (live.loaded ? <p class="empty">{t("events.none")}</p> : <Loading />)}
      <ul class="events">
        {events.map((event) => (
          <li key={event.metadata.uid}>
            <Age since={eventTime(event)} />
            <b>{text(event, "reason")}</b>
            <Badge tone={text(event, "type") === "Warning" ? "bad" : "idle"}>{text(event, "reportingComponent") || text(event, "source", "component") || text(event, "type")}</Badge>
            <p>{text(event, "message")}{eventCount(event) > 1 && <span class="quiet"> {t("events.count", { n: eventCount(event) })}</span>}</p>
          </li>
        ))}
      </ul>
    </Card>
  );
}
