// Bad conditions: each is shown in words, and recovered from without a reload where that is possible.
import assert from "node:assert/strict";
import { createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { checkConsole, eventually, killServer, kubectl, screenshot, serveAlone, settings, signOut, startServer, succeeds, watch } from "../support.mjs";

const SERVICES = "/types/core/v1/services";
const LOST = "The server cannot be reached";

/** Marks the document, so that a reload is noticed. */
const mark = (page) => page.evaluate(() => { globalThis.isSameDocument = true; });
const isSameDocument = (page) => page.evaluate(() => globalThis.isSameDocument === true);

/** API servers accept tokens for a minute after their expiry. */
const LEEWAY_SECONDS = 60;

/** Returns a token like another one that is accepted for some seconds more. */
function shortLived(token, seconds) {
  const [head, body] = token.split(".");
  const claims = { ...JSON.parse(Buffer.from(body, "base64url").toString()), exp: Math.floor(Date.now() / 1000) + seconds - LEEWAY_SECONDS };
  const content = `${head}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}`;
  const key = createPrivateKey(readFileSync(join(settings.data, "pki/sa.key")));
  return `${content}.${sign("sha256", content, { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

export const conditions = {
  "a watch that ends with 410 is reported, and followed by a new list": async ({ page, errors, go }) => {
    const expired = { type: "ERROR", object: { kind: "Status", status: "Failure", reason: "Expired", code: 410, message: "too old resource version" } };
    let watches = 0;
    let release;
    const released = new Promise((resolve) => { release = resolve; });
    await page.route(/\/services\?/, async (route) => {
      if (!route.request().url().includes("watch=1")) {
        // The list after the watch waits until the message was seen.
        if (watches > 0) await released;
        return route.continue();
      }
      watches += 1;
      return watches === 1 ? route.fulfill({ contentType: "application/json", body: `${JSON.stringify(expired)}\n` }) : route.continue();
    });
    await go(SERVICES);
    await mark(page);
    await page.getByRole("alert").getByText("The list was outdated and is read again.").waitFor();
    await page.getByRole("rowheader", { name: "kubernetes" }).waitFor();
    release();
    await page.getByRole("alert").waitFor({ state: "detached" });
    kubectl("create", "service", "clusterip", "later", "--tcp=80");
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    await page.unroute(/\/services\?/);
    assert.ok(await isSameDocument(page));
    checkConsole(errors);
  },

  "a lost connection is reported, and resumed": async ({ page, errors, go }) => {
    await page.route("**/dashboard/api/**", (route) => route.abort("connectionrefused"));
    await go("/types/core/v1/secrets");
    await page.getByText(LOST).first().waitFor();
    await page.unroute("**/dashboard/api/**");
    await page.getByText("There are no objects of this type here.").waitFor();
    checkConsole(errors, /ERR_CONNECTION_REFUSED/);
  },

  "a namespace without rights is reported, and shown when the right is granted": async ({ page, errors, go, heading, signIn }) => {
    await signOut(page);
    await signIn(settings.viewerToken);
    await heading("Overview").waitFor();
    await page.getByText("You do not have permission to see this.").first().waitFor();
    await page.getByText(/cannot list resource "nodes"/).first().waitFor();
    await screenshot(page, "forbidden");
    await go(SERVICES);
    await mark(page);
    await page.getByRole("alert").getByText(/cannot list resource "services" in API group "" in the namespace "default"/).waitFor();
    kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer");
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    await page.getByRole("alert").waitFor({ state: "detached" });
    // Users who must not list namespaces enter one.
    await page.getByRole("textbox", { name: "Namespace" }).fill("kube-system");
    await page.getByRole("textbox", { name: "Namespace" }).press("Enter");
    await page.getByRole("alert").getByText(/in the namespace "kube-system"/).waitFor();
    await page.getByRole("textbox", { name: "Namespace" }).fill("default");
    await page.getByRole("textbox", { name: "Namespace" }).press("Enter");
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    assert.ok(await isSameDocument(page));
    checkConsole(errors, /status of 403/);
  },

  "keyboard alone reaches the content": async ({ page, errors, go }) => {
    await go(SERVICES);
    await page.reload();
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    assert.equal(await focused(), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("role")), "combobox");
    await page.keyboard.type("pods");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Pods" }).waitFor();
    checkConsole(errors, /status of 403/);
  },

  "an expired token is reported, and the page continues after a new one": async ({ page, errors, go, heading, signIn }) => {
    await signOut(page);
    const token = shortLived(settings.adminToken, 15);
    await signIn(token);
    await heading("Overview").waitFor();
    checkConsole(errors, /status of (403|404|503)/);
    await mark(page);
    const whoami = () => kubectl("--token", token, "--kubeconfig", "/dev/null", "--server", new URL(settings.url).origin, "--insecure-skip-tls-verify", "auth", "whoami");
    assert.ok(succeeds(whoami), "the token is valid at first");
    await eventually("the end of the token", () => !succeeds(whoami));
    await go(SERVICES);
    await page.getByText("The cluster no longer accepts your credentials; a token may have expired.").waitFor();
    await screenshot(page, "expired");
    await signIn(settings.adminToken);
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    assert.ok(await isSameDocument(page));
    checkConsole(errors, /status of 401/);
  },

  "a session that ends is reported, and the page continues after signing in": async ({ context, page, errors, go, signIn }) => {
    await context.clearCookies();
    await go("/types/core/v1/configmaps");
    await page.getByText("Your session has ended.").waitFor();
    await signIn(settings.adminToken);
    await page.getByRole("rowheader", { name: "lines" }).waitFor();
    checkConsole(errors, /status of 401/);
  },

  "a server that restarts is reported, and its watches resume": async ({ context, page, errors, go, signIn }) => {
    const alone = serveAlone(["--kubeconfig", settings.kubeconfig]);
    const second = await context.newPage();
    const secondErrors = watch(second);
    try {
      await second.goto(await alone.link());
      await second.getByRole("link", { name: "only" }).waitFor();
      await second.goto(`${new URL(second.url()).origin}/dashboard/#${SERVICES}`);
      await go(SERVICES);
      for (const it of [page, second]) {
        await it.getByRole("rowheader", { name: "later" }).waitFor();
        await mark(it);
      }
      checkConsole(errors);
      await killServer();
      for (const it of [page, second]) {
        await it.bringToFront();
        await it.getByText(LOST).first().waitFor();
      }
      await screenshot(second, "server-lost");
      startServer();
      kubectl("create", "service", "clusterip", "after-restart", "--tcp=80");
      // `knarr dashboard` still has the session.
      await second.bringToFront();
      await second.getByRole("rowheader", { name: "after-restart" }).waitFor();
      await second.getByRole("alert").waitFor({ state: "detached" });
      // The sessions of the server are gone with its memory.
      await page.bringToFront();
      await page.getByText("Your session has ended.").waitFor();
      await signIn(settings.adminToken);
      await page.getByRole("rowheader", { name: "after-restart" }).waitFor();
      for (const it of [page, second]) assert.ok(await isSameDocument(it));
      checkConsole(errors, /ERR_CONNECTION_|ERR_HTTP2|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_SOCKET|status of (401|429|50\d|403)/);
      checkConsole(secondErrors, /ERR_INCOMPLETE_CHUNKED_ENCODING|status of (401|403|429|50\d)/);
    } finally {
      await second.close();
      await alone.stop();
    }
  },
};
