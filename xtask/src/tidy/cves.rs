//! Public vulnerabilities of the projects that Knarr replaces, and the tests that show that each is fixed here.
//!
//! `cargo xtask tidy --fix` writes `docs/operating/cve.md` from this table. A row that names a missing test is a
//! finding.

use super::Tree;

const PATH: &str = "docs/operating/cve.md";
const BEGIN: &str = "<!-- begin: written by `cargo xtask tidy --fix` -->";
const END: &str = "<!-- end -->";

/// A public vulnerability.
struct Cve {
    id: &'static str,
    project: &'static str,
    /// Impact on the affected project.
    attack: &'static str,
    here: Mitigation,
}

/// Status in Knarr.
enum Mitigation {
    /// Names of test functions that fail if the attack is possible.
    Tests(&'static [&'static str]),
    /// The attacked feature does not exist, with the reason.
    Absent(&'static str),
}
use Mitigation::{Absent, Tests};

const fn cve(id: &'static str, project: &'static str, attack: &'static str, here: Mitigation) -> Cve {
    Cve { id, project, attack, here }
}

const KUBERNETES: &str = "Kubernetes";
const RUNC: &str = "runc";
const CONTAINERD: &str = "containerd";
const CRI_O: &str = "CRI-O";
const YOUKI: &str = "youki";
const CNI: &str = "CNI plugins";
const INGRESS_NGINX: &str = "ingress-nginx";
const DASHBOARD: &str = "Kubernetes Dashboard";
const HTTP: &str = "HTTP/2 servers";

