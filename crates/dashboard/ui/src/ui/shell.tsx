// The frame of all pages: navigation, namespace, search, settings, notices.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { NAMESPACES } from "../api/resources";
import type { Resource } from "../api/types";
import { LANGUAGES, type Language, type MessageKey, chooseLanguage, language, t } from "../i18n";
import { useLive } from "../live/watch";
import { type Theme, chooseNamespace, chooseTheme, dismiss, go, namespace, notices, route, session, signOut, tableLink, theme, types } from "../state";
import { Icon, type IconName } from "./icons";
import { LazyInput, Menu } from "./basics";

/** Types by section, in the order of the navigation. All other types are in the last section. */
const SECTIONS: [MessageKey, string[]][] = [
  ["nav.workloads", ["pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "replicasets.apps", "jobs.batch", "cronjobs.batch", "horizontalpodautoscalers.autoscaling"]],
  ["nav.services", ["services", "ingresses.networking.k8s.io", "endpointslices.discovery.k8s.io", "networkpolicies.networking.k8s.io"]],
  ["nav.config", ["configmaps", "secrets", "resourcequotas", "limitranges", "poddisruptionbudgets.policy"]],
  ["nav.storage", ["persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"]],
  ["nav.cluster", ["nodes", "namespaces", "events", "customresourcedefinitions.apiextensions.k8s.io"]],
  ["nav.access", ["serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"]],
];

function fullName(type: Resource): string {
  return type.group ? `${type.plural}.${type.group}` : type.plural;
}

function sections(all: Resource[]): [MessageKey, Resource[]][] {
  const known = new Set(SECTIONS.flatMap(([, names]) => names));
  const byName = new Map(all.map((type) => [fullName(type), type]));
  const found: [MessageKey, Resource[]][] = SECTIONS.map(([title, names]) => [title, names.flatMap((name) => byName.get(name) ?? [])]);
  found.push(["nav.custom", all.filter((type) => !known.has(fullName(type)) && fullName(type) !== "events.events.k8s.io" && type.group !== "metrics.k8s.io")]);
  return found.filter(([, members]) => members.length > 0);
}

export function Shell({ children }: { children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  useEffect(() => setOpen(false), [route.value]);
  return (
    <div class={isOpen ? "shell open" : "shell"}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>{t("app.skip")}</a>
      <header class="top">
        <button type="button" class="icon-button only-narrow" aria-label={t("app.menu")} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}><Icon name={isOpen ? "close" : "menu"} /></button>
        <a class="brand" href="#/">{t("app.name")}</a>
        <NamespaceChoice />
        <Search />
        <Settings />
      </header>
      <Navigation />
      <main id="main" ref={main} tabIndex={-1}>{children}</main>
      <Notices />
    </div>
  );
}

function Navigation() {
  const [current = "", group, , plural] = route.value.parts;
  const link = (path: string, icon: IconName, title: string) => (
    <a href={`#/${path}`} aria-current={current === path ? "page" : undefined}><Icon name={icon} />{title}</a>
  );
  return (
    <nav class="side" aria-label={t("nav.main")}>
      {link("", "overview", t("nav.overview"))}
      {link("network", "network", t("nav.network"))}
      {link("create", "create", t("nav.create"))}
      {sections(types.value).map(([title, members]) => {
        const isHere = members.some((type) => type.plural === plural && (type.group || "core") === group);
        return (
          <details key={title} open={isHere || title === "nav.workloads" || title === "nav.services"}>
            <summary>{t(title)}</summary>
            {members.map((type) => (
              <a
                key={fullName(type)}
                href={tableLink(type)}
                aria-current={type.plural === plural && (type.group || "core") === group ? "page" : undefined}
                title={fullName(type)}
              >
                {pluralKind(type)}
              </a>
            ))}
          </details>
        );
      })}
    </nav>
  );
}

/** Returns the kind with the ending of its plural name: `NetworkPolicies`. */
export function pluralKind(type: Resource): string {
  const kind = type.kind;
  const plural = type.plural;
  let same = 0;
  while (same < kind.length && kind[same]!.toLowerCase() === plural[same]) same += 1;
  return same >= 3 ? kind.slice(0, same) + plural.slice(same) : kind;
}

function NamespaceChoice() {
  const live = useLive({ resource: NAMESPACES, table: true }).value;
  const names = [...live.items.values()].map((item) => item.object.metadata.name).sort();
  const chosen = namespace.value;
  if (chosen && !names.includes(chosen)) names.unshift(chosen);
  // Users without permission to list namespaces enter a name.
  if (live.error?.isForbidden) {
    return (
      <div class="namespace"><LazyInput type="text" label={t("app.namespace")} value={chosen} onCommit={chooseNamespace} /></div>
    );
  }
  return (
    <label class="namespace">
      <span class="hidden">{t("app.namespace")}</span>
      <select value={chosen} onChange={(event) => chooseNamespace(event.currentTarget.value)}>
        <option value="">{t("app.allNamespaces")}</option>
        {names.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

const RESULTS_MAX = 12;

function Search() {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const inField = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable], .terminal-box, .editor");
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || inField) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const word = text.trim().toLowerCase();
  const rank = (type: Resource) =>
    type.shortNames.includes(word) || type.plural === word || type.kind.toLowerCase() === word ? 0
      : type.plural.startsWith(word) ? 1
      : fullName(type).includes(word) ? 2 : 3;
  const found = word === "" ? [] : types.value.filter((type) => rank(type) < 3).sort((a, b) => rank(a) - rank(b)).slice(0, RESULTS_MAX);
  const open = (type: Resource | undefined) => {
    if (!type) return;
    setText("");
    input.current?.blur();
    go(tableLink(type));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setActive((active + (event.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length));
    } else if (event.key === "Enter") open(found[active]);
    else if (event.key === "Escape") setText("");
  };
  return (
    <div class="search">
      <Icon name="search" />
      <input
        ref={input}
        type="search"
        role="combobox"
        aria-expanded={found.length > 0}
        aria-controls="search-results"
        aria-activedescendant={found[active] ? `search-${active}` : undefined}
        aria-label={t("app.search")}
        placeholder={t("app.search")}
        value={text}
        onInput={(event) => { setText(event.currentTarget.value); setActive(0); }}
        onKeyDown={onKeyDown}
        onBlur={() => setText("")}
      />
      <ul id="search-results" role="listbox" aria-label={t("app.search")} hidden={word === ""}>
        {found.map((type, index) => (
          <li
            key={fullName(type)}
            id={`search-${index}`}
            role="option"
            aria-selected={index === active}
            onPointerDown={(event) => { event.preventDefault(); open(type); }}
          >
            <b>{type.kind}</b> <span>{fullName(type)}</span>
          </li>
        ))}
        {found.length === 0 && <li class="quiet" role="option" aria-selected={false}>{t("app.searchEmpty")}</li>}
      </ul>
    </div>
  );
}

export function Preferences() {
  return (
    <>
      <label class="field">
        <span>{t("app.theme")}</span>
        <select value={theme.value} onChange={(event) => chooseTheme(event.currentTarget.value as Theme)}>
          {(["system", "light", "dark"] as const).map((name) => <option key={name} value={name}>{t(`app.theme.${name}`)}</option>)}
        </select>
      </label>
      <label class="field">
        <span>{t("app.language")}</span>
        <select value={language.value} onChange={(event) => chooseLanguage(event.currentTarget.value as Language)}>
          {Object.entries(LANGUAGES).map(([code, name]) => <option key={code} value={code} lang={code}>{name}</option>)}
        </select>
      </label>
    </>
  );
}

function Settings() {
  const user = session.value.kind === "in" ? (session.value.info.user ?? "") : "";
  return (
    <Menu label={t("app.settings")} icon="settings">
      <p class="user" title={user}>{user}</p>
      <Preferences />
      <button type="button" class="button" onClick={() => void signOut()}>{t("app.signOut")}</button>
    </Menu>
  );
}

function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <div key={notice.id} class={`notice ${notice.tone}`}>
          <span>{notice.text}</span>
          <button type="button" class="icon-button" aria-label={t("app.close")} onClick={() => dismiss(notice.id)}><Icon name="close" /></button>
        </div>
      ))}
    </div>
  );
}
