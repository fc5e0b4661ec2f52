//! The context of a command: the configuration, the client, the types of the server, and the standard streams.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::config::{Credential, Kubeconfig, KubeconfigError, NamedConfig, Pem, PluginPolicy, Secret, Selection};
use client::{Client, Config, Impersonate, Settings};
use http::Uri;

use crate::failure::{chain, go_io_error};
use crate::mapper::Mapper;
use crate::output::Output;
use crate::transport::LoggingTransport;
use crate::{Failure, Invocation};

/// The directory of the service account in a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The timeout of requests without one. A longer one would overflow the clock.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Context {
    globals: Globals,
    config: OnceCell<Config>,
    transport: OnceCell<Arc<LoggingTransport>>,
    client: OnceCell<Client>,
    mapper: OnceCell<Rc<Mapper>>,
    out: Output,
    err: Output,
}

/// The namespace of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub name: String,
    /// Whether the namespace was given on the command line.
    pub explicit: bool,
}

/// The values of the global flags.
#[derive(Clone, Debug, Default)]
pub struct Globals {
    pub kubeconfig: String,
    pub context: String,
    pub cluster: String,
    pub user: String,
    pub namespace: Option<String>,
    pub server: String,
    pub token: String,
    pub username: String,
    pub password: String,
    pub impersonate: Option<Impersonate>,
    pub certificate_authority: String,
    pub client_certificate: String,
    pub client_key: String,
    pub insecure_skip_tls_verify: bool,
    pub tls_server_name: String,
    pub request_timeout: String,
    pub verbosity: i64,
    pub warnings_as_errors: bool,
    pub match_server_version: bool,
    pub cache_dir: String,
    /// Whether the command reads manifests or variables from standard input.
    pub stdin_in_use: bool,
    /// The credential plugins that may run, from the user's preferences.
    pub plugin_policy: PluginPolicy,
}

impl Globals {
    pub fn of(invocation: &Invocation) -> Self {
        // A flag of the command hides a global one with the same name: `create rolebinding --user`.
        let hidden = |name| invocation.command.flags.iter().copied().flatten().any(|flag| flag.name == name);
        let text = |name| if hidden(name) { String::new() } else { invocation.text(name).to_owned() };
        Self {
            kubeconfig: text("kubeconfig"),
            context: text("context"),
            cluster: text("cluster"),
            user: text("user"),
            namespace: Some(text("namespace")).filter(|namespace| !namespace.is_empty()),
            server: text("server"),
            token: text("token"),
            username: text("username"),
            password: text("password"),
            impersonate: impersonate(invocation),
            certificate_authority: text("certificate-authority"),
            client_certificate: text("client-certificate"),
            client_key: text("client-key"),
            insecure_skip_tls_verify: invocation.bool("insecure-skip-tls-verify"),
            tls_server_name: text("tls-server-name"),
            request_timeout: text("request-timeout"),
            verbosity: invocation.int("v"),
            warnings_as_errors: invocation.bool("warnings-as-errors"),
            match_server_version: invocation.bool("match-server-version"),
            cache_dir: text("cache-dir"),
            stdin_in_use: reads_stdin(invocation),
            plugin_policy: PluginPolicy::default(),
        }
    }
}

impl Context {
    pub fn new(globals: Globals) -> Self {
        Self::with_output(globals, Output::stdout(), Output::stderr())
    }

    /// Returns a context with other streams, for tests.
    pub fn with_output(globals: Globals, out: Output, err: Output) -> Self {
        Self {
            globals,
            config: OnceCell::new(),
            transport: OnceCell::new(),
            client: OnceCell::new(),
            mapper: OnceCell::new(),
            out,
            err,
        }
    }

    pub const fn globals(&self) -> &Globals {
        &self.globals
    }

    /// Returns the buffered standard output. It is flushed when the command ends, and before anything is written to
    /// standard error; a command that waits must flush it.
    pub fn out(&self) -> Output {
        self.out.clone()
    }

    pub fn err(&self) -> Output {
        let _ = std::io::Write::flush(&mut self.out.clone());
        self.err.clone()
    }

    /// Reads standard input to its end.
    pub fn read_stdin(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Prints a warning to standard error, in yellow on a terminal.
    pub fn warn(&self, text: &str) {
        let _ = std::io::Write::flush(&mut self.out.clone());
        crate::transport::print_warning(text);
    }

    /// Returns the configuration of the selected cluster and user.
    pub fn config(&self) -> Result<&Config, Failure> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let config = self.load_config()?;
        Ok(self.config.get_or_init(|| config))
    }

