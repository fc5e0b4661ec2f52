//! Kubeconfig files: parsing, merging, and the configuration of a context.

mod field;

use std::path::{Path, PathBuf};

use apimachinery::{Value, yaml};
use http::Uri;

use super::{Config, Credential, Exec, Impersonate, Interactive, Pem, PluginPolicy, Secret, Tls};
use field::Field;

/// One or more merged kubeconfig files.
/// The name of the cluster extension with the plugin's configuration.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    current_context: Option<String>,
    clusters: Vec<NamedEntry>,
    users: Vec<NamedEntry>,
    contexts: Vec<NamedEntry>,
}

/// An entry with its file, which relative paths refer to.
#[derive(Clone, Debug)]
struct NamedEntry {
    name: String,
    value: Value,
    file: PathBuf,
    path: String,
}

/// Names and values that take precedence over those of a kubeconfig.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// The context instead of the current one.
    pub context: Option<&'a str>,
    /// The cluster instead of the context's.
    pub cluster: Option<&'a str>,
    /// The user instead of the context's.
    pub user: Option<&'a str>,
    /// The URL instead of the cluster's.
    pub server: Option<&'a str>,
}

/// A configuration with the names of its entries; empty for none.
#[derive(Clone, Debug)]
pub struct NamedConfig {
    pub config: Config,
    pub cluster: String,
    pub user: String,
}

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("cannot read {file}")]
    Read {
        file: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    #[error("{file} is not YAML")]
    Syntax {
        file: PathBuf,
        /// The position and message of the parser.
        source: yaml::Error,
    },
    /// The file has another type than `v1` `Config`.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Version { file: PathBuf, kind: String, version: String },
    /// A credential plugin of version `v1` does not state whether it uses the terminal.
    #[error("interactiveMode must be specified for {0} to use exec authentication plugin")]
    NoInteractiveMode(String),
    /// A field has an invalid value.
    #[error("{file}: {field}: {problem}")]
    Field {
        file: PathBuf,
        /// The path of the field.
        field: String,
        problem: String,
    },
    /// No context is requested, and no file has a current-context.
    #[error("no context is given, and no current-context is set")]
    NoContext,
    /// A referenced entry does not exist.
    #[error("{kind} {name:?} does not exist")]
    Missing {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        name: String,
    },
}

impl Kubeconfig {
    /// Loads and merges files; earlier files take precedence. As kubectl does with `KUBECONFIG`, missing files are
    /// skipped if there are several. A single file must exist.
    pub fn load(files: &[PathBuf]) -> Result<Self, KubeconfigError> {
        let mut merged = Self::default();
        for file in files {
            match std::fs::read_to_string(file) {
                Ok(text) => merged.merge(Self::parse(&text, file)?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && files.len() > 1 => {}
                Err(source) => return Err(KubeconfigError::Read { file: file.clone(), source }),
            }
        }
        Ok(merged)
    }

    /// Parses the text of a file.
    pub fn parse(text: &str, file: &Path) -> Result<Self, KubeconfigError> {
        let value = yaml::parse(text).map_err(|source| KubeconfigError::Syntax { file: file.to_owned(), source })?;
        let root = Field::root(&value, file);
        root.object()?;
        // Files without a version or kind are common.
        let version = root.text("apiVersion")?.unwrap_or_else(|| "v1".to_owned());
        let kind = root.text("kind")?.unwrap_or_else(|| "Config".to_owned());
        if version != "v1" || kind != "Config" {
            return Err(KubeconfigError::Version { file: file.to_owned(), kind, version });
        }
        Ok(Self {
            current_context: root.text("current-context")?,
            clusters: named(&root, "clusters", "cluster")?,
            users: named(&root, "users", "user")?,
            contexts: named(&root, "contexts", "context")?,
        })
    }

    /// Adds the entries of another kubeconfig that are missing in this one.
    pub fn merge(&mut self, other: Self) {
        self.current_context = self.current_context.take().or(other.current_context);
        let lists = [
            (&mut self.clusters, other.clusters),
            (&mut self.users, other.users),
            (&mut self.contexts, other.contexts),
        ];
        for (have, more) in lists {
            for one in more {
                if find(have, &one.name).is_none() {
                    have.push(one);
                }
            }
        }
    }

    /// Returns the default context.
    pub fn current_context(&self) -> Option<&str> {
        self.current_context.as_deref()
    }

    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|context| context.name.as_str())
    }

    /// Returns the credentials of a user entry, in a configuration without a specific server; `None` if there is no
    /// such user.
    pub fn user(&self, name: &str) -> Result<Option<Config>, KubeconfigError> {
        let Some(user) = find(&self.users, name) else { return Ok(None) };
        let mut config = Config::new(Uri::from_static("https://localhost"));
        read_user(user, &user.field(), &mut config)?;
        Ok(Some(config))
    }

    /// Returns the configuration of the selected entries, as kubectl's flags select them; `None` if neither a file nor
    /// the selection names a server.
    pub fn select(&self, selection: &Selection<'_>) -> Result<Option<NamedConfig>, KubeconfigError> {
        let context = match selection.context.or(self.current_context()) {
            Some(name) => Some(required(&self.contexts, "context", name)?.field()),
            None => None,
        };
        let text = |field: &str| context.as_ref().map_or(Ok(None), |context| context.text(field));
        let cluster_name = selection.cluster.map_or_else(|| text("cluster"), |name| Ok(Some(name.to_owned())))?;
        let user_name = selection.user.map_or_else(|| text("user"), |name| Ok(Some(name.to_owned())))?;
        let empty = Value::object();
        let cluster = match &cluster_name {
            Some(name) => required(&self.clusters, "cluster", name)?.field(),
            None if selection.server.is_none() => return Ok(None),
            None => Field::root(&empty, Path::new("")),
        };
        let mut config = read_cluster(&cluster, selection.server)?;
        if let Some(namespace) = text("namespace")? {
            config.namespace = namespace;
        }
        if let Some(user) = &user_name {
            read_user(required(&self.users, "user", user)?, &cluster, &mut config)?;
        }
        Ok(Some(NamedConfig { config, cluster: cluster_name.unwrap_or_default(), user: user_name.unwrap_or_default() }))
    }

    /// Returns the configuration of a context, or of the current one.
    pub fn config(&self, context: Option<&str>) -> Result<Config, KubeconfigError> {
        let name = context.or(self.current_context()).ok_or(KubeconfigError::NoContext)?;
        let context = required(&self.contexts, "context", name)?.field();
        let cluster_name = context.text("cluster")?.ok_or_else(|| context.missing("cluster"))?;
        let cluster = required(&self.clusters, "cluster", &cluster_name)?.field();
        let mut config = read_cluster(&cluster, None)?;
        if let Some(namespace) = context.text("namespace")? {
            config.namespace = namespace;
        }
        if let Some(user) = context.text("user")? {
            read_user(required(&self.users, "user", &user)?, &cluster, &mut config)?;
        }
        Ok(config)
    }
}

