//! The table of admission plugins, in the order in which they run.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::Value;

use super::Plugin;
use super::always::{AlwaysAdmit, AlwaysDeny};
use super::always_pull_images::AlwaysPullImages;
use super::certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
use super::claim_resize::PersistentVolumeClaimResize;
use super::default_class::{DefaultIngressClass, DefaultStorageClass};
use super::event_rate_limit::EventRateLimit;
use super::extended_resource_toleration::ExtendedResourceToleration;
use super::external_ips::DenyServiceExternalIPs;
use super::hard_anti_affinity::LimitPodHardAntiAffinityTopology;
use super::limit_ranger::LimitRanger;
use super::namespace_exists::NamespaceExists;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_restriction::NodeRestriction;
use super::node_taints::TaintNodesByCondition;
use super::owner_references::OwnerReferencesPermissionEnforcement;
use super::pod_node_selector::PodNodeSelector;
use super::pod_security::PodSecurity;
use super::pod_toleration_restriction::PodTolerationRestriction;
use super::pod_topology_labels::PodTopologyLabels;
use super::policies::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use super::policy_params::PolicyParams;
use super::priority::Priority;
use super::privileged::NoPrivileged;
use super::rbac_escalation::RbacEscalation;
use super::resource_quota::ResourceQuota;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::storage_protection::StorageObjectInUseProtection;
use super::toleration_seconds::DefaultTolerationSeconds;

/// `--enable-admission-plugins` and `--disable-admission-plugins`.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Plugins enabled in addition to the default ones.
    pub enable: Vec<String>,
    /// Disabled plugins, even if enabled by default.
    pub disable: Vec<String>,
    /// Whether privileged containers are rejected: `--allow-privileged=false`.
    pub reject_privileged: bool,
    /// Plugin configurations by name, from `--admission-control-config-file`.
    pub config: BTreeMap<String, Value>,
}

/// Reasons why the flags are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginFlagError {
    /// The plugin does not exist.
    #[error("{flag} plugin {name:?} is unknown")]
    UnknownPlugin {
        /// The flag that contains the name.
        flag: &'static str,
        name: String,
    },
    /// A plugin is both enabled and disabled.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Overlap(Vec<String>),
}

type Make = fn(&Value) -> Box<dyn Plugin>;

#[derive(Clone, Copy)]
pub(super) struct Row {
    pub name: &'static str,
    pub default: Switch,
    /// The constructor; `None` for plugins that use the network or create other objects, which are implemented
    /// elsewhere.
    pub make: Option<Make>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    On,
    Off,
}

macro_rules! rows {
    (@make) => { None };
    (@make |$config:pat_param| $make:expr) => { Some(|$config| Box::new($make)) };
    ($($name:ident: $default:ident $(= |$config:pat_param| $make:expr)?),* $(,)?) => {
        &[$(Row { name: stringify!($name), default: Switch::$default, make: rows!(@make $(|$config| $make)?) }),*]
    };
}

