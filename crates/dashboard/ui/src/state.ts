// State of the whole page: session, types of the server, namespace, route, theme, notices.

import { computed, effect, signal } from "@preact/signals";

import { ApiError, type SessionInfo, type SignedOut, onSignedOut, session as requests } from "./api/client";
import { discover } from "./api/resources";
import type { Resource } from "./api/types";

export type SessionState =
  | { kind: "unknown" }
  | { kind: "out"; reason?: SignedOut }
  | { kind: "in"; info: SessionInfo }
  | { kind: "unreachable"; message: string };

export const session = signal<SessionState>({ kind: "unknown" });
export const types = signal<Resource[]>([]);
/** The chosen namespace; empty for all. */
export const namespace = signal("default");
export const route = signal(parseRoute());

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

function parseRoute(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: new URLSearchParams(query) };
}

addEventListener("hashchange", () => {
  route.value = parseRoute();
});

export function go(href: string): void {
  location.hash = href.replace(/^#/, "");
}

/** Returns the link to the table of a type. */
export function tableLink(type: Resource, query: Record<string, string> = {}): string {
  const parameters = new URLSearchParams(query).toString();
  return `#/types/${type.group || "core"}/${type.version}/${type.plural}${parameters ? `?${parameters}` : ""}`;
}

/** Returns the link to the page of an object. */
export function objectLink(type: Resource, ns: string, name: string, tab = ""): string {
  const parts = ["objects", type.group || "core", type.version, type.plural, type.namespaced ? ns || "default" : "-", name, tab];
  return `#/${parts.filter(Boolean).map(encodeURIComponent).join("/")}`;
}

const NAMESPACE = "knarr.namespace";

export function chooseNamespace(name: string): void {
  sessionStorage.setItem(NAMESPACE, name);
  namespace.value = name;
}

export async function loadSession(): Promise<void> {
  try {
    const info = await requests.read();
    if (info.user === null) session.value = { kind: "out" };
    else started(info);
  } catch (error) {
    const known = error instanceof ApiError ? error : new ApiError(0, "", String(error));
    session.value = known.isSignedOut ? { kind: "out" } : { kind: "unreachable", message: known.message };
  }
}

export function started(info: SessionInfo): void {
  namespace.value = sessionStorage.getItem(NAMESPACE) ?? info.namespace ?? "default";
  session.value = { kind: "in", info };
}

export async function signOut(): Promise<void> {
  // The page closes its streams before the server does.
  session.value = { kind: "unknown" };
  try {
    await requests.signOut();
  } catch {
    return loadSession();
  }
  sessionStorage.removeItem(NAMESPACE);
  types.value = [];
  // The next user does not see the page of this one.
  go("/");
  session.value = { kind: "out" };
}

onSignedOut((reason) => {
  if (session.peek().kind === "in") session.value = { kind: "out", reason };
});

const isSignedIn = computed(() => session.value.kind === "in");

// Types are reloaded when a user signs in, because custom types may have been added.
effect(() => {
  if (!isSignedIn.value) return undefined;
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const load = () =>
    discover(controller.signal).then(
      (found) => {
        types.value = found;
      },
      () => {
        if (!controller.signal.aborted) timer = setTimeout(load, 5000);
      },
    );
  void load();
  return () => {
    clearTimeout(timer);
    controller.abort();
  };
});

/** Reads the types again, for example after a custom type was created. */
export async function refreshTypes(): Promise<void> {
  types.value = await discover(new AbortController().signal);
}

export type Theme = "system" | "light" | "dark";
const THEME = "knarr.theme";

function storedTheme(): Theme {
  const stored = localStorage.getItem(THEME);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export const theme = signal<Theme>(storedTheme());
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(prefersDark.matches);
prefersDark.addEventListener("change", (event) => {
  systemDark.value = event.matches;
});
export const isDark = computed(() => theme.value === "dark" || (theme.value === "system" && systemDark.value));

effect(() => {
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
});

export function chooseTheme(chosen: Theme): void {
  localStorage.setItem(THEME, chosen);
  theme.value = chosen;
}

/** The current time, for ages. It advances while the page is visible. */
export const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 5000);

export interface Notice {
  id: number;
  tone: "good" | "bad" | "busy";
  text: string;
}

export const notices = signal<Notice[]>([]);
let nextNotice = 0;
const NOTICES_MAX = 4;
const NOTICE_MS = 6000;

/** Shows a message for some seconds. Errors stay until they are closed. */
export function notify(tone: Notice["tone"], text: string): void {
  const id = nextNotice++;
  notices.value = [...notices.value.slice(1 - NOTICES_MAX), { id, tone, text }];
  if (tone !== "bad") setTimeout(() => dismiss(id), NOTICE_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Returns the message of an error for the user. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