/// Sorted by year and number.
const CVES: &[Cve] = &[
    cve(
        "CVE-2017-1002101",
        KUBERNETES,
        "A subPath that is a symbolic link mounts a path of the host.",
        Tests(&["sub_path_outside_the_volume_is_rejected"]),
    ),
    cve(
        "CVE-2017-1002102",
        KUBERNETES,
        "A container changes its Secret or ConfigMap volume, and the kubelet deletes files of the host while it updates it.",
        Tests(&[
            "api_object_volumes_and_read_only_claims_are_not_writable",
            "missing_keys_and_paths_outside_the_volume_are_rejected",
        ]),
    ),
    cve(
        "CVE-2018-1002105",
        KUBERNETES,
        "After an upgrade that a backend rejected, the client keeps a connection to it with the API server's credentials.",
        Tests(&["rejected_upgrade_leaves_no_connection_to_the_kubelet"]),
    ),
    cve(
        "CVE-2018-18264",
        DASHBOARD,
        "Users who skip the sign-in have the rights of the dashboard's own service account.",
        Absent("The dashboard has no identity. A request without a session is refused."),
    ),
    cve(
        "CVE-2019-1002100",
        KUBERNETES,
        "A JSON patch with very many operations exhausts the API server.",
        Tests(&["more_than_ten_thousand_operations_are_rejected"]),
    ),
    cve(
        "CVE-2019-1002101",
        KUBERNETES,
        "The `tar` of a container makes `kubectl cp` write outside of the destination through a symbolic link.",
        Tests(&["hostile_archive_writes_only_below_the_destination"]),
    ),
    cve(
        "CVE-2019-11245",
        KUBERNETES,
        "A container whose image names a user runs as root after a restart.",
        Tests(&["run_as_non_root_rejects_root", "container_context_overrides_pod_context_and_image"]),
    ),
    cve(
        "CVE-2019-11246",
        KUBERNETES,
        "A hostile archive makes `kubectl cp` write outside of the destination.",
        Tests(&["hostile_archive_writes_only_below_the_destination"]),
    ),
    cve(
        "CVE-2019-11247",
        KUBERNETES,
        "Cluster-scoped objects are reached below a namespace, with rights in that namespace alone.",
        Tests(&[
            "cluster_scoped_objects_are_not_served_below_a_namespace",
            "url_exists_only_in_the_scope_of_its_kind_and_for_its_methods",
        ]),
    ),
    cve(
        "CVE-2019-11248",
        KUBERNETES,
        "Profiling data of the kubelet is served without authentication.",
        Tests(&["requests_are_authorized_by_the_api_server"]),
    ),
    cve(
        "CVE-2019-11249",
        KUBERNETES,
        "A hostile archive makes `kubectl cp` write outside of the destination, by another path.",
        Tests(&["hostile_archive_writes_only_below_the_destination"]),
    ),
    cve(
        "CVE-2019-11250",
        KUBERNETES,
        "Bearer tokens are written to the log.",
        Tests(&["invalid_lines_are_reported_by_number_without_the_token"]),
    ),
    cve(
        "CVE-2019-11251",
        KUBERNETES,
        "Two symbolic links in an archive make `kubectl cp` write outside of the destination.",
        Tests(&["hostile_archive_writes_only_below_the_destination"]),
    ),
    cve(
        "CVE-2019-11253",
        KUBERNETES,
        "A small YAML document with nested aliases expands without bound in the API server.",
        Tests(&["nesting_and_aliases_are_bounded"]),
    ),
    cve(
        "CVE-2019-11254",
        KUBERNETES,
        "A YAML document of a certain form keeps the parser busy for minutes.",
        Tests(&["nesting_and_aliases_are_bounded"]),
    ),
    cve(
        "CVE-2019-16884",
        RUNC,
        "An image whose `/proc` is not procfs makes the runtime write security labels into a file of the image.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2019-19921",
        RUNC,
        "Mounts that share volumes in a race replace `/proc`, and masked paths are not masked.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2019-5736",
        RUNC,
        "A container overwrites the runtime's program on the host through `/proc/self/exe`.",
        Tests(&[
            "cve_2019_5736_runtime_executable_cannot_be_overwritten",
            "cve_2019_5736_a_protected_program_runs_and_cannot_be_written",
        ]),
    ),
    cve(
        "CVE-2020-10749",
        CNI,
        "A pod sends IPv6 router advertisements and becomes the router of others.",
        Tests(&["cve_2020_10749_a_pod_cannot_become_the_nodes_router_by_an_advertisement"]),
    ),
    cve(
        "CVE-2020-15157",
        CONTAINERD,
        "A manifest that names a layer at another host makes the client send that host its registry credentials.",
        Tests(&["credentials_of_all_forms_are_sent_to_their_registry_only"]),
    ),
    cve(
        "CVE-2020-15257",
        CONTAINERD,
        "The shim's socket is in the abstract namespace, where every container on the host's network reaches it.",
        Tests(&["runtime_has_no_abstract_sockets", "only_the_owner_may_connect_and_a_stale_socket_is_replaced"]),
    ),
    cve(
        "CVE-2020-8551",
        KUBERNETES,
        "Requests to the kubelet exhaust its memory.",
        Tests(&["clients_above_the_limit_wait_until_others_close"]),
    ),
    cve(
        "CVE-2020-8552",
        KUBERNETES,
        "Crafted requests add labels to metrics without bound.",
        Tests(&["family_exports_at_most_the_maximum_number_of_series"]),
    ),
    cve(
        "CVE-2020-8554",
        KUBERNETES,
        "A user who can create Services intercepts traffic to any address through externalIPs.",
        Tests(&["cve_2020_8554_a_service_gets_no_new_external_ips"]),
    ),
    cve(
        "CVE-2020-8555",
        KUBERNETES,
        "The controller manager calls a URL of the user's choice for a StorageClass and shows the answer.",
        Tests(&["cve_2020_8555_the_url_of_a_storage_class_is_neither_requested_nor_reported"]),
    ),
    cve(
        "CVE-2020-8557",
        KUBERNETES,
        "A pod fills the node's disk through its own `/etc/hosts`, which is not counted.",
        Tests(&["hosts_file_counts_towards_ephemeral_storage", "huge_hosts_file_is_not_read_entirely"]),
    ),
    cve(
        "CVE-2020-8558",
        KUBERNETES,
        "Neighbours of a node reach services that listen on its loopback address.",
        Tests(&[
            "loopback_interface_is_unreachable_from_outside",
            "cve_2020_8558_neighbours_and_pods_cannot_reach_127_0_0_1_of_the_node",
        ]),
    ),
    cve(
        "CVE-2020-8559",
        KUBERNETES,
        "A kubelet answers an upgrade with a redirect, which the API server follows with its credentials.",
        Tests(&["redirect_from_a_kubelet_on_upgrade_is_not_followed"]),
    ),
    cve(
        "CVE-2020-8561",
        KUBERNETES,
        "A webhook redirects the API server to addresses that only the server reaches.",
        Tests(&["redirect_of_a_webhook_is_not_followed"]),
    ),
    cve(
        "CVE-2020-8562",
        KUBERNETES,
        "Between check and use a name resolves to another address, and the proxy reaches the control plane's own network.",
        Tests(&["node_proxy_reaches_the_kubelet_and_loopback_addresses_are_rejected"]),
    ),
    cve(
        "CVE-2021-25735",
        KUBERNETES,
        "Validating webhooks for Nodes see what the client sent instead of the old object.",
        Tests(&["review_contains_all_request_attributes"]),
    ),
    cve(
        "CVE-2021-25737",
        KUBERNETES,
        "EndpointSlices lead to loopback or link-local addresses of nodes.",
        Tests(&["loopback_and_link_local_endpoints_are_rejected"]),
    ),
    cve(
        "CVE-2021-25740",
        KUBERNETES,
        "A user who can edit a namespace directs a load balancer to another namespace's pods through Endpoints.",
        Tests(&[
            "edit_role_cannot_write_endpoints",
            "cve_2021_25740_edit_and_admin_may_read_endpoints_and_not_write_them",
        ]),
    ),
    cve(
        "CVE-2021-25741",
        KUBERNETES,
        "A container exchanges its subPath for a symbolic link while it is mounted.",
        Tests(&["sub_path_outside_the_volume_is_rejected"]),
    ),
    cve(
        "CVE-2021-25742",
        INGRESS_NGINX,
        "Annotations of an Ingress add configuration that reads the controller's credentials.",
        Absent("Annotations select from fixed options; no configuration file is generated from them."),
    ),
    cve(
        "CVE-2021-25743",
        KUBERNETES,
        "Escape sequences in fields of objects control the terminal of the user who lists them.",
        Tests(&[
            "control_characters_are_escaped_except_for_the_layout",
            "cells_cannot_control_the_terminal",
            "operations_on_hostile_names_do_not_control_the_terminal",
        ]),
    ),
    cve(
        "CVE-2021-25745",
        INGRESS_NGINX,
        "The path of an Ingress is written into the proxy's configuration, and reads the credentials of the controller.",
        Absent("The proxy's configuration is data in memory. Nothing of an Ingress is rendered as text."),
    ),
    cve(
        "CVE-2021-30465",
        RUNC,
        "A mount's target is exchanged for a symbolic link, and the mount appears on the host.",
        Tests(&[
            "image_links_and_devices_do_not_escape_the_root_file_system",
            "image_with_symlinked_proc_sys_or_dev_unmasks_no_path",
        ]),
    ),
    cve(
        "CVE-2021-32760",
        CONTAINERD,
        "Unpacking a layer changes the mode of files outside of it through symbolic links.",
        Tests(&["cve_2021_32760_an_assumed_directory_replaced_by_a_link_is_not_followed"]),
    ),
    cve(
        "CVE-2021-41103",
        CONTAINERD,
        "Directories of bundles and plugins are open, and local users run setuid files of images.",
        Tests(&[
            "cve_2021_41103_and_2024_25621_local_users_cannot_access_bundles_or_layers",
            "data_directory_cannot_be_listed_by_other_users",
        ]),
    ),
    cve(
        "CVE-2022-0811",
        CRI_O,
        "A sysctl of a pod sets parameters of the host's kernel, such as the core pattern.",
        Tests(&[
            "only_safe_or_allowed_sysctls_are_admitted",
            "cve_2022_0811_host_sysctl_is_rejected",
            "cve_2022_0811_only_sysctls_of_the_sandboxs_own_namespaces_are_set",
        ]),
    ),
    cve(
        "CVE-2022-23648",
        CONTAINERD,
        "A volume that an image declares with a path that climbs copies files of the host into the container.",
        Absent("Volumes that images declare are not created; only those of the pod are."),
    ),
    cve(
        "CVE-2022-24769",
        CONTAINERD,
        "Containers start with inheritable capabilities, which files of the image turn into effective ones.",
        Tests(&["processes_have_no_inheritable_capabilities"]),
    ),
    cve(
        "CVE-2022-29162",
        RUNC,
        "Commands that are run in a container have inheritable capabilities.",
        Tests(&["processes_have_no_inheritable_capabilities"]),
    ),
    cve(
        "CVE-2022-31030",
        CONTAINERD,
        "The output of an ExecSync call exhausts the runtime's memory.",
        Tests(&["exec_sync_output_is_bounded"]),
    ),
    cve(
        "CVE-2022-3162",
        KUBERNETES,
        "A name with path separators reads custom resources of another kind.",
        Tests(&["name_with_path_separators_reaches_no_other_kind"]),
    ),
    cve(
        "CVE-2022-3172",
        KUBERNETES,
        "An aggregated API server redirects clients, which send it their credentials.",
        Tests(&["aggregated_api_is_discovered_described_and_proxied"]),
    ),
    cve(
        "CVE-2022-3294",
        KUBERNETES,
        "A user who can change a Node makes the API server proxy to its own network.",
        Tests(&["node_proxy_reaches_the_kubelet_and_loopback_addresses_are_rejected"]),
    ),
    cve(
        "CVE-2023-2431",
        KUBERNETES,
        "A seccomp profile of type Localhost without a name means no profile.",
        Tests(&[
            "localhost_seccomp_profile_without_a_name_is_never_unconfined",
            "seccomp_profiles_are_node_files_with_a_node_default",
        ]),
    ),
    cve(
        "CVE-2023-25153",
        CONTAINERD,
        "Importing an image reads files of the archive into memory without bound.",
        Tests(&["archives_without_an_image_are_rejected", "decompression_bomb_is_rejected"]),
    ),
    cve(
        "CVE-2023-25173",
        CONTAINERD,
        "Supplementary groups are not set up, and group restrictions are passed.",
        Tests(&["users_groups_and_capabilities_are_as_requested"]),
    ),
    cve(
        "CVE-2023-2727",
        KUBERNETES,
        "Ephemeral containers are not seen by the ImagePolicyWebhook plugin.",
        Tests(&["images_of_ephemeral_containers_are_reviewed"]),
    ),
    cve(
        "CVE-2023-2728",
        KUBERNETES,
        "Ephemeral containers are not held to the mountable secrets of the service account.",
        Tests(&["ephemeral_containers_may_use_only_the_mountable_secrets_of_their_service_account"]),
    ),
    cve(
        "CVE-2023-27561",
        RUNC,
        "An image whose `/proc` is a symbolic link has it mounted elsewhere.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2023-28642",
        RUNC,
        "An image whose `/proc` is a symbolic link passes AppArmor.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2023-44487",
        HTTP,
        "Streams that are reset immediately after they are opened keep the server busy.",
        Tests(&["rapid_stream_resets_do_not_block_other_clients"]),
    ),
    cve(
        "CVE-2023-5528",
        KUBERNETES,
        "A local volume's path runs commands on Windows nodes.",
        Absent("Nodes run Linux."),
    ),
    cve(
        "CVE-2024-10220",
        KUBERNETES,
        "A gitRepo volume runs hooks of the repository on the node.",
        Tests(&["git_repo_volumes_are_rejected"]),
    ),
    cve(
        "CVE-2024-21626",
        RUNC,
        "A working directory among the runtime's open descriptors leads to the host's root.",
        Tests(&[
            "working_directory_in_proc_self_fd_does_not_lead_to_the_host",
            "cve_2024_21626_no_runtime_descriptor_leaks_into_a_container",
        ]),
    ),
    cve(
        "CVE-2024-25621",
        CONTAINERD,
        "Directories of the runtime's state are open to local users.",
        Tests(&[
            "cve_2021_41103_and_2024_25621_local_users_cannot_access_bundles_or_layers",
            "data_directory_cannot_be_listed_by_other_users",
        ]),
    ),
    cve(
        "CVE-2024-3177",
        KUBERNETES,
        "envFrom is not held to the mountable secrets of the service account.",
        Tests(&["env_from_may_use_only_the_mountable_secrets_of_its_service_account"]),
    ),
    cve(
        "CVE-2024-40635",
        CONTAINERD,
        "A user number beyond 32 bits becomes user 0.",
        Tests(&["uid_beyond_32_bits_is_rejected"]),
    ),
    cve(
        "CVE-2024-45310",
        RUNC,
        "A mount's target is created through a symbolic link of another container, as an empty file on the host.",
        Tests(&["image_links_and_devices_do_not_escape_the_root_file_system"]),
    ),
    cve(
        "CVE-2025-0426",
        KUBERNETES,
        "Requests for checkpoints on the kubelet's read-only port fill the node's disk.",
        Absent("There is no read-only port, and containers are not checkpointed."),
    ),
    cve(
        "CVE-2025-1767",
        KUBERNETES,
        "A gitRepo volume reads repositories of other pods on the node.",
        Tests(&["git_repo_volumes_are_rejected"]),
    ),
    cve(
        "CVE-2025-1974",
        INGRESS_NGINX,
        "Any pod has the admission controller test a configuration that loads code.",
        Absent("The ingress controller has no admission webhook, and its proxy loads no configuration files."),
    ),
    cve(
        "CVE-2025-27612",
        YOUKI,
        "Commands that are run in a container have inheritable capabilities.",
        Tests(&["processes_have_no_inheritable_capabilities"]),
    ),
    cve(
        "CVE-2025-31133",
        RUNC,
        "`/dev/null` is exchanged for a symbolic link, and what it leads to is mounted over masked paths.",
        Tests(&[
            "cve_2025_31133_container_symlink_does_not_replace_the_mask",
            "image_with_symlinked_proc_sys_or_dev_unmasks_no_path",
        ]),
    ),
    cve(
        "CVE-2025-4563",
        KUBERNETES,
        "A node uses resource claims that are not its own through mirror pods.",
        Tests(&["mirror_pod_refers_to_no_api_object"]),
    ),
    cve(
        "CVE-2025-5187",
        KUBERNETES,
        "A node makes its own Node object belong to something that the garbage collector then deletes with it.",
        Tests(&["kubelet_cannot_change_the_owners_of_its_node"]),
    ),
    cve(
        "CVE-2025-52565",
        RUNC,
        "The console is mounted through a symbolic link of the container, before paths are masked.",
        Tests(&["cve_2025_52565_console_is_not_mounted_through_a_container_symlink"]),
    ),
    cve(
        "CVE-2025-52881",
        RUNC,
        "Writes of the runtime to procfs are redirected to other files of it.",
        Tests(&["cve_2025_52881_mounts_over_proc_are_rejected"]),
    ),
    cve(
        "CVE-2025-54867",
        YOUKI,
        "An image whose `/proc` or `/sys` is a symbolic link has it mounted elsewhere.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2025-62161",
        YOUKI,
        "Masked paths are replaced through an unchecked `/dev/null`.",
        Tests(&["image_with_symlinked_proc_sys_or_dev_unmasks_no_path"]),
    ),
    cve(
        "CVE-2025-62596",
        YOUKI,
        "Security labels are written to files that a shared mount redirected.",
        Tests(&["cve_2025_52881_mounts_over_proc_are_rejected"]),
    ),
];

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (id, test) in named_tests() {
        let function = format!("fn {test}(");
        if !tree.rust().any(|(_, text)| text.contains(&function)) {
            findings.push(format!("{PATH}: {id} names the test `{test}`, which does not exist"));
        }
    }
    let text = tree.files.get(PATH).map_or("", String::as_str);
    if parts(text).map(|(_, table, _)| table) != Some(&table()) {
        findings.push(format!("{PATH}: does not show the table of CVEs; run `cargo xtask tidy --fix`"));
    }
}

