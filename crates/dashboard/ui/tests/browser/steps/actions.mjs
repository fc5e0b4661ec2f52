// Changes: edits with conflicts, and actions.
import assert from "node:assert/strict";

import { checkAccessibility, checkConsole, edit, eventually, kubectl, screenshot } from "../support.mjs";
import { SHOP } from "./workloads.mjs";

const DEPLOYMENT = "/objects/apps/v1/deployments/default/shop";

export const actions = {
  "an edit that the server rejects is not saved": async ({ page, errors, go }) => {
    await go(`${DEPLOYMENT}/yaml`);
    await page.getByRole("button", { name: "Edit" }).click();
    await edit(page, (text) => text.replace("restartPolicy: Always", "restartPolicy: Sometimes"));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByRole("alert").getByText(/restartPolicy: Unsupported value: "Sometimes"/).waitFor();
    await edit(page, (text) => text.replace("restartPolicy: Sometimes", "restartPolicy: Always\n      restartPolice: Always"));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByRole("alert").getByText(/restartPolice/).waitFor();
    // What the dashboard itself has created is no conflict.
    await edit(page, (text) => text.replace(/\n +restartPolice: Always/, "").replace(/( {2}labels:\n {4}app: )shop\n/, "$1own\n"));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.locator(".diff .added", { hasText: "app: own" }).waitFor();
    await page.getByText("The server accepts this change").waitFor();
    assert.equal(await page.getByText("Others own fields").count(), 0);
    assert.equal(kubectl("get", "deployment", "shop", "-o", "jsonpath={.metadata.labels.app}"), "shop", "nothing was saved");
    await page.getByRole("button", { name: "Back to the editor" }).click();
    await page.getByRole("button", { name: "Discard" }).click();
    checkConsole(errors, /status of 4(00|22|09)/, /status of 500/);
  },

  "an edit shows its difference, and conflicts by field manager": async ({ page, errors, go }) => {
    kubectl("apply", "--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-", {
      input: SHOP.split("---")[0].replace("replicas: 2", "replicas: 4"),
    });
    await go(`${DEPLOYMENT}/yaml`);
    await page.locator(".editor").getByText("replicas: 4").first().waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await edit(page, (text) => text.replace(/replicas: 4/, "replicas: 1"));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByText(/helm owns .*\.spec\.replicas/).waitFor();
    await checkAccessibility(page, "conflict");
    await screenshot(page, "conflict");
    checkConsole(errors, /status of 409/);
    await page.getByRole("button", { name: "Take over these fields" }).click();
    await page.locator(".diff .added", { hasText: "replicas: 1" }).waitFor();
    await checkAccessibility(page, "review");
    await screenshot(page, "review");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
    assert.equal(kubectl("get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}"), "1");
    await page.locator(".editor").getByText("replicas: 1").first().waitFor();
    // A removed label needs a replacement of the object.
    await page.getByRole("button", { name: "Edit" }).click();
    await edit(page, (text) => text.replace(/ {2}labels:\n {4}app: shop\n/, ""));
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByText("the object is replaced as a whole").waitFor();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("button", { name: "Edit" }).waitFor();
    assert.equal(kubectl("get", "deployment", "shop", "-o", "jsonpath={.metadata.labels}"), "");
    // The rollout may change the status during the replacement; the page then repeats it with the new version.
    checkConsole(errors, /status of 409/);
  },

  "actions scale, restart, roll back and pause a Deployment": async ({ page, errors, go, action }) => {
    await go(DEPLOYMENT);
    await page.getByText("Revision 2").waitFor();
    await action("Scale");
    await checkAccessibility(page, "dialog");
    await page.getByLabel("Number of replicas").fill("3");
    await page.getByRole("dialog").getByRole("button", { name: "Scale" }).click();
    await page.getByText("Scale: done.").waitFor();
    await page.locator(".big", { hasText: "/ 3" }).waitFor();
    await action("Restart");
    await page.getByRole("dialog").getByRole("button", { name: "Restart" }).click();
    await page.getByText("Restart: done.").waitFor();
    await page.getByText("Revision 3").waitFor();
    await page.locator(".lines li", { hasText: "Revision 2" }).getByRole("button", { name: "Roll back" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
    await page.getByText("Roll back: done.").waitFor();
    await page.getByText("Revision 4").waitFor();
    await action("Pause rollout");
    await page.getByText("Paused", { exact: true }).waitFor();
    await action("Resume rollout");
    await page.getByText("Resume rollout: done.").waitFor();
    await eventually("ready pods", () => page.locator(".big", { hasText: "3 / 3" }).isVisible());
    checkConsole(errors);
  },

  "actions suspend a CronJob, and delete after a confirmation": async ({ page, errors, go, action, heading }) => {
    await go("/objects/batch/v1/cronjobs/default/nightly");
    await action("Suspend");
    await page.getByText("Suspend: done.").waitFor();
    assert.equal(kubectl("get", "cronjob", "nightly", "-o", "jsonpath={.spec.suspend}"), "true");
    await action("Delete");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    assert.equal(kubectl("get", "cronjob", "nightly", "-o", "name"), "cronjob.batch/nightly");
    await action("Delete");
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await heading("CronJobs").waitFor();
    assert.equal(kubectl("get", "cronjob", "nightly", "--ignore-not-found"), "");
    // What takes everything in it along is deleted only by its name.
    await go("/objects/core/v1/namespaces/-/other");
    await action("Delete");
    const confirm = page.getByRole("dialog").getByRole("button", { name: "Delete" });
    assert.equal(await confirm.isDisabled(), true);
    await page.getByLabel("Type the name to confirm").fill("other");
    await confirm.click();
    await heading("Namespaces").waitFor();
    checkConsole(errors);
  },
};

/** Evicts the pods of earlier steps, too. */
export const drain = {
  "a drain cordons the node, respects disruption budgets, and says what it waits for": async ({ page, errors, go, action }) => {
    const cordoned = () => kubectl("get", "node", "only", "-o", "jsonpath={.spec.unschedulable}");
    await go("/objects/core/v1/nodes/-/only");
    await action("Cordon");
    await page.getByText("SchedulingDisabled").first().waitFor();
    await action("Uncordon");
    await page.getByText("Uncordon: done.").waitFor();
    kubectl("scale", "deployment", "shop", "--replicas=3");
    kubectl("create", "poddisruptionbudget", "shop", "--selector=app=shop", "--min-available=3");
    const budget = () => kubectl("get", "poddisruptionbudget", "shop", "-o", "jsonpath={.status.disruptionsAllowed} {.status.currentHealthy}");
    await eventually("a budget that allows no disruption", () => budget() === "0 3");
    await action("Drain");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Drain" }).click();
    await dialog.getByText("chatty stays: no controller would replace it").waitFor();
    assert.equal(cordoned(), "", "a drain that is refused changes nothing");
    await dialog.getByLabel("Also evict pods that no controller will replace").check();
    await dialog.getByLabel("Also evict pods whose emptyDir volumes would be lost").check();
    await dialog.getByRole("button", { name: "Drain" }).click();
    await dialog.getByText(/shop-\S+ waits: .*disruption budget/).first().waitFor();
    await checkAccessibility(page, "drain");
    await screenshot(page, "drain");
    assert.equal(cordoned(), "true");
    kubectl("delete", "poddisruptionbudget", "shop");
    await dialog.getByText("The node is drained.").waitFor({ timeout: 60_000 });
    assert.equal(kubectl("get", "pods", "-A", "--field-selector=spec.nodeName=only", "-o", "name"), "");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await action("Uncordon");
    await eventually("pods after the drain", () => kubectl("get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}") === "3");
    checkConsole(errors, /status of 429/);
  },
};
