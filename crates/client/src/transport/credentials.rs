//! Credentials: the `Authorization` header and the client certificate, reloaded when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;

use super::exec::{ExecCredential, ExecError, Plugin};
use super::tls::file_stamp;
use crate::config::{Config, Credential};

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("cannot read the token file {path}")]
    TokenFile {
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    #[error("the token file {0} is empty")]
    Empty(PathBuf),
    /// The credential is not valid in a header.
    #[error("the {0} is not valid in an HTTP header")]
    Header(&'static str),
    /// The credential plugin failed.
    #[error("the credential plugin failed")]
    Exec(#[from] ExecError),
}

/// The source of a client's credentials.
pub(super) enum Credentials {
    None,
    Fixed(HeaderValue),
    File(TokenFile),
    Exec(Plugin),
}

/// A token file that is reloaded when it changes.
pub(super) struct TokenFile {
    path: PathBuf,
    fallback: Option<HeaderValue>,
    read: Mutex<Option<(FileStamp, HeaderValue)>>,
}

type FileStamp = Option<(SystemTime, u64)>;

/// The credentials for one request.
#[derive(Default)]
pub(super) struct RequestCredentials {
    pub authorization: Option<HeaderValue>,
    pub exec: Option<Arc<ExecCredential>>,
}

impl Credentials {
    pub(super) fn new(config: &Config) -> Result<Self, CredentialError> {
        Ok(match &config.credential {
            Credential::None => Self::None,
            Credential::Token(token) => Self::Fixed(bearer(token.reveal())?),
            Credential::Basic { username, password } => {
                let pair = BASE64.encode(format!("{username}:{}", password.reveal()));
                Self::Fixed(sensitive(&format!("Basic {pair}"), "password")?)
            }
            Credential::TokenFile { path, fallback } => {
                let fallback = fallback.as_ref().map(|token| bearer(token.reveal())).transpose()?;
                Self::File(TokenFile { path: path.clone(), fallback, read: Mutex::new(None) })
            }
            // A configured certificate takes precedence over a plugin, which is not even run.
            Credential::Exec(_) if config.tls.client.is_some() => Self::None,
            Credential::Exec(exec) => Self::Exec(Plugin::new(exec.clone(), config)),
        })
    }

    pub(super) async fn show(&self) -> Result<RequestCredentials, CredentialError> {
        match self {
            Self::None => Ok(RequestCredentials::default()),
            Self::Fixed(header) => Ok(RequestCredentials { authorization: Some(header.clone()), exec: None }),
            Self::File(file) => Ok(RequestCredentials { authorization: Some(file.header()?), exec: None }),
            Self::Exec(plugin) => {
                let credential = plugin.credential().await?;
                let token = credential.token.as_ref();
                let authorization = token.map(|token| bearer(token.reveal())).transpose()?;
                Ok(RequestCredentials { authorization, exec: Some(credential) })
            }
        }
    }

    /// Handles a response 401: a credential of a plugin is dropped.
    pub(super) async fn handle_unauthorized(&self, request_credentials: &RequestCredentials) {
        if let (Self::Exec(plugin), Some(credential)) = (self, &request_credentials.exec) {
            plugin.evict(credential).await;
        }
    }
}

impl TokenFile {
    fn header(&self) -> Result<HeaderValue, CredentialError> {
        let stamp = file_stamp(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((have, header)) = &*read
            && *have == stamp
        {
            return Ok(header.clone());
        }
        match read_token(&self.path) {
            Ok(header) => {
                *read = Some((stamp, header.clone()));
                Ok(header)
            }
            // While the file is being replaced, the previous token is used.
            Err(error) => match read.as_ref().map(|(_, header)| header).or(self.fallback.as_ref()) {
                Some(header) => Ok(header.clone()),
                None => Err(error),
            },
        }
    }
}

fn read_token(path: &Path) -> Result<HeaderValue, CredentialError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| CredentialError::TokenFile { path: path.to_owned(), source })?;
    match text.trim() {
        "" => Err(CredentialError::Empty(path.to_owned())),
        token => bearer(token),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, CredentialError> {
    sensitive(&format!("Bearer {token}"), "token")
}

fn sensitive(text: &str, what: &'static str) -> Result<HeaderValue, CredentialError> {
    let mut header = HeaderValue::from_str(text).map_err(|_| CredentialError::Header(what))?;
    header.set_sensitive(true);
    Ok(header)
}
