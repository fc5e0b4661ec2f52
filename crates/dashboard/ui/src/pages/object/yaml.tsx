// An object as YAML: shown live, edited, checked by the server, and saved.

import { useMemo, useState } from "preact/hooks";

import { ApiError, api } from "../../api/client";
import { getObject, path } from "../../api/resources";
import type { KubeObject, Resource } from "../../api/types";
import { t } from "../../i18n";
import { type DiffLine, diffLines, hasChanges } from "../../model/diff";
import { type FieldConflict, complete, conflicts, editable, forApply, parseYaml, removes, toYaml } from "../../model/edit";
import { FIELD_MANAGER } from "../../model/manager";
import { messageOf, notify } from "../../state";
import { Card, Loading } from "../../ui/basics";
import { useObject } from "../../live/object";
import { Editor } from "../../ui/editor";
import type { TabProps } from "./index";

type Step =
  | { kind: "show" }
  | { kind: "edit"; error: string }
  | { kind: "checking" }
  | { kind: "review"; diff: DiffLine[]; how: "apply" | "replace"; conflicts: FieldConflict[]; isForced: boolean };

/** Saves an edited object. With `dryRun`, the server only checks it and returns the result. */
function save(type: Resource, before: KubeObject, edited: KubeObject, how: "apply" | "replace", force: boolean, dryRun: boolean): Promise<KubeObject> {
  const { namespace = "", name } = before.metadata;
  const query = new URLSearchParams({ fieldManager: FIELD_MANAGER, fieldValidation: "Strict" });
  if (dryRun) query.set("dryRun", "All");
  if (how === "replace") return replace(type, before, edited, query);
  if (force) query.set("force", "true");
  return api<KubeObject>(`${path(type, namespace, name)}?${query.toString()}`, {
    method: "PATCH",
    body: JSON.stringify(forApply(edited)),
    contentType: "application/apply-patch+yaml",
  });
}

const ATTEMPTS = 4;

/**
 * Replaces an object, if it is still the one that was edited. A version that differs only in its status, which its
 * controller may write all the time, is the same for the user.
 */
async function replace(type: Resource, before: KubeObject, edited: KubeObject, query: URLSearchParams): Promise<KubeObject> {
  const { namespace = "", name } = before.metadata;
  for (let attempt = 1; ; attempt += 1) {
    const newest = await getObject(type, namespace, name);
    if (editable(newest) !== editable(before)) throw new ApiError(409, "Conflict", t("yaml.stale"));
    const metadata = { ...edited.metadata, resourceVersion: newest.metadata.resourceVersion };
    try {
      return await api<KubeObject>(`${path(type, namespace, name)}?${query.toString()}`, { method: "PUT", body: JSON.stringify({ ...edited, metadata }) });
    } catch (error) {
      if (!(error instanceof ApiError && error.isConflict) || attempt === ATTEMPTS) throw error;
    }
  }
}

