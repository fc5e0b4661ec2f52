// A terminal in a container: exec over a WebSocket with the protocol v5.channel.k8s.io.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "preact/hooks";

import { socketProtocols, socketUrl } from "../../api/client";
import { PODS, path } from "../../api/resources";
import { t } from "../../i18n";
import { array, text } from "../../model/value";
import { isDark } from "../../state";
import { documentWithoutStyles, runWithoutStyles } from "../../ui/document";
import type { TabProps } from "./index";

const enum Channel { Input = 0, Output = 1, Error = 2, Status = 3, Size = 4 }

const LIGHT = { background: "#fbfcfd", foreground: "#1b2733", cursor: "#1f5f7a", selectionBackground: "#c9dfe8" };
const DARK = { background: "#0f151b", foreground: "#d9e2ea", cursor: "#6fb7d4", selectionBackground: "#2c4453" };

/** A shell that most images have. */
const DEFAULT_COMMAND = "sh";

export function TerminalTab({ object }: TabProps) {
  const containers = array(object, "spec", "containers").map((it) => text(it, "name"));
  const [container, setContainer] = useState(containers[0] ?? "");
  const [command, setCommand] = useState(DEFAULT_COMMAND);
  const [run, setRun] = useState(0);
  const [message, setMessage] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const { namespace = "", name } = object.metadata;
  useEffect(() => {
    if (run === 0 || !box.current) return undefined;
    setMessage("");
    return connect(box.current, namespace, name, container, command.split(/\s+/).filter(Boolean), setMessage);
  }, [run]);
  return (
    <div class="terminal-tab">
      <form class="tools" onSubmit={(event) => { event.preventDefault(); setRun(run + 1); }}>
        <label class="field inline">
          <span>{t("logs.container")}</span>
          <select value={container} onChange={(event) => setContainer(event.currentTarget.value)}>
            {containers.map((it) => <option key={it} value={it}>{it}</option>)}
          </select>
        </label>
        <label class="field inline">
          <span>{t("terminal.shell")}</span>
          <input name="command" value={command} spellcheck={false} onInput={(event) => setCommand(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button primary">{t("terminal.connect")}</button>
        <span class="quiet" role="status">{message || (run === 0 ? t("terminal.hint") : "")}</span>
      </form>
      <div class="terminal-box" ref={box} aria-label={t("terminal.label", { name: container })} role="region" />
    </div>
  );
}

/** Opens a terminal in the element. Returns a function that closes it. */
function connect(box: HTMLElement, namespace: string, pod: string, container: string, command: string[], onMessage: (text: string) => void): () => void {
  const terminal = new Terminal({
    cursorBlink: true,
    fontSize: 13,
    fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, monospace",
    scrollback: 5000,
    screenReaderMode: true,
    theme: isDark.peek() ? DARK : LIGHT,
    // A program in the container must not open links of the dashboard.
    linkHandler: { activate: () => undefined },
    documentOverride: documentWithoutStyles(),
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  runWithoutStyles(() => terminal.open(box));
  fit.fit();
  const parameters = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
  for (const word of command) parameters.append("command", word);
  const socket = new WebSocket(socketUrl(`${path(PODS, namespace, pod, "exec")}?${parameters.toString()}`), socketProtocols("v5.channel.k8s.io"));
  socket.binaryType = "arraybuffer";
  const send = (channel: Channel, data: string) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    const content = new TextEncoder().encode(data);
    const message = new Uint8Array(content.length + 1);
    message[0] = channel;
    message.set(content, 1);
    socket.send(message);
  };
  const resize = () => send(Channel.Size, JSON.stringify({ Width: terminal.cols, Height: terminal.rows }));
  let status = "";
  socket.onopen = () => {
    resize();
    terminal.focus();
  };
  socket.onmessage = (event: MessageEvent<ArrayBuffer>) => {
    const message = new Uint8Array(event.data);
    const content = message.subarray(1);
    if (message[0] === Channel.Output || message[0] === Channel.Error) terminal.write(content);
    else if (message[0] === Channel.Status) status = exitMessage(new TextDecoder().decode(content));
  };
  socket.onclose = () => onMessage(status || t("terminal.closed"));
  terminal.onData((data) => send(Channel.Input, data));
  terminal.onResize(resize);
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(box);
  const forget = isDark.subscribe((dark) => {
    terminal.options.theme = dark ? DARK : LIGHT;
  });
  return () => {
    forget();
    observer.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
  };
}

/** Returns the message about the Status at the end of a command. */
function exitMessage(json: string): string {
  try {
    const status = JSON.parse(json) as { status?: string; message?: string; details?: { causes?: { reason?: string; message?: string }[] } };
    const code = status.details?.causes?.find((cause) => cause.reason === "ExitCode")?.message;
    if (status.status === "Success") return t("terminal.exit", { code: 0 });
    return code !== undefined ? t("terminal.exit", { code }) : (status.message ?? "");
  } catch {
    return "";
  }
}