    pub fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let config = self.config()?.clone();
        let impersonate = config.impersonate.clone();
        let transport =
            Arc::new(LoggingTransport::new(config, self.globals.verbosity, self.globals.match_server_version)?);
        let settings = Settings {
            user_agent: user_agent(),
            request_timeout: self.request_timeout()?.unwrap_or(NO_TIMEOUT),
            ..Settings::default()
        };
        let client = Client::new(Arc::clone(&transport) as Arc<dyn client::Transport>, settings)?;
        let client = match impersonate {
            Some(who) => client.impersonating(&who)?,
            None => client,
        };
        let _ = self.transport.set(transport);
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// Returns the number of different warnings that the server sent.
    pub fn warnings(&self) -> usize {
        self.transport.get().map_or(0, |transport| transport.warnings())
    }

    /// Returns the namespace of the flag, or else of the kubeconfig's context, or else `default`.
    pub fn namespace(&self) -> Result<Namespace, Failure> {
        if let Some(name) = &self.globals.namespace {
            return Ok(Namespace { name: name.clone(), explicit: true });
        }
        Ok(Namespace { name: self.config()?.namespace.clone(), explicit: false })
    }

    /// Returns the types of the server, from the cache on disk if it is fresh.
    pub async fn mapper(&self) -> Result<Rc<Mapper>, Failure> {
        if let Some(mapper) = self.mapper.get() {
            return Ok(Rc::clone(mapper));
        }
        let directory = self.cache_dir().join("discovery").join(cache_name(&self.config()?.server.to_string()));
        let mapper = Rc::new(Mapper::new(self.client()?, directory));
        Ok(Rc::clone(self.mapper.get_or_init(|| mapper)))
    }

    pub fn cache_dir(&self) -> PathBuf {
        if self.globals.cache_dir.is_empty() {
            default_cache_dir().into()
        } else {
            self.globals.cache_dir.clone().into()
        }
    }

