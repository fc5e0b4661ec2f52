//! Union types (x-kubernetes-unions): one member is set, selected by a discriminator field.

use apimachinery::{Object, Value, value};

/// Type name, discriminator field (if there is one), and members.
const UNIONS: &[(&str, Option<&str>, &[&str])] = &[
    ("io.k8s.api.core.v1.AppArmorProfile", Some("type"), &["localhostProfile"]),
    ("io.k8s.api.core.v1.PodSchedulingGroup", None, &["podGroupName"]),
    ("io.k8s.api.core.v1.SeccompProfile", Some("type"), &["localhostProfile"]),
    ("io.k8s.api.flowcontrol.v1.LimitResponse", Some("type"), &["queuing"]),
    ("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", Some("type"), &["exempt", "limited"]),
    ("io.k8s.api.flowcontrol.v1.Subject", Some("kind"), &["group", "serviceAccount", "user"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupSchedulingPolicy", None, &["basic", "gang"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupTemplateReference", None, &["workload"]),
];

/// Returns the x-kubernetes-unions extension of a type.
pub(super) fn of(name: &str) -> Option<Value> {
    let (_, discriminator, members) = UNIONS.iter().find(|(have, ..)| *have == name)?;
    let members: Object = members.iter().map(|member| (*member, go_name(member))).collect();
    let mut union = Object::new();
    if let Some(discriminator) = discriminator {
        union.insert("discriminator", *discriminator);
    }
    union.insert("fields-to-discriminateBy", members);
    Some(value!([union]))
}

fn go_name(field: &str) -> String {
    let mut chars = field.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
