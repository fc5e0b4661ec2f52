// Small parts that all pages share.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import { ApiError } from "../api/client";
import { t } from "../i18n";
import type { Tone } from "../model/health";
import { age } from "../model/quantity";
import { now } from "../state";
import { Icon, type IconName } from "./icons";

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export function Age({ since }: { since: string | undefined }) {
  return <time dateTime={since ?? ""} title={since ?? ""}>{age(since, now.value)}</time>;
}

export function Loading() {
  return <p class="quiet" role="status">{t("app.loading")}</p>;
}

/** An error, with a sentence about what it means. */
export function Problem({ error }: { error: unknown }) {
  const known = error instanceof ApiError ? error : undefined;
  const sentence = known?.isForbidden ? t("app.forbidden")
    : known?.isNotFound ? t("app.notFound")
    : known?.isUnreachable ? t("app.connectionLost")
    : known?.isExpired ? t("app.expired")
    : t("app.failed");
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div>
        <strong>{sentence}</strong>
        <p>{error instanceof Error ? error.message : String(error)}</p>
      </div>
    </div>
  );
}

export function Card({ title, actions, children, wide }: { title?: string; actions?: ComponentChildren; children: ComponentChildren; wide?: boolean }) {
  const id = useId();
  return (
    <section class={wide ? "card wide" : "card"} aria-labelledby={title ? id : undefined}>
      {title && (
        <header>
          <h2 id={id}>{title}</h2>
          {actions}
        </header>
      )}
      {children}
    </section>
  );
}

/** A list of names and values. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  const shown = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const LABELS_SHOWN = 12;

export function Labels({ labels }: { labels: Record<string, string> }) {
  const [isOpen, setOpen] = useState(false);
  const all = Object.entries(labels);
  const shown = isOpen ? all : all.slice(0, LABELS_SHOWN);
  if (all.length === 0) return <span class="quiet">{t("app.none")}</span>;
  return (
    <ul class="labels">
      {shown.map(([key, value]) => (
        <li key={key} title={`${key}=${value}`}><span>{key}</span>{value !== "" && <b>{value}</b>}</li>
      ))}
      {all.length > shown.length && (
        <li class="plain"><button type="button" class="link" onClick={() => setOpen(true)}>{t("app.more", { n: all.length - shown.length })}</button></li>
      )}
    </ul>
  );
}

/** A fraction of a total as a bar. */
export function Meter({ value, of, label, text }: { value: number; of: number; label: string; text: string }) {
  const share = of > 0 ? Math.min(1, value / of) : 0;
  const tone = share > 0.9 ? "bad" : share > 0.75 ? "busy" : "good";
  return (
    <div class="meter">
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`${label}: ${text}`}>
        <rect class="track" width="100" height="4" rx="2" />
        <rect class={tone} width={Math.max(share > 0 ? 1 : 0, share * 100)} height="4" rx="2" />
      </svg>
      <span>{text}</span>
    </div>
  );
}

/** A small line chart. Points are from 0 to 1. */
export function Sparkline({ points, label }: { points: number[]; label: string }) {
  if (points.length < 2) return null;
  const x = (index: number) => (index / (points.length - 1)) * 200;
  const y = (value: number) => 38 - Math.min(1, Math.max(0, value)) * 36;
  const line = points.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 200 40" preserveAspectRatio="none" role="img" aria-label={label}>
      <polygon points={`0,40 ${line} 200,40`} />
      <polyline points={line} />
    </svg>
  );
}

/** A modal dialog. Escape and the backdrop close it. */
export function Dialog({ title, onClose, children, actions }: { title: string; onClose: () => void; children: ComponentChildren; actions?: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" class="icon-button" aria-label={t("app.close")} onClick={onClose}><Icon name="close" /></button>
        </header>
        <div class="dialog-body">{children}</div>
        {actions && <footer>{actions}</footer>}
      </div>
    </dialog>
  );
}

export interface MenuItem {
  label: string;
  run: () => void;
  danger?: boolean;
}

/** A button that opens a list of actions. */
export function Menu({ label, icon, items, children }: { label: string; icon: IconName; items?: MenuItem[]; children?: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const id = useId();
  // Before the next frame, so that no key is lost.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    const close = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    };
    addEventListener("pointerdown", close);
    addEventListener("keydown", escape);
    root.current?.querySelector<HTMLElement>(".menu button, .menu select")?.focus();
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("keydown", escape);
    };
  }, [isOpen]);
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step || !items) return;
    event.preventDefault();
    const buttons = [...(root.current?.querySelectorAll<HTMLElement>(".menu button") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    buttons[(at + step + buttons.length) % buttons.length]?.focus();
  };
  return (
    <div class="menu-root" ref={root} onKeyDown={move}>
      <button type="button" class="button" aria-label={label} aria-haspopup={items ? "menu" : "dialog"} aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
        <Icon name={icon} />
        <span>{label}</span>
      </button>
      {isOpen && (
        <div class="menu" id={id} role={items ? "menu" : "group"} aria-label={label}>
          {items?.map((item) => (
            <button
              type="button"
              role="menuitem"
              key={item.label}
              class={item.danger ? "danger" : ""}
              onClick={() => {
                setOpen(false);
                item.run();
              }}
            >
              {item.label}
            </button>
          ))}
          {children}
        </div>
      )}
    </div>
  );
}

/** A field whose value takes effect when it loses the focus or Enter is pressed. Updates of the page do not disturb typing. */
export function LazyInput({ value, label, placeholder, type, onCommit }: { value: string; label: string; placeholder?: string; type: "search" | "text"; onCommit: (value: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  return (
    <input
      type={type}
      aria-label={label}
      placeholder={placeholder ?? ""}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onChange={() => onCommit(text.trim())}
    />
  );
}

/** Tabs that are links: each tab has an address. */
export function Tabs({ label, tabs, chosen }: { label: string; tabs: { id: string; title: string; href: string }[]; chosen: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.id} href={tab.href} aria-current={tab.id === chosen ? "page" : undefined}>{tab.title}</a>
      ))}
    </nav>
  );
}
