// The event chain of an object: the path of a change through the cluster, and a waterfall, live.

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, chainStream, readLines } from "../../api/client";
import { t } from "../../i18n";
import { type Chain, type Mark, PARTS, waterfall } from "../../model/chain";
import { duration } from "../../model/quantity";
import { Card, Loading, Problem } from "../../ui/basics";
import type { TabProps } from "./index";

const RETRY_MS = 2000;
/** Delay before a broken stream is resumed: browsers close all streams when a network interface is added to their host. */
const RESUME_MS = 100;

export function ChainTab({ type, object }: TabProps) {
  const [chain, setChain] = useState<Chain>();
  const [error, setError] = useState<unknown>();
  const [isRecent, setRecent] = useState(true);
  const { namespace = "", name } = object.metadata;
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const query = new URLSearchParams({ group: type.group, version: type.version, resource: type.plural, kind: type.kind, namespace, name });
    const read = async () => {
      let wait = RETRY_MS;
      try {
        const response = await chainStream(query, controller.signal);
        setError(undefined);
        wait = RESUME_MS;
        await readLines(response, (lines) => {
          const last = lines.filter((line) => line !== "").at(-1);
          if (last) setChain(JSON.parse(last) as Chain);
        });
      } catch (failure) {
        if (controller.signal.aborted) return;
        if (failure instanceof ApiError) setError(failure);
        if (failure instanceof ApiError && failure.isSignedOut) return;
      }
      if (!controller.signal.aborted) timer = setTimeout(() => void read(), wait);
    };
    void read();
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [type, namespace, name]);
  if (!chain) return error ? <Problem error={error} /> : <Loading />;
  return <ChainView chain={chain} error={error} isRecent={isRecent} onRecent={setRecent} />;
}

/** Returns the time of the last write of a root object before which nothing is shown. */
function lastChange(chain: Chain): number {
  const root = chain.steps[0]?.object;
  const writes = chain.steps.filter((step) => step.object === root && (step.stage === "Written" || step.stage === "Other") && !step.what.startsWith("not "));
  const last = writes.at(-1);
  return last ? Date.parse(last.at) : 0;
}

function ChainView({ chain, error, isRecent, onRecent }: { chain: Chain; error: unknown; isRecent: boolean; onRecent: (recent: boolean) => void }) {
  const since = isRecent ? lastChange(chain) : 0;
  const picture = useMemo(() => waterfall(chain.steps, since), [chain, since]);
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      <Card
        title={t("chain.path")}
        wide
        actions={
          <label class="check">
            <input type="checkbox" checked={isRecent} onChange={(event) => onRecent(event.currentTarget.checked)} /> {t("chain.recent")}
          </label>
        }
      >
        <ol class="flow">
          {PARTS.map((part) => {
            const mark = picture.reached.get(part);
            return (
              <li key={part} class={mark ? "lit" : ""}>
                <b>{t(`part.${part}`)}</b>
                {mark ? <><span>{t("chain.after", { time: exact(mark.after) })}</span><small title={mark.step.what}>{mark.step.object}</small></> : <span class="quiet">{t("chain.notYet")}</span>}
              </li>
            );
          })}
        </ol>
      </Card>
      <Card title={t("chain.waterfall")} wide>
        {picture.lanes.length === 0 && <p class="quiet">{t("chain.waiting")}</p>}
        <ol class="waterfall">
          {picture.lanes.map((lane) => (
            <li key={lane.object}>
              <div class="lane-head">
                <span class="lane-name" title={lane.object}>{lane.object}</span>
                <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
                  <line class="lane-track" x1="0" x2="1000" y1="12" y2="12" />
                  <rect class="lane-bar" x={lane.start * 990} width={Math.max(4, (lane.end - lane.start) * 990)} y="6" height="12" rx="3" />
                  {lane.marks.map((mark, index) => <rect key={index} class={`mark stage-${mark.step.stage}`} x={mark.position * 990} width="5" y="3" height="18"><title>{label(mark)}</title></rect>)}
                </svg>
              </div>
              <ol>
                {lane.marks.map((mark, index) => (
                  <li key={index} class={`stage-${mark.step.stage}`}>
                    <time dateTime={mark.step.at} title={mark.step.at}>{t("chain.after", { time: exact(mark.after) })}</time>
                    <span>{mark.step.what}</span>
                    {mark.step.by && <small>{t("chain.by", { name: mark.step.by })}</small>}
                  </li>
                ))}
              </ol>
            </li>
          ))}
        </ol>
        {chain.count > chain.steps.length && <p class="quiet">{t("chain.limited", { n: chain.steps.length, count: chain.count })}</p>}
        {chain.missing.length > 0 && <p class="quiet">{t("chain.missing", { kinds: chain.missing.join(", ") })}</p>}
      </Card>
    </>
  );
}

function label(mark: Mark): string {
  return `${exact(mark.after)} ${mark.step.what}`;
}

/** Formats a duration: exactly below ten seconds. */
function exact(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return milliseconds < 10_000 ? `${(milliseconds / 1000).toFixed(2)} s` : duration(milliseconds);
}
