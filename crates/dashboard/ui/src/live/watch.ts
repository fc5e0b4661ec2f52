// Live lists: a list, then a watch that is resumed after a failure. Hidden pages have no watch.

import { useEffect, useMemo } from "preact/hooks";
import { type Signal, signal } from "@preact/signals";

import { ApiError, api, apiStream, readLines, statusError } from "../api/client";
import { path } from "../api/resources";
import type { Resource, Status, WatchEvent } from "../api/types";
import { EMPTY, type LiveState, addPage, applyEvents, itemsOf } from "./reducer";

const PAGE = 500;
/** The server ends a watch after this time; it is then resumed. */
const WATCH_SECONDS = 240;
const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 15_000;
/** A hidden page stops its watches after this time. */
const HIDDEN_MS = 3000;
const AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

export interface Query {
  resource: Resource;
  namespace?: string;
  labelSelector?: string;
  fieldSelector?: string;
  /** Request the columns of the server instead of objects. */
  table?: boolean;
}

export interface Live extends LiveState {
  /** Whether the list is complete. */
  loaded: boolean;
  /** The error that prevents further changes from arriving. */
  error: ApiError | undefined;
}

const INITIAL: Live = { ...EMPTY, loaded: false, error: undefined };

function parameters(query: Query, more: Record<string, string>): string {
  const all = new URLSearchParams(more);
  if (query.labelSelector) all.set("labelSelector", query.labelSelector);
  if (query.fieldSelector) all.set("fieldSelector", query.fieldSelector);
  if (query.table) all.set("includeObject", "Metadata");
  return all.toString();
}

/** Keeps a live list until the signal aborts. Never fails: errors are part of the state. */
async function follow(query: Query, out: Signal<Live>, stop: AbortSignal): Promise<void> {
  let failures = 0;
  let mustList = true;
  const publish = publisher(out, stop);
  while (!stop.aborted) {
    await visible(stop);
    const attempt = hiding(stop);
    try {
      if (mustList) {
        await list(query, out, publish, attempt.signal);
        mustList = false;
        publish({ loaded: true, error: undefined });
      }
      const began = Date.now();
      await watch(query, out, publish, attempt.signal);
      failures = 0;
      // The delay prevents a busy loop if the server ends watches immediately.
      if (Date.now() - began < RETRY_FIRST_MS) await pause(RETRY_FIRST_MS, stop);
    } catch (error) {
      if (stop.aborted) return;
      if (attempt.signal.aborted) continue;
      const known = error instanceof ApiError ? error : new ApiError(0, "Unreachable", String(error));
      if (known.isSignedOut) return;
      publish({ error: known });
      failures += 1;
      mustList = mustList || !known.isUnreachable;
      // An expired version needs only a new list.
      if (known.isExpired && failures === 1) continue;
      // A missing permission may be granted later, so the list is retried rarely.
      const wait = known.isForbidden || known.isNotFound ? RETRY_MAX_MS : RETRY_FIRST_MS * 2 ** Math.min(failures - 1, 5);
      await pause(Math.min(wait, RETRY_MAX_MS), stop);
    } finally {
      attempt.release();
    }
  }
}

type Publish = (change: Partial<Live>) => void;

/** Changes of the state are shown at most once per frame. */
function publisher(out: Signal<Live>, stop: AbortSignal): Publish {
  let next: Live | undefined;
  return (change) => {
    if (next === undefined) {
      const show = () => {
        const state = next;
        next = undefined;
        latest.delete(out);
        if (!stop.aborted && state) out.value = state;
      };
      // Frames stop while a page is hidden.
      if (document.visibilityState === "visible") requestAnimationFrame(show);
      else setTimeout(show, 100);
    }
    next = { ...(next ?? out.peek()), ...change };
    latest.set(out, next);
  };
}

/** States that are not shown yet. */
const latest = new WeakMap<Signal<Live>, Live>();

function current(out: Signal<Live>): Live {
  return latest.get(out) ?? out.peek();
}

async function list(query: Query, out: Signal<Live>, publish: Publish, stop: AbortSignal): Promise<void> {
  let token = "";
  let isFirst = true;
  do {
    const more: Record<string, string> = { limit: String(PAGE) };
    if (token) more.continue = token;
    const page = await api<unknown>(`${path(query.resource, query.namespace)}?${parameters(query, more)}`, {
      signal: stop,
      ...(query.table ? { accept: AS_TABLE } : {}),
    });
    publish(addPage(current(out), page, isFirst));
    isFirst = false;
    token = itemsOf(page).next;
  } while (token);
}

async function watch(query: Query, out: Signal<Live>, publish: Publish, stop: AbortSignal): Promise<void> {
  const more = {
    watch: "1",
    allowWatchBookmarks: "true",
    resourceVersion: current(out).version,
    timeoutSeconds: String(WATCH_SECONDS),
  };
  const response = await apiStream(`${path(query.resource, query.namespace)}?${parameters(query, more)}`, {
    signal: stop,
    ...(query.table ? { accept: AS_TABLE } : {}),
  });
  publish({ error: undefined });
  try {
    await readLines(response, (lines) => {
      const events = lines.filter((line) => line !== "").map((line) => JSON.parse(line) as WatchEvent<unknown>);
      publish(applyEvents(current(out), events));
      const failed = events.find((event) => event.type === "ERROR");
      if (failed) throw statusError(failed.object as Status);
    });
  } catch (error) {
    // A connection that breaks is resumed by the next watch, which reports an error if there is one.
    if (error instanceof ApiError || stop.aborted) throw error;
  }
}

function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done() {
      clearTimeout(timer);
      stop.removeEventListener("abort", done);
      resolve();
    }
    stop.addEventListener("abort", done);
  });
}

/** Waits until the page is visible. */
function visible(stop: AbortSignal): Promise<void> {
  if (document.visibilityState === "visible" || stop.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    function check() {
      if (document.visibilityState !== "visible" && !stop.aborted) return;
      document.removeEventListener("visibilitychange", check);
      stop.removeEventListener("abort", check);
      resolve();
    }
    document.addEventListener("visibilitychange", check);
    stop.addEventListener("abort", check);
  });
}

/** Returns a signal that aborts with `stop`, or when the page has been hidden for the time limit. */
function hiding(stop: AbortSignal): { signal: AbortSignal; release: () => void } {
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const abort = () => controller.abort();
  const check = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") timer = setTimeout(abort, HIDDEN_MS);
  };
  stop.addEventListener("abort", abort);
  document.addEventListener("visibilitychange", check);
  check();
  return {
    signal: controller.signal,
    release: () => {
      clearTimeout(timer);
      stop.removeEventListener("abort", abort);
      document.removeEventListener("visibilitychange", check);
      controller.abort();
    },
  };
}

/** Returns a live list for as long as the component is shown. Without a query, the list stays empty. */
export function useLive(query: Query | undefined): Signal<Live> {
  const key = query ? JSON.stringify(query) : "";
  const state = useMemo(() => signal<Live>(INITIAL), [key]);
  useEffect(() => {
    if (!query) return undefined;
    const controller = new AbortController();
    void follow(query, state, controller.signal);
    return () => controller.abort();
  }, [key]);
  return state;
}
