// Every page: contents, accessibility, and screenshots in light, dark and phone width.
import assert from "node:assert/strict";

import { checkAccessibility, checkConsole, eventually, screenshot, settings, watch } from "../support.mjs";

/** Addresses, and texts that show that a page is complete. */
const PAGES = {
  overview: ["/", "Problems"],
  table: ["/types/core/v1/pods", "chatty"],
  deployment: ["/objects/apps/v1/deployments/default/shop", "Revisions"],
  pod: ["/objects/core/v1/pods/default/chatty", "Containers"],
  service: ["/objects/core/v1/services/default/shop", "Endpoints"],
  node: ["/objects/core/v1/nodes/-/only", "Allocatable"],
  job: ["/objects/batch/v1/jobs/default/once", "Completions"],
  claim: ["/objects/core/v1/persistentvolumeclaims/default/disk", "Bound"],
  logs: ["/objects/core/v1/pods/default/chatty/logs", "of the clock"],
  terminal: ["/objects/core/v1/pods/default/chatty/terminal", "Connect"],
  chain: ["/objects/apps/v1/deployments/default/shop/chain", "Waterfall"],
  yaml: ["/objects/apps/v1/deployments/default/shop/yaml", "apiVersion"],
  events: ["/objects/apps/v1/deployments/default/shop/events", "ScalingReplicaSet"],
  related: ["/objects/apps/v1/deployments/default/shop/related", "ReplicaSet/shop-"],
  network: ["/network", "Connections"],
  create: ["/create", "Check"],
};

const VIEWS = {
  "": { scheme: "light", width: 1360, height: 860 },
  "-dark": { scheme: "dark", width: 1360, height: 860 },
  "-phone": { scheme: "dark", width: 390, height: 844 },
  "-phone-light": { scheme: "light", width: 390, height: 844 },
};

async function chooseTheme(page, theme) {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Theme").selectOption(theme);
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement?.blur());
}

