//! Fields of `KubeProxyConfiguration`: their types, and whether they have an effect here.
//!
//! As in upstream's lenient decoding of v1alpha1, a value of the wrong type is an error, and an unknown field is only
//! logged.
// DEVIATION: the fields bindAddress, bindAddressHardFail, conntrack and detectLocal of a KubeProxyConfiguration are
// logged and have no effect; detectLocalMode supports neither BridgeInterface nor InterfaceNamePrefix.

use apimachinery::Value;

use super::{ConfigError, error};

/// Type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Switch,
    Number,
    List,
    /// An object whose fields are in the table, too.
    Object,
    /// Any value: another component decodes the field.
    Any,
}

/// Effect of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldSupport {
    /// Same effect as upstream.
    Supported,
    /// Nothing to configure here; ignored silently.
    Ignored,
    /// Not supported; reported if it is set.
    Unsupported,
}

use FieldSupport::{Ignored, Supported, Unsupported};
use Type::{Any, List, Number, Object, Switch, Text};

/// All fields, by path.
const FIELDS: &[(&str, Type, FieldSupport)] = &[
    ("apiVersion", Text, Supported),
    ("kind", Text, Supported),
    ("featureGates", Any, Ignored),
    ("logging", Any, Ignored),
    ("winkernel", Any, Ignored),
    ("windowsRunAsService", Switch, Ignored),
    ("clientConnection", Object, Supported),
    ("clientConnection.kubeconfig", Text, Supported),
    ("clientConnection.acceptContentTypes", Text, Ignored),
    ("clientConnection.contentType", Text, Ignored),
    ("clientConnection.qps", Any, Ignored),
    ("clientConnection.burst", Number, Ignored),
    ("hostnameOverride", Text, Supported),
    ("bindAddress", Text, Unsupported),
    ("bindAddressHardFail", Switch, Unsupported),
    ("healthzBindAddress", Text, Supported),
    ("metricsBindAddress", Text, Supported),
    ("enableProfiling", Switch, Ignored),
    ("showHiddenMetricsForVersion", Text, Ignored),
    ("mode", Text, Supported),
    ("iptables", Object, Supported),
    ("iptables.masqueradeBit", Number, Supported),
    ("iptables.masqueradeAll", Switch, Supported),
    ("iptables.localhostNodePorts", Switch, Supported),
    ("iptables.syncPeriod", Text, Ignored),
    ("iptables.minSyncPeriod", Text, Ignored),
    ("nftables", Object, Supported),
    ("nftables.masqueradeBit", Number, Supported),
    ("nftables.masqueradeAll", Switch, Supported),
    ("nftables.syncPeriod", Text, Ignored),
    ("nftables.minSyncPeriod", Text, Ignored),
    ("ipvs", Any, Ignored),
    ("detectLocalMode", Text, Supported),
    ("detectLocal", Object, Supported),
    ("detectLocal.bridgeInterface", Text, Unsupported),
    ("detectLocal.interfaceNamePrefix", Text, Unsupported),
    ("clusterCIDR", Text, Supported),
    ("nodePortAddresses", List, Supported),
    ("oomScoreAdj", Number, Supported),
    ("conntrack", Object, Supported),
    ("conntrack.maxPerCore", Number, Unsupported),
    ("conntrack.min", Number, Unsupported),
    ("conntrack.tcpEstablishedTimeout", Text, Unsupported),
    ("conntrack.tcpCloseWaitTimeout", Text, Unsupported),
    ("conntrack.tcpBeLiberal", Switch, Unsupported),
    ("conntrack.udpTimeout", Text, Unsupported),
    ("conntrack.udpStreamTimeout", Text, Unsupported),
    ("configSyncPeriod", Text, Ignored),
    ("portRange", Text, Ignored),
];

/// Checks every field. Returns a warning for each unknown field and for each unsupported field that is set.
pub(super) fn unheeded(object: &Value) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    check_fields(object, "", &mut warnings)?;
    Ok(warnings)
}