    /// Returns the timeout of a request; `None` for no limit.
    pub fn request_timeout(&self) -> Result<Option<Duration>, Failure> {
        let text = self.globals.request_timeout.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        // A number without a unit is in seconds.
        let text = if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text}s") } else { text.to_owned() };
        let nanos = crate::flags::parse_duration(&text).map_err(|_| {
            Failure::new(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a \
                 corresponding time unit (e.g. 1s | 2m | 3h)",
            )
        })?;
        Ok(Some(Duration::from_nanos(nanos.try_into().unwrap_or(0))).filter(|timeout| !timeout.is_zero()))
    }

    /// Returns the kubeconfig files, the first of which takes precedence, and whether one was named explicitly.
    pub fn kubeconfig_files(&self) -> (Vec<PathBuf>, bool) {
        if !self.globals.kubeconfig.is_empty() {
            return (vec![self.globals.kubeconfig.clone().into()], true);
        }
        match std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => (std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(), false),
            None => (vec![home().join(".kube/config")], false),
        }
    }

    fn load_config(&self) -> Result<Config, Failure> {
        let globals = &self.globals;
        let kubeconfig = self.kubeconfig()?;
        let nonempty = |text: &'_ String| -> Option<String> { Some(text.clone()).filter(|text| !text.is_empty()) };
        let [context, cluster, user, server] =
            [&globals.context, &globals.cluster, &globals.user, &globals.server].map(nonempty);
        if let Some(server) = &server {
            check_server(server)?;
        }
        let selection = Selection {
            context: context.as_deref(),
            cluster: cluster.as_deref(),
            user: user.as_deref(),
            server: server.as_deref(),
        };
        let none = |config| NamedConfig { config, cluster: String::new(), user: String::new() };
        let NamedConfig { mut config, cluster, user } =
            match kubeconfig.select(&selection).map_err(|error| kubeconfig_failure(&error))? {
                Some(selected) => selected,
                None => match in_cluster()? {
                    Some(config) => none(config),
                    None => none(Config::new(Uri::from_static("http://localhost:8080"))),
                },
            };
        self.override_tls(&mut config, &user)?;
        check_files(&config, &cluster, &user)?;
        let has_token = matches!(config.credential, Credential::Token(_) | Credential::TokenFile { .. });
        let has_basic = matches!(config.credential, Credential::Basic { .. });
        if (has_token || !globals.token.is_empty()) && (has_basic || !globals.username.is_empty()) {
            return Err(Failure::new(format!(
                "more than one authentication method found for {user}; found [token basicAuth], only one is allowed"
            )));
        }
        // DEVIATION: `kubectl` never prompts for a user name and a password; without credentials, requests are
        // anonymous.
        if !globals.token.is_empty() {
            config.credential = Credential::Token(Secret::new(globals.token.clone()));
        } else if !globals.username.is_empty() {
            let (username, password) = (globals.username.clone(), Secret::new(globals.password.clone()));
            config.credential = Credential::Basic { username, password };
        }
        if let Credential::Exec(exec) = &mut config.credential {
            exec.policy = globals.plugin_policy.clone();
            exec.stdin_in_use = globals.stdin_in_use;
        }
        if let Some(who) = &globals.impersonate {
            if who.user.is_empty() {
                return Err(Failure::new(format!(
                    "requesting uid, groups or user-extra for {user} without impersonating a user"
                )));
            }
            config.impersonate = Some(who.clone());
        }
        if let Some(namespace) = &globals.namespace {
            config.namespace.clone_from(namespace);
        }
        if config.proxy.is_none() {
            config.proxy = client::config::proxy_from_environment(&config.server, |name| std::env::var(name).ok())
                .map_err(|error| Failure::new(error.to_string()))?;
        }
        Ok(config)
    }

    fn override_tls(&self, config: &mut Config, user: &str) -> Result<(), Failure> {
        let globals = &self.globals;
        if !globals.certificate_authority.is_empty() {
            if globals.insecure_skip_tls_verify {
                return Err(Failure::new("specifying a root certificates file with the insecure flag is not allowed"));
            }
            config.tls.certificate_authority = Some(Pem::File(globals.certificate_authority.clone().into()));
            config.tls.insecure_skip_verify = false;
        }
        // As with kubectl, `--insecure-skip-tls-verify=false` does not override the kubeconfig.
        if globals.insecure_skip_tls_verify {
            config.tls.insecure_skip_verify = true;
            config.tls.certificate_authority = None;
        }
        // The server name of the kubeconfig belongs to the kubeconfig's server.
        if !globals.tls_server_name.is_empty() || !globals.server.is_empty() {
            config.tls.server_name = Some(globals.tls_server_name.clone()).filter(|name| !name.is_empty());
        }
        if !globals.client_certificate.is_empty() || !globals.client_key.is_empty() {
            let (certificate, key) = match config.tls.client.take() {
                Some((certificate, key)) => (Some(certificate), Some(key)),
                None => (None, None),
            };
            let file = |path: &String| (!path.is_empty()).then(|| Pem::File(path.into()));
            let certificate = file(&globals.client_certificate).or(certificate);
            let key = file(&globals.client_key).or(key);
            match (certificate, key) {
                (Some(certificate), Some(key)) => config.tls.client = Some((certificate, key)),
                (Some(_), None) => {
                    return Err(Failure::new(format!(
                        "client-key-data or client-key must be specified for {user} to use the clientCert authentication \
                         method."
                    )));
                }
                // A key without a certificate has no effect.
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn kubeconfig(&self) -> Result<Kubeconfig, Failure> {
        let (files, explicit) = self.kubeconfig_files();
        let mut merged = Kubeconfig::default();
        for file in &files {
            match std::fs::read_to_string(file) {
                Ok(text) => merged.merge(Kubeconfig::parse(&text, file).map_err(|error| kubeconfig_failure(&error))?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !explicit => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Failure::new(format!("stat {}: no such file or directory", file.display())));
                }
                Err(error) => {
                    let (file, error) = (file.display(), go_io_error(&error));
                    return Err(Failure::new(format!("error loading config file \"{file}\": open {file}: {error}")));
                }
            }
        }
        Ok(merged)
    }
}

/// Fails if the value of `--server` is not the URL of a server.
fn check_server(server: &str) -> Result<(), Failure> {
    let url = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
    let uri = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    match uri.as_ref().map(|uri| uri.scheme_str().unwrap_or_default()) {
        Some("https" | "http") => Ok(()),
        Some(other) => {
            Err(Failure::plain(format!("Unable to connect to the server: unsupported protocol scheme {other:?}")))
        }
        None => Err(Failure::new(format!("host must be a URL or a host:port pair: {server:?}"))),
    }
}

// DEVIATION: `kubectl` rejects a client certificate that is not PEM or does not belong to its key before it connects;
// upstream logs the problem and connects without the certificate.
/// Fails if a certificate or key cannot be read, or if the CA file contains no certificate.
fn check_files(config: &Config, cluster: &str, user: &str) -> Result<(), Failure> {
    let client = config.tls.client.as_ref();
    let files = [
        ("certificate-authority", config.tls.certificate_authority.as_ref(), cluster),
        ("client-cert", client.map(|(certificate, _)| certificate), user),
        ("client-key", client.map(|(_, key)| key), user),
    ];
    let problems: Vec<String> =
        files.into_iter().filter_map(|(what, pem, owner)| unreadable(what, pem?, owner)).collect();
    match problems.as_slice() {
        [] => config.tls.certificate_authority.as_ref().map_or(Ok(()), check_authority),
        [problem] => Err(Failure::new(problem)),
        several => Err(Failure::plain(format!("Error in configuration: \n* {}", several.join("\n* ")))),
    }
}

/// Fails unless a certificate follows a header of PEM.
fn check_authority(pem: &Pem) -> Result<(), Failure> {
    let bytes = match pem {
        Pem::Inline(bytes) => bytes.to_vec(),
        Pem::File(path) => std::fs::read(path)?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let problem = if !text.contains("-----BEGIN ") {
        "unable to parse bytes as PEM block"
    } else if !text.contains("-----BEGIN CERTIFICATE-----") {
        "no valid certificate authority data seen"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("unable to load root certificates: {problem}")))
}

/// Returns the problem if `pem` is a file that cannot be opened.
fn unreadable(what: &str, pem: &Pem, owner: &str) -> Option<String> {
    let Pem::File(path) = pem else { return None };
    let error = std::fs::File::open(path).err()?;
    let (path, error) = (path.display(), go_io_error(&error));
    Some(format!("unable to read {what} {path} for {owner} due to open {path}: {error}"))
}

fn kubeconfig_failure(error: &KubeconfigError) -> Failure {
    match error {
        KubeconfigError::Syntax { file, source } => {
            Failure::new(format!("error loading config file \"{}\": {}", file.display(), chain(source)))
        }
        KubeconfigError::NoInteractiveMode(_) => Failure::new(error.to_string()),
        KubeconfigError::Version { file, .. } => {
            Failure::new(format!("error loading config file \"{}\": {error}", file.display()))
        }
        KubeconfigError::Missing { kind: "user", name } => Failure::new(format!("auth info {name:?} does not exist")),
        KubeconfigError::Missing { kind: "context", name } => {
            let problem = format!("context was not found for specified context: {name}");
            Failure::plain(format!("Error in configuration: {problem}"))
        }
        KubeconfigError::Missing { name, .. } => Failure::new(format!("no server found for cluster {name:?}")),
        other => Failure::new(format!("error loading config file: {other}")),
    }
}

fn in_cluster() -> Result<Option<Config>, Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if Path::new(SERVICE_ACCOUNT).join("token").exists() => {
            let config = Config::in_cluster(&host, &port, Path::new(SERVICE_ACCOUNT));
            Ok(Some(config.map_err(|error| Failure::new(chain(&error)))?))
        }
        _ => Ok(None),
    }
}