export function YamlTab({ type, object }: TabProps) {
  // The live list of the page has the object already, and managed fields with it.
  const { current, error } = useObject(type, object);
  const [withManaged, setManaged] = useState(false);
  const [step, setStep] = useState<Step>({ kind: "show" });
  const [base, setBase] = useState<KubeObject>(object);
  const [text, setText] = useState("");
  const shown = useMemo(() => complete(current, withManaged), [current, withManaged]);

  const edit = () => {
    setBase(current);
    setText(editable(current));
    setStep({ kind: "edit", error: "" });
  };
  const parsed = (): KubeObject | undefined => {
    const { objects, error: problem } = parseYaml(text);
    if (problem) setStep({ kind: "edit", error: t("yaml.invalid", { message: problem }) });
    else if (objects.length !== 1) setStep({ kind: "edit", error: t("yaml.single") });
    else return objects[0];
    return undefined;
  };
  const review = async (force: boolean): Promise<void> => {
    const edited = parsed();
    if (!edited) return;
    const how = removes(parseYaml(editable(base)).objects[0], edited) ? "replace" : "apply";
    setStep({ kind: "checking" });
    try {
      const result = await save(type, base, edited, how, force, true);
      setStep({ kind: "review", diff: diffLines(editable(current), editable(result)), how, conflicts: [], isForced: force });
    } catch (failure) {
      const found = failure instanceof ApiError ? conflicts(failure.causes) : [];
      // Fields that the dashboard created or scaled are its own, although they were not applied.
      if (found.length > 0 && found.every(({ manager }) => manager === FIELD_MANAGER) && !force) return review(true);
      if (found.length > 0) setStep({ kind: "review", diff: diffLines(editable(base), toYaml(edited)), how, conflicts: found, isForced: false });
      else if (failure instanceof ApiError && failure.isConflict) {
        setBase(current);
        setStep({ kind: "edit", error: t("yaml.stale") });
      } else setStep({ kind: "edit", error: messageOf(failure) });
    }
  };
  const store = async (how: "apply" | "replace", force: boolean) => {
    const edited = parsed();
    if (!edited) return;
    setStep({ kind: "checking" });
    try {
      await save(type, base, edited, how, force, false);
      notify("good", t("yaml.saved"));
      setStep({ kind: "show" });
    } catch (failure) {
      setStep({ kind: "edit", error: messageOf(failure) });
    }
  };

  switch (step.kind) {
    case "show":
      return (
        <div class="yaml">
          <div class="tools">
            <button type="button" class="button primary" onClick={edit}>{t("yaml.edit")}</button>
            <label class="check"><input type="checkbox" checked={withManaged} onChange={(event) => setManaged(event.currentTarget.checked)} /> {t("yaml.managed")}</label>
            {error && <span class="error">{messageOf(error)}</span>}
          </div>
          <Editor key="show" value={shown} label={t("yaml.title")} readOnly />
        </div>
      );
    case "edit":
      return (
        <div class="yaml">
          <div class="tools">
            <button type="button" class="button primary" onClick={() => void review(false)}>{t("yaml.review")}</button>
            <button type="button" class="button" onClick={() => setStep({ kind: "show" })}>{t("yaml.discard")}</button>
          </div>
          {step.error && <p class="error" role="alert">{step.error}</p>}
          <Editor key="edit" value={text} label={t("yaml.title")} readOnly={false} onChange={setText} />
        </div>
      );
    case "checking":
      return <Loading />;
    case "review":
      return <Review step={step} onBack={() => setStep({ kind: "edit", error: "" })} onForce={() => void review(true)} onSave={() => void store(step.how, step.isForced)} />;
  }
}

interface ReviewProps {
  step: Extract<Step, { kind: "review" }>;
  onBack: () => void;
  onForce: () => void;
  onSave: () => void;
}

function Review({ step, onBack, onForce, onSave }: ReviewProps) {
  const isChanged = hasChanges(step.diff);
  return (
    <Card title={t("yaml.review")} wide>
      {step.conflicts.length > 0 ? (
        <div class="problem" role="alert">
          <div>
            <strong>{t("yaml.conflict")}</strong>
            <ul>{step.conflicts.map((it) => <li key={it.manager}>{t("yaml.conflictHint", { manager: it.manager, fields: it.fields.join(", ") })}</li>)}</ul>
          </div>
        </div>
      ) : (
        <p>{isChanged ? t("yaml.diff") : t("yaml.noChanges")} {isChanged && <span class="quiet">{step.how === "apply" ? t("yaml.apply", { manager: FIELD_MANAGER }) : t("yaml.replace")}</span>}</p>
      )}
      <Diff lines={step.diff} />
      <div class="tools">
        {step.conflicts.length > 0
          ? <button type="button" class="button danger" onClick={onForce}>{t("yaml.force")}</button>
          : isChanged && <button type="button" class="button primary" onClick={onSave}>{t("yaml.save")}</button>}
        <button type="button" class="button" onClick={onBack}>{t("yaml.back")}</button>
      </div>
    </Card>
  );
}

const SIGNS = { same: " ", added: "+", removed: "-", skipped: "⋯" } as const;

function Diff({ lines }: { lines: DiffLine[] }) {
  if (!hasChanges(lines)) return null;
  return (
    <pre class="diff" tabIndex={0} aria-label={t("yaml.review")}>
      {lines.map((line, index) => <span key={index} class={line.kind}>{SIGNS[line.kind]} {line.text}{"\n"}</span>)}
    </pre>
  );
}
