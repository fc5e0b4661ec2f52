//! `AdmissionConfiguration`: plugin configurations, decoded strictly so that mistakes are reported.

use std::collections::BTreeSet;

use apimachinery::{Value, yaml};

use super::plugins;

/// The configuration of one plugin, inline or by path.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    /// A file with the configuration, relative to the AdmissionConfiguration file; may be empty.
    pub path: String,
    /// The inline configuration; `null` if absent.
    pub configuration: Value,
}

/// Reasons why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file is not YAML")]
    Syntax(#[source] yaml::Error),
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// The kind in the file.
        kind: String,
        api_version: String,
    },
    /// A field is duplicate, unknown or has an invalid value.
    #[error("{field}: {problem}")]
    Field {
        /// The path of the field.
        field: String,
        problem: String,
    },
}

/// The schema of a plugin's configuration.
struct Form {
    plugin: &'static str,
    /// Accepted groups and kinds; empty where upstream does not check them.
    kinds: &'static [(&'static str, &'static str)],
    fields: &'static [&'static str],
}

const CONFIG_GROUP: &str = "apiserver.config.k8s.io";

const FORMS: &[Form] = &[
    Form {
        plugin: "PodSecurity",
        kinds: &[("pod-security.admission.config.k8s.io", "PodSecurityConfiguration")],
        fields: &["defaults", "exemptions"],
    },
    Form {
        plugin: "EventRateLimit",
        kinds: &[("eventratelimit.admission.k8s.io", "Configuration")],
        fields: &["limits"],
    },
    Form {
        plugin: "PodTolerationRestriction",
        kinds: &[("podtolerationrestriction.admission.k8s.io", "Configuration")],
        fields: &["default", "whitelist"],
    },
    Form {
        plugin: "ResourceQuota",
        kinds: &[(CONFIG_GROUP, "ResourceQuotaConfiguration"), ("resourcequota.admission.k8s.io", "Configuration")],
        fields: &["limitedResources"],
    },
    Form { plugin: "ImagePolicyWebhook", kinds: &[], fields: &["imagePolicy"] },
    Form { plugin: "PodNodeSelector", kinds: &[], fields: &["podNodeSelectorPluginConfig"] },
    Form { plugin: "MutatingAdmissionWebhook", kinds: WEBHOOK, fields: &["kubeConfigFile"] },
    Form { plugin: "ValidatingAdmissionWebhook", kinds: WEBHOOK, fields: &["kubeConfigFile"] },
];

const WEBHOOK: &[(&str, &str)] = &[(CONFIG_GROUP, "WebhookAdmissionConfiguration"), (CONFIG_GROUP, "WebhookAdmission")];

/// Parses an AdmissionConfiguration file.
pub fn parse(file: &str) -> Result<Vec<Entry>, Error> {
    let root = read(file)?;
    let root_text = |field: &str| root.text_at(&[field]).to_owned();
    let versions = ["v1", "v1alpha1"].map(|version| format!("{CONFIG_GROUP}/{version}"));
    if root_text("kind") != "AdmissionConfiguration" || !versions.contains(&root_text("apiVersion")) {
        return Err(Error::Kind { kind: root_text("kind"), api_version: root_text("apiVersion") });
    }
    known(&root, "", &["apiVersion", "kind", "plugins"])?;
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for (at, plugin) in root.list_at(&["plugins"]).iter().enumerate() {
        let object_path = format!("plugins[{at}]");
        known(plugin, &object_path, &["name", "path", "configuration"])?;
        let name = plugin.text_at(&["name"]);
        let wrong = |problem: String| Error::Field { field: format!("{object_path}.name"), problem };
        if !plugins::is_known(name) {
            return Err(wrong(format!("there is no plugin {name:?}")));
        }
        if !seen.insert(name) {
            return Err(wrong(format!("{name:?} stands here for the second time")));
        }
        let configuration = plugin.get("configuration").cloned().unwrap_or_default();
        entries.push(Entry { name: name.to_owned(), path: plugin.text_at(&["path"]).to_owned(), configuration });
    }
    Ok(entries)
}

