import assert from "node:assert/strict";
import { test } from "node:test";

import { planDrain } from "../../src/api/actions";
import { fieldIs, fromDiscovery, path } from "../../src/api/resources";
import { parseAnsi, plainText } from "../../src/model/ansi";
import { type Step, waterfall } from "../../src/model/chain";
import { diffLines } from "../../src/model/diff";
import { conflicts, editable, forApply, parseYaml, removes } from "../../src/model/edit";
import { nodeHealth, podHealth } from "../../src/model/health";
import { matches, picture } from "../../src/model/network";
import { bytes, cores, duration, quantity } from "../../src/model/quantity";
import { arrange, columns, visibleRange } from "../../src/model/table";
import { at } from "../../src/model/value";

const meta = (name: string, more = {}) => ({ name, uid: name, namespace: "default", ...more });

test("quantities and durations have the notation of kubectl", () => {
  assert.deepEqual(["250m", "1", "64Mi", "1k", "nonsense", ""].map(quantity), [0.25, 1, 64 * 2 ** 20, 1000, 0, 0]);
  assert.deepEqual([0, 512, 1536, 200 * 2 ** 20].map(bytes), ["0 B", "512 B", "1.5 KiB", "200 MiB"]);
  assert.deepEqual([0.25, 1.5, 12].map(cores), ["250m", "1.5", "12"]);
  const seconds = [5, 119, 125, 900, 10_900, 90_000, 200_000, 864_000];
  assert.deepEqual(seconds.map((value) => duration(value * 1000)), ["5s", "119s", "2m5s", "15m", "3h1m", "25h", "2d7h", "10d"]);
});

test("fields of the prototype are not fields of an object", () => {
  assert.equal(at({}, "constructor"), undefined);
  assert.equal(at(JSON.parse('{"__proto__": {"a": 1}}'), "a"), undefined);
  assert.equal(matches({ matchExpressions: [{ key: "constructor", operator: "Exists" }] }, {}), false);
  assert.equal(removes({ labels: { constructor: "a" } }, { labels: {} }), true);
  const { objects } = parseYaml('kind: A\napiVersion: v1\ndata: {__proto__: {a: 1}}\n');
  assert.deepEqual([Object.keys(objects[0]!.data as object), at({}, "a")], [["__proto__"], undefined]);
});

test("the health of a pod names the reason", () => {
  const waiting = (reason: string, message = "") => ({
    metadata: meta("p"),
    status: { phase: "Pending", containerStatuses: [{ name: "c", state: { waiting: { reason, message } }, lastState: { terminated: { reason: "Error", exitCode: 3 } } }] },
  });
  assert.deepEqual(podHealth(waiting("ImagePullBackOff", "no such image")), { tone: "bad", state: "ImagePullBackOff", reason: "c: no such image" });
  assert.deepEqual(podHealth(waiting("CrashLoopBackOff")), { tone: "bad", state: "CrashLoopBackOff", reason: "c: Error (exit code 3)" });
  assert.equal(podHealth(waiting("ContainerCreating")).tone, "busy");
  const pending = { metadata: meta("p"), status: { phase: "Pending", conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1 nodes" }] } };
  assert.deepEqual(podHealth(pending), { tone: "bad", state: "Unschedulable", reason: "0/1 nodes" });
  assert.equal(podHealth({ metadata: meta("p"), status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }] } }).tone, "good");
  assert.equal(podHealth({ metadata: meta("p", { deletionTimestamp: "x" }), status: { phase: "Running" } }).state, "Terminating");
});

test("the health of a node comes from its conditions", () => {
  const node = (conditions: object[], spec = {}) => ({ metadata: meta("n"), spec, status: { conditions } });
  assert.equal(nodeHealth(node([{ type: "Ready", status: "True" }])).state, "Ready");
  assert.equal(nodeHealth(node([{ type: "Ready", status: "True" }], { unschedulable: true })).state, "SchedulingDisabled");
  assert.equal(nodeHealth(node([{ type: "Ready", status: "True" }, { type: "DiskPressure", status: "True" }])).tone, "bad");
  assert.equal(nodeHealth(node([{ type: "Ready", status: "Unknown", message: "gone" }])).reason, "gone");
});

