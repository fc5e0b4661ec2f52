//! kube-proxy: computes packet forwarding for services as data and applies each change in one transaction.
//!
//! ```text
//! Services, EndpointSlices ──> service ──> endpoints (selection) ──> service_state (frontends and backends)
//!     ──> dataplane: nftables, iptables, userspace
//! ```
//!
//! [`service_state::Rules`] is a pure function of the observed objects; only the differences are sent to the kernel.
//!
//! # Invariants
//!
//! - A change sends only the differences to the kernel, and all changes together give the complete rules. *Enforced by*
//!   `changes_contain_only_differences`, `services_forward_to_their_endpoints`.
//! - Services work the same in every mode. A restarted proxy loses no connection, and a mode leaves no rules behind.
//!   *Enforced by* `services_reach_endpoints_from_pods_node_and_outside`, `proxy_restart_loses_no_connection`.
//! - The address of a load balancer belongs to one Service, and one live node answers for it. *Enforced by*
//!   `pool_addresses_are_unique_and_stable`, `every_address_has_one_holder_and_a_leaving_node_moves_only_its_own`,
//!   `node_is_dead_after_its_lease_duration_without_renewal`.
//! - A policy change sends only the differences to the kernel, all changes together give the decided state, and no rule
//!   outlives its policy, even across a restart. *Enforced by* `successive_changes_lead_to_the_decided_state`,
//!   `policies_pass_allowed_traffic_only`, `rules_of_an_earlier_run_do_not_outlive_it`.
//! - The proxy takes over no address of another host. Neither a Service nor a host port exposes the loopback interface.
//!   *Enforced by* `addresses_of_other_hosts_are_not_taken_over`, `loopback_interface_is_unreachable_from_outside`,
//!   `host_ports_are_distinct_by_address_and_protocol`.
//! - If the kubelet and the policy enforcer share a process, policies restrict a pod before its first container starts.
//!   *Enforced by* `pod_waits_for_rules_with_its_address`,
//!   `up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing`.
//! - Egress policies apply to the DNS service that the nodes provide. *Enforced by*
//!   `default_deny_egress_denies_dns_until_a_policy_allows_it`.
//! - `nft` of the distribution prints every rule. *Enforced by* `nft_lists_the_rules_of_services_policies_and_pods`.

pub mod announce;
pub mod config;
pub mod dataplane;
pub mod endpoints;
pub mod health;
pub mod iptables;
pub mod mesh;
pub mod metrics;
pub mod nftables;
pub mod policy;
pub mod run;
pub mod service;
pub mod service_state;
pub mod settings;
pub mod userspace;

pub use service::{Node, Service};
pub use service_state::{Changes, Rules};
