// Sign in with a token or a kubeconfig.

import { useState } from "preact/hooks";

import { type SignIn, type SignedOut, session } from "../api/client";
import { t } from "../i18n";
import { messageOf, notices, started } from "../state";
import { Preferences } from "../ui/shell";

/** The largest file that is read: a kubeconfig has a few KiB. */
const FILE_MAX = 200_000;

export function SignInPage({ reason }: { reason: SignedOut | undefined }) {
  const [method, setMethod] = useState<"token" | "kubeconfig">("token");
  const [token, setToken] = useState("");
  const [kubeconfig, setKubeconfig] = useState("");
  const [context, setContext] = useState("");
  const [error, setError] = useState(notices.value.at(-1)?.text ?? "");
  const [isWorking, setWorking] = useState(false);

  const submit = async (event: Event) => {
    event.preventDefault();
    const body: SignIn = method === "token" ? { token } : context ? { kubeconfig, context } : { kubeconfig };
    setWorking(true);
    setError("");
    try {
      started(await session.signIn(body));
    } catch (failure) {
      setError(messageOf(failure));
      setWorking(false);
    }
  };
  const read = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    if (file) setKubeconfig(await file.slice(0, FILE_MAX).text());
  };
  return (
    <main class="sign-in">
      <form class="card" onSubmit={(event) => void submit(event)}>
        <p class="brand">{t("app.name")}</p>
        <h1>{t("signIn.title")}</h1>
        {reason && <p class="hint" role="status">{t(reason === "ended" ? "signIn.expired" : "signIn.rejected")}</p>}
        <fieldset class="choice">
          <legend class="hidden">{t("signIn.title")}</legend>
          {(["token", "kubeconfig"] as const).map((name) => (
            <label key={name}>
              <input type="radio" name="method" value={name} checked={method === name} onChange={() => setMethod(name)} />
              <span>{t(`signIn.${name}`)}</span>
            </label>
          ))}
        </fieldset>
        {method === "token" ? (
          <label class="field">
            <span>{t("signIn.token")}</span>
            <input type="password" name="token" autocomplete="off" spellcheck={false} required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
            <small>{t("signIn.tokenHint")}</small>
          </label>
        ) : (
          <>
            <label class="field">
              <span>{t("signIn.kubeconfig")}</span>
              <textarea name="kubeconfig" rows={6} autocomplete="off" spellcheck={false} required value={kubeconfig} onInput={(event) => setKubeconfig(event.currentTarget.value)} />
              <small>{t("signIn.kubeconfigHint")}</small>
            </label>
            <label class="field">
              <span>{t("signIn.file")}</span>
              <input type="file" onChange={(event) => void read(event.currentTarget)} />
            </label>
            <label class="field">
              <span>{t("signIn.context")}</span>
              <input name="context" autocomplete="off" value={context} onInput={(event) => setContext(event.currentTarget.value)} />
            </label>
          </>
        )}
        {error && <p class="error" role="alert">{error}</p>}
        <button type="submit" class="button primary" disabled={isWorking}>{t(isWorking ? "signIn.working" : "signIn.submit")}</button>
        <p class="quiet">{t("signIn.rights")}</p>
        <div class="preferences"><Preferences /></div>
      </form>
    </main>
  );
}
