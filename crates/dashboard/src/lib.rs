//! The dashboard: a web application, and the handler that forwards its requests to the API server.
//!
//! ```text
//! browser ──/dashboard/─────────> assets
//!         ──/dashboard/session──> sessions: secrets in a cookie and in the page, credentials in memory
//!         ──/dashboard/api/…────> API server, over HTTPS with the credentials of the session
//!         ──/dashboard/chain────> the steps of `knarr trace`, live
//! ```
//!
//! The dashboard is a client of the API without an identity of its own: authentication, authorization and audit are
//! those of the API server. The same handler is mounted in an API server's listener or served alone on loopback.
//!
//! # Invariants
//!
//! - Only pages of the dashboard's own origin can use a session, for any method and for WebSockets. *Enforced by*
//!   `requests_of_other_origins_are_refused`, `websockets_of_other_origins_are_refused`.
//! - The cookie, which browsers send to every port of the host, is not a session without the secret of the page.
//!   *Enforced by* `cookie_without_the_secret_of_the_page_is_no_session`.
//! - The only credentials of a forwarded request are those of the session. *Enforced by*
//!   `credentials_and_identity_headers_of_the_browser_are_not_forwarded`, `bearer_subprotocols_are_not_forwarded`.
//! - A kubeconfig cannot make the server read a file or start a process. *Enforced by*
//!   `kubeconfigs_that_name_files_or_commands_are_refused`.
//! - Responses of the cluster are never rendered as a document of the dashboard's origin. *Enforced by*
//!   `forwarded_responses_cannot_be_rendered`, `proxied_applications_are_refused`.
//! - A session ends at its idle timeout, at its absolute timeout and when the user signs out, and its streams end with
//!   it. *Enforced by* `sessions_expire`, `signing_out_ends_the_streams_of_the_session`.

mod assets;
mod causes;
mod chain;
mod credentials;
mod forward;
mod handler;
mod origin;
mod rejection;
mod response;
mod serve;
mod sessions;

pub use chain::NodeRecordsSource;
pub use handler::{Config, Dashboard, Settings};
pub use origin::Exposure;
pub use serve::serve;