impl NamedEntry {
    fn field(&self) -> Field<'_> {
        Field::at(&self.value, &self.file, self.path.clone())
    }
}

fn find<'a>(list: &'a [NamedEntry], name: &str) -> Option<&'a NamedEntry> {
    list.iter().find(|one| one.name == name)
}

fn required<'a>(list: &'a [NamedEntry], kind: &'static str, name: &str) -> Result<&'a NamedEntry, KubeconfigError> {
    find(list, name).ok_or_else(|| KubeconfigError::Missing { kind, name: name.to_owned() })
}

fn named(root: &Field<'_>, list: &str, inner: &str) -> Result<Vec<NamedEntry>, KubeconfigError> {
    let mut out: Vec<NamedEntry> = Vec::new();
    for item in root.list(list)? {
        let name = item.text("name")?.ok_or_else(|| item.missing("name"))?;
        if find(&out, &name).is_some() {
            return Err(item.wrong("name", format!("duplicate name {name:?}")));
        }
        let value = item.child(inner);
        let path = item.path_of(inner);
        out.push(NamedEntry { name, value: value.cloned().unwrap_or_default(), file: root.file().to_owned(), path });
    }
    Ok(out)
}

fn read_cluster(cluster: &Field<'_>, server: Option<&str>) -> Result<Config, KubeconfigError> {
    let server = match server {
        Some(server) => server.to_owned(),
        None => cluster.text("server")?.ok_or_else(|| cluster.missing("server"))?,
    };
    // As upstream, a server without a scheme is an http URL.
    let server = if server.contains("://") { server } else { format!("http://{server}") };
    let mut config = Config::new(cluster.uri("server", &server, &["https", "http"])?);
    config.tls = Tls {
        certificate_authority: cluster.pem("certificate-authority")?,
        insecure_skip_verify: cluster.flag("insecure-skip-tls-verify")?,
        server_name: cluster.text("tls-server-name")?,
        client: None,
    };
    if config.tls.insecure_skip_verify && config.tls.certificate_authority.is_some() {
        let problem = "cannot be set together with a certificate authority";
        return Err(cluster.wrong("insecure-skip-tls-verify", problem.to_owned()));
    }
    if let Some(proxy) = cluster.text("proxy-url")? {
        config.proxy = Some(cluster.uri("proxy-url", &proxy, &["http"])?);
    }
    Ok(config)
}