/// Whether a command reads standard input, so that a credential plugin cannot.
fn reads_stdin(invocation: &Invocation) -> bool {
    let is_stdin = |text: &String| text == "-";
    let manifests = invocation.has("filename") && invocation.values("filename").iter().any(is_stdin);
    let variables = invocation.path == ["kubectl", "set", "env"]
        && (invocation.args.iter().any(is_stdin) || invocation.values("env").iter().any(is_stdin));
    manifests || variables
}

fn impersonate(invocation: &Invocation) -> Option<Impersonate> {
    let user = invocation.text("as").to_owned();
    let mut extra: Vec<(String, Vec<String>)> = Vec::new();
    for pair in invocation.list("as-user-extra") {
        let Some((key, value)) = pair.split_once('=') else { continue };
        match extra.iter_mut().find(|(have, _)| have == key) {
            Some((_, values)) => values.push(value.to_owned()),
            None => extra.push((key.to_owned(), vec![value.to_owned()])),
        }
    }
    let who =
        Impersonate { user, uid: invocation.text("as-uid").to_owned(), groups: invocation.list("as-group"), extra };
    (who != Impersonate::default()).then_some(who)
}

/// Returns the directory name of a server in the cache, as kubectl's: the URL without its scheme, and `_` for special
/// characters.
fn cache_name(server: &str) -> String {
    let host = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '(' | ')');
    host.trim_end_matches('/').chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// Returns the default of `--cache-dir`.
pub fn default_cache_dir() -> String {
    match std::env::var("KUBECACHEDIR") {
        Ok(directory) if !directory.is_empty() => directory,
        _ => home().join(".kube/cache").display().to_string(),
    }
}

pub fn home() -> PathBuf {
    std::env::var_os("HOME").unwrap_or_else(|| OsString::from("/")).into()
}

/// Returns the CPU architecture by its name in Go.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn user_agent() -> String {
    format!("kubectl/{} ({}/{}) knarr", crate::VERSION, std::env::consts::OS, architecture())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_directories_are_named_like_kubectls() {
        let check = |server: &str, expect: &str| assert_eq!(cache_name(server), expect);
        check("https://127.0.0.1:6443", "127.0.0.1_6443");
        check("https://a.example.com/k8s/clusters/c-1/", "a.example.com/k8s/clusters/c_1");
        check("http://[::1]:8080", "___1__8080");
    }
}
