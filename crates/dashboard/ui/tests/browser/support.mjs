// A browser, the checks that every page must pass, and the cluster's command line.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const settings = {
  url: process.env.DASHBOARD_URL,
  adminToken: process.env.ADMIN_TOKEN,
  viewerToken: process.env.VIEWER_TOKEN,
  knarr: process.env.KNARR,
  /** The data directory of the cluster. */
  data: process.env.DATA_DIR,
  /** The arguments that start the cluster again. */
  up: process.env.UP,
  /** The beginning of commands that run on the host of the cluster, whose files are visible here. */
  host: process.env.ON_HOST.split(" "),
  kubeconfig: process.env.KUBECONFIG,
  chromium: process.env.CHROMIUM ?? "/usr/bin/chromium",
  screenshots: process.env.SCREENSHOTS,
  dist: process.env.DASHBOARD_DIST,
};

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const SIZE = { width: 1360, height: 860 };

/** Runs `knarr` and returns its output. An object as the last argument has the standard input. */
export function knarr(...args) {
  const input = typeof args.at(-1) === "object" ? args.pop().input : "";
  return execFileSync(settings.knarr, args, { encoding: "utf8", input }).trim();
}

/** Runs `knarr` on the host of the cluster. */
export function knarrOnHost(...args) {
  const [command, ...rest] = [...settings.host, settings.knarr, ...args];
  return execFileSync(command, rest, { encoding: "utf8" }).trim();
}

export function kubectl(...args) {
  return knarr("kubectl", ...args);
}

/** Whether a command succeeds. */
export function succeeds(run) {
  try {
    run();
    return true;
  } catch {
    return false;
  }
}

/** Starts the browser. The result is what the steps work with. */
export async function start() {
  const profile = mkdtempSync(join(tmpdir(), "knarr-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: settings.chromium,
    headless: true,
    args: FLAGS,
    ignoreHTTPSErrors: true,
    locale: "en-US",
    colorScheme: "light",
    viewport: SIZE,
  });
  context.setDefaultTimeout(30_000);
  // A build that is not part of the binary yet.
  if (settings.dist) await context.route(/\/dashboard\/assets\//, (route) => route.fulfill({ path: join(settings.dist, "assets", basename(new URL(route.request().url()).pathname)) }));
  const page = context.pages()[0] ?? (await context.newPage());
  const errors = watch(page);
  return {
    context,
    page,
    errors,
    size: SIZE,
    go: (hash) => page.goto(`${settings.url}#${hash}`),
    heading: (name) => page.getByRole("heading", { level: 1, name }),
    signIn: (token) => signIn(page, token),
    action: async (name) => {
      await page.getByRole("button", { name: "Actions" }).click();
      await page.getByRole("menuitem", { name, exact: true }).click();
    },
    stop: async () => {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

export async function signIn(page, token) {
  await page.locator("input[name=token]").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Ends the session by the menu. */
export async function signOut(page) {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to the cluster" }).waitFor();
}

/** Replaces the text of the YAML editor. */
export async function edit(page, change) {
  await page.locator(".editor .cm-content").click();
  const text = await page.locator(".editor").evaluate((element) => {
    const content = element.shadowRoot.querySelector(".cm-content");
    return content.cmTile?.view?.state.doc.toString() ?? content.cmView?.view.state.doc.toString();
  });
  assert.ok(text, "the text of the editor");
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText(change(text));
}

/** Collects errors of the console, exceptions and dialogs. */
export function watch(page) {
  const errors = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") errors.push(`${message.type()}: ${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => errors.push(`exception: ${error.stack ?? error}`));
  page.on("dialog", (dialog) => {
    errors.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return errors;
}

/** The response of the metrics API about pods and nodes without values yet. Every page that shows usage may get it. */
const NO_METRICS = /status of (404|503).*metrics\.k8s\.io/;

/** Fails if the console has an error other than an expected response. */
export function checkConsole(errors, ...expected) {
  const allowed = [NO_METRICS, ...expected];
  const unexpected = errors.splice(0).filter((error) => !allowed.some((pattern) => pattern.test(error)));
  if (unexpected.length > 0) throw new Error(`errors in the console:\n${unexpected.join("\n")}`);
}

/** Fails if the accessibility check finds a serious problem. */
export async function checkAccessibility(page, name) {
  // The policy of the page allows no inline script; a script that the debugger evaluates is not subject to it.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const results = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return results.violations
      .filter((violation) => ["serious", "critical"].includes(violation.impact))
      .map((violation) => `${violation.id} (${violation.impact}): ${violation.help}\n${violation.nodes.slice(0, 5).map((node) => `  ${node.html.slice(0, 200)}\n    ${(node.failureSummary ?? "").replace(/\n/g, "\n    ")}`).join("\n")}`);
  });
  if (found.length > 0) throw new Error(`accessibility of ${name}:\n${found.join("\n")}`);
}

export async function screenshot(page, name) {
  if (!settings.screenshots) return;
  mkdirSync(settings.screenshots, { recursive: true });
  await page.screenshot({ path: join(settings.screenshots, `${name}.png`) });
}

/** Waits for a condition that a command shows. */
export async function eventually(what, condition) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Starts `knarr dashboard`. `link` returns its next sign-in link. */
export function serveAlone(args, env = {}) {
  const process_ = spawn(settings.knarr, ["dashboard", ...args], { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => process_.on("exit", resolve));
  const lines = createInterface({ input: process_.stdout })[Symbol.asyncIterator]();
  const link = async () => {
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error("knarr dashboard has exited");
      if (value.startsWith("http://")) return value;
    }
  };
  return {
    link,
    /** Presses Enter. */
    enter: () => process_.stdin.write("\n"),
    stop: async () => {
      process_.kill("SIGTERM");
      return ended;
    },
  };
}

/** Kills the process of the cluster and waits until it has exited. Pods keep running. */
export async function killServer() {
  const pid = Number(readFileSync(join(settings.data, "knarr.lock"), "utf8").split("\n")[0]);
  process.kill(pid, "SIGKILL");
  await eventually("the end of the server", () => !succeeds(() => process.kill(pid, 0)));
}

export function startServer() {
  knarrOnHost(...settings.up.split(" "));
}
