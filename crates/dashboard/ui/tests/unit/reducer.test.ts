import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY, addPage, applyEvents, itemsOf } from "../../src/live/reducer";

const pod = (uid: string, resourceVersion: string, more = {}) => ({ metadata: { name: uid, uid, resourceVersion }, ...more });
const names = (state: typeof EMPTY) => [...state.items.values()].map((item) => `${item.object.metadata.name}@${item.object.metadata.resourceVersion}`);
const columns = [{ name: "Name", type: "string", priority: 0 }];
const table = (rows: ReturnType<typeof pod>[], more = {}) => ({ kind: "Table", metadata: { resourceVersion: "9" }, rows: rows.map((object) => ({ cells: [object.metadata.name], object })), ...more });

test("pages of a list are added, and a new list replaces all items", () => {
  const first = addPage(EMPTY, { metadata: { resourceVersion: "5", continue: "next" }, items: [pod("a", "1")] }, true);
  const second = addPage(first, { metadata: { resourceVersion: "5" }, items: [pod("b", "2")] }, false);
  assert.deepEqual(names(second), ["a@1", "b@2"]);
  assert.equal(second.version, "5");
  assert.deepEqual(names(addPage(second, { metadata: { resourceVersion: "8" }, items: [pod("c", "7")] }, true)), ["c@7"]);
});

test("events add, change and delete objects, and advance the version", () => {
  const state = addPage(EMPTY, { metadata: { resourceVersion: "5" }, items: [pod("a", "1"), pod("b", "2")] }, true);
  const next = applyEvents(state, [
    { type: "ADDED", object: pod("c", "6") },
    { type: "MODIFIED", object: pod("a", "7") },
    { type: "DELETED", object: pod("b", "8") },
    { type: "BOOKMARK", object: { metadata: { resourceVersion: "20" } } },
  ]);
  assert.deepEqual(names(next), ["a@7", "c@6"]);
  assert.equal(next.version, "20");
  assert.deepEqual(names(state), ["a@1", "b@2"], "the state before is unchanged");
});

test("an error changes nothing", () => {
  const state = addPage(EMPTY, { metadata: { resourceVersion: "5" }, items: [pod("a", "1")] }, true);
  const next = applyEvents(state, [{ type: "ERROR", object: { kind: "Status", code: 410 } }]);
  assert.deepEqual([names(next), next.version], [["a@1"], "5"]);
});

test("events of tables carry rows, and columns only at first", () => {
  const state = addPage(EMPTY, table([pod("a", "1")], { columnDefinitions: columns }), true);
  const next = applyEvents(state, [
    { type: "ADDED", object: table([pod("b", "10")], { metadata: {} }) },
    { type: "DELETED", object: table([pod("a", "11")], { metadata: {} }) },
  ]);
  assert.deepEqual(names(next), ["b@10"]);
  assert.deepEqual(next.items.get("b")?.cells, ["b"]);
  assert.deepEqual(next.columns, columns);
  assert.equal(next.version, "11");
});

test("items of a list get the kind of the list", () => {
  const { items } = itemsOf({ kind: "PodList", apiVersion: "v1", metadata: {}, items: [pod("a", "1")] });
  assert.equal(items[0]?.object.kind, "Pod");
  assert.equal(items[0]?.object.apiVersion, "v1");
});
