//! Webhook authentication: the users of the `kubeConfigFile` in the webhook plugins' configuration.

use std::path::{Path, PathBuf};

use apimachinery::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::config::{Credential, Kubeconfig, KubeconfigError};
use http::HeaderValue;

use crate::backend::{Backend, Destination};

/// The users, looked up by the host of a webhook.
#[derive(Default)]
pub struct Credentials(Kubeconfig);

/// Reasons why the credentials cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("the kubeconfig {0} for admission webhooks is invalid")]
    Kubeconfig(PathBuf, #[source] Box<KubeconfigError>),
}

impl Credentials {
    /// Reads the kubeconfig that a plugin's configuration names, if there is one.
    pub fn of(configuration: Option<&Value>) -> Result<Self, CredentialsError> {
        let Some(file) = configuration.and_then(|config| config.str_at(&["kubeConfigFile"])) else {
            return Ok(Self::default());
        };
        let file = Path::new(file);
        let read = Kubeconfig::load(&[file.to_owned()]);
        read.map(Self).map_err(|error| CredentialsError::Kubeconfig(file.to_owned(), Box::new(error)))
    }

    /// Adds the credentials of the webhook's host to a destination.
    ///
    /// # Errors
    /// Returns a message if the user's entry cannot be used.
    pub fn show(&self, to: &mut Destination) -> Result<(), String> {
        let found = candidates(&host_port(&to.backend))
            .into_iter()
            .find_map(|name| self.0.user(&name).transpose().map(|user| user.map_err(|error| error.to_string())));
        let Some(user) = found.transpose()? else { return Ok(()) };
        to.tls.client = user.tls.client;
        to.authorization = match user.credential {
            Credential::None => None,
            Credential::Token(token) => Some(secret(format!("Bearer {}", token.reveal()))?),
            Credential::Basic { username, password } => {
                let pair = BASE64.encode(format!("{username}:{}", password.reveal()));
                Some(secret(format!("Basic {pair}"))?)
            }
            Credential::TokenFile { path, .. } => {
                let token = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                Some(secret(format!("Bearer {}", token.trim()))?)
            }
            // DEVIATION: credentials from exec plugins are not sent to webhooks.
            Credential::Exec(_) => return Err("credential plug-ins are not supported for webhooks".to_owned()),
        };
        Ok(())
    }
}

fn host_port(backend: &Backend) -> String {
    match backend {
        Backend::Service { namespace, name, port, .. } => format!("{name}.{namespace}.svc:{port}"),
        Backend::Url(url) => format!("{}:{}", url.host().unwrap_or_default(), url.port_u16().unwrap_or(443)),
    }
}

/// Returns the user names that match a host, the most specific first.
fn candidates(host_port: &str) -> Vec<String> {
    let wide = |target: &str| -> Vec<String> {
        let dots = target.match_indices('.').map(|(at, _)| format!("*{}", &target[at..]));
        std::iter::once(target.to_owned()).chain(dots).collect()
    };
    let mut names = wide(host_port);
    if let Some(host) = host_port.strip_suffix(":443") {
        names.extend(wide(host));
    }
    names.push("*".to_owned());
    names
}

fn secret(text: String) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(text).map_err(|_| "the credential cannot stand in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_user_for_a_host_is_chosen() {
        let names = candidates("a.ns.svc:443");
        let expect = ["a.ns.svc:443", "*.ns.svc:443", "*.svc:443", "a.ns.svc", "*.ns.svc", "*.svc", "*"];
        assert_eq!(names, expect);
        let text = "users: [{name: '*.ns.svc', user: {token: t}}, {name: b.example, user: {username: u, password: p}}]";
        let credentials = Credentials(Kubeconfig::parse(text, Path::new("file")).unwrap());
        let authorization = |backend: Backend| {
            let mut to = Destination { backend, tls: Default::default(), authorization: None };
            credentials.show(&mut to).unwrap();
            to.authorization.map(|value| value.to_str().unwrap().to_owned())
        };
        let service = |namespace: &str| {
            let (namespace, name) = (namespace.to_owned(), "a".to_owned());
            Backend::Service { namespace, name, port: 443, path: String::new() }
        };
        assert_eq!(authorization(service("ns")).as_deref(), Some("Bearer t"));
        assert_eq!(authorization(service("other")), None);
        assert_eq!(authorization(Backend::Url("https://b.example/x".parse().unwrap())).as_deref(), Some("Basic dTpw"));
    }
}