/// Later plugins see the changes of earlier ones. Defaults come before plugins that count or validate them. Quota is
/// last, so that nothing is charged for a rejected object.
const ROWS: &[Row] = rows![
    AlwaysAdmit: Off = |_| AlwaysAdmit,
    NamespaceAutoProvision: Off,
    NamespaceLifecycle: On = |_| NamespaceLifecycle,
    NamespaceExists: Off = |_| NamespaceExists,
    LimitPodHardAntiAffinityTopology: Off = |_| LimitPodHardAntiAffinityTopology,
    LimitRanger: On = |_| LimitRanger,
    ServiceAccount: On = |_| ServiceAccount,
    NodeRestriction: On = |_| NodeRestriction,
    TaintNodesByCondition: On = |_| TaintNodesByCondition,
    AlwaysPullImages: Off = |_| AlwaysPullImages,
    ImagePolicyWebhook: Off,
    PodSecurity: On = |config| PodSecurity::of(config),
    PodNodeSelector: Off = |config| PodNodeSelector::of(config),
    Priority: On = |_| Priority,
    DefaultTolerationSeconds: On = |config| DefaultTolerationSeconds::of(config),
    PodTolerationRestriction: Off = |config| PodTolerationRestriction::of(config),
    EventRateLimit: Off = |config| EventRateLimit::of(config),
    ExtendedResourceToleration: Off = |_| ExtendedResourceToleration,
    DefaultStorageClass: On = |_| DefaultStorageClass,
    StorageObjectInUseProtection: On = |_| StorageObjectInUseProtection,
    OwnerReferencesPermissionEnforcement: Off = |_| OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize: On = |_| PersistentVolumeClaimResize,
    RuntimeClass: On = |_| RuntimeClass,
    CertificateApproval: On = |_| CertificateApproval,
    CertificateSigning: On = |_| CertificateSigning,
    ClusterTrustBundleAttest: On = |_| ClusterTrustBundleAttest,
    CertificateSubjectRestriction: On = |_| CertificateSubjectRestriction,
    DefaultIngressClass: On = |_| DefaultIngressClass,
    DenyServiceExternalIPs: Off = |_| DenyServiceExternalIPs,
    PodTopologyLabels: On = |_| PodTopologyLabels,
    MutatingAdmissionPolicy: On = |_| MutatingAdmissionPolicy::default(),
    MutatingAdmissionWebhook: On,
    ValidatingAdmissionPolicy: On = |_| ValidatingAdmissionPolicy::default(),
    ValidatingAdmissionWebhook: On,
    ResourceQuota: On = |config| ResourceQuota::of(config),
    AlwaysDeny: Off = |_| AlwaysDeny,
];

/// Returns the plugins that the flags enable.
pub(super) fn rows(flags: &Flags) -> Result<Vec<Row>, PluginFlagError> {
    let known = |name: &String| ROWS.iter().any(|row| row.name == name);
    for (flag, names) in [("enable-admission-plugins", &flags.enable), ("disable-admission-plugins", &flags.disable)] {
        if let Some(name) = names.iter().find(|name| !known(name)) {
            return Err(PluginFlagError::UnknownPlugin { flag, name: name.clone() });
        }
    }
    let enable: BTreeSet<&String> = flags.enable.iter().collect();
    let disable: BTreeSet<&String> = flags.disable.iter().collect();
    let both: Vec<String> = enable.intersection(&disable).map(|name| (*name).clone()).collect();
    if !both.is_empty() {
        return Err(PluginFlagError::Overlap(both));
    }
    let named = |names: &[String], row: &Row| names.iter().any(|name| name == row.name);
    let on = |row: &&Row| named(&flags.enable, row) || row.default == Switch::On && !named(&flags.disable, row);
    Ok(ROWS.iter().filter(on).copied().collect())
}

/// Returns the names of all plugins in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Whether a plugin of this name exists.
pub(super) fn is_known(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name)
}

/// Returns the plugins outside the table, to which `--disable-admission-plugins` does not apply.
pub(super) fn always(flags: &Flags) -> Vec<Box<dyn Plugin>> {
    let mut plugins: Vec<Box<dyn Plugin>> = vec![Box::new(RbacEscalation), Box::new(PolicyParams)];
    if flags.reject_privileged {
        plugins.push(Box::new(NoPrivileged));
    }
    plugins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chain;

    fn check(enable: &[&str], disable: &[&str], expect: Result<(&[&str], &[&str]), &str>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let chain = Chain::of(&Flags { enable: owned(enable), disable: owned(disable), ..Flags::default() });
        match (chain, expect) {
            (Ok(chain), Ok((on, off))) => {
                assert!(on.iter().all(|name| chain.has(name)) && !off.iter().any(|name| chain.has(name)));
            }
            (Err(error), Err(text)) => assert_eq!(error.to_string(), text),
            (found, expect) => panic!("{:?} instead of {expect:?}", found.err()),
        }
    }

    #[test]
    fn flags_enable_and_disable_plugins_and_reject_unknown_names() {
        check(&[], &[], Ok((&["NamespaceLifecycle", "ResourceQuota"], &["AlwaysDeny", "NamespaceExists"])));
        check(&["AlwaysDeny"], &["Priority"], Ok((&["AlwaysDeny"], &["Priority"])));
        check(&["Nope"], &[], Err(r#"enable-admission-plugins plugin "Nope" is unknown"#));
        check(&[], &["Nope"], Err(r#"disable-admission-plugins plugin "Nope" is unknown"#));
        check(
            &["Priority"],
            &["Priority"],
            Err("[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"),
        );
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
