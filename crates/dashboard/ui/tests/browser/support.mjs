// A browser, the checks that every page must pass, and the cluster's command line.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const settings = {
  url: process.env.DASHBOARD_URL,
  adminToken: process.env.ADMIN_TOKEN,
  viewerToken: process.env.VIEWER_TOKEN,
  knarr: process.env.KNARR,
  chromium: process.env.CHROMIUM ?? "/usr/bin/chromium",
  screenshots: process.env.SCREENSHOTS,
  dist: process.env.DASHBOARD_DIST,
};

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** Runs `knarr kubectl`. */
export function kubectl(...args) {
  const input = typeof args.at(-1) === "object" ? args.pop().input : "";
  return execFileSync(settings.knarr, ["kubectl", ...args], { encoding: "utf8", input }).trim();
}

export async function start() {
  const profile = mkdtempSync(join(tmpdir(), "knarr-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: settings.chromium,
    headless: true,
    args: FLAGS,
    ignoreHTTPSErrors: true,
    locale: "en-US",
    colorScheme: "light",
    viewport: { width: 1360, height: 860 },
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
    stop: async () => {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** Collects errors of the console, exceptions and dialogs. */
function watch(page) {
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

/** Chromium breaks off requests when a pod gets its network interface, which other hosts than the node do not see. */
const NETWORK_CHANGED = /ERR_NETWORK_CHANGED/;

/** Fails if the console has an error other than an expected response. */
export function checkConsole(errors, ...expected) {
  const unexpected = errors.splice(0).filter((error) => ![NETWORK_CHANGED, ...expected].some((pattern) => pattern.test(error)));
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
