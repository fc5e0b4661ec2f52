// The dashboard in a browser, against a real cluster. `crates/knarr/tests/up/dashboard.rs` starts both.
// An argument is a pattern of the steps to run; all need the first one. Later steps use objects of earlier ones.
import { actions, drain } from "./steps/actions.mjs";
import { conditions } from "./steps/conditions.mjs";
import { loopback } from "./steps/loopback.mjs";
import { pages } from "./steps/pages.mjs";
import { pods } from "./steps/pods.mjs";
import { security } from "./steps/security.mjs";
import { speed } from "./steps/speed.mjs";
import { workloads } from "./steps/workloads.mjs";
import { screenshot, start } from "./support.mjs";

const steps = { ...workloads, ...pods, ...security, ...actions, ...speed, ...pages, ...drain, ...conditions, ...loopback };

const world = await start();
const only = new RegExp(process.argv[2] ?? "");
try {
  for (const [name, step] of Object.entries(steps)) {
    if (!only.test(name) && !name.includes("token signs in")) continue;
    const began = Date.now();
    try {
      await step(world);
      console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      const { page, errors } = world;
      console.log(`FAILED ${name}\n${error.stack}\nconsole: ${errors.join("\n")}\npage ${page.url()}:\n${await page.locator("body").innerText().catch(() => "")}`);
      await screenshot(page, "failure");
      process.exitCode = 1;
      break;
    }
  }
} finally {
  await world.stop();
}
