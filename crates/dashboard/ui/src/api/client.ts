// Requests to the server that served the page. The session cookie and the secret identify the user; the marker header
// proves that the request comes from this page.

import type { Status, StatusCause } from "./types";

const BASE = "/dashboard";

/** The secret of the session beside the cookie. Browsers send cookies to all ports of a host, but store this by origin. */
const SECRET = "knarr-session";
/** The reason of the dashboard itself; the API has others. */
const NO_SESSION = "NoSession";

/** A request that failed, with the reason for the user. */
export class ApiError extends Error {
  readonly code: number;
  readonly reason: string;
  readonly causes: StatusCause[];

  constructor(code: number, reason: string, message: string, causes: StatusCause[] = []) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.causes = causes;
  }

  /** Whether the session has ended, or the API no longer accepts its credentials. */
  get isSignedOut(): boolean {
    return this.code === 401;
  }

  get isForbidden(): boolean {
    return this.code === 403;
  }

  get isNotFound(): boolean {
    return this.code === 404;
  }

  get isConflict(): boolean {
    return this.code === 409;
  }

  /** Whether a watch must start with a new list. */
  get isExpired(): boolean {
    return this.code === 410;
  }

  /** Whether the server cannot be reached or does not respond. */
  get isUnreachable(): boolean {
    return this.code === 0 || this.code === 502 || this.code === 503 || this.code === 504;
  }
}

export interface RequestOptions {
  method?: string;
  body?: string;
  contentType?: string;
  accept?: string;
  signal?: AbortSignal;
  /** Receives the `Warning` headers of the API server. */
  onWarning?: (text: string) => void;
}

/** Called when the session has ended, or when the API rejects its credentials. */
let signedOut: (reason: SignedOut) => void = () => undefined;

export type SignedOut = "ended" | "rejected";

export function onSignedOut(listener: (reason: SignedOut) => void): void {
  signedOut = listener;
}

/** Sends a request to a path below `/dashboard`. Fails unless the response is successful. */
async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { "X-Knarr-Dashboard": "1", Accept: options.accept ?? "application/json" };
  const secret = localStorage.getItem(SECRET);
  if (secret) headers["X-Knarr-Session"] = secret;
  if (options.body !== undefined) headers["Content-Type"] = options.contentType ?? "application/json";
  const init: RequestInit = { method: options.method ?? "GET", headers, credentials: "same-origin", redirect: "error", cache: "no-store" };
  if (options.body !== undefined) init.body = options.body;
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(BASE + path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "Unreachable", error instanceof Error ? error.message : String(error));
  }
  if (!response.ok) {
    const error = await failure(response);
    if (error.isSignedOut && path !== "/session") signedOut(error.reason === NO_SESSION ? "ended" : "rejected");
    throw error;
  }
  if (options.onWarning) warnings(response).forEach(options.onWarning);
  return response;
}

async function failure(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  try {
    return statusError(JSON.parse(text) as Status, response.status);
  } catch {
    return new ApiError(response.status, response.statusText, text.slice(0, 500) || response.statusText);
  }
}

/** Returns the error that a Status object describes. */
export function statusError(status: Status, code = 500): ApiError {
  return new ApiError(status.code ?? code, status.reason ?? "", status.message ?? "", status.details?.causes ?? []);
}

function warnings(response: Response): string[] {
  const header = response.headers.get("Warning");
  return header ? [...header.matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map((match) => match[1]!.replace(/\\(.)/g, "$1")) : [];
}

async function json<T>(path: string, options?: RequestOptions): Promise<T> {
  return (await (await send(path, options)).json()) as T;
}

/** Sends a request to a path of the Kubernetes API. */
export function api<T>(path: string, options?: RequestOptions): Promise<T> {
  return json<T>(`/api${path}`, options);
}

/** Opens a stream of the Kubernetes API, such as a watch or a log. */
export function apiStream(path: string, options?: RequestOptions): Promise<Response> {
  return send(`/api${path}`, options);
}

/** Opens the event chain of an object. */
export function chainStream(query: URLSearchParams, signal: AbortSignal): Promise<Response> {
  return send(`/chain?${query.toString()}`, { signal });
}

export interface SessionInfo {
  /** Absent without a session. */
  user: string | null;
  groups: string[] | null;
  namespace: string;
}

export type SignIn = { token: string } | { kubeconfig: string; context?: string } | { code: string };

export const session = {
  read: () => json<SessionInfo>("/session"),
  signIn: async (body: SignIn): Promise<SessionInfo> => {
    const started = await json<SessionInfo & { secret: string }>("/session", { method: "POST", body: JSON.stringify(body) });
    localStorage.setItem(SECRET, started.secret);
    return started;
  },
  signOut: async (): Promise<void> => {
    await json<unknown>("/session", { method: "DELETE" });
    localStorage.removeItem(SECRET);
  },
};

/** Returns the subprotocols of a WebSocket, of which one carries the secret of the session. */
export function socketProtocols(protocol: string): string[] {
  return [protocol, `session.knarr.io.${localStorage.getItem(SECRET) ?? ""}`];
}

/** Returns the URL of a WebSocket to a path of the Kubernetes API. */
export function socketUrl(path: string): string {
  return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${BASE}/api${path}`;
}

/** The longest line that is kept. The API server's objects have at most 3 MiB. */
const LINE_MAX = 16 << 20;

/** Reads the lines of a stream until it ends. */
export async function readLines(response: Response, onLines: (lines: string[]) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    if (rest.length > LINE_MAX) {
      await reader.cancel();
      throw new ApiError(500, "TooLong", "a line of the response is too long");
    }
    if (parts.length > 0) onLines(parts);
  }
  if (rest) onLines([rest]);
}