/// Rewrites the table between the two marks and keeps the text around it.
pub(super) fn write(tree: &mut Tree) -> anyhow::Result<()> {
    let old = tree.files.get(PATH).cloned().unwrap_or_default();
    let (before, _, after) = parts(&old).ok_or_else(|| anyhow::anyhow!("{PATH} has no begin and end marks"))?;
    let new = format!("{before}{BEGIN}{}{END}{after}", table());
    if new != old {
        tree.write(PATH, new)?;
    }
    Ok(())
}

fn named_tests() -> impl Iterator<Item = (&'static str, &'static str)> {
    CVES.iter().flat_map(|cve| {
        let tests = if let Tests(tests) = cve.here { tests } else { &[] };
        tests.iter().map(|test| (cve.id, *test))
    })
}

fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

fn table() -> String {
    let mut table = String::from("\n| CVE | project | attack | here |\n|---|---|---|---|\n");
    for Cve { id, project, attack, here } in CVES {
        let here = match here {
            Tests(tests) => tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", "),
            Absent(reason) => format!("Not applicable: {reason}"),
        };
        table.push_str(&format!("| {id} | {project} | {attack} | {here} |\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cves_are_unique_and_sorted() {
        assert!(CVES.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn missing_test_is_found() {
        let mut findings = Vec::new();
        let page = format!("{BEGIN}{}{END}", table());
        let source: String = named_tests().skip(1).map(|(_, test)| format!("fn {test}() {{}}\n")).collect();
        let files = [(PATH.to_owned(), page), ("crates/a/src/lib.rs".to_owned(), source)].into();
        check(&Tree { root: ".".into(), files }, &mut findings);
        assert!(findings.len() <= 1, "{findings:?}");
        let files = [(PATH.to_owned(), String::new())].into();
        check(&Tree { root: ".".into(), files }, &mut findings);
        assert!(findings.len() > CVES.len() / 2, "{findings:?}");
    }
}
