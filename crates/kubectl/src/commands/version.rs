//! `kubectl version`: the versions of this client and of the server.

use std::io::Write;

use apimachinery::{Value, yaml};

use crate::command::{Command, Flag};
use crate::request::{self, Path};
use crate::{Context, Failure, Invocation, VERSION};

pub(super) static COMMAND: Command = Command {
    name: "version",
    summary: "Print the versions of client and server",
    description: "Print the version of kubectl and that of the server of the current context. A warning follows if \
        they are too far apart.",
    examples: "  # Print both versions
  kubectl version

  # Print the version of kubectl only, without a connection
  kubectl version --client

  # Print all details as JSON
  kubectl version -o json",
    usage: "kubectl version [flags] [options]",
    flags: &[&[
        Flag::bool("client", "Print only the version of the client, without asking a server."),
        Flag::text("output", "", "Print all details as 'json' or 'yaml'.").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The version of kustomize whose features `-k` has.
const KUSTOMIZE: &str = "v5.8.1";
/// The fields of a version, in the order of upstream's JSON.
const FIELDS: [&str; 13] = [
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() && !invocation.bool("client") {
        return Err(Failure::new(format!("extra arguments: [{}]", invocation.args.join(" "))));
    }
    let output = invocation.text("output");
    if !matches!(output, "" | "yaml" | "json") {
        return Err(Failure::new("--output must be 'yaml' or 'json'"));
    }
    let server = if invocation.bool("client") {
        None
    } else {
        Some(request::get(&context.client()?, Path::new("/version"), request::JSON).await)
    };
    let known = server.as_ref().and_then(|server| server.as_ref().ok());
    context.out().write_all(text(output, known).as_bytes())?;
    if let Some(warning) = known.and_then(|server| skew(server.str_at(&["gitVersion"]).unwrap_or_default())) {
        if context.globals().warnings_as_errors {
            return Err(Failure::new(warning));
        }
        writeln!(context.err(), "Warning: {warning}")?;
    }
    match server {
        Some(Err(failure)) => Err(failure),
        _ => Ok(()),
    }
}

fn text(output: &str, server: Option<&Value>) -> String {
    let client = client();
    match output {
        "yaml" => {
            let mut all = apimachinery::Object::new();
            all.insert("clientVersion", client);
            all.insert("kustomizeVersion", KUSTOMIZE);
            if let Some(server) = server {
                all.insert("serverVersion", server.clone());
            }
            yaml::to_string(&all.into()) + "\n"
        }
        "json" => {
            let mut parts = vec![
                format!("  \"clientVersion\": {}", ordered(&client)),
                format!("  \"kustomizeVersion\": \"{KUSTOMIZE}\""),
            ];
            parts.extend(server.map(|server| format!("  \"serverVersion\": {}", ordered(server))));
            format!("{{\n{}\n}}\n", parts.join(",\n"))
        }
        _ => {
            let mut text = format!("Client Version: {VERSION}\nKustomize Version: {KUSTOMIZE}\n");
            if let Some(version) = server.and_then(|server| server.str_at(&["gitVersion"])) {
                text.push_str(&format!("Server Version: {version}\n"));
            }
            text
        }
    }
}

fn client() -> Value {
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let platform = format!("{}/{}", std::env::consts::OS, crate::context::architecture());
    [
        ("major", numbers.next().unwrap_or_default()),
        ("minor", numbers.next().unwrap_or_default()),
        ("gitVersion", VERSION),
        ("gitCommit", ""),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
        ("goVersion", ""),
        ("compiler", "rustc"),
        ("platform", &platform),
    ]
    .into_iter()
    .collect::<apimachinery::Object>()
    .into()
}

/// Returns a version as JSON with the fields in upstream's order.
fn ordered(version: &Value) -> String {
    let lines: Vec<String> = FIELDS
        .iter()
        .filter_map(|field| Some(format!("    \"{field}\": {}", apimachinery::json::to_string(version.get(field)?))))
        .collect();
    format!("{{\n{}\n  }}", lines.join(",\n"))
}

/// Returns a warning if the minor versions differ by more than one.
fn skew(server: &str) -> Option<String> {
    let numbers = |version: &str| {
        let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
        let mut next = || parts.next()?.parse::<i64>().ok();
        Some((next()?, next()?))
    };
    let ((major, minor), (server_major, server_minor)) = (numbers(VERSION)?, numbers(server)?);
    (major != server_major || (minor - server_minor).abs() > 1).then(|| {
        format!(
            "version difference between client ({major}.{minor}) and server ({server_major}.{server_minor}) exceeds the \
             supported minor version skew of +/-1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_one_minor_version_of_difference_is_reported() {
        assert_eq!(skew("v1.36.0"), None);
        assert_eq!(skew("v1.35.9+k3s1"), None);
        let warning = skew("v1.34.1-gke.1").unwrap();
        assert!(warning.starts_with("version difference between client (1.36) and server (1.34) exceeds"), "{warning}");
    }
}
