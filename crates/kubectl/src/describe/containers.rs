//! Containers of pods and pod templates: ports, state, resources, probes, environment and mounts.

use apimachinery::{Value, go};

use super::common::capital_bool;
use super::read::{Read, go_list, int_or_string, join_host_port, name, namespace, quantity, quantity_text};
use super::writer::{Writer, line};

/// Writes containers. `title` is indented for a template. `pod` resolves environment variables that refer to fields.
pub(super) fn write(w: &mut Writer<'_>, title: &str, containers: &[Value], statuses: &[Value], pod: Option<&Value>) {
    line!(w, 0, "{title}:{}", if containers.is_empty() { " <none>" } else { "" });
    let indent = if title.starts_with(' ') { " " } else { "" };
    for container in containers {
        // The last status with a name is used.
        let status = statuses.iter().rfind(|status| status.text("name") == container.text("name"));
        line!(w, 1, "{indent}{}:", container.text("name"));
        write_image(w, container, status);
        write_command(w, "Command", container.list("command"));
        write_command(w, "Args", container.list("args"));
        if let Some(status) = status {
            write_status(w, status);
        }
        write_resources(w, 2, container.sub("resources"));
        for (title, field) in
            [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
        {
            if container.has(field) {
                line!(w, 2, "{title}:\t{}", probe(container.sub(field)));
            }
        }
        write_environment_sources(w, container);
        write_environment(w, container, pod);
        write_mounts(w, container);
    }
}

fn write_image(w: &mut Writer<'_>, container: &Value, status: Option<&Value>) {
    if let Some(status) = status {
        line!(w, 2, "Container ID:\t{}", status.text("containerID"));
    }
    line!(w, 2, "Image:\t{}", container.text("image"));
    if let Some(status) = status {
        line!(w, 2, "Image ID:\t{}", status.text("imageID"));
    }
    for (title, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
        match ports(container.list("ports"), field) {
            ports if ports.contains(',') => line!(w, 2, "{title}s:\t{ports}"),
            ports if ports.is_empty() => line!(w, 2, "{title}:\t<none>"),
            ports => line!(w, 2, "{title}:\t{ports}"),
        }
    }
    write_seccomp(w, 2, 3, container.sub("securityContext.seccompProfile"));
}

pub(super) fn write_seccomp(w: &mut Writer<'_>, level: usize, profile_level: usize, profile: &Value) {
    if profile.is_null() {
        return;
    }
    line!(w, level, "SeccompProfile:\t{}", profile.text("type"));
    if profile.text("type") == "Localhost" {
        line!(w, profile_level, "LocalhostProfile:\t{}", profile.text("localhostProfile"));
    }
}

fn ports(ports: &[Value], field: &str) -> String {
    let port = |port: &Value| {
        let number = format!("{}/{}", port.int(field), port.text("protocol"));
        match port.text("name") {
            "" => number,
            name => format!("{number} ({name})"),
        }
    };
    ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

fn write_command(w: &mut Writer<'_>, title: &str, words: &[Value]) {
    if words.is_empty() {
        return;
    }
    line!(w, 2, "{title}:");
    for part in words.iter().filter_map(Value::as_str).flat_map(|word| word.split('\n')) {
        line!(w, 3, "{part}");
    }
}

fn write_status(w: &mut Writer<'_>, status: &Value) {
    write_state(w, "State", status.sub("state"));
    if status.has("lastState.terminated") {
        write_state(w, "Last State", status.sub("lastState"));
    }
    line!(w, 2, "Ready:\t{}", capital_bool(status.flag("ready")));
    line!(w, 2, "Restart Count:\t{}", status.int("restartCount"));
}

fn write_state(w: &mut Writer<'_>, title: &str, state: &Value) {
    if state.has("running") {
        let started = w.clock.rfc1123(state.text("running.startedAt"));
        line!(w, 2, "{title}:\tRunning");
        line!(w, 3, "Started:\t{started}");
    } else if state.has("waiting") || !state.has("terminated") {
        line!(w, 2, "{title}:\tWaiting");
        if !state.text("waiting.reason").is_empty() {
            line!(w, 3, "Reason:\t{}", state.text("waiting.reason"));
        }
    } else {
        let state = state.sub("terminated");
        line!(w, 2, "{title}:\tTerminated");
        for (title, field) in [("Reason", "reason"), ("Message", "message")] {
            if !state.text(field).is_empty() {
                line!(w, 3, "{title}:\t{}", state.text(field));
            }
        }
        line!(w, 3, "Exit Code:\t{}", state.int("exitCode"));
        if state.int("signal") > 0 {
            line!(w, 3, "Signal:\t{}", state.int("signal"));
        }
        let [started, finished] = ["startedAt", "finishedAt"].map(|field| w.clock.rfc1123(state.text(field)));
        line!(w, 3, "Started:\t{started}");
        line!(w, 3, "Finished:\t{finished}");
    }
}

pub(super) fn write_resources(w: &mut Writer<'_>, level: usize, resources: &Value) {
    for (title, field) in [("Limits", "limits"), ("Requests", "requests")] {
        let amounts = resources.map(field);
        if !amounts.is_empty() {
            line!(w, level, "{title}:");
        }
        for (name, amount) in amounts.iter() {
            line!(w, level + 1, "{name}:\t{}", quantity_text(amount));
        }
    }
}

fn probe(probe: &Value) -> String {
    let numbers = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    let [delay, timeout, period, success, failure] = numbers.map(|field| probe.int(field));
    let rest = format!("delay={delay}s timeout={timeout}s period={period}s #success={success} #failure={failure}");
    if probe.has("exec") {
        format!("exec {} {rest}", go_list(probe.list("exec.command")))
    } else if probe.has("httpGet") {
        format!("http-get {} {rest}", url(probe.sub("httpGet")))
    } else if probe.has("tcpSocket") {
        let socket = probe.sub("tcpSocket");
        format!("tcp-socket {}:{} {rest}", socket.text("host"), int_or_string(socket.sub("port")))
    } else if probe.has("grpc") {
        format!("grpc <pod>:{} {} {rest}", probe.int("grpc.port"), probe.text("grpc.service"))
    } else {
        format!("unknown {rest}")
    }
}

fn url(get: &Value) -> String {
    let (host, port) = (get.text("host"), int_or_string(get.sub("port")));
    let host = if port.is_empty() { host.to_owned() } else { join_host_port(host, &port) };
    let path = escape_path(get.text("path"));
    let scheme = get.text("scheme").to_lowercase();
    let scheme = if scheme.is_empty() { scheme } else { format!("{scheme}:") };
    let slash = if path.is_empty() || path.starts_with('/') || host.is_empty() { "" } else { "/" };
    format!("{scheme}//{host}{slash}{path}")
}

/// Escapes a path like Go's `net/url`.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn write_environment_sources(w: &mut Writer<'_>, container: &Value) {
    let sources = container.list("envFrom");
    if sources.is_empty() {
        return;
    }
    line!(w, 2, "Environment Variables from:");
    for source in sources {
        let kinds = [("configMapRef", "ConfigMap"), ("secretRef", "Secret")];
        let found = kinds.into_iter().find(|(field, _)| source.has(field));
        let (reference, kind) = found.map_or((&Value::Null, ""), |(field, kind)| (source.sub(field), kind));
        let prefix = match source.text("prefix") {
            "" => String::new(),
            prefix => format!(" with prefix '{prefix}'"),
        };
        line!(w, 3, "{}\t{kind}{prefix}\tOptional: {}", reference.text("name"), reference.flag("optional"));
    }
}

fn write_environment(w: &mut Writer<'_>, container: &Value, pod: Option<&Value>) {
    let variables = container.list("env");
    line!(w, 2, "Environment:{}", if variables.is_empty() { "\t<none>" } else { "" });
    for variable in variables {
        let name = variable.text("name");
        let from = variable.sub("valueFrom");
        if from.is_null() {
            for (index, part) in variable.text("value").split('\n').enumerate() {
                match index {
                    0 => line!(w, 3, "{name}:\t{part}"),
                    _ => line!(w, 3, "\t{part}"),
                }
            }
        } else if from.has("fieldRef") {
            let field = from.sub("fieldRef");
            let value = pod.map(|pod| resolve(pod, field)).unwrap_or_default();
            line!(w, 3, "{name}:\t{value} ({}:{})", field.text("apiVersion"), field.text("fieldPath"));
        } else if from.has("resourceFieldRef") {
            let field = from.sub("resourceFieldRef");
            line!(w, 3, "{name}:\t{} ({})", resource_value(field, container), field.text("resource"));
        } else if from.has("secretKeyRef") {
            let key = from.sub("secretKeyRef");
            let (key, secret, optional) = (key.text("key"), key.text("name"), key.flag("optional"));
            line!(w, 3, "{name}:\t<set to the key '{key}' in secret '{secret}'>\tOptional: {optional}");
        } else if from.has("configMapKeyRef") {
            let key = from.sub("configMapKeyRef");
            let (key, map, optional) = (key.text("key"), key.text("name"), key.flag("optional"));
            line!(w, 3, "{name}:\t<set to the key '{key}' of config map '{map}'>\tOptional: {optional}");
        }
    }
}

/// Returns the value of a field of the pod. kubectl resolves its name and namespace only.
fn resolve<'a>(pod: &'a Value, field: &Value) -> &'a str {
    match field.text("fieldPath") {
        "metadata.name" => name(pod),
        "metadata.namespace" => namespace(pod),
        _ => "",
    }
}

