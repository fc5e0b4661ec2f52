//! The API server: HTTP, the request handler chain, watch cache and watches, over the store.
//!
//! # Invariants
//!
//! - Only the authorized verb and scope are executed, for every method, URL form, kind and role. *Enforced by*
//!   `every_request_executes_only_the_authorized_verb_and_scope`,
//!   `kind_whose_scope_changes_during_authorization_is_served_in_the_authorized_scope`.
//! - Responses equal those that were recorded from kube-apiserver. *Enforced by*
//!   `compare_responses_with_recordings`, `compare_writes_with_recordings`.
//! - kubectl works. Invalid requests are rejected with a message. A killed server restarts with all objects. *Enforced
//!   by* `kubectl_works`, `invalid_requests_are_rejected_with_a_message`, `killed_server_restarts_with_all_objects`.
//! - A CRD's kind is served from the CRD's creation until its deletion. *Enforced by*
//!   `crd_serves_its_kind_until_it_is_deleted`.
//! - Credentials of a client are not forwarded to a backend. Opening a process requires the create permission.
//!   *Enforced by* `hop_by_hop_headers_and_credentials_are_not_forwarded`,
//!   `exec_by_websocket_get_requires_the_create_permission`.
//! - Concurrent evictions do not exceed the PodDisruptionBudget, and a failed eviction does not consume it. *Enforced
//!   by* `concurrent_evictions_do_not_exceed_the_disruption_budget`.
//! - Responses of an aggregated API server reach clients only if its certificate is trusted. The Available condition of
//!   an APIService is accurate. *Enforced by* `unreachable_api_service_becomes_unavailable_and_recovers`.
//! - Servers on one store see each other's writes, and any server or store member can be killed. *Enforced by*
//!   `servers_on_one_etcd_see_each_others_writes_and_either_can_be_killed`,
//!   `servers_on_three_store_members_survive_a_killed_member`.
//! - Configured resources are encrypted at rest, and a value is decrypted only under its own storage key. *Enforced by*
//!   `secrets_are_encrypted_at_rest_and_rewritten_after_key_rotation`,
//!   `kms_plugin_encrypts_one_seed_and_a_new_server_decrypts_it_once`.
//! - A webhook sees every matching write and is trusted only with its configured CA. Webhooks cannot block the repair
//!   of webhook configurations. `failurePolicy` decides when a call fails. *Enforced by*
//!   `validating_webhooks_reject_creates_updates_and_deletes_with_their_message`,
//!   `failures_have_the_messages_of_go_clients`, `webhook_configurations_are_exempt_from_webhooks`,
//!   `failure_policy_decides_when_a_webhook_call_fails`.
//! - A conversion webhook changes no metadata except labels and annotations, and is called once per change and version.
//!   *Enforced by* `conversion_keeps_metadata_except_labels_and_annotations`,
//!   `change_is_converted_once_for_all_watches`.
//! - A custom resource is read with the current schema of its CRD, and field selectors use the fields of the requested
//!   version. *Enforced by* `objects_stored_before_a_schema_change_are_read_with_the_new_schema`,
//!   `field_selectors_use_the_fields_of_the_requested_version`.
//! - Policies and webhooks receive the same attributes of a request. Writes to `scale` are admitted as Scale objects.
//!   *Enforced by* `policies_for_scale_see_scale_updates_and_policies_for_the_object_do_not`,
//!   `policies_see_request_options_and_connect_options`.
//! - Queued requests are dispatched unless their client disconnected. Changed FlowSchemas and priority levels apply
//!   immediately, and deleted mandatory ones are restored. *Enforced by*
//!   `queued_requests_are_dispatched_and_disconnected_ones_are_not`, `flow_schemas_and_priority_levels_limit_requests`.
//! - No request exceeds its timeout. Clients that are slow, silent or half closed are disconnected. *Enforced by*
//!   `requests_time_out`, `slow_headers_and_silent_connections_time_out`,
//!   `client_that_does_not_read_is_disconnected_and_one_that_reads_is_not`.
//! - Requests are audited as the policy requires; in blocking-strict mode a request that cannot be audited is rejected.
//!   Bearer tokens are not recorded, and objects are not recorded at level Metadata. *Enforced by*
//!   `audit_log_follows_the_policy`, `blocking_strict_audit_rejects_requests_if_the_log_fails`.
//! - Clients cannot create an unlimited number of metric series. *Enforced by*
//!   `family_exports_at_most_the_maximum_number_of_series`.
//! - A stopping server finishes its requests, ends watches between two events, flushes its audit log and leaves the
//!   endpoints of the `kubernetes` Service. A killed server leaves them when its lease expires. *Enforced by*
//!   `stopping_server_finishes_requests_and_leaves_the_endpoints`,
//!   `servers_on_one_etcd_see_each_others_writes_and_either_can_be_killed`.

pub mod admission;
pub mod admission_config;
pub mod aggregation;
pub mod allocations;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod backend;
pub mod bootstrap;
pub mod compaction;
pub mod conversion;
pub mod crd;
pub mod discovery;
mod dispatch;
pub mod encrypted_store;
pub mod encryptor;
pub mod endpoint_lease;
pub mod flow_control;
mod flow_schemas;
pub mod health;
mod ids;
pub mod in_process;
pub mod kind_table;
pub mod metrics;
pub mod mount;
mod openapi_cache;
mod own_objects;
pub mod post_write;
pub mod proxy;
mod rejection;
pub mod remote;
pub mod request;
pub mod request_info;
pub mod request_trace;
pub mod response;
pub mod runtime_config;
mod serve;
pub mod server;
pub mod startup;
pub mod state;
pub mod storage;
pub mod storage_format;
pub mod tls;
mod transaction;
pub mod verbs;
pub mod watch_cache;
pub mod write_timeout;

/// The Kubernetes version that this server implements.
pub const VERSION: &str = "v1.36.4";

pub use component_base::reload;
pub use server::{Config, Server};