fn check_fields(object: &Value, within: &str, warnings: &mut Vec<String>) -> Result<(), ConfigError> {
    let Some(fields) = object.as_object() else { return Ok(()) };
    for (name, value) in fields.iter() {
        let path = if within.is_empty() { name.to_string() } else { format!("{within}.{name}") };
        let Some((_, kind, becomes)) = FIELDS.iter().find(|(field, ..)| *field == path) else {
            warnings.push(format!("{path}: unknown field; ignored"));
            continue;
        };
        if value.is_null() {
            continue;
        }
        if !kind.holds(value) {
            return Err(error(&path, format!("must be {}", kind.name())));
        }
        match becomes {
            Supported if *kind == Object => check_fields(value, &path, warnings)?,
            Unsupported if is_set(value) => warnings.push(format!("{path}: not supported; ignored")),
            Supported | Ignored | Unsupported => {}
        }
    }
    Ok(())
}

/// Whether a value differs from the default behaviour.
fn is_set(value: &Value) -> bool {
    let usual = value.as_str().is_some_and(|text| ["", "0.0.0.0", "::", "0s"].contains(&text))
        || value.as_bool() == Some(false)
        || value.as_int() == Some(0);
    !usual
}

impl Type {
    fn holds(self, value: &Value) -> bool {
        match self {
            Text => value.as_str().is_some(),
            Switch => value.as_bool().is_some(),
            Number => value.as_int().is_some(),
            List => value.as_array().is_some_and(|list| list.iter().all(|one| one.as_str().is_some())),
            Object => value.as_object().is_some(),
            Any => true,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Text => "text",
            Switch => "true or false",
            Number => "an integer",
            List => "a list of strings",
            Object => "an object",
            Any => "anything",
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn unsupported_fields_are_reported_and_wrong_types_are_rejected() {
        // As kubeadm writes it: every field, nearly all with default values.
        let whole = value!({"apiVersion": "v", "kind": "k", "bindAddress": "0.0.0.0", "bindAddressHardFail": false,
            "clientConnection": {"acceptContentTypes": "", "burst": 0, "contentType": "", "kubeconfig": "/k", "qps": 0},
            "clusterCIDR": "10.244.0.0/16", "configSyncPeriod": "0s", "detectLocal": {"bridgeInterface": "", "interfaceNamePrefix": ""},
            "conntrack": {"maxPerCore": null, "min": null, "tcpBeLiberal": false, "tcpCloseWaitTimeout": null, "udpTimeout": "0s"},
            "iptables": {"localhostNodePorts": null, "masqueradeAll": false, "masqueradeBit": null, "minSyncPeriod": "0s"},
            "ipvs": {"excludeCIDRs": null, "scheduler": ""}, "logging": {"flushFrequency": 0}, "oomScoreAdj": null,
            "mode": "", "nodePortAddresses": null, "winkernel": {"enableDSR": false}});
        assert_eq!(unheeded(&whole), Ok(Vec::new()));
        let config = value!({"bindAddress": "192.0.2.1", "conntrack": {"min": 5, "max": 7}, "udpIdleTimeout": "250ms",
            "detectLocal": {"bridgeInterface": "br0"}, "iptables": {"masqueradeAl": true}, "oomScoreAdj": (-999)});
        let mut warnings = unheeded(&config).unwrap();
        warnings.sort();
        assert_eq!(
            warnings,
            [
                "bindAddress: not supported; ignored",
                "conntrack.max: unknown field; ignored",
                "conntrack.min: not supported; ignored",
                "detectLocal.bridgeInterface: not supported; ignored",
                "iptables.masqueradeAl: unknown field; ignored",
                "udpIdleTimeout: unknown field; ignored",
            ]
        );
        let check_error = |object: Value, expect: &str| assert_eq!(unheeded(&object).unwrap_err().to_string(), expect);
        check_error(value!({"iptables": {"masqueradeBit": "x"}}), "iptables.masqueradeBit: must be an integer");
        check_error(value!({"nodePortAddresses": "10.0.0.0/8"}), "nodePortAddresses: must be a list of strings");
        check_error(value!({"conntrack": 7}), "conntrack: must be an object");
    }
}
