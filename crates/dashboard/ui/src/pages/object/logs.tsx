// The log of a pod: followed, searched, with colours.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, apiStream, readLines } from "../../api/client";
import { PODS, path } from "../../api/resources";
import { t } from "../../i18n";
import { parseAnsi, plainText } from "../../model/ansi";
import { array, text } from "../../model/value";
import { Problem } from "../../ui/basics";
import { VirtualList, placed } from "../../ui/virtual";
import type { TabProps } from "./index";

/** Older lines are dropped. */
const LINES_MAX = 20_000;
const TAIL = 2000;
const ROW_HEIGHT = 20;
const RETRY_MS = 2000;
/** Browsers limit the connections to a server. */
const CONTAINERS_MAX = 4;

interface Line {
  number: number;
  container: string;
  at: string;
  raw: string;
}

export function LogsTab({ object }: TabProps) {
  const { namespace = "", name } = object.metadata;
  const containers = [...array(object, "spec", "initContainers"), ...array(object, "spec", "containers")].map((it) => text(it, "name"));
  const [container, setContainer] = useState(text(array(object, "spec", "containers")[0], "name"));
  const [isPrevious, setPrevious] = useState(false);
  const [isFollowing, setFollowing] = useState(true);
  const [hasTimes, setTimes] = useState(false);
  const [search, setSearch] = useState("");
  const { lines, error, ended } = useLog(namespace, name, container ? [container] : containers.slice(0, CONTAINERS_MAX), isPrevious);
  const word = search.toLowerCase();
  const shown = useMemo(() => (word ? lines.filter((line) => plainText(line.raw).toLowerCase().includes(word)) : lines), [lines, word]);
  const download = () => {
    const content = lines.map((line) => `${line.at} ${plainText(line.raw)}`).join("\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type: "text/plain" }));
    link.download = `${name}.log`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <div class="logs">
      <div class="tools">
        <label class="field inline">
          <span>{t("logs.container")}</span>
          <select value={container} onChange={(event) => setContainer(event.currentTarget.value)}>
            {containers.map((it) => <option key={it} value={it}>{it}</option>)}
            {containers.length > 1 && <option value="">{t("logs.all")}</option>}
          </select>
        </label>
        <input type="search" aria-label={t("logs.search")} placeholder={t("logs.search")} value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <label class="check"><input type="checkbox" checked={isFollowing} onChange={(event) => setFollowing(event.currentTarget.checked)} /> {t("logs.follow")}</label>
        <label class="check"><input type="checkbox" checked={hasTimes} onChange={(event) => setTimes(event.currentTarget.checked)} /> {t("logs.timestamps")}</label>
        <label class="check"><input type="checkbox" checked={isPrevious} onChange={(event) => setPrevious(event.currentTarget.checked)} /> {t("logs.previous")}</label>
        <button type="button" class="button" onClick={download}>{t("logs.download")}</button>
        <span class="quiet" role="status">{search ? t("logs.matches", { n: shown.length }) : t("logs.lines", { n: lines.length })}{ended && ` · ${t("logs.ended")}`}</span>
      </div>
      {error !== undefined && <Problem error={error} />}
      {lines.length === 0 && error === undefined && <p class="empty">{t("logs.empty")}</p>}
      <VirtualList
        label={t("tab.logs")}
        role="log"
        class="log"
        count={shown.length}
        rowHeight={ROW_HEIGHT}
        stickToEnd={isFollowing}
        onLeaveEnd={() => setFollowing(false)}
        row={(index, top) => {
          const line = shown[index]!;
          return (
            <div key={line.number} class="log-line" ref={placed(top)}>
              {hasTimes && <time>{line.at}</time>}
              {container === "" && <b>{line.container}</b>}
              {parseAnsi(line.raw).map((span, at) => <span key={at} class={span.classes.join(" ")}>{word ? <Marked text={span.text} word={word} /> : span.text}</span>)}
            </div>
          );
        }}
      />
    </div>
  );
}

/** A text with the searched word marked. */
function Marked({ text: whole, word }: { text: string; word: string }) {
  const parts = [];
  let rest = whole;
  for (let at = rest.toLowerCase().indexOf(word); at >= 0; at = rest.toLowerCase().indexOf(word)) {
    parts.push(rest.slice(0, at), <mark key={parts.length}>{rest.slice(at, at + word.length)}</mark>);
    rest = rest.slice(at + word.length);
  }
  return <>{parts}{rest}</>;
}

function useLog(namespace: string, name: string, containers: string[], isPrevious: boolean) {
  const [lines, setLines] = useState<Line[]>([]);
  const [error, setError] = useState<unknown>();
  const [ended, setEnded] = useState(false);
  const next = useRef(0);
  const key = [namespace, name, ...containers, isPrevious].join("/");
  useEffect(() => {
    const controller = new AbortController();
    const pending: Line[] = [];
    let isScheduled = false;
    setLines([]);
    setError(undefined);
    setEnded(false);
    const show = () => {
      isScheduled = false;
      if (controller.signal.aborted) return;
      const added = pending.splice(0);
      setLines((before) => {
        const all = [...before, ...added];
        // Containers are read at the same time; their times order the lines.
        if (containers.length > 1) all.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.number - b.number));
        return all.slice(-LINES_MAX);
      });
    };
    const add = (container: string, raw: string) => {
      const space = raw.indexOf(" ");
      pending.push({ number: next.current++, container, at: raw.slice(0, space), raw: raw.slice(space + 1) });
      if (pending.length > LINES_MAX) pending.splice(0, pending.length - LINES_MAX);
      if (!isScheduled) setTimeout(show, 50);
      isScheduled = true;
    };
    const read = async (container: string) => {
      let since = "";
      while (!controller.signal.aborted) {
        const parameters = new URLSearchParams({ container, timestamps: "true", follow: String(!isPrevious), previous: String(isPrevious) });
        if (since) parameters.set("sinceTime", since);
        else parameters.set("tailLines", String(TAIL));
        try {
          const response = await apiStream(`${path(PODS, namespace, name, "log")}?${parameters.toString()}`, { signal: controller.signal, accept: "text/plain, application/json" });
          setError(undefined);
          await readLines(response, (batch) => {
            for (const line of batch) {
              const at = line.slice(0, line.indexOf(" "));
              // A resumed log begins with the second of the last line.
              if (since && at <= since) continue;
              add(container, line);
            }
            since = batch.at(-1)?.split(" ")[0] || since;
          });
          setEnded(true);
          return;
        } catch (failure) {
          if (controller.signal.aborted) return;
          if (failure instanceof ApiError) setError(failure);
          if (failure instanceof ApiError && !failure.isUnreachable && failure.code !== 400) return;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
    };
    for (const container of containers) void read(container);
    return () => controller.abort();
  }, [key]);
  return { lines, error, ended };
}
