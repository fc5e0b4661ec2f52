//! etcd server: the v3 gRPC API and etcd's HTTP endpoints.
//!
//! Each service converts a request to a [`mvcc`] command or query and the outcome to a response. Services are
//! stateless.

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

/// The reported etcd version, by which clients select features.
pub const VERSION: &str = "3.6.8";
/// The protocol version that all members support.
pub const CLUSTER_VERSION: &str = "3.6.0";

/// Limits and timeouts of the server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of operations in each list of a transaction.
    pub txn_ops_max: usize,
    /// Maximum size of a request.
    pub request_bytes_max: usize,
    /// Maximum size of all records; none means unlimited.
    pub quota_bytes: Option<u64>,
    /// Minimum lease TTL: a shorter lease could expire during an election.
    pub lease_ttl_seconds_min: i64,
    /// Time without a leader after which members start an election.
    pub election_timeout: std::time::Duration,
    /// Interval of progress notifications for watchers that requested them.
    pub progress_interval: std::time::Duration,
    pub auth: AuthConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            txn_ops_max: 128,
            request_bytes_max: 1536 * 1024,
            quota_bytes: Some(2 * 1024 * 1024 * 1024),
            // 1.5 election timeouts of one second, rounded up.
            lease_ttl_seconds_min: 2,
            election_timeout: std::time::Duration::from_secs(1),
            progress_interval: std::time::Duration::from_secs(600),
            auth: AuthConfig::default(),
        }
    }
}

/// State shared by all services.
#[derive(Clone, Debug)]
pub(crate) struct Server<B> {
    backend: B,
    config: Arc<Config>,
    /// Number of proposals of this member that failed.
    failed: Arc<AtomicU64>,
    calls: Arc<Calls>,
    /// Whether requests need no credentials, because only the owner of the store can connect.
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

    /// Proposes a command on behalf of a caller and maps errors to etcd's status.
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
