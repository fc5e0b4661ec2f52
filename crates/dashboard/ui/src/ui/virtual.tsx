// Long lists: only the rows in view are elements.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { visibleRange } from "../model/table";

interface Props {
  count: number;
  rowHeight: number;
  row: (index: number, top: number) => ComponentChildren;
  /** Keeps the end in view while rows are added. */
  stickToEnd?: boolean;
  onLeaveEnd?: () => void;
  header?: ComponentChildren;
  class?: string;
  role?: "table" | "log";
  label: string;
  /** The width of the widest row, as text. */
  columns?: number;
}

export function VirtualList({ count, rowHeight, row, stickToEnd, onLeaveEnd, header, role, label, columns, ...rest }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const wasAtEnd = useRef(true);
  useEffect(() => {
    const element = box.current!;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (stickToEnd && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [count, stickToEnd]);
  const onScroll = () => {
    // A scroll event can arrive after the list was removed.
    const element = box.current;
    if (!element) return;
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < rowHeight * 2;
    if (stickToEnd && wasAtEnd.current && !isAtEnd) onLeaveEnd?.();
    wasAtEnd.current = isAtEnd;
    setView({ top: element.scrollTop, height: element.clientHeight });
  };
  const [first, last] = visibleRange(view.top, view.height, rowHeight, count);
  const rows = [];
  for (let index = first; index < last; index += 1) rows.push(row(index, index * rowHeight));
  return (
    <div
      ref={box}
      class={`virtual ${rest.class ?? ""}`}
      onScroll={onScroll}
      role={role ?? "table"}
      aria-label={label}
      aria-rowcount={role === "log" ? undefined : count + 1}
      aria-colcount={role === "log" ? undefined : columns}
      tabIndex={0}
    >
      {header}
      <div class="virtual-rows" role={role === "log" ? undefined : "rowgroup"} ref={(element) => { if (element) element.style.height = `${count * rowHeight}px`; }}>
        {rows}
      </div>
    </div>
  );
}

/** Places an element of a virtual list. Inline style attributes would violate the Content-Security-Policy. */
export function placed(top: number) {
  return (element: HTMLElement | null) => {
    if (element) element.style.transform = `translateY(${top}px)`;
  };
}
