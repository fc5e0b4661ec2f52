// `knarr dashboard`, certificates of kubeconfigs, and attacks of other origins on the same host.
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

import { checkConsole, eventually, kubectl, serveAlone, settings, signOut, watch } from "../support.mjs";

/** Serves a page of an attacker on a free port of this host. */
async function serveAttacker() {
  const server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<!doctype html><title>attacker</title><body>"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    server.close();
    // Browsers keep connections open.
    server.closeAllConnections();
  };
  return { port: server.address().port, stop };
}

/** What a page of another origin can do with the user's cookies. Returns the results by their names. */
async function attack(victim) {
  const results = {};
  const attempt = async (name, run) => {
    try {
      results[name] = String(await run());
    } catch (error) {
      results[name] = error.name;
    }
  };
  const api = `${victim}/dashboard/api/api/v1`;
  const forged = JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: "forged" } });
  const loaded = (element, address) => new Promise((resolve) => {
    element.onload = () => resolve("loaded");
    element.onerror = () => resolve("refused");
    element[element instanceof HTMLLinkElement ? "href" : "src"] = address;
    document.body.append(element);
  });
  await attempt("read", async () => (await fetch(`${api}/secrets`, { credentials: "include" })).text());
  await attempt("readMarked", async () => (await fetch(`${api}/secrets`, { credentials: "include", headers: { "X-Knarr-Dashboard": "1" } })).text());
  await attempt("readSession", async () => (await fetch(`${victim}/dashboard/session`, { credentials: "include" })).text());
  await attempt("readOpaque", async () => (await (await fetch(`${api}/secrets`, { credentials: "include", mode: "no-cors" })).text()).length);
  await attempt("write", async () => (await fetch(`${api}/namespaces`, { method: "POST", body: forged, credentials: "include", mode: "no-cors" })).type);
  await attempt("signOut", async () => (await fetch(`${victim}/dashboard/session`, { method: "DELETE", credentials: "include" })).status);
  await attempt("script", () => loaded(document.createElement("script"), `${api}/secrets`));
  await attempt("sessionScript", () => loaded(document.createElement("script"), `${victim}/dashboard/session`));
  await attempt("appScript", () => loaded(document.createElement("script"), `${victim}/dashboard/assets/index.js`));
  await attempt("image", () => loaded(new Image(), `${victim}/dashboard/assets/icon.svg`));
  await attempt("socket", () => new Promise((resolve) => {
    const socket = new WebSocket(`${victim.replace("http", "ws")}/dashboard/api/api/v1/namespaces/default/pods/chatty/exec?command=id`, ["v5.channel.k8s.io"]);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
  }));
  // A form sends JSON as text, into a frame of the attacker.
  await attempt("form", () => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.name = "target";
    document.body.append(frame);
    frame.onload = () => resolve("answered");
    const form = Object.assign(document.createElement("form"), { method: "POST", action: `${api}/namespaces`, target: "target", enctype: "text/plain" });
    const field = Object.assign(document.createElement("input"), { name: forged.slice(0, -1), value: "}" });
    form.append(field);
    document.body.append(form);
    form.submit();
  }));
  await attempt("frame", () => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.id = "clickjacking";
    frame.src = `${victim}/dashboard/`;
    frame.onload = () => resolve("answered");
    document.body.append(frame);
  }));
  return results;
}

