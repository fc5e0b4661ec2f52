// Hostile texts, and the policy of the page.
import assert from "node:assert/strict";

import { checkConsole, kubectl, screenshot } from "../support.mjs";

/** A name that RBAC allows, and that is markup, a quote and parts of a URL. */
const NAME = `<img src=x onerror=hacked=1>"'?a#b&c`;

/** The expected reports of the policy. */
const REPORTS = /Content Security Policy|TrustedHTML|TrustedScript|Trusted Type|Refused to/i;

export const security = {
  "hostile names, annotations, messages and logs are only text": async ({ page, errors, go }) => {
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
    assert.equal(await page.locator(".log a").count(), 0, "escape codes make no links");
    await screenshot(page, "logs-hostile");
    checkConsole(errors);
  },

  "an object whose name is markup is shown, linked and deleted": async ({ page, errors, go, action, heading }) => {
    await go("/types/rbac.authorization.k8s.io/v1/clusterroles");
    await page.getByLabel("Filter rows").fill("onerror");
    await page.getByRole("rowheader", { name: NAME }).getByRole("link").click();
    await page.getByRole("heading", { level: 1, name: NAME }).waitFor();
    await page.getByRole("link", { name: "YAML" }).click();
    await page.locator(".editor").getByText("onerror").first().waitFor();
    await page.reload();
    await page.getByRole("heading", { level: 1, name: NAME }).waitFor();
    assert.equal(await page.title().then((title) => title.startsWith(NAME)), true);
    await action("Delete");
    await page.getByRole("dialog").getByText(NAME).first().waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await heading("ClusterRoles").waitFor();
    assert.equal(kubectl("get", "clusterrole", NAME, "--ignore-not-found"), "");
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    checkConsole(errors);
  },

  "keys that are names of JavaScript fields are keys like others": async ({ page, errors, go }) => {
    await go("/objects/core/v1/configmaps/default/prototype");
    await page.locator(".labels li", { hasText: "constructor" }).waitFor();
    await go("/objects/core/v1/configmaps/default/prototype/yaml");
    await page.locator(".editor").getByText("__proto__").first().waitFor();
    assert.equal(await page.evaluate(() => ({}).polluted), undefined);
    checkConsole(errors);
  },

  "the policy of the page stops injected code, styles and connections": async ({ page, errors }) => {
    const found = await page.evaluate(async () => {
      const attempt = async (run) => {
        try {
          return (await run()) ?? "done";
        } catch (error) {
          return error.name;
        }
      };
      const append = (element) => {
        document.body.append(element);
        element.remove();
      };
      const results = {};
      results.markup = await attempt(() => { document.createElement("div").innerHTML = "<img src=x onerror=hacked=1>"; });
      results.script = await attempt(() => { const it = document.createElement("script"); it.textContent = "hacked=1"; append(it); });
      results.textNode = await attempt(() => { const it = document.createElement("script"); it.append("hacked=1"); append(it); return String(globalThis.hacked); });
      results.source = await attempt(() => { const it = document.createElement("script"); it.src = "data:text/javascript,hacked=1"; append(it); });
      // The debugger may evaluate texts, until the first task of the page itself.
      await new Promise((resolve) => setTimeout(resolve));
      results.eval = await attempt(() => { globalThis.eval("hacked=1"); });
      results.handler = await attempt(() => { const it = document.createElement("button"); it.setAttribute("onclick", "hacked=1"); document.body.append(it); it.click(); it.remove(); return String(globalThis.hacked); });
      results.style = await attempt(() => { const it = document.createElement("div"); it.setAttribute("style", "color: red"); return it.style.color || "none"; });
      results.connection = await attempt(async () => { await fetch("https://198.51.100.2:1/"); });
      results.frame = await attempt(() => new Promise((resolve) => {
        const it = document.createElement("iframe");
        it.src = "/dashboard/";
        document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => {
          if (violatedDirective !== "frame-src") return;
          it.remove();
          resolve("refused");
        });
        document.body.append(it);
      }));
      return { ...results, hacked: globalThis.hacked ?? null };
    });
    assert.deepEqual(found, {
      markup: "TypeError", script: "TypeError", textNode: "undefined", source: "TypeError", eval: "EvalError", handler: "TypeError",
      style: "none", connection: "TypeError", frame: "refused", hacked: null,
    });
    checkConsole(errors, REPORTS);
  },
};
