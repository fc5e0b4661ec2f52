// The start of the page: signs in by a link, reads the session, and shows the page of the address.

import { render } from "preact";
import { useEffect } from "preact/hooks";

import { session as requests } from "./api/client";
import { t } from "./i18n";
import { NetworkPage } from "./pages/network";
import { ObjectPage } from "./pages/object";
import { Overview } from "./pages/overview";
import { SignInPage } from "./pages/sign-in";
import { TablePage } from "./pages/table";
import { loadSession, messageOf, notify, route, session, started, types } from "./state";
import "./styles.css";
import { Loading } from "./ui/basics";
import { lazy } from "./ui/lazy";
import { Shell } from "./ui/shell";

const CreatePage = lazy(() => import("./pages/create").then((module) => module.CreatePage));

function Page() {
  const { parts } = route.value;
  const [page, group = "", version = "", plural = "", ns = "", name = "", tab = "overview"] = parts;
  const type = types.value.find((it) => (it.group || "core") === group && it.plural === plural);
  switch (page) {
    case undefined:
      return <Overview />;
    case "types":
      return type ? <TablePage key={`${group}/${plural}`} type={type} /> : <Unknown />;
    case "objects":
      return type ? <ObjectPage key={`${group}/${version}/${plural}/${ns}/${name}`} type={type} ns={ns === "-" ? "" : ns} name={name} tab={tab} /> : <Unknown />;
    case "network":
      return <NetworkPage />;
    case "create":
      return <CreatePage />;
    default:
      return <p class="quiet">{t("app.notFoundPage")}</p>;
  }
}

function Unknown() {
  return types.value.length === 0 ? <Loading /> : <p class="quiet">{t("app.notFoundPage")}</p>;
}

function App() {
  const state = session.value;
  useEffect(() => {
    document.title = [route.value.parts[5] ?? route.value.parts[3], "Knarr"].filter(Boolean).join(" · ");
  }, [route.value]);
  switch (state.kind) {
    case "unknown":
      return <Loading />;
    case "unreachable":
      return (
        <main class="sign-in">
          <p role="alert">{t("app.connectionLost")}</p>
          <p class="quiet">{state.message}</p>
          <button type="button" class="button" onClick={() => location.reload()}>{t("app.reload")}</button>
        </main>
      );
    case "out":
      return <SignInPage reason={state.reason} />;
    case "in":
      return <Shell><Page /></Shell>;
  }
}

/** Redeems the code of a sign-in link. The code is removed from the address and its history entry. */
async function signInByLink(): Promise<void> {
  const [page, code] = route.peek().parts;
  if (page !== "sign-in") return loadSession();
  history.replaceState(null, "", "#/");
  route.value = { parts: [], query: new URLSearchParams() };
  try {
    if (code) return started(await requests.signIn({ code }));
  } catch (error) {
    notify("bad", messageOf(error));
  }
  return loadSession();
}

const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
void signInByLink();
