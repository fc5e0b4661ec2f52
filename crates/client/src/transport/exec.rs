//! Credential plugins: executables that print an `ExecCredential`, run when one is needed and again when it expires.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::time::Time;
use apimachinery::{Object, Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::clock::now;
use crate::config::{Config, Exec, Interactive, Pem, PluginDenied, Secret};

/// Timeout of a plugin, long enough for an interactive login.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum output, far more than certificates and a token need.
const OUTPUT_MAX: u64 = 1 << 20;

/// A plugin returned no credential.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The executable cannot be started.
    #[error("cannot run {command}{}", hint(.install_hint))]
    Start {
        command: String,
        /// The message for users if the executable is missing.
        install_hint: String,
        source: std::io::Error,
    },
    /// The plugin exited with an error.
    #[error("{command} failed with {status}")]
    Failed {
        /// The path of the executable.
        command: String,
        status: std::process::ExitStatus,
    },
    #[error("{0} did not exit within {RUN_TIMEOUT:?}")]
    Timeout(String),
    #[error("decoding stdout: couldn't get version/kind; json parse error")]
    Syntax(#[source] json::Error),
    /// The output is not the requested credential.
    #[error("{command} printed {what}")]
    Output {
        command: String,
        /// A description of the output.
        what: String,
    },
    /// The plugin requires a terminal, and there is none.
    #[error("exec plugin cannot support interactive mode: standard input is {0}")]
    NotInteractive(&'static str),
    /// The user's preferences do not allow the executable.
    #[error(transparent)]
    Denied(#[from] PluginDenied),
}

/// The output of a plugin.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ExecCredential {
    pub token: Option<Secret>,
    pub certificate: Option<(Pem, Pem)>,
    expires: Option<Time>,
}

/// A plugin and its last credential.
pub(super) struct Plugin {
    exec: Exec,
    info: String,
    interactive: bool,
    current: Mutex<Option<Arc<ExecCredential>>>,
}

impl Plugin {
    pub(super) fn new(exec: Exec, config: &Config) -> Self {
        let interactive =
            exec.interactive != Interactive::Never && !exec.stdin_in_use && std::io::stdin().is_terminal();
        let info = json::to_string(&exec_info(&exec, config, interactive));
        Self { exec, info, interactive, current: Mutex::new(None) }
    }

    /// Returns the current credential. Concurrent callers wait for the same run of the plugin.
    pub(super) async fn credential(&self) -> Result<Arc<ExecCredential>, ExecError> {
        let mut current = self.current.lock().await;
        if let Some(credential) = &*current
            && credential.expires.is_none_or(|expires| now() < expires)
        {
            return Ok(Arc::clone(credential));
        }
        let credential = Arc::new(self.run().await?);
        *current = Some(Arc::clone(&credential));
        Ok(credential)
    }

    /// Drops a credential that the server rejected, so that the next request runs the plugin again.
    pub(super) async fn evict(&self, credential: &Arc<ExecCredential>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|have| Arc::ptr_eq(have, credential)) {
            *current = None;
        }
    }

    async fn run(&self) -> Result<ExecCredential, ExecError> {
        let exec = &self.exec;
        let command = || exec.command.display().to_string();
        if exec.interactive == Interactive::Always && !self.interactive {
            return Err(ExecError::NotInteractive(if exec.stdin_in_use {
                "unavailable: used by stdin resource manifest reader"
            } else {
                "not a terminal"
            }));
        }
        let start = |source| ExecError::Start { command: command(), install_hint: exec.install_hint.clone(), source };
        let executable = exec.policy.permit(&exec.command, &search_path())?;
        let mut child = Command::new(&executable)
            .args(&exec.args)
            .envs(exec.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(if self.interactive { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let finish = async {
            let mut output = Vec::new();
            stdout.take(OUTPUT_MAX).read_to_end(&mut output).await?;
            Ok((output, child.wait().await?))
        };
        let finished = tokio::time::timeout(RUN_TIMEOUT, finish).await.map_err(|_| ExecError::Timeout(command()))?;
        let (output, status) = finished.map_err(start)?;
        if !status.success() {
            return Err(ExecError::Failed { command: command(), status });
        }
        let object = json::parse(&output).map_err(ExecError::Syntax)?;
        read(&object, &exec.api_version).map_err(|what| ExecError::Output { command: command(), what })
    }
}

/// Returns the directories of `PATH`. Go does not run executables from relative ones either.
fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|directory| directory.is_absolute()).collect()
}

/// Returns the value of the environment variable `KUBERNETES_EXEC_INFO`.
fn exec_info(exec: &Exec, config: &Config, interactive: bool) -> Value {
    let mut spec = Object::new();
    spec.insert("interactive", interactive);
    if exec.provide_cluster_info {
        let mut cluster = Object::new();
        cluster.insert("server", config.server.to_string());
        if let Some(name) = &config.tls.server_name {
            cluster.insert("tls-server-name", name.as_str());
        }
        if config.tls.insecure_skip_verify {
            cluster.insert("insecure-skip-tls-verify", true);
        }
        if let Some(ca) = config.tls.certificate_authority.as_ref().and_then(Pem::base64) {
            cluster.insert("certificate-authority-data", ca);
        }
        if let Some(proxy) = &config.proxy {
            cluster.insert("proxy-url", proxy.to_string());
        }
        if !exec.cluster_config.is_null() {
            cluster.insert("config", exec.cluster_config.clone());
        }
        spec.insert("cluster", cluster);
    }
    let mut info = Object::new();
    info.insert("apiVersion", exec.api_version.as_str());
    info.insert("kind", "ExecCredential");
    info.insert("spec", spec);
    Value::Object(info)
}

fn read(object: &Value, api_version: &str) -> Result<ExecCredential, String> {
    let top_level = |field| object.text_at(&[field]);
    // As in client-go, only the version is required.
    if !matches!(top_level("kind"), "" | "ExecCredential") {
        return Err(format!("kind {:?} instead of \"ExecCredential\"", top_level("kind")));
    }
    if top_level("apiVersion") != api_version {
        return Err(format!("apiVersion {:?} although {api_version:?} is configured", top_level("apiVersion")));
    }
    let text = |field| object.str_at(&["status", field]).filter(|text| !text.is_empty());
    let pem = |text: &str| Pem::Inline(text.as_bytes().to_vec().into());
    let token = text("token").map(Secret::new);
    let certificate = match (text("clientCertificateData"), text("clientKeyData")) {
        (None, None) if token.is_none() => return Err("a status with neither a token nor a certificate".to_owned()),
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((pem(certificate), pem(key))),
        _ => return Err("a client certificate without its key, or the reverse".to_owned()),
    };
    let expires = match text("expirationTimestamp") {
        None => None,
        Some(text) => Some(Time::parse(text).map_err(|error| format!("status.expirationTimestamp {text:?}: {error}"))?),
    };
    Ok(ExecCredential { token, certificate, expires })
}

fn hint(install_hint: &str) -> String {
    if install_hint.is_empty() { String::new() } else { format!(" ({install_hint})") }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    #[test]
    fn plugin_output_must_be_the_requested_credential() {
        let check = |object: &Value, expected: &str| assert_eq!(read(object, V1).unwrap_err(), expected);
        check(&value!({"kind": "Pod"}), "kind \"Pod\" instead of \"ExecCredential\"");
        check(
            &value!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"}),
            "apiVersion \"client.authentication.k8s.io/v1beta1\" although \"client.authentication.k8s.io/v1\" is configured",
        );
        let with = |status: Value| value!({"kind": "ExecCredential", "apiVersion": V1, "status": status});
        check(&with(value!({})), "a status with neither a token nor a certificate");
        check(&with(value!({"clientKeyData": "k"})), "a client certificate without its key, or the reverse");
        assert!(read(&with(value!({"token": "t", "expirationTimestamp": "soon"})), V1).is_err());
        let good = read(&with(value!({"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"})), V1).unwrap();
        assert_eq!(good.token.unwrap().reveal(), "t");
        assert!(read(&value!({"apiVersion": V1, "status": {"token": "t"}}), V1).is_ok());
        assert!(good.expires.is_some());
    }
}