fn read_user(user: &NamedEntry, cluster: &Field<'_>, config: &mut Config) -> Result<(), KubeconfigError> {
    let (name, user) = (&user.name, &user.field());
    config.tls.client = match (user.pem("client-certificate")?, user.pem("client-key")?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => return Err(user.missing("client-key")),
        (None, Some(_)) => return Err(user.missing("client-certificate")),
    };
    if user.child("auth-provider").is_some() {
        return Err(user.wrong("auth-provider", "was removed from Kubernetes; use exec instead".to_owned()));
    }
    let token = user.text("token")?.map(Secret::new);
    let token_file = user.text("tokenFile")?.map(|path| user.resolve(&path));
    let username = user.text("username")?;
    let exec = user.child("exec").map(|_| read_exec(name, &user.below("exec"), cluster)).transpose()?;
    config.credential = match (token_file, token, username, exec) {
        (Some(path), fallback, None, None) => Credential::TokenFile { path, fallback },
        (None, Some(token), None, None) => Credential::Token(token),
        (None, None, Some(username), None) => {
            let password = Secret::new(user.text("password")?.unwrap_or_default());
            Credential::Basic { username, password }
        }
        (None, None, None, Some(exec)) => Credential::Exec(exec),
        (None, None, None, None) => Credential::None,
        (_, _, _, Some(_)) => {
            return Err(user.wrong("exec", "cannot be set together with a token or a password".to_owned()));
        }
        (_, _, Some(_), None) => {
            return Err(user.wrong("username", "cannot be set together with a token".to_owned()));
        }
    };
    config.impersonate = read_impersonate(user)?;
    Ok(())
}

fn read_impersonate(user: &Field<'_>) -> Result<Option<Impersonate>, KubeconfigError> {
    let name = user.text("as")?;
    let (uid, groups) = (user.text("as-uid")?.unwrap_or_default(), user.texts("as-groups")?);
    let extra = user.below("as-user-extra");
    let mut pairs = Vec::new();
    for key in extra.keys()? {
        pairs.push((key.to_owned(), extra.texts(key)?));
    }
    match name {
        Some(user) => Ok(Some(Impersonate { user, uid, groups, extra: pairs })),
        None if uid.is_empty() && groups.is_empty() && pairs.is_empty() => Ok(None),
        None => Err(user.wrong("as", "must be set to act on behalf of a uid, groups or extra".to_owned())),
    }
}

fn read_exec(user: &str, exec: &Field<'_>, cluster: &Field<'_>) -> Result<Exec, KubeconfigError> {
    let api_version = exec.text("apiVersion")?.ok_or_else(|| exec.missing("apiVersion"))?;
    let v1 = match api_version.as_str() {
        "client.authentication.k8s.io/v1" => true,
        "client.authentication.k8s.io/v1beta1" => false,
        other => return Err(exec.wrong("apiVersion", format!("{other:?} is not supported"))),
    };
    let command = exec.text("command")?.ok_or_else(|| exec.missing("command"))?;
    // A bare name is searched in PATH. A name with a slash is a path relative to the file.
    let command = if command.contains('/') { exec.resolve(&command) } else { PathBuf::from(command) };
    let mut env = Vec::new();
    for one in exec.list("env")? {
        let name = one.text("name")?.ok_or_else(|| one.missing("name"))?;
        env.push((name, one.text("value")?.unwrap_or_default()));
    }
    let interactive = match exec.text("interactiveMode")?.as_deref() {
        Some("Never") => Interactive::Never,
        Some("Always") => Interactive::Always,
        None if v1 => return Err(KubeconfigError::NoInteractiveMode(user.to_owned())),
        Some("IfAvailable") | None => Interactive::IfAvailable,
        Some(other) => {
            let problem = format!("{other:?} is not one of \"Never\", \"IfAvailable\" and \"Always\"");
            return Err(exec.wrong("interactiveMode", problem));
        }
    };
    let extensions = cluster.list("extensions")?;
    let mut cluster_config = Value::Null;
    for extension in &extensions {
        if extension.text("name")?.as_deref() == Some(EXEC_EXTENSION) {
            cluster_config = extension.child("extension").cloned().unwrap_or_default();
        }
    }
    Ok(Exec {
        api_version,
        command,
        args: exec.texts("args")?,
        env,
        install_hint: exec.text("installHint")?.unwrap_or_default(),
        provide_cluster_info: exec.flag("provideClusterInfo")?,
        interactive,
        cluster_config,
        policy: PluginPolicy::default(),
        stdin_in_use: false,
    })
}

/// Parses a URL and checks its scheme.
fn parse_uri(text: &str, schemes: &[&str]) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{text:?} is not a valid URL: {error}"))?;
    match uri.scheme_str() {
        Some(scheme) if schemes.contains(&scheme) && uri.host().is_some() => Ok(uri),
        _ => Err(format!("{text:?} does not start with {}://", schemes.join(":// or "))),
    }
}

#[cfg(test)]
mod tests;