/// Returns a request or limit of the container in units of the divisor, rounded up.
fn resource_value(field: &Value, container: &Value) -> String {
    let resource = field.text("resource");
    let Some((of, name)) = resource.split_once('.').filter(|(of, _)| matches!(*of, "limits" | "requests")) else {
        return String::new();
    };
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        return String::new();
    }
    let divisor = quantity(field.sub("divisor"));
    let divisor = if divisor.is_zero() { quantity(&Value::Int(1)) } else { divisor };
    let amount = container.sub("resources").map(of).get(name).map(quantity).unwrap_or_default();
    let ratio = match name {
        "cpu" => amount.milli_value() as f64 / divisor.milli_value() as f64,
        _ => amount.value() as f64 / divisor.value() as f64,
    };
    let value = ratio.ceil() as i64;
    if value == 0 && matches!(resource, "limits.cpu" | "limits.memory") {
        return "node allocatable".to_owned();
    }
    value.to_string()
}

fn write_mounts(w: &mut Writer<'_>, container: &Value) {
    let mut mounts: Vec<&Value> = container.list("volumeMounts").iter().collect();
    mounts.sort_by_key(|mount| mount.text("mountPath"));
    let none = if mounts.is_empty() { "\t<none>" } else { "" };
    line!(w, 2, "Mounts:{none}");
    for mount in mounts {
        let mode = if mount.flag("readOnly") { "ro" } else { "rw" };
        let path = match mount.text("subPath") {
            "" => String::new(),
            path => format!(",path={}", go::quote(path)),
        };
        line!(w, 3, "{} from {} ({mode}{path})", mount.text("mountPath"), mount.text("name"));
    }
    let mut devices: Vec<&Value> = container.list("volumeDevices").iter().collect();
    if devices.is_empty() {
        return;
    }
    devices.sort_by_key(|device| device.text("devicePath"));
    line!(w, 2, "Devices:{none}");
    for device in devices {
        line!(w, 3, "{} from {}", device.text("devicePath"), device.text("name"));
    }
}