export const pages = {
  "problems and warnings are shown with their reasons": async ({ page, errors, go }) => {
    await go("/");
    await page.getByText("The image is not on the node").first().waitFor();
    await page.getByText("No node fits the pod").first().waitFor();
    await page.getByText("The container keeps exiting").first().waitFor();
    await page.getByRole("img", { name: /^CPU/ }).first().waitFor({ timeout: 60_000 });
    checkConsole(errors);
  },

  "objects have overviews for their kinds": async ({ page, errors, go }) => {
    const fact = (name) => page.locator(".facts > div").filter({ has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd").first();
    await go("/objects/core/v1/services/default/shop");
    await fact("Ports").getByText("80 → 8080/TCP").waitFor();
    await eventually("endpoints", async () => (await page.locator(".lines li", { hasText: "ready" }).count()) === 3);
    await go("/objects/batch/v1/jobs/default/once");
    await fact("Completions").getByText("1 / 1").waitFor();
    await fact("Duration").getByText(/^\d+s$/).waitFor();
    await go("/objects/core/v1/persistentvolumeclaims/default/disk");
    await fact("State").getByText("Bound").waitFor();
    await fact("Used by").getByRole("link", { name: "with-disk" }).waitFor();
    await go("/objects/core/v1/nodes/-/only");
    await fact("Addresses").getByText("198.51.100.2 (InternalIP)").waitFor();
    await page.getByRole("link", { name: "Pods", exact: true }).last().click();
    await page.getByRole("rowheader", { name: "chatty" }).waitFor();
    await go("/objects/apps/v1/deployments/default/shop/related");
    await page.locator(".tree .tree .tree, .tree ul ul").getByText(/^Pod\/shop-/).first().waitFor();
    await page.locator(".tree").getByText(/^Pod\/shop-/).first().click();
    await page.getByRole("link", { name: "Owners and children" }).click();
    await page.locator(".tree").getByText(/^ReplicaSet\/shop-/).first().waitFor();
    await page.locator(".tree").getByText("Deployment/shop", { exact: true }).waitFor();
    checkConsole(errors);
  },

  "the network shows services, pods, policies and their peers": async ({ page, errors, go }) => {
    await go("/network");
    await page.locator(".box-title", { hasText: "Deployment/shop" }).waitFor();
    const lines = page.locator(".lines li");
    for (const text of [
      "Service/shop leads to Deployment/shop 8080",
      "Pod/chatty may connect to Deployment/shop 8080/TCP",
      "Namespaces with team=ops may connect to Deployment/shop",
      "203.0.113.0/24 may connect to Deployment/shop",
      "Deployment/shop may connect to Everyone 53/UDP",
    ]) await lines.filter({ hasText: text }).first().waitFor();
    assert.equal(await lines.filter({ hasText: "Pod/hostile may connect to Deployment/shop" }).count(), 0);
    await page.locator(".box-line", { hasText: "Restricted by closed" }).waitFor();
    await page.locator(".box.peer", { hasText: "203.0.113.0/24" }).waitFor();
    checkConsole(errors);
  },

  "language and theme are chosen and kept": async ({ page, errors, go, heading }) => {
    await go("/");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Theme").selectOption("dark");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await checkAccessibility(page, "settings");
    await page.getByLabel("Language").selectOption("ko");
    await page.getByRole("heading", { level: 1, name: "개요" }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.lang), "ko");
    await page.keyboard.press("Escape");
    await page.getByText("문제가 있는 항목").waitFor();
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "개요" }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await checkAccessibility(page, "overview, dark, Korean");
    for (const [name, [hash]] of Object.entries(PAGES)) {
      await go(hash);
      await page.locator("main h1").waitFor();
      await page.waitForFunction(() => !document.body.innerText.includes("불러오는 중"));
      await screenshot(page, `${name}-ko`);
    }
    await page.evaluate(() => localStorage.setItem("knarr.language", "en"));
    await page.reload();
    await heading(/Create/).waitFor();
    // The charts of the overview begin again with the page.
    await go("/");
    await page.locator(".spark").first().waitFor({ timeout: 60_000 });
    checkConsole(errors);
  },

  "every page is accessible and fits, in light, dark and on a phone": async ({ page, errors, go, heading, size }) => {
    for (const [suffix, { scheme, width, height }] of Object.entries(VIEWS)) {
      await page.setViewportSize({ width, height });
      await chooseTheme(page, scheme);
      for (const [name, [hash, text]] of Object.entries(PAGES)) {
        await go(hash);
        await page.locator("main").getByText(text).first().waitFor();
        await checkAccessibility(page, `${name}${suffix}`);
        await screenshot(page, `${name}${suffix}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${name}${suffix} is ${overflow} pixels too wide`);
      }
    }
    await page.getByRole("button", { name: "Menu" }).click();
    await screenshot(page, "menu-phone");
    await page.getByRole("link", { name: "Overview" }).click();
    await heading("Overview").waitFor();
    await page.setViewportSize(size);
    await chooseTheme(page, "system");
    checkConsole(errors);
  },

  "the page to sign in is accessible and fits": async ({ context }) => {
    // Another browser has no session.
    const other = await context.browser().newContext({ ignoreHTTPSErrors: true, colorScheme: "light" });
    const page = await other.newPage();
    const errors = watch(page);
    for (const [suffix, { scheme, width, height }] of Object.entries(VIEWS)) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme: scheme });
      await page.goto(settings.url);
      await page.getByRole("heading", { name: "Sign in to the cluster" }).waitFor();
      await page.getByRole("radio", { name: "Kubeconfig" }).check();
      await checkAccessibility(page, `sign in by kubeconfig${suffix}`);
      await page.getByRole("radio", { name: "Token" }).check();
      await checkAccessibility(page, `sign in${suffix}`);
      await screenshot(page, `sign-in${suffix}`);
    }
    checkConsole(errors);
    await other.close();
  },
};