test("colours of a log become classes, and all other controls are removed", () => {
  assert.deepEqual(parseAnsi("a\u001b[1;31mb\u001b[0mc"), [{ text: "a", classes: [] }, { text: "b", classes: ["fg-1", "bold"] }, { text: "c", classes: [] }]);
  assert.deepEqual(parseAnsi("\u001b[38;5;4mx\u001b[38;2;1;2;3my\u001b[97mz"), [{ text: "x", classes: ["fg-4"] }, { text: "y", classes: [] }, { text: "z", classes: ["fg-15"] }]);
  const hostile = "ok\u001b[2J\u001b[1;1H\u001b]0;title\u0007\u001b]8;;https://evil.test\u001b\\link\u001b]8;;\u001b\\\u009b5A\r\b\u202eend\u001b";
  assert.equal(plainText(hostile), "oklinkend");
  assert.equal(plainText("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
  assert.equal(plainText("x".repeat(20_000)).length, 10_001);
});

test("rows are filtered by all words in cells and labels, and sorted by numbers in them", () => {
  const shown = columns([{ name: "Name", type: "string", priority: 0 }, { name: "Age", type: "string", priority: 0 }, { name: "IP", type: "string", priority: 1 }], true, false);
  assert.deepEqual(shown.map((it) => it.name), ["Name", "Namespace", "Age"]);
  const item = (name: string, age: string, labels = {}) => ({ object: { metadata: meta(name, { creationTimestamp: age, labels }) }, cells: [name, "?", "10.0.0.1"] });
  const items = [item("web-10", "2026-01-01T00:00:10Z", { app: "web" }), item("web-9", "2026-01-01T00:00:09Z"), item("db-1", "2026-01-01T00:00:11Z", { app: "db" })];
  const order = (filter: string, column: string, isDescending = false) => arrange(items, shown, filter, { column, isDescending }, Date.parse("2026-01-01T00:01:00Z")).map((it) => it.object.metadata.name);
  assert.deepEqual(order("", "Name"), ["db-1", "web-9", "web-10"]);
  assert.deepEqual(order("", "Age"), ["db-1", "web-10", "web-9"]);
  assert.deepEqual(order("", "Age", true), ["web-9", "web-10", "db-1"]);
  assert.deepEqual(order("app=web DEFAULT", "Name"), ["web-10"]);
  assert.deepEqual(order("nothing", "Name"), []);
});

test("only rows in view are rendered", () => {
  assert.deepEqual(visibleRange(0, 380, 38, 10_000), [0, 18]);
  assert.deepEqual(visibleRange(38_000, 380, 38, 10_000), [992, 1018]);
  assert.deepEqual(visibleRange(1e9, 380, 38, 10), [10, 10]);
});

test("differences show changed lines with context", () => {
  const lines = diffLines("a\nb\nc\nd\ne\nf\ng\nh\ni", "a\nb\nc\nd\nE\nf\ng\nh\ni");
  assert.deepEqual(lines.map((line) => `${line.kind}:${line.text}`), ["skipped:", "same:b", "same:c", "same:d", "removed:e", "added:E", "same:f", "same:g", "same:h", "skipped:"]);
  assert.deepEqual(diffLines("a\nb", "a\nb").filter((line) => line.kind !== "skipped"), []);
});

test("an edited object keeps what the server writes out of the text", () => {
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: meta("c", { resourceVersion: "7", managedFields: [{}] }), data: { a: "b" }, status: { x: 1 } };
  const text = editable(object);
  assert.equal(text, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  uid: c\n  namespace: default\ndata:\n  a: b\n");
  assert.deepEqual(forApply(object), { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "c", namespace: "default" }, data: { a: "b" } });
  assert.equal(removes({ a: 1, b: [{ c: 1 }] }, { a: 2, b: [{ c: 1 }, {}], d: 1 }), false);
  assert.equal(removes({ a: 1, b: [{ c: 1 }] }, { b: [{ c: 1 }] }), true);
  assert.equal(removes({ b: [{ c: 1 }] }, { b: [{}] }), true);
});

test("YAML is parsed with limits", () => {
  assert.equal(parseYaml("kind: A\napiVersion: v1\n---\nkind: B\napiVersion: v1\n").objects.length, 2);
  assert.equal(parseYaml("kind: List\napiVersion: v1\nitems: [{kind: A}]\n").objects.length, 1);
  assert.match(parseYaml("kind: A").error ?? "", /apiVersion/);
  assert.match(parseYaml("a: [").error ?? "", /line 1/);
  assert.match(parseYaml("a: 1\na: 2").error ?? "", /unique/);
  const bomb = `a: &a [1,1,1,1,1,1,1,1,1]\n${"bcdefghi".split("").map((name, index) => `${name}: &${name} [${Array(9).fill(`*${"abcdefgh"[index]}`).join(",")}]`).join("\n")}`;
  assert.match(parseYaml(bomb).error ?? "", /alias/i);
});

test("conflicts are grouped by field manager", () => {
  const cause = (manager: string, field: string) => ({ reason: "FieldManagerConflict", message: `conflict with "${manager}" using apps/v1`, field });
  const found = conflicts([cause("kubectl", ".spec.replicas"), cause("helm", ".spec.paused"), cause("kubectl", ".spec.paused"), { reason: "Other" }]);
  assert.deepEqual(found, [{ manager: "kubectl", fields: [".spec.replicas", ".spec.paused"] }, { manager: "helm", fields: [".spec.paused"] }]);
});

test("a waterfall keeps the causal order of times with a resolution of a second", () => {
  const step = (object: string, time: string, precise: boolean, stage: Step["stage"]): Step => ({ object, at: `2026-01-01T00:00:${time}Z`, precise, what: "", by: "", stage });
  const steps = [step("Deployment/web", "01.000000", false, "Written"), step("Pod/a", "01.500000", true, "Bound"), step("Pod/a", "01.000000", false, "Started"), step("Pod/a", "03.000000", false, "Ready")];
  const { lanes, reached, span } = waterfall(steps);
  assert.equal(span, 2000);
  assert.deepEqual(lanes.map((lane) => [lane.object, ...lane.marks.map((mark) => mark.after)]), [["Deployment/web", 0], ["Pod/a", 500, 500, 2000]]);
  assert.deepEqual([...reached].map(([part, mark]) => [part, mark.after]), [["apiserver", 0], ["scheduler", 500], ["runtime", 500], ["kubelet", 2000]]);
  assert.deepEqual(waterfall([]).lanes, []);
});

const podOf = (app: string, name = app) => ({
  metadata: meta(name, { labels: { app, "pod-template-hash": "1" }, ownerReferences: [{ kind: "ReplicaSet", name: `${app}-1`, controller: true, uid: "r", apiVersion: "apps/v1" }] }),
  status: { phase: "Running" },
});
const policyFor = (app: string, spec: object) => ({ metadata: meta(`for-${app}`), spec: { podSelector: { matchLabels: { app } }, ...spec } });
const selecting = (app: string) => ({ podSelector: { matchLabels: { app } } });
const LABELS = { "kubernetes.io/metadata.name": "default" };

test("the network picture joins services, pods and policies", () => {
  assert.equal(matches({ matchExpressions: [{ key: "a", operator: "In", values: ["x"] }] }, { a: "x" }), true);
  assert.equal(matches({ matchExpressions: [{ key: "a", operator: "DoesNotExist" }] }, { a: "x" }), false);
  assert.equal(matches({}, { a: "x" }), true);
  const found = picture({
    pods: [podOf("web", "web-1-a"), podOf("web", "web-1-b"), podOf("api")],
    services: [{ metadata: meta("web"), spec: { type: "ClusterIP", selector: { app: "web" }, ports: [{ port: 80, targetPort: 8080 }] } }, { metadata: meta("none"), spec: { ports: [] } }],
    policies: [policyFor("api", { policyTypes: ["Ingress"], ingress: [{ from: [selecting("web")], ports: [{ port: 80 }] }] })],
    ingresses: [{ metadata: meta("in"), spec: { rules: [{ http: { paths: [{ backend: { service: { name: "web" } } }] } }] } }],
    labels: LABELS,
  });
  assert.deepEqual(found.groups.map((group) => [group.name, group.pods.length, ...group.policies]), [["Deployment/api", 1, "for-api"], ["Deployment/web", 2]]);
  assert.deepEqual(found.services.map((service) => [service.name, ...service.ingresses]), [["none"], ["web", "in"]]);
  assert.deepEqual(found.edges, [
    { from: "Service/web", to: "Deployment/web", kind: "route", label: "8080" },
    { from: "Deployment/web", to: "Deployment/api", kind: "allowed", label: "80/TCP" },
  ]);
});

test("a connection needs a rule of each isolated side", () => {
  const edges = (...policies: ReturnType<typeof policyFor>[]) => {
    const found = picture({ pods: [podOf("web"), podOf("api"), podOf("db")], services: [], policies, ingresses: [], labels: LABELS });
    return found.edges.map(({ from, to, label }) => `${from.replace("Deployment/", "")} -> ${to.replace("Deployment/", "")} ${label}`.trim());
  };
  const into = (...ingress: object[]) => policyFor("api", { policyTypes: ["Ingress"], ingress });
  const out = (...egress: object[]) => policyFor("web", { policyTypes: ["Egress"], egress });
  assert.deepEqual(edges(), []);
  assert.deepEqual(edges(into()), [], "nothing is allowed");
  assert.deepEqual(edges(into({ from: [selecting("web")] })), ["web -> api"]);
  assert.deepEqual(edges(into({ from: [selecting("web")] }), out()), [], "the other side is closed");
  assert.deepEqual(edges(into({ from: [selecting("web")], ports: [{ port: 80 }, { port: 90 }] }), out({ to: [selecting("api")], ports: [{ port: 90 }] })), ["web -> api 90/TCP"]);
  assert.deepEqual(edges(into({ from: [selecting("web")], ports: [{ port: 80 }] }), out({ to: [selecting("api")], ports: [{ port: 90 }] })), [], "no common port");
  assert.deepEqual(edges(out({ to: [selecting("db")], ports: [{ port: 1, endPort: 9, protocol: "UDP" }] })), ["web -> db 1–9/UDP"]);
  assert.deepEqual(edges(into({})), ["Peer/* -> api"], "everyone is one peer");
  // The namespace itself is among all namespaces.
  assert.deepEqual(edges(into({ from: [{ namespaceSelector: {}, ...selecting("db") }] })), ["Peer//app=db -> api", "db -> api"]);
  const peers = [{ namespaceSelector: { matchLabels: { team: "ops" } } }, { ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } }];
  assert.deepEqual(edges(into({ from: peers }), out({ to: peers.slice(0, 1) })), ["Peer/team=ops/ -> api", "Peer/10.0.0.0/8 − 10.1.0.0/16 -> api", "web -> Peer/team=ops/"]);
});

