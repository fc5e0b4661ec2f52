//! Identities of controllers: the kubeconfig's user, or one service account per controller whose token is renewed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use apimachinery::{Value, value};
use bytes::Bytes;
use client::transport::{BoxError, ResponseFuture, TransportError};
use client::{Client, Error, Target, Transport, WriteOptions};
use controller::kinds;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::flags::Flags;
use super::settings;
use crate::component::ApiEndpoint;

const NAMESPACE: &str = "kube-system";
/// Requested lifetime of a token. A new one is requested after four fifths of it.
const TOKEN_LIFE: Duration = Duration::from_secs(3600);

/// Creates the clients of all controllers.
pub(super) struct Clients {
    /// Client with the identity of the kubeconfig.
    pub root: Client,
    reach: ApiEndpoint,
    flags: Flags,
}

impl Clients {
    pub(super) fn new(reach: &ApiEndpoint, flags: &Flags) -> Result<Self> {
        let root = reach.client(settings(flags, ""))?;
        Ok(Self { root, reach: reach.clone(), flags: flags.clone() })
    }

    /// Returns the client of a controller, with its own rate limit.
    pub(super) fn of(&self, account: &'static str, name: &str) -> Result<Client> {
        let settings = settings(&self.flags, name);
        if !self.flags.use_service_account_credentials {
            return self.reach.client(settings);
        }
        let inner = self.reach.anonymous()?;
        let transport = AsAccount { inner, root: self.root.clone(), account, token: Mutex::default() };
        Ok(Client::new(Arc::new(transport), settings)?)
    }
}

/// A transport that authenticates requests with a service account token.
struct AsAccount {
    inner: Arc<dyn Transport>,
    root: Client,
    account: &'static str,
    /// The token and the time of its renewal.
    token: Mutex<Option<(HeaderValue, Instant)>>,
}

impl AsAccount {
    async fn header(&self) -> Result<HeaderValue, TransportError> {
        let mut token = self.token.lock().await;
        if let Some((header, until)) = &*token
            && Instant::now() < *until
        {
            return Ok(header.clone());
        }
        // No request was sent yet, so the client may retry.
        let failed = |error: BoxError| TransportError::Connect {
            server: format!("the token of {}", self.account),
            source: error,
        };
        let text = self.request_token().await.map_err(|error| failed(error.into()))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|error| failed(error.into()))?;
        header.set_sensitive(true);
        *token = Some((header.clone(), Instant::now() + TOKEN_LIFE * 4 / 5));
        Ok(header)
    }

    /// Requests a token, and creates the service account if it does not exist.
    async fn request_token(&self) -> Result<String, Error> {
        let target = Target::named(&kinds::SERVICE_ACCOUNTS, NAMESPACE, self.account).subresource("token");
        let request = value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": (i64::try_from(TOKEN_LIFE.as_secs()).unwrap_or(i64::MAX))}});
        let options = WriteOptions::default();
        let response = match self.root.create(&target, &request, &options).await {
            Err(error) if error.is_not_found() => {
                self.make_account().await?;
                self.root.create(&target, &request, &options).await?
            }
            other => other?,
        };
        Ok(response.at(&["status", "token"]).and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    async fn make_account(&self) -> Result<(), Error> {
        let options = WriteOptions::default();
        let account = value!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": NAMESPACE, "name": (self.account)}});
        let target = Target::within(&kinds::SERVICE_ACCOUNTS, NAMESPACE);
        self.root.create(&target, &account, &options).await.map(drop).or_else(already_there)
    }
}

fn already_there(error: Error) -> Result<(), Error> {
    if error.is_already_exists() { Ok(()) } else { Err(error) }
}

impl Transport for AsAccount {
    fn send(&self, mut request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async move {
            request.headers_mut().insert(AUTHORIZATION, self.header().await?);
            let response = self.inner.send(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                // The service account may have been re-created: the next request gets a new token.
                *self.token.lock().await = None;
            }
            Ok(response)
        })
    }
}