export const loopback = {
  "the client certificate of a kubeconfig signs in": async ({ page, errors, heading, signIn, go }) => {
    await go("/");
    await signOut(page);
    const kubeconfig = readFileSync(settings.kubeconfig, "utf8");
    assert.ok(kubeconfig.includes("client-certificate-data"), "a kubeconfig with a certificate");
    await page.getByRole("radio", { name: "Kubeconfig" }).check();
    await page.locator("input[type=file]").setInputFiles({ name: "config", mimeType: "text/yaml", buffer: Buffer.from(kubeconfig) });
    await eventually("the file's text", async () => (await page.locator("textarea[name=kubeconfig]").inputValue()) === kubeconfig);
    await page.getByRole("button", { name: "Sign in" }).click();
    await heading("Overview").waitFor();
    await page.getByRole("link", { name: "only" }).waitFor();
    const user = JSON.parse(kubectl("auth", "whoami", "-o", "json")).status.userInfo.username;
    await page.getByRole("button", { name: "Settings" }).click();
    await page.locator(".user", { hasText: user }).waitFor();
    await page.keyboard.press("Escape");
    checkConsole(errors);
    await signOut(page);
    await signIn(settings.adminToken);
    await heading("Overview").waitFor();
  },

  "signing out deletes the cookie and ends the session": async ({ context, page, errors }) => {
    const [cookie] = await context.cookies(settings.url);
    const secret = await page.evaluate(() => localStorage.getItem("knarr-session"));
    const list = (secret) => page.evaluate(async (secret) => {
      const headers = { "X-Knarr-Dashboard": "1", "X-Knarr-Session": secret };
      return (await fetch("/dashboard/api/api/v1/namespaces", { headers })).status;
    }, secret);
    assert.equal(await list(secret), 200);
    await signOut(page);
    assert.deepEqual(await context.cookies(settings.url), []);
    assert.equal(await page.evaluate(() => localStorage.getItem("knarr-session")), null);
    // Copies of both secrets are worth nothing.
    await context.addCookies([cookie]);
    assert.equal(await list(secret), 401);
    await context.clearCookies();
    checkConsole(errors, /status of 401/);
  },

  "knarr dashboard opens the browser, and its links sign in once": async ({ context }) => {
    const dir = mkdtempSync(join(tmpdir(), "knarr-open-"));
    const [opener, opened] = [join(dir, "xdg-open"), join(dir, "opened")];
    writeFileSync(opener, `#!/bin/sh\necho "$1" > ${opened}.new && mv ${opened}.new ${opened}\n`);
    chmodSync(opener, 0o755);
    const alone = serveAlone(["--open", "--kubeconfig", settings.kubeconfig], { PATH: `${dir}${delimiter}${process.env.PATH}` });
    const page = await context.newPage();
    const errors = watch(page);
    try {
      const link = await alone.link();
      assert.match(link, /^http:\/\/127\.0\.0\.1:\d+\/dashboard\/#\/sign-in\/\S{40,}$/);
      // Other users can read the arguments of a process: the browser gets a page that only its owner can read.
      const leading = await eventually("a browser with a page", () => {
        try {
          return readFileSync(opened, "utf8").trim();
        } catch {
          return undefined;
        }
      });
      assert.equal(statSync(leading).mode & 0o777, 0o600);
      await page.goto(`file://${leading}`);
      await page.getByRole("link", { name: "only" }).waitFor();
      assert.ok(!page.url().includes("sign-in"), "the code is not in the address");
      const [cookie] = await context.cookies(link);
      assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
      checkConsole(errors);
      await signOut(page);
      await page.goto("about:blank");
      await page.goto(link);
      await page.getByRole("alert").getByText("has been used").waitFor();
      checkConsole(errors, /status of 400/);
      alone.enter();
      await page.goto("about:blank");
      await page.goto(await alone.link());
      await page.getByRole("link", { name: "only" }).waitFor();
      checkConsole(errors);
      assert.equal(await alone.stop(), 0, "SIGTERM ends it");
    } finally {
      await page.close();
      await alone.stop();
      rmSync(dir, { recursive: true });
    }
  },

  "pages of other origins cannot read, write, embed or open anything": async ({ context }) => {
    const alone = serveAlone(["--kubeconfig", settings.kubeconfig]);
    const attacker = await serveAttacker();
    const page = await context.newPage();
    try {
      const link = await alone.link();
      const victim = new URL(link).origin;
      await page.goto(link);
      await page.getByRole("link", { name: "only" }).waitFor();
      // Browsers limit the connections to a host; this page has few.
      await page.goto(`${victim}/dashboard/#/create`);
      // Another port of the same host is the same site: the browser sends the cookie. Another name is another site.
      for (const host of ["127.0.0.1", "localhost"]) {
        const evil = await context.newPage();
        const cookies = new Set();
        const devtools = await context.newCDPSession(evil);
        devtools.on("Network.requestWillBeSentExtraInfo", ({ headers }) => cookies.add(headers.Cookie ?? headers.cookie ?? ""));
        await devtools.send("Network.enable");
        await evil.goto(`http://${host}:${attacker.port}/`);
        const results = await evil.evaluate(attack, victim);
        assert.deepEqual(results, {
          read: "TypeError", readMarked: "TypeError", readSession: "TypeError", readOpaque: "TypeError", write: "TypeError", signOut: "TypeError",
          script: "refused", sessionScript: "refused", appScript: "refused", image: "refused", socket: "refused", form: "answered", frame: "answered",
        });
        const hasCookie = [...cookies].some((cookie) => cookie.includes("knarr-session"));
        assert.equal(hasCookie, host === "127.0.0.1", "only the same site sends the cookie");
        const frames = () => evil.frames().filter((frame) => frame !== evil.mainFrame()).map((frame) => frame.url());
        assert.equal(frames().length, 2);
        await eventually("errors instead of frames", () => frames().every((url) => url.startsWith("chrome-error:")));
        // A page that it opens is not in its reach.
        const opening = context.waitForEvent("page");
        await evil.evaluate((address) => { globalThis.opened = open(address); }, `${victim}/dashboard/`);
        const opened = await opening;
        await opened.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
        assert.equal(await evil.evaluate(() => globalThis.opened.closed), true);
        assert.equal(await opened.evaluate(() => globalThis.opener), null);
        await opened.close();
        await evil.close();
      }
      assert.equal(kubectl("get", "namespace", "forged", "--ignore-not-found"), "");
      await page.goto(`${victim}/dashboard/#/`);
      await page.getByRole("link", { name: "only" }).waitFor();
    } finally {
      await page.close();
      attacker.stop();
      await alone.stop();
    }
  },
};
