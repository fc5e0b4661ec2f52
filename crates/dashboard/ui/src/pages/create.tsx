// Create objects from YAML.

import { useState } from "preact/hooks";

import { create } from "../api/actions";
import { apiVersion, typeOf } from "../api/resources";
import type { KubeObject, Resource } from "../api/types";
import { t } from "../i18n";
import { parseYaml } from "../model/edit";
import { messageOf, namespace, objectLink, refreshTypes, types } from "../state";
import { lazy } from "../ui/lazy";

const Editor = lazy(() => import("../ui/editor").then((module) => module.Editor));

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: web
          image: knarr.local/hello
          ports:
            - containerPort: 8080
`;

interface Result {
  text: string;
  tone: "good" | "bad" | "busy";
  href?: string;
}

/** Creates the objects in order. Types that an earlier object defines are read before the next one. */
async function createAll(objects: KubeObject[], ns: string, dryRun: boolean, onResult: (result: Result) => void): Promise<void> {
  for (const object of objects) {
    const names = { kind: object.kind ?? "", name: object.metadata?.name ?? "", version: object.apiVersion ?? "" };
    try {
      if (!exactType(object)) await refreshTypes();
      const type = exactType(object);
      if (!type) throw new Error(t("create.unknown", names));
      const target = type.namespaced ? (object.metadata?.namespace ?? (ns || "default")) : "";
      const made = await create(type, target, object, dryRun, (text) => onResult({ text: t("app.warning", { text }), tone: "busy" }));
      onResult({ text: t(dryRun ? "create.valid" : "create.created", { ...names, name: made.metadata.name }), tone: "good", ...(dryRun ? {} : { href: objectLink(type, target, made.metadata.name) }) });
    } catch (error) {
      onResult({ text: `${names.kind} ${names.name}: ${messageOf(error)}`, tone: "bad" });
    }
  }
}

/** Returns the type in the version of the object, which may differ from the preferred one. */
function exactType(object: KubeObject): Resource | undefined {
  const type = typeOf(types.peek(), object);
  if (!type) return undefined;
  const version = (object.apiVersion ?? "").split("/").at(-1) ?? "";
  return apiVersion(type) === object.apiVersion ? type : { ...type, version };
}

export function CreatePage() {
  const [text, setText] = useState(EXAMPLE);
  const [results, setResults] = useState<Result[]>([]);
  const [isWorking, setWorking] = useState(false);
  const run = async (dryRun: boolean) => {
    const { objects, error } = parseYaml(text);
    if (error !== undefined || objects.length === 0) {
      setResults([{ text: error !== undefined ? t("yaml.invalid", { message: error }) : t("create.nothing"), tone: "bad" }]);
      return;
    }
    setResults([]);
    setWorking(true);
    await createAll(objects, namespace.peek(), dryRun, (result) => setResults((before) => [...before, result]));
    setWorking(false);
  };
  return (
    <div class="page object-page tab-yaml">
      <header class="page-head">
        <h1>{t("create.title")}</h1>
        <p class="quiet">{t("create.hint", { namespace: namespace.value || "default" })}</p>
      </header>
      <div class="yaml">
        <div class="tools">
          <button type="button" class="button primary" disabled={isWorking} onClick={() => void run(false)}>{t("create.create")}</button>
          <button type="button" class="button" disabled={isWorking} onClick={() => void run(true)}>{t("create.check")}</button>
        </div>
        <div role="status">
          <ul class="results">
            {results.map((result, index) => <li key={index} class={result.tone}>{result.href ? <a href={result.href}>{result.text}</a> : result.text}</li>)}
          </ul>
        </div>
        <Editor value={text} label={t("yaml.title")} readOnly={false} onChange={setText} />
      </div>
    </div>
  );
}
