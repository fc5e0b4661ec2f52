//! Sign-in requests: a bearer token, a kubeconfig, or a one-time code.

use std::path::Path;

use apimachinery::{Value, json};
use client::config::{Credential, Kubeconfig, KubeconfigError, Pem, Secret, Tls};

/// The longest token. Service account tokens have about 1 KiB, those of identity providers up to 8 KiB.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// The credentials of a user, complete in memory.
#[derive(Debug)]
pub(crate) enum Credentials {
    Token(Secret),
    /// A client certificate and its key in PEM.
    Certificate(Pem, Pem),
    /// The code that `knarr dashboard` printed.
    Code(Secret),
}

/// Credentials, and the default namespace of their kubeconfig.
#[derive(Debug)]
pub(crate) struct SignIn {
    pub credentials: Credentials,
    pub namespace: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the request is not JSON with one of the fields \"token\", \"kubeconfig\" and \"code\"")]
    Request,
    #[error("the token is empty")]
    NoToken,
    #[error(
        "the token contains characters that are not valid in an HTTP header, or is longer than {TOKEN_BYTES_MAX} bytes"
    )]
    Token,
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    #[error("the user of the kubeconfig has no token and no client certificate")]
    NoCredentials,
    #[error(
        "the kubeconfig refers to {0} on your computer, which the server cannot read; use a kubeconfig with embedded data \
         (kubectl config view --raw --flatten), or start `knarr dashboard --kubeconfig FILE` on your computer"
    )]
    NotEmbedded(&'static str),
    #[error("the kubeconfig {0}, which the dashboard does not support")]
    Unsupported(&'static str),
    #[error(
        "the sign-in link has been used or has expired; press Enter in the terminal of `knarr dashboard` for another"
    )]
    Code,
}

/// Parses the body of a sign-in request.
pub(crate) fn parse(body: &[u8]) -> Result<SignIn, SignInError> {
    let request = json::parse(body).map_err(|_| SignInError::Request)?;
    let text = |field: &str| request.get(field).and_then(Value::as_str);
    match (text("token"), text("kubeconfig"), text("code")) {
        (Some(token), None, None) => {
            Ok(SignIn { credentials: Credentials::Token(checked_token(token)?), namespace: None })
        }
        (None, Some(kubeconfig), None) => from_kubeconfig(kubeconfig, text("context")),
        (None, None, Some(code)) => Ok(SignIn { credentials: Credentials::Code(Secret::new(code)), namespace: None }),
        _ => Err(SignInError::Request),
    }
}

fn checked_token(token: &str) -> Result<Secret, SignInError> {
    match token.trim() {
        "" => Err(SignInError::NoToken),
        token if token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(SignInError::Token)
        }
        token => Ok(Secret::new(token)),
    }
}

/// Returns the credentials of a kubeconfig that a browser has sent. They must be embedded: its paths and commands
/// belong to the user's host, and using them here would give the sender access to files and processes of the server.
fn from_kubeconfig(text: &str, context: Option<&str>) -> Result<SignIn, SignInError> {
    let unusable = |error: KubeconfigError| SignInError::Kubeconfig(crate::causes::with_causes(&error));
    let config = Kubeconfig::parse(text, Path::new("kubeconfig")).and_then(|file| file.config(context));
    let config = config.map_err(unusable)?;
    if config.impersonate.is_some() {
        return Err(SignInError::Unsupported("impersonates another user"));
    }
    let credentials = match (config.credential, config.tls) {
        (Credential::Exec(_), _) => return Err(SignInError::NotEmbedded("a credential plugin")),
        (Credential::TokenFile { .. }, _) => return Err(SignInError::NotEmbedded("a token file")),
        (Credential::Basic { .. }, _) => return Err(SignInError::Unsupported("has a password")),
        (Credential::Token(token), _) => Credentials::Token(checked_token(token.reveal())?),
        (Credential::None, Tls { client: Some((certificate, key)), .. }) => match (certificate, key) {
            (certificate @ Pem::Inline(_), key @ Pem::Inline(_)) => Credentials::Certificate(certificate, key),
            _ => return Err(SignInError::NotEmbedded("the files of a client certificate")),
        },
        (Credential::None, Tls { client: None, .. }) => return Err(SignInError::NoCredentials),
    };
    Ok(SignIn { credentials, namespace: Some(config.namespace) })
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn kubeconfig(user: &str) -> Vec<u8> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: 'https://elsewhere.test'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u, namespace: team}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        json::to_vec(&value!({"kubeconfig": text}))
    }

    #[test]
    fn tokens_and_embedded_kubeconfigs_are_accepted() {
        let token = parse(b"{\"token\": \" abc.def \"}").unwrap();
        assert!(matches!(token.credentials, Credentials::Token(token) if token.reveal() == "abc.def"));
        let token = parse(&kubeconfig("{token: secret}")).unwrap();
        assert!(matches!(token.credentials, Credentials::Token(token) if token.reveal() == "secret"));
        assert_eq!(token.namespace.as_deref(), Some("team"));
        let pair = parse(&kubeconfig("{client-certificate-data: Y2VydA==, client-key-data: a2V5}")).unwrap();
        let Credentials::Certificate(certificate, key) = pair.credentials else { panic!("{pair:?}") };
        assert_eq!((certificate, key), (Pem::Inline("cert".into()), Pem::Inline("key".into())));
    }

    #[test]
    fn kubeconfigs_that_name_files_or_commands_are_refused() {
        let check = |user: &str, expect: &str| {
            let error = parse(&kubeconfig(user)).unwrap_err().to_string();
            assert!(error.contains(expect), "{user}: {error}");
        };
        check("{tokenFile: /etc/shadow}", "a token file");
        check("{client-certificate: /etc/passwd, client-key: /etc/shadow}", "the files of a client certificate");
        check("{client-certificate-data: Y2VydA==, client-key: /etc/shadow}", "the files of a client certificate");
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}}";
        check(exec, "a credential plugin");
        check("{username: a, password: b}", "has a password");
        check("{token: a, as: root}", "impersonates another user");
        check("{}", "no token and no client certificate");
    }

    #[test]
    fn malformed_requests_are_refused() {
        for body in ["", "[]", "{}", "{\"token\": 1}", "{\"token\": \"a\", \"code\": \"b\"}"] {
            assert!(matches!(parse(body.as_bytes()), Err(SignInError::Request)), "{body}");
        }
        assert!(matches!(parse(b"{\"token\": \" \"}"), Err(SignInError::NoToken)));
        assert!(matches!(parse("{\"token\": \"a\\r\\nX-Remote-User: b\"}".as_bytes()), Err(SignInError::Token)));
        let long = format!("{{\"token\": \"{}\"}}", "a".repeat(TOKEN_BYTES_MAX + 1));
        assert!(matches!(parse(long.as_bytes()), Err(SignInError::Token)));
        assert!(matches!(parse(b"{\"kubeconfig\": \"a: [\"}"), Err(SignInError::Kubeconfig(_))));
    }
}
