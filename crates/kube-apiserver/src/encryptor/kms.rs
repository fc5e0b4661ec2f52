//! KMS v2 plugin client: Status, Encrypt for a new seed, Decrypt for a seed found in the store.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use apimachinery::Str;
use encryption::config::Kms;
use encryption::kms::{EncryptResponse, KeyRequest, Keyring, NewSeed, Next, STATUS_INTERVAL, STATUS_RETRY, Status};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{Draws, Error};
use crate::state::{generate_ids, now};

/// The protocol, generated from `proto/kms.proto`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "made by tonic")]
pub mod proto {
    tonic::include_proto!("v2");
}

use proto::key_management_service_client::KeyManagementServiceClient;

/// A KMS plugin.
#[derive(Clone, Debug)]
pub struct Service {
    name: Str,
    timeout: Duration,
    client: KeyManagementServiceClient<Channel>,
}

impl Service {
    /// Creates a client of the plugin's socket, which connects on first use.
    pub fn new(kms: &Kms) -> Self {
        let path: Arc<str> = kms.endpoint.trim_start_matches("unix://").into();
        let connect = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(&*path).await.map(TokioIo::new) }
        });
        // The host name of the URL is not resolved: the connector dials the socket.
        let channel = Endpoint::from_static("http://kms.invalid").connect_with_connector_lazy(connect);
        let timeout = Duration::from_millis(u64::try_from(kms.timeout.nanos() / 1_000_000).unwrap_or(3000));
        Self { name: kms.name.clone(), timeout, client: KeyManagementServiceClient::new(channel) }
    }

    /// Keeps the write seed current while the server runs by polling the plugin's status for a changed key ID.
    pub async fn keep_seed(self, keyring: Arc<RwLock<Keyring>>) {
        loop {
            let wait = match self.refresh(&keyring).await {
                Ok(()) => STATUS_INTERVAL,
                Err(error) => {
                    tracing::error!(
                        service = %self.name, %error,
                        "failed to refresh the seed of a KMS plugin; retrying"
                    );
                    STATUS_RETRY
                }
            };
            tokio::time::sleep(Duration::from_secs(wait.whole_seconds().unsigned_abs())).await;
        }
    }

    /// Requests the status, and encrypts a new seed if the plugin's key ID changed.
    pub async fn refresh(&self, keyring: &RwLock<Keyring>) -> Result<(), Error> {
        let base_client = self.client.clone();
        let response = self.within({
            let mut client = base_client.clone();
            async move { client.status(proto::StatusRequest {}).await }
        });
        let response = response.await?;
        let status = Status { version: response.version, healthz: response.healthz, key_id: response.key_id };
        let next = keyring.write().expect("no holder panics").status(&self.name, &status, now());
        if next.map_err(encryption::Error::from)? == Next::Keep {
            return Ok(());
        }
        let seed = NewSeed::generate(&mut Draws);
        let request = proto::EncryptRequest { plaintext: seed.plaintext().to_vec(), uid: generate_ids().uid };
        let mut client = base_client;
        let response = self.within(async move { client.encrypt(request).await }).await?;
        let encrypted = EncryptResponse {
            ciphertext: response.ciphertext,
            key_id: response.key_id,
            annotations: response.annotations.into_iter().collect(),
        };
        let adopted = keyring.write().expect("no holder panics").adopt(&self.name, &seed, encrypted, &status, now());
        Ok(adopted.map_err(encryption::Error::from)?)
    }

    /// Decrypts a seed with the plugin and caches it.
    pub async fn learn(&self, request: &KeyRequest, keyring: &RwLock<Keyring>) -> Result<(), Error> {
        let decrypt_request = proto::DecryptRequest {
            ciphertext: request.ciphertext.clone(),
            uid: generate_ids().uid,
            key_id: request.key_id.clone(),
            annotations: request.annotations.clone().into_iter().collect(),
        };
        let mut client = self.client.clone();
        let response = self.within(async move { client.decrypt(decrypt_request).await }).await?;
        let learned = keyring.write().expect("no holder panics").learn(request, &response.plaintext);
        Ok(learned.map_err(encryption::Error::from)?)
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        let failed = |problem: String| Error::Service { name: self.name.clone(), problem };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(failed(status.message().to_owned())),
            Err(_) => Err(failed("it did not answer in time".to_owned())),
        }
    }
}

/// Returns clients for the KMS plugins of a configuration.
pub fn services(configuration: &encryption::Configuration) -> BTreeMap<Str, Service> {
    let providers = configuration.rules().iter().flat_map(|rule| &rule.providers);
    let services = providers.filter_map(|provider| match provider {
        encryption::config::Provider::Kms(kms) => Some((kms.name.clone(), Service::new(kms))),
        _ => None,
    });
    services.collect()
}
