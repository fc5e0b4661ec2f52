//! The store as an etcd server: the v3 protocol over gRPC, and etcd's HTTP end points beside it.
//!
//! Each service turns a request into a [`mvcc`] command or query and the outcome into a response; none holds state of its own.

mod auth;
mod authority;
mod caller;
mod calls;
mod check;
mod cluster;
pub mod compactor;
mod convert;
mod coordination;
pub(crate) mod gate;
mod http;
mod kv;
mod lease;
mod maintenance;
mod metrics;
mod password;
pub mod proto;
mod serve;
mod status;
pub mod tls;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mvcc::{Caller, Command, Outcome, Reply};
use tonic::Status;

pub use caller::{AuthConfig, TokenSigner, Tokens};
pub use serve::{Endpoint, Routers, ServeError, maintenance, router, routers, serve};

use self::calls::Calls;
use self::proto::etcdserverpb::ResponseHeader;
use crate::backend::{Backend, propose_within};

/// The etcd this server says it is: clients choose by it what they may use.
pub const VERSION: &str = "3.6.8";
/// The version of the protocol that all members understand.
pub const CLUSTER_VERSION: &str = "3.6.0";

/// What the server allows.
#[derive(Clone, Debug)]
pub struct Config {
    /// Operations in one list of a transaction.
    pub txn_ops_max: usize,
    /// Bytes of one request.
    pub request_bytes_max: usize,
    /// Bytes of all records; none is no bound.
    pub quota_bytes: Option<u64>,
    /// The shortest lease: a shorter one could run out during an election.
    pub lease_ttl_seconds_min: i64,
    /// How long members go without a leader before they elect one.
    pub election_timeout: std::time::Duration,
    /// How often a watcher that asked for it hears that nothing happened.
    pub progress_interval: std::time::Duration,
    /// How users prove who they are.
    pub auth: AuthConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            txn_ops_max: 128,
            request_bytes_max: 1536 * 1024,
            quota_bytes: Some(2 * 1024 * 1024 * 1024),
            // One and a half election timeouts of a second, rounded up.
            lease_ttl_seconds_min: 2,
            election_timeout: std::time::Duration::from_secs(1),
            progress_interval: std::time::Duration::from_secs(600),
            auth: AuthConfig::default(),
        }
    }
}

/// What all services share.
#[derive(Clone, Debug)]
pub(crate) struct Server<B> {
    backend: B,
    config: Arc<Config>,
    /// Commands that were proposed here and did not come through.
    failed: Arc<AtomicU64>,
    calls: Arc<Calls>,
    /// Whether requests need no credentials: only the owner of the store reaches the listener.
    trusted: bool,
}

impl<B: Backend> Server<B> {
    pub(crate) fn new(backend: B, config: Config) -> Self {
        if let Tokens::Simple { ttl } = config.auth.tokens {
            backend.sessions().set_ttl(ttl);
        }
        Self { backend, config: Arc::new(config), failed: Arc::default(), calls: Arc::default(), trusted: false }
    }

    fn header(&self, revision: mvcc::Revision) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.backend.cluster_id(),
            member_id: self.backend.id(),
            revision,
            raft_term: self.backend.status().term,
        })
    }

    fn header_now(&self) -> Option<ResponseHeader> {
        self.header(self.backend.view(mvcc::State::revision))
    }

    /// Proposes a command on behalf of a caller; a refusal becomes the status etcd answers with.
    async fn apply(&self, caller: Option<Caller>, command: Command) -> Result<(mvcc::Revision, Reply), Status> {
        let command = match caller {
            Some(caller) => command.authorized(caller),
            None => command,
        };
        let outcome = propose_within(&self.backend, self.config.quota_bytes, command).await;
        let failed = |error| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            status::of_backend(error)
        };
        let Outcome { revision, result } = outcome.map_err(failed)?;
        Ok((revision, result.map_err(status::of_mvcc)?))
    }

    fn check_size(&self, request: &impl prost::Message) -> Result<(), Status> {
        if request.encoded_len() > self.config.request_bytes_max {
            return Err(status::of_backend(crate::backend::BackendError::TooLarge));
        }
        Ok(())
    }
}
