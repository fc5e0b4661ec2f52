// The dashboard in a browser, against a real cluster. `crates/knarr/tests/up/dashboard.rs` starts both.
import assert from "node:assert/strict";

import { checkAccessibility, checkConsole, eventually, kubectl, screenshot, settings, start } from "./support.mjs";

const { context, page, errors, stop } = await start();
const go = (hash) => page.goto(`${settings.url}#${hash}`);
const heading = (name) => page.getByRole("heading", { level: 1, name });

async function signIn(token) {
  await page.locator("input[name=token]").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Replaces the text of the YAML editor. */
async function edit(change) {
  const editor = page.locator(".editor .cm-content");
  await editor.click();
  const text = await page.locator(".editor").evaluate((element) => {
    const content = element.shadowRoot.querySelector(".cm-content");
    return content.cmTile?.view?.state.doc.toString() ?? content.cmView?.view.state.doc.toString();
  });
  assert.ok(text, "the text of the editor");
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText(change(text));
}

const SHOP = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - {name: web, image: knarr.local/hello, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
`;

const steps = {
  "wrong credentials are rejected with a reason, and a token signs in": async () => {
    await page.goto(settings.url);
    await heading("Sign in to the cluster").waitFor();
    await checkAccessibility(page, "sign in");
    await screenshot(page, "sign-in");
    checkConsole(errors);
    await signIn("wrong");
    await page.getByRole("alert").getByText("Unauthorized").waitFor();
    checkConsole(errors, /status of 401/);
    await signIn(settings.adminToken);
    await heading("Overview").waitFor();
    await page.getByRole("link", { name: "only" }).waitFor();
    const cookies = await context.cookies();
    assert.deepEqual(cookies.map(({ httpOnly, secure, sameSite }) => ({ httpOnly, secure, sameSite })), [{ httpOnly: true, secure: true, sameSite: "Strict" }]);
    assert.equal(await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })).then((text) => text.includes("Bearer") || text.includes("ey")), false);
  },

  "objects are created from YAML after a check by the server": async () => {
    await go("/create");
    await page.getByRole("button", { name: "Check" }).waitFor();
    await edit(() => SHOP.replace("replicas: 2", "replicas: two"));
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText(/cannot unmarshal|expected integer|invalid/i).first().waitFor();
    checkConsole(errors, /status of 4(00|22)/);
    await edit(() => SHOP);
    await page.getByRole("button", { name: "Create", exact: true }).click();
    await page.getByText("Deployment shop: created").waitFor();
    await page.getByText("Service shop: created").waitFor();
    checkConsole(errors);
  },

  "a rollout is followed live through the event chain": async () => {
    await go("/objects/apps/v1/deployments/default/shop/chain");
    await page.getByText("Path of the change").waitFor();
    for (const part of ["API server", "Controllers", "Scheduler", "kubelet", "Runtime", "Endpoints", "Service proxy"]) {
      await page.locator(".flow li.lit").getByText(part, { exact: true }).waitFor();
    }
    await page.locator(".lane-name", { hasText: "Deployment/shop" }).first().waitFor();
    await page.locator(".lane-name", { hasText: "Pod/shop-" }).first().waitFor();
    await checkAccessibility(page, "event chain");
    await screenshot(page, "chain");
    checkConsole(errors);
  },

  "a table follows changes, and is filtered and sorted": async () => {
    await go("/types/core/v1/pods");
    await page.getByRole("table", { name: "Pods" }).waitFor();
    await page.getByRole("rowheader", { name: /^shop-/ }).first().waitFor();
    await page.getByLabel("Filter rows").fill("app=shop");
    await page.getByText(/^2 of \d+ objects$/).waitFor();
    kubectl("scale", "deployment", "shop", "--replicas=3");
    await page.getByText(/^3 of \d+ objects$/).waitFor();
    await page.getByRole("button", { name: "Sort by Age" }).click();
    await page.getByRole("columnheader", { name: "Sort by Age" }).and(page.locator("[aria-sort=ascending]")).waitFor();
    await page.getByLabel("Label selector").fill("app=shop");
    await page.getByLabel("Label selector").press("Enter");
    await page.getByLabel("Filter rows").fill("");
    await page.getByText("3 objects").waitFor();
    await checkAccessibility(page, "table");
    await screenshot(page, "table");
    // Custom types are tables too.
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: /Go to a type/ }).fill("widgets");
    await page.keyboard.press("Enter");
    await page.getByRole("rowheader", { name: "hostile" }).waitFor();
    checkConsole(errors);
  },

  "ten thousand rows stay a small document": async () => {
    await page.evaluate(async (count) => {
      let next = 0;
      const create = async () => {
        while (next < count) {
          const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: `row-${next++}` } };
          const headers = { "X-Knarr-Dashboard": "1", "X-Knarr-Session": localStorage.getItem("knarr-session"), "Content-Type": "application/json" };
          const response = await fetch("/dashboard/api/api/v1/namespaces/default/configmaps", { method: "POST", headers, body: JSON.stringify(object) });
          if (!response.ok) throw new Error(await response.text());
        }
      };
      await Promise.all(Array.from({ length: 40 }, create));
    }, 10_000);
    await go("/types/core/v1/configmaps");
    await page.getByText(/^10\d\d\d objects$/).waitFor({ timeout: 60_000 });
    const rows = () => page.locator(".table .virtual-rows .row").count();
    assert.ok((await rows()) < 80, "only rows in view are elements");
    await page.locator(".table").evaluate((element) => { element.scrollTop = element.scrollHeight; });
    await page.getByRole("rowheader", { name: "row-9999" }).waitFor();
    const milliseconds = await page.evaluate(async () => {
      const table = document.querySelector(".table");
      const began = performance.now();
      for (let frame = 0; frame < 30; frame += 1) {
        table.scrollTop = frame * 9000;
        await new Promise(requestAnimationFrame);
      }
      return (performance.now() - began) / 30;
    });
    assert.ok(milliseconds < 200, `${milliseconds} ms for a frame`);
    checkConsole(errors);
  },

  "hostile names, labels, messages and logs are only text": async () => {
    for (const [hash, text] of [
      ["/objects/core/v1/configmaps/default/hostile", "<img src=x onerror"],
      ["/objects/core/v1/configmaps/default/hostile/yaml", "<script>"],
      ["/types/example.com/v1/widgets", "<b onclick"],
      ["/objects/core/v1/pods/default/hostile/events", "<svg onload"],
      ["/objects/core/v1/pods/default/hostile/logs", "<script>"],
    ]) {
      await go(hash);
      await page.getByText(text).first().waitFor();
    }
    const line = await page.locator(".log-line", { hasText: "after-escape" }).innerText();
    assert.equal(line.trim(), "before-red-after-escape");
    await page.locator(".log-line .fg-1", { hasText: "red" }).waitFor();
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.equal(await page.title().then((title) => title.includes("owned")), false);
    await screenshot(page, "logs-hostile");
    checkConsole(errors);
  },

  "a log is followed and searched": async () => {
    await go("/objects/core/v1/pods/default/chatty/logs");
    const last = async () => Number(/tick (\d+) /.exec(await page.locator(".log-line").last().innerText())?.[1]);
    await page.locator(".log-line .fg-2", { hasText: "info" }).first().waitFor();
    const before = await last();
    await eventually("a newer line at the end", async () => (await last()) > before);
    await page.getByLabel("Search in the log").fill("tick 2 ");
    await page.getByText("1 lines match").waitFor();
    assert.equal(await page.locator(".log mark").first().innerText(), "tick 2 ");
    await page.getByLabel("Search in the log").fill("");
    await checkAccessibility(page, "logs");
    await screenshot(page, "logs");
    checkConsole(errors);
  },

  "a terminal runs commands and follows the size of the page": async () => {
    await go("/objects/core/v1/pods/default/chatty/terminal");
    await page.getByRole("textbox", { name: "Command" }).fill("/bin/busybox sh");
    await page.getByRole("button", { name: "Connect" }).click();
    const terminal = page.locator(".terminal-box");
    await terminal.locator(".xterm-screen").waitFor();
    const shown = async () => (await terminal.locator(".xterm-rows").innerText()).replace(/\u00a0/g, " ");
    const type = async (text) => {
      await terminal.locator("textarea").focus();
      await page.keyboard.type(`${text}\n`);
    };
    await eventually("a prompt", async () => /^\/ # *$/m.test(await shown()));
    await type("echo $((6*7))-answer");
    await eventually("the answer of the shell", async () => /^42-answer/m.test(await shown()));
    const columns = async (marker) => {
      await type(`echo ${marker}=$(/bin/busybox stty size)`);
      return eventually("the size of the terminal", async () => new RegExp(`^${marker}=(\\d+) (\\d+)`, "m").exec(await shown())?.[2]);
    };
    const before = Number(await columns("before"));
    await checkAccessibility(page, "terminal");
    await screenshot(page, "terminal");
    await page.setViewportSize({ width: 1000, height: 700 });
    await eventually("a narrower terminal", async () => Number(await columns(`now${Date.now()}`)) < before);
    await page.setViewportSize({ width: 1360, height: 860 });
    await type("exit 3");
    await page.getByText("The command exited with code 3.").waitFor();
    checkConsole(errors);
  },

  "an edit shows its difference, and conflicts by field manager": async () => {
    kubectl("apply", "--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-", {
      input: SHOP.split("---")[0].replace("replicas: 2", "replicas: 4"),
    });
    await go("/objects/apps/v1/deployments/default/shop/yaml");
    await page.getByRole("button", { name: "Edit" }).click();
    await edit((text) => text.replace(/replicas: 4/, "replicas: 1"));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByText(/helm owns .*\.spec\.replicas/).waitFor();
    await checkAccessibility(page, "conflict");
    await screenshot(page, "conflict");
    checkConsole(errors, /status of 409/);
    await page.getByRole("button", { name: "Take over these fields" }).click();
    await page.locator(".diff .added", { hasText: "replicas: 1" }).waitFor();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
    assert.equal(kubectl("get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}"), "1");
    await page.locator(".editor").getByText("replicas: 1").first().waitFor();
    // A removed label needs a replacement of the object.
    await page.getByRole("button", { name: "Edit" }).click();
    await edit((text) => text.replace(/ {2}labels:\n {4}app: shop\n/, ""));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByText("the object is replaced as a whole").waitFor();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("button", { name: "Edit" }).waitFor();
    assert.equal(kubectl("get", "deployment", "shop", "-o", "jsonpath={.metadata.labels}"), "");
    await screenshot(page, "yaml");
    checkConsole(errors);
  },

  "actions scale, restart, roll back, pause and delete": async () => {
    await go("/objects/apps/v1/deployments/default/shop");
    const action = async (name) => {
      await page.getByRole("button", { name: "Actions" }).click();
      await page.getByRole("menuitem", { name, exact: true }).click();
    };
    await action("Scale");
    await page.getByLabel("Number of replicas").fill("3");
    await page.getByRole("dialog").getByRole("button", { name: "Scale" }).click();
    await page.getByText("Scale: done.").waitFor();
    await page.locator(".big", { hasText: "/ 3" }).waitFor();
    await action("Restart");
    await page.getByRole("dialog").getByRole("button", { name: "Restart" }).click();
    await page.getByText("Restart: done.").waitFor();
    await page.getByText("Revision 2").waitFor();
    await page.getByRole("button", { name: "Roll back" }).first().click();
    await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
    await page.getByText("Roll back: done.").waitFor();
    await page.getByText("Revision 3").waitFor();
    await action("Pause rollout");
    await page.getByText("Paused", { exact: true }).waitFor();
    await action("Resume rollout");
    await page.getByText("Resume rollout: done.").waitFor();
    await eventually("ready pods", () => page.locator(".big", { hasText: "3 / 3" }).isVisible());
    await checkAccessibility(page, "deployment");
    await screenshot(page, "deployment");
    await go("/objects/core/v1/nodes/-/only");
    await action("Cordon");
    await page.getByText("SchedulingDisabled").first().waitFor();
    await action("Uncordon");
    await page.getByText("Uncordon: done.").waitFor();
    await screenshot(page, "node");
    await go("/objects/core/v1/configmaps/default/row-1");
    await action("Delete");
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("Delete: done.").waitFor();
    assert.equal(kubectl("get", "configmap", "row-1", "--ignore-not-found"), "");
    checkConsole(errors);
  },

  "problems and warnings are shown with their reasons": async () => {
    await go("/");
    await page.getByText("The image is not on the node").first().waitFor();
    await page.getByText("No node fits the pod").first().waitFor();
    await page.getByRole("img", { name: /^CPU/ }).first().waitFor({ timeout: 60_000 });
    await checkAccessibility(page, "overview");
    await screenshot(page, "overview");
    await go("/objects/core/v1/pods/default/chatty");
    await page.getByRole("heading", { name: "Containers" }).waitFor();
    await checkAccessibility(page, "pod");
    await screenshot(page, "pod");
    await go("/objects/apps/v1/deployments/default/shop/related");
    await page.locator(".tree").getByText(/^Pod\/shop-/).first().waitFor();
    await screenshot(page, "related");
    checkConsole(errors, /status of (404|503).*metrics\.k8s\.io/);
  },

  "the network shows services, pods and policies": async () => {
    await go("/network");
    await page.locator(".box-title", { hasText: "Deployment/shop" }).waitFor();
    await page.getByText("Service/shop leads to Deployment/shop").waitFor();
    await page.locator(".box-line", { hasText: "Restricted by closed" }).waitFor();
    await checkAccessibility(page, "network");
    await screenshot(page, "network");
    checkConsole(errors);
  },

  "language, theme and phone": async () => {
    await go("/");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Theme").selectOption("dark");
    await checkAccessibility(page, "settings");
    await page.getByLabel("Language").selectOption("ko");
    await page.getByRole("heading", { level: 1, name: "개요" }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.lang), "ko");
    await page.keyboard.press("Escape");
    await page.getByText("문제가 있는 항목").waitFor();
    await checkAccessibility(page, "overview, dark, Korean");
    await screenshot(page, "overview-dark-ko");
    await page.evaluate(() => localStorage.setItem("knarr.language", "en"));
    await page.reload();
    await heading("Overview").waitFor();
    const pages = {
      overview: ["/", "Not well"],
      table: ["/types/core/v1/pods", "chatty"],
      deployment: ["/objects/apps/v1/deployments/default/shop", "Revisions"],
      pod: ["/objects/core/v1/pods/default/chatty", "Containers"],
      logs: ["/objects/core/v1/pods/default/chatty/logs", "of the clock"],
      chain: ["/objects/apps/v1/deployments/default/shop/chain", "Waterfall"],
      yaml: ["/objects/apps/v1/deployments/default/shop/yaml", "apiVersion"],
      network: ["/network", "Connections"],
      create: ["/create", "Check"],
    };
    for (const [size, viewport] of Object.entries({ dark: { width: 1360, height: 860 }, phone: { width: 390, height: 844 } })) {
      await page.setViewportSize(viewport);
      for (const [name, [hash, text]] of Object.entries(pages)) {
        await go(hash);
        await page.locator("main").getByText(text).first().waitFor();
        await checkAccessibility(page, `${name}, ${size}`);
        await screenshot(page, `${name}-${size}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${name}, ${size} is ${overflow} pixels too wide`);
      }
    }
    await page.getByRole("button", { name: "Menu" }).click();
    await page.getByRole("link", { name: "Overview" }).click();
    await heading("Overview").waitFor();
    await page.setViewportSize({ width: 1360, height: 860 });
    checkConsole(errors, /status of (404|503).*metrics\.k8s\.io/);
  },

  "an expired version, a lost connection and an ended session are recovered from": async () => {
    const expired = { type: "ERROR", object: { kind: "Status", status: "Failure", reason: "Expired", code: 410, message: "too old resource version" } };
    let answered = 0;
    await page.route(/\/services\?.*watch=1/, (route) => {
      answered += 1;
      return answered === 1 ? route.fulfill({ contentType: "application/json", body: `${JSON.stringify(expired)}\n` }) : route.continue();
    });
    await go("/types/core/v1/services");
    await page.getByRole("rowheader", { name: "kubernetes" }).waitFor();
    await eventually("a second watch", () => answered > 1);
    kubectl("create", "service", "clusterip", "later", "--tcp=80");
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    await page.unroute(/\/services\?.*watch=1/);
    checkConsole(errors);

    await page.route("**/dashboard/api/**", (route) => route.abort("connectionrefused"));
    await go("/types/core/v1/secrets");
    await page.getByText("The server cannot be reached").first().waitFor();
    await page.unroute("**/dashboard/api/**");
    await page.getByText("There are no objects of this type here.").waitFor();
    checkConsole(errors, /ERR_CONNECTION_REFUSED/);

    await context.clearCookies();
    await go("/types/core/v1/services");
    await page.getByText("Your session has ended.").waitFor();
    await signIn(settings.adminToken);
    await page.getByRole("rowheader", { name: "later" }).waitFor();
    checkConsole(errors, /status of 401/);
  },

  "a user without rights learns why nothing is shown": async () => {
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await heading("Sign in to the cluster").waitFor();
    assert.deepEqual(await context.cookies(), []);
    await signIn(settings.viewerToken);
    await heading("Overview").waitFor();
    await page.getByText("You do not have the right to see this.").first().waitFor();
    await page.getByText(/cannot list resource "nodes"/).first().waitFor();
    await screenshot(page, "forbidden");
    checkConsole(errors, /status of 403/);
  },

  "keyboard alone reaches the content": async () => {
    await go("/types/core/v1/pods");
    await page.getByText("You do not have the right").first().waitFor();
    await page.reload();
    await page.getByText("You do not have the right").first().waitFor();
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    assert.equal(await focused(), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("role")), "combobox");
    checkConsole(errors, /status of 403/);
  },
};

// An argument is a pattern of the steps to run; all need the first one.
const only = new RegExp(process.argv[2] ?? "");
try {
  for (const [name, step] of Object.entries(steps)) {
    if (!only.test(name) && !name.includes("token signs in")) continue;
    const began = Date.now();
    try {
      await step();
      console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      console.log(`FAILED ${name}\n${error.stack}\nconsole: ${errors.join("\n")}\npage ${page.url()}:\n${await page.locator("body").innerText().catch(() => "")}`);
      await screenshot(page, "failure");
      process.exitCode = 1;
      break;
    }
  }
} finally {
  await stop();
}
