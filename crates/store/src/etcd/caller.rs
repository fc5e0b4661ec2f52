//! Authentication of requests, by token or by the common name of the client certificate.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mvcc::{Caller, Directory, DirectoryError};
use tonic::{Request, Status};

use super::{Server, password, status};
use crate::backend::Backend;
use crate::sessions;

/// Metadata keys that carry a token: that of etcd's clients, and the standard one.
const TOKEN: [&str; 2] = ["token", "authorization"];
const BEARER: &str = "Bearer ";
/// Metadata by which etcd's JSON gateway marks requests that it sends with its own certificate.
const GATEWAY: &str = "grpcgateway-accept";

/// Authentication settings.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    pub tokens: Tokens,
    /// Whether the common name of the client certificate is the user of requests without a token.
    pub client_cert_auth: bool,
    /// PBKDF2 iterations of stored password hashes.
    pub hash_iterations: std::num::NonZeroU32,
}

/// Tokens of authenticated users.
#[derive(Clone, Debug)]
pub enum Tokens {
    /// Random tokens that the members remember.
    Simple {
        /// Time that an unused token stays valid.
        ttl: Duration,
    },
    /// Signed tokens that contain the user.
    Signed(Arc<dyn TokenSigner>),
}

/// Signs and verifies tokens with a user and a directory revision.
pub trait TokenSigner: fmt::Debug + Send + Sync {
    /// Returns a token, or `None` if there is no signing key.
    fn sign(&self, user: &str, revision: u64) -> Option<String>;
    /// Returns the user and the revision of a valid token.
    fn verify(&self, token: &str) -> Option<(String, u64)>;
}

/// The common name of the verified client certificate, as a request extension.
#[derive(Clone, Debug)]
pub(super) struct PeerName(pub(super) Arc<str>);

/// The credentials of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    token: Option<String>,
    common_name: Option<Arc<str>>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            tokens: Tokens::Simple { ttl: sessions::TTL },
            client_cert_auth: false,
            hash_iterations: password::ITERATIONS,
        }
    }
}

impl Credentials {
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let metadata = request.metadata();
        let given = TOKEN.iter().find_map(|name| metadata.get(*name)).and_then(|value| value.to_str().ok());
        let token = given.map(|token| token.strip_prefix(BEARER).unwrap_or(token).to_owned());
        let name = request.extensions().get::<PeerName>().filter(|_| metadata.get(GATEWAY).is_none());
        Self { token, common_name: name.map(|PeerName(name)| name.clone()) }
    }
}

impl<B: Backend> Server<B> {
    /// Returns the authenticated caller; none without credentials or if authentication is disabled.
    pub(super) async fn caller(&self, credentials: &Credentials) -> Result<Option<Caller>, Status> {
        if self.trusted {
            return Ok(Some(Caller::Cluster));
        }
        let enabled = |directory: &Directory| directory.is_enabled().then(|| directory.revision());
        let Some(revision) = self.directory(enabled) else { return Ok(None) };
        if let Some(token) = &credentials.token {
            let caller = self.token_user(token, revision).await?;
            return caller.map(Some).ok_or_else(|| Status::unauthenticated("etcdserver: invalid auth token"));
        }
        let name = credentials.common_name.as_ref().filter(|_| self.config.auth.client_cert_auth);
        Ok(name.map(|name| Caller::User { name: name.to_string(), revision }))
    }

    async fn token_user(&self, token: &str, revision: u64) -> Result<Option<Caller>, Status> {
        if let Tokens::Signed(signer) = &self.config.auth.tokens {
            return Ok(signer.verify(token).map(|(name, revision)| Caller::User { name, revision }));
        }
        let Some(opened_at) = sessions::opened_at(token) else { return Ok(None) };
        // Another member may have opened the session by an entry that is not applied here yet.
        if opened_at > self.backend.view(mvcc::State::applied_index) {
            self.backend.read_index().await.map_err(status::of_backend)?;
        }
        let user = self.backend.sessions().user(token, Instant::now());
        Ok(user.map(|name| Caller::User { name, revision }))
    }

    /// Fails unless the caller has the root role or authentication is disabled.
    pub(super) async fn require_admin(&self, credentials: &Credentials) -> Result<(), Status> {
        let caller = self.caller(credentials).await?;
        self.permitted(|directory| directory.check_admin(caller.as_ref()))
    }

    /// Fails unless the caller is authenticated or authentication is disabled.
    pub(super) async fn require_user(&self, credentials: &Credentials) -> Result<(), Status> {
        let caller = self.caller(credentials).await?;
        self.permitted(|directory| directory.check_identified(caller.as_ref()))
    }

    pub(super) fn permitted(&self, check: impl FnOnce(&Directory) -> Result<(), DirectoryError>) -> Result<(), Status> {
        self.directory(check).map_err(status::of_directory)
    }

    pub(super) fn directory<R>(&self, read: impl FnOnce(&Directory) -> R) -> R {
        self.backend.view(|state| read(state.directory()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(metadata: &[(&'static str, &str)], name: Option<&str>) -> Credentials {
        let mut request = Request::new(());
        for (key, value) in metadata {
            request.metadata_mut().insert(*key, value.parse().expect("a header value"));
        }
        if let Some(name) = name {
            request.extensions_mut().insert(PeerName(name.into()));
        }
        Credentials::of(&request)
    }

    #[test]
    fn token_is_read_from_either_header_and_gateway_certificates_are_ignored() {
        let token = |metadata: &[(&'static str, &str)]| credentials(metadata, None).token;
        assert_eq!(token(&[]), None);
        assert_eq!(token(&[("token", "a.1")]).as_deref(), Some("a.1"));
        assert_eq!(token(&[("authorization", "a.1")]).as_deref(), Some("a.1"));
        assert_eq!(token(&[("authorization", "Bearer a.1")]).as_deref(), Some("a.1"));
        assert_eq!(token(&[("authorization", "b.2"), ("token", "a.1")]).as_deref(), Some("a.1"));
        let name = |metadata| credentials(metadata, Some("alice")).common_name;
        assert_eq!(name(&[]).as_deref(), Some("alice"));
        assert_eq!(name(&[("grpcgateway-accept", "*/*")]), None);
    }
}