/// Parses a file with the configuration of one plugin.
pub fn read(file: &str) -> Result<Value, Error> {
    let (root, repeated) = yaml::parse_strict(file).map_err(Error::Syntax)?;
    match repeated.into_iter().next() {
        Some(field) => Err(Error::Field { field, problem: "stands here for the second time".to_owned() }),
        None => Ok(root),
    }
}

/// Validates the configuration of a plugin.
pub fn check(plugin: &str, configuration: &Value) -> Result<(), Error> {
    let Some(form) = FORMS.iter().find(|form| form.plugin == plugin) else {
        let problem = "the plugin takes no configuration".to_owned();
        return Err(Error::Field { field: plugin.to_owned(), problem });
    };
    if !form.kinds.is_empty() {
        let (api_version, kind) = (configuration.text_at(&["apiVersion"]), configuration.text_at(&["kind"]));
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if !form.kinds.contains(&(group, kind)) {
            return Err(Error::Kind { kind: kind.to_owned(), api_version: api_version.to_owned() });
        }
    }
    let fields: Vec<&str> = form.fields.iter().chain(&["apiVersion", "kind"]).copied().collect();
    known(configuration, "", &fields)?;
    for (at, limited) in configuration.list_at(&["limitedResources"]).iter().enumerate() {
        let object_path = format!("limitedResources[{at}]");
        known(limited, &object_path, &["apiGroup", "resource", "matchContains", "matchScopes"])?;
        for (at, scope) in limited.list_at(&["matchScopes"]).iter().enumerate() {
            known(scope, &format!("{object_path}.matchScopes[{at}]"), &["scopeName", "operator", "values"])?;
        }
    }
    Ok(())
}

fn known(object: &Value, object_path: &str, fields: &[&str]) -> Result<(), Error> {
    let path = |field: &str| if object_path.is_empty() { field.to_owned() } else { format!("{object_path}.{field}") };
    let Some(object) = object.as_object() else {
        let field = if object_path.is_empty() { "the file".to_owned() } else { object_path.to_owned() };
        return Err(Error::Field { field, problem: "must be an object".to_owned() });
    };
    match object.keys().find(|key| !fields.contains(key)) {
        Some(key) => Err(Error::Field { field: path(key), problem: "unknown field".to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn admission_configuration_lists_plugins_and_their_configurations() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        let check = |rest: &str, expect: &str| {
            let found = match parse(&format!("{head}{rest}")) {
                Ok(entries) => entries.iter().map(|entry| format!("{}:{}", entry.name, entry.path)).collect(),
                Err(error) => vec![error.to_string()],
            };
            assert_eq!(found.join(" "), expect);
        };
        check(
            "plugins: [{name: PodSecurity, path: a.yaml}, {name: EventRateLimit}]",
            "PodSecurity:a.yaml EventRateLimit:",
        );
        check("plugins: [{name: Nope}]", "plugins[0].name: there is no plugin \"Nope\"");
        check("plugins: [{name: Priority, file: x}]", "plugins[0].file: unknown field");
        check(
            "plugins: [{name: Priority}, {name: Priority}]",
            "plugins[1].name: \"Priority\" stands here for the second time",
        );
        check("plugin: []", "plugin: unknown field");
        let wrong = parse("kind: AdmissionConfiguration").unwrap_err().to_string();
        assert_eq!(wrong, "no kind \"AdmissionConfiguration\" is registered for version \"\"");
    }

    #[test]
    fn plugin_rejects_configurations_of_other_kinds() {
        let check_plugin = |plugin: &str, configuration: Value, expect: &str| {
            let found = check(plugin, &configuration).err().map(|error| error.to_string());
            assert_eq!(found.unwrap_or_default(), expect);
        };
        let group = "pod-security.admission.config.k8s.io/v1";
        check_plugin(
            "PodSecurity",
            value!({"apiVersion": group, "kind": "PodSecurityConfiguration", "defaults": {}}),
            "",
        );
        check_plugin(
            "PodSecurity",
            value!({"apiVersion": group, "kind": "Other"}),
            "no kind \"Other\" is registered for version \"pod-security.admission.config.k8s.io/v1\"",
        );
        check_plugin("ImagePolicyWebhook", value!({"imagePolicy": {}}), "");
        check_plugin("ImagePolicyWebhook", value!({"policy": {}}), "policy: unknown field");
        check_plugin("Priority", value!({}), "Priority: the plugin takes no configuration");
    }
}
