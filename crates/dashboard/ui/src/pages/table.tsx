// All objects of a type as a live table with the server's columns.

import { useMemo, useState } from "preact/hooks";

import type { Resource } from "../api/types";
import { t } from "../i18n";
import type { Item } from "../live/reducer";
import { useLive } from "../live/watch";
import { toneOfWord } from "../model/health";
import { type Sort, arrange, cell, columns } from "../model/table";
import { go, namespace, now, objectLink, route, tableLink } from "../state";
import { LazyInput, Loading, Problem } from "../ui/basics";
import { pluralKind } from "../ui/shell";
import { VirtualList, placed } from "../ui/virtual";

const ROW_HEIGHT = 38;
/** Widths of the first column and of the others, and of the gap between them. */
const FIRST_REM = 11;
const CELL_REM = 5;
const GAP_REM = 1;

export function TablePage({ type }: { type: Resource }) {
  const labels = route.value.query.get("labels") ?? "";
  return (
    <div class="page table-page">
      <TableView
        title={pluralKind(type)}
        type={type}
        ns={type.namespaced ? namespace.value : ""}
        labelSelector={labels}
        onSelector={(selector) => go(tableLink(type, selector ? { labels: selector } : {}))}
      />
    </div>
  );
}

interface Props {
  title: string;
  type: Resource;
  ns: string;
  labelSelector?: string;
  fieldSelector?: string;
  onSelector?: (selector: string) => void;
}

export function TableView({ title, type, ns, labelSelector, fieldSelector, onSelector }: Props) {
  const live = useLive({
    resource: type,
    namespace: ns,
    table: true,
    ...(labelSelector ? { labelSelector } : {}),
    ...(fieldSelector ? { fieldSelector } : {}),
  }).value;
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState<Sort>({ column: "Name", isDescending: false });
  const [isWide, setWide] = useState(false);
  const shown = useMemo(() => columns(live.columns, type.namespaced && ns === "", isWide), [live.columns, ns, isWide]);
  // Sorting by age does not depend on the time, so that rows are not sorted again when it advances.
  const rows = useMemo(() => arrange(live.items.values(), shown, filter, sort, now.peek()), [live.items, shown, filter, sort]);
  const total = live.items.size;
  const grid = `minmax(${FIRST_REM}rem, 2fr) ${shown.slice(1).map((column) => (column.isAge ? `${CELL_REM}rem` : `minmax(${CELL_REM}rem, 1fr)`)).join(" ")}`;
  // All rows have the same width, also on screens that are narrower than the table.
  const minWidth = `${FIRST_REM + (shown.length - 1) * (CELL_REM + GAP_REM) + 2 * GAP_REM}rem`;
  const withGrid = (element: HTMLElement | null) => {
    if (!element) return;
    element.style.gridTemplateColumns = grid;
    element.style.minWidth = minWidth;
  };
  const header = (
    <div class="row head" role="row" aria-rowindex={1} ref={withGrid}>
      {shown.map((column) => {
        const isSorted = sort.column === column.name;
        return (
          <div role="columnheader" key={column.name} aria-sort={isSorted ? (sort.isDescending ? "descending" : "ascending") : "none"}>
            <button type="button" aria-label={t("table.sort", { name: column.name })} onClick={() => setSort({ column: column.name, isDescending: isSorted && !sort.isDescending })}>
              {column.name}{isSorted && <span aria-hidden="true">{sort.isDescending ? " ↓" : " ↑"}</span>}
            </button>
          </div>
        );
      })}
    </div>
  );
  return (
    <>
      <header class="page-head">
        <h1>{title}</h1>
        <p class="quiet" role="status">{filter ? t("table.filtered", { n: rows.length, total }) : t("table.rows", { n: total })}</p>
      </header>
      <div class="tools">
        <input type="search" aria-label={t("table.filter")} placeholder={t("table.filter")} value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        {onSelector && (
          <LazyInput type="search" label={t("table.labels")} placeholder={`${t("table.labels")} (app=web)`} value={labelSelector ?? ""} onCommit={onSelector} />
        )}
        <label class="check"><input type="checkbox" checked={isWide} onChange={(event) => setWide(event.currentTarget.checked)} /> {t("table.wide")}</label>
      </div>
      {live.error && <Problem error={live.error} />}
      {total === 0 && !live.error && (live.loaded ? <p class="empty">{t("table.empty")}</p> : <Loading />)}
      {total > 0 && rows.length === 0 && <p class="empty">{t("table.emptyFilter")}</p>}
      {rows.length > 0 && (
        <VirtualList
          label={title}
          class="table"
          count={rows.length}
          rowHeight={ROW_HEIGHT}
          columns={shown.length}
          header={header}
          row={(index, top) => tableRow(rows[index]!, index, top)}
        />
      )}
    </>
  );

  function tableRow(item: Item, index: number, top: number) {
    const { name, namespace: itemNamespace } = item.object.metadata;
    return (
      <div key={item.object.metadata.uid} class="row" role="row" aria-rowindex={index + 2} ref={(element) => { withGrid(element); placed(top)(element); }}>
        {shown.map((column, at) => {
          const text = cell(item, column, now.value);
          const tone = at > 0 ? toneOfWord(text) : undefined;
          return (
            <div role={at === 0 ? "rowheader" : "cell"} key={column.name} title={text}>
              {at === 0 ? <a href={objectLink(type, itemNamespace ?? "", name)}>{text || name}</a> : tone ? <span class={`tone ${tone}`}>{text}</span> : text}
            </div>
          );
        })}
      </div>
    );
  }
}
