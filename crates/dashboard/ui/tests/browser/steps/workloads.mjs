// Sign in, create, follow a rollout, tables.
import assert from "node:assert/strict";

import { checkAccessibility, checkConsole, edit, eventually, knarrOnHost, kubectl, screenshot, settings } from "../support.mjs";

export const SHOP = `apiVersion: apps/v1
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

const PARTS = ["API server", "Controllers", "Scheduler", "kubelet", "Runtime", "Endpoints", "Service proxy"];
const CHAIN = "/objects/apps/v1/deployments/default/shop/chain";

/** Reads the typed records of the Deployment `shop`. */
const records = (page) => page.evaluate(async () => {
  const query = "group=apps&version=v1&resource=deployments&kind=Deployment&namespace=default&name=shop";
  const headers = { "X-Knarr-Dashboard": "1", "X-Knarr-Session": localStorage.getItem("knarr-session") };
  const response = await fetch(`/dashboard/chain?${query}`, { headers });
  const reader = response.body.getReader();
  let text = "";
  while (!text.includes("\n")) text += new TextDecoder().decode((await reader.read()).value);
  await reader.cancel();
  return JSON.parse(text.split("\n")[0]).steps;
});

export const workloads = {
  "wrong credentials are rejected with a reason, and a token signs in": async ({ context, page, errors, heading, signIn }) => {
    await page.goto(settings.url);
    await heading("Sign in to the cluster").waitFor();
    checkConsole(errors);
    await signIn("wrong");
    await page.getByRole("alert").getByText("Unauthorized").waitFor();
    checkConsole(errors, /status of 401/);
    await signIn(settings.adminToken);
    await heading("Overview").waitFor();
    await page.getByRole("link", { name: "only" }).waitFor();
    const cookies = await context.cookies();
    assert.deepEqual(cookies.map(({ httpOnly, secure, sameSite }) => ({ httpOnly, secure, sameSite })), [{ httpOnly: true, secure: true, sameSite: "Strict" }]);
    const kept = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }));
    assert.ok(!kept.includes(settings.adminToken) && !kept.includes(cookies[0].value), "scripts can read neither the token nor the cookie");
  },

  "objects are created from YAML after a check by the server": async ({ page, errors, go }) => {
    await go("/create");
    await page.getByRole("button", { name: "Check" }).waitFor();
    await edit(page, () => SHOP.replace("replicas: 2", "replicas: two"));
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText(/cannot unmarshal|expected integer|invalid/i).first().waitFor();
    checkConsole(errors, /status of 4(00|22)/);
    await edit(page, () => SHOP);
    await page.getByRole("button", { name: "Create", exact: true }).click();
    await page.getByText("Deployment shop: created").waitFor();
    await page.getByText("Service shop: created").waitFor();
    await checkAccessibility(page, "created objects");
    checkConsole(errors);
  },

  "a rollout is followed live through the event chain": async ({ page, errors, go }) => {
    await go(CHAIN);
    await page.getByText("Path of the change").waitFor();
    const allLit = async () => {
      for (const part of PARTS) await page.locator(".flow li.lit").getByText(part, { exact: true }).waitFor();
    };
    await allLit();
    await page.locator(".lane-name", { hasText: "Deployment/shop" }).first().waitFor();
    await page.locator(".lane-name", { hasText: "Pod/shop-" }).first().waitFor();
    checkConsole(errors);
    // The next change starts the path again: its parts light up one after the other. Times of writes are seconds.
    const last = Math.max(...(await records(page)).map((record) => Date.parse(record.at)));
    await eventually("another second", () => Date.now() > last + 1000);
    await page.evaluate(() => {
      const flow = document.querySelector(".flow");
      globalThis.lit = [];
      new MutationObserver(() => globalThis.lit.push(flow.querySelectorAll(".lit").length)).observe(flow, { subtree: true, childList: true, attributes: true, characterData: true });
    });
    kubectl("set", "env", "deployment/shop", "COLOUR=blue");
    const counts = await eventually("a path that starts again and is completed", async () => {
      const seen = await page.evaluate(() => globalThis.lit);
      const first = seen.findIndex((count) => count < PARTS.length);
      return first >= 0 && seen.slice(first).includes(PARTS.length) && seen.slice(first);
    });
    assert.ok(counts.length > 1, `the path was completed at once: ${counts}`);
    kubectl("rollout", "status", "deployment/shop");
    await page.locator(".lane-name", { hasText: "Pod/shop-" }).nth(1).waitFor();
    await screenshot(page, "rollout");
    checkConsole(errors);
  },

  "the event chain has the records of knarr trace": async ({ page, errors }) => {
    kubectl("rollout", "status", "deployment/shop");
    const line = ({ object, what, by }) => `${object} ${what}${by ? ` (${by})` : ""}`;
    const trace = () => knarrOnHost("trace", "deployment/shop", "--data-dir", settings.data).split("\n").map((text) => text.replace(/^\S+\s+\+\S+ s\s+(\S+)\s+/, "$1 "));
    let [shown, printed] = [[], []];
    await eventually("the same records", async () => {
      [shown, printed] = [(await records(page)).map(line), trace()];
      return shown.length > 10 && JSON.stringify(shown) === JSON.stringify(printed);
    }).catch((error) => {
      throw new Error(`${error.message}\n${shown.join("\n")}\n--- knarr trace:\n${printed.join("\n")}`);
    });
    const typed = await records(page);
    for (const record of typed) {
      assert.deepEqual(Object.keys(record).sort(), ["at", "by", "object", "precise", "stage", "what"]);
      assert.ok(!Number.isNaN(Date.parse(record.at)), record.at);
    }
    assert.ok(["Written", "Seen", "Bound", "Started", "Published", "Rules"].every((stage) => typed.some((record) => record.stage === stage)));
    checkConsole(errors);
  },

  "a table follows changes, and is filtered, sorted and selected by labels": async ({ page, errors, go }) => {
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
    await page.getByLabel("All columns").check();
    await page.getByRole("columnheader", { name: "Sort by IP" }).waitFor();
    checkConsole(errors);
  },

  "a table has the objects of the chosen namespace, or of all": async ({ page, errors, go }) => {
    kubectl("create", "namespace", "other");
    kubectl("create", "configmap", "elsewhere", "--namespace=other");
    await go("/types/core/v1/configmaps");
    await page.getByRole("rowheader", { name: "lines" }).waitFor();
    assert.equal(await page.getByRole("rowheader", { name: "elsewhere" }).count(), 0);
    await page.getByRole("combobox", { name: "Namespace" }).selectOption("other");
    await page.getByRole("rowheader", { name: "elsewhere" }).waitFor();
    assert.equal(await page.getByRole("rowheader", { name: "lines" }).count(), 0);
    await page.getByRole("combobox", { name: "Namespace" }).selectOption("");
    await page.getByRole("columnheader", { name: "Sort by Namespace" }).waitFor();
    await page.getByRole("rowheader", { name: "lines" }).waitFor();
    await page.getByRole("rowheader", { name: "elsewhere" }).waitFor();
    await page.getByRole("combobox", { name: "Namespace" }).selectOption("default");
    await page.getByRole("rowheader", { name: "elsewhere" }).waitFor({ state: "detached" });
    checkConsole(errors);
  },

  "a custom type is a table with its own columns": async ({ page, errors }) => {
    await page.getByRole("combobox", { name: /Go to a type/ }).fill("widgets");
    await page.keyboard.press("Enter");
    await page.getByRole("rowheader", { name: "hostile" }).waitFor();
    await page.getByRole("columnheader", { name: "Sort by <i>Note" }).waitFor();
    await checkAccessibility(page, "table of a custom type");
    await screenshot(page, "table-custom");
    checkConsole(errors);
  },
};
