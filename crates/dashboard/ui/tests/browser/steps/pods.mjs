// A pod: logs, terminal, containers with ports and restarts.
import assert from "node:assert/strict";

import { checkAccessibility, checkConsole, eventually, screenshot } from "../support.mjs";

/** Opens a shell in the pod `chatty`. Returns what the terminal shows, and a function that enters a line. */
async function openShell(page, go) {
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
  return { terminal, shown, type };
}

export const pods = {
  "a log is followed and searched": async ({ page, errors, go }) => {
    await go("/objects/core/v1/pods/default/chatty/logs");
    const last = async () => Number(/tick (\d+) /.exec(await page.locator(".log-line").last().innerText())?.[1]);
    await page.locator(".log-line .fg-2", { hasText: "info" }).first().waitFor();
    const before = await last();
    await eventually("a newer line at the end", async () => (await last()) > before);
    await page.getByLabel("Search in the log").fill("tick 2 ");
    await page.getByText("1 lines match").waitFor();
    assert.equal(await page.locator(".log mark").first().innerText(), "tick 2 ");
    await page.getByLabel("Search in the log").fill("");
    checkConsole(errors);
  },

  "the logs of all containers are one log": async ({ page, errors }) => {
    await page.getByLabel("Container").selectOption({ label: "All containers" });
    await page.locator(".log-line", { hasText: "tick" }).first().waitFor();
    await page.getByLabel("Search in the log").fill("second container");
    await page.locator(".log-line b", { hasText: "side" }).first().waitFor();
    await page.getByLabel("Search in the log").fill("");
    await page.locator(".log-line b", { hasText: /^c$/ }).first().waitFor();
    await checkAccessibility(page, "logs of all containers");
    await screenshot(page, "logs-all");
    checkConsole(errors);
  },

  "a terminal runs commands and follows the size of the page": async ({ page, errors, go, size }) => {
    const { shown, type } = await openShell(page, go);
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
    await page.setViewportSize(size);
    await type("exit 3");
    await page.getByText("The command exited with code 3.").waitFor();
    checkConsole(errors);
  },

  "escape codes in a terminal change nothing outside of it": async ({ page, errors, go }) => {
    const { terminal, shown, type } = await openShell(page, go);
    const title = await page.title();
    await page.evaluate(() => {
      globalThis.copied = [];
      navigator.clipboard?.addEventListener?.("clipboardchange", () => globalThis.copied.push(1));
    });
    // Title, clipboard, icon, a link to a script, and markup.
    await type(String.raw`printf '\033]0;owned\007\033]52;c;aGFja2Vk\007\033]1;owned\007\033]8;;javascript:hacked=1\033\\press-here\033]8;;\033\\<img src=x onerror=hacked=1>\n'`);
    await eventually("markup as text", async () => /press-here<img src=x onerror=hacked=1>$/m.test(await shown()));
    const row = terminal.locator(".xterm-rows > div", { hasText: /^press-here<img/ });
    const box = await row.boundingBox();
    await page.mouse.click(box.x + 20, box.y + box.height / 2, { modifiers: ["Control"] });
    await page.mouse.click(box.x + 20, box.y + box.height / 2);
    assert.equal(await terminal.locator("img").count(), 0);
    assert.equal(await page.title(), title);
    assert.deepEqual(await page.evaluate(() => [globalThis.hacked ?? null, globalThis.copied]), [null, []]);
    assert.equal(page.context().pages().length, 1, "no page was opened");
    await type("exit");
    await page.getByText("The command exited with code 0.").waitFor();
    checkConsole(errors);
  },

  "a pod shows its ports, and its restarts with reasons": async ({ page, errors, go }) => {
    await go("/objects/core/v1/pods/default/chatty");
    await page.locator(".containers dd", { hasText: "http 80/TCP" }).waitFor();
    await go("/objects/core/v1/pods/default/crashing");
    await page.getByText(/^Error, exit code 3, .* ago$/).waitFor();
    await page.locator(".containers dt", { hasText: "Restarts" }).locator("xpath=../dd").filter({ hasText: /^[1-9]/ }).waitFor();
    await page.getByText("The container keeps exiting and is restarted after a delay").first().waitFor();
    await screenshot(page, "pod-crashing");
    checkConsole(errors);
  },
};