test("a drain keeps static pods and pods of DaemonSets, and refuses to lose data", () => {
  const pod = (name: string, more = {}, spec = {}) => ({ metadata: meta(name, more), spec, status: { phase: "Running" } });
  const owner = (kind: string) => ({ ownerReferences: [{ kind, name: "o", controller: true, uid: "o", apiVersion: "v1" }] });
  const pods = [pod("a", owner("ReplicaSet")), pod("b", owner("DaemonSet")), pod("c", { annotations: { "kubernetes.io/config.mirror": "x" } }), pod("d"), pod("e", owner("ReplicaSet"), { volumes: [{ emptyDir: {} }] })];
  const summary = (local: boolean, force: boolean) => {
    const plan = planDrain(pods, { local, force });
    return [plan.evict.map((it) => it.metadata.name).join(""), plan.refused.map(({ pod: it, reason }) => `${it.metadata.name}:${reason}`).join(" ")];
  };
  assert.deepEqual(summary(false, false), ["a", "d:owner e:local"]);
  assert.deepEqual(summary(true, true), ["ade", ""]);
});

test("discovery keeps the preferred version of each type that can be listed", () => {
  const resource = (name: string, kind: string, verbs = ["list"]) => ({ resource: name, responseKind: { kind }, scope: "Namespaced", verbs });
  const found = fromDiscovery([{ items: [{ metadata: { name: "apps" }, versions: [{ version: "v2", resources: [resource("as", "A")] }, { version: "v1", resources: [resource("as", "A"), resource("bs", "B"), resource("reviews", "R", ["create"])] }] }] }]);
  assert.deepEqual(found.map((type) => `${type.version} ${type.plural}`), ["v2 as", "v1 bs"]);
  assert.equal(path(found[0]!, "a/b", "..%", "log"), "/apis/apps/v2/namespaces/a%2Fb/as/..%25/log");
  assert.equal(fieldIs("metadata.name", "a=b,c\\d"), "metadata.name=a\\=b\\,c\\\\d");
});
