//! Pod: containers that live and die together.

use crate::kind::{Connect, Does, Kind, Subresource, Verb, names};

/// The row of Pod.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["po"]),
        categories: names(&["all"]),
        subresources: vec![
            Subresource::connect("attach", "PodAttachOptions", &[Verb::Create, Verb::Get], Connect::Attach),
            Subresource::action("binding", ("", "v1", "Binding"), Does::Bind),
            Subresource::part("ephemeralcontainers"),
            Subresource::action("eviction", ("policy", "v1", "Eviction"), Does::Evict),
            Subresource::connect("exec", "PodExecOptions", &[Verb::Create, Verb::Get], Connect::Exec),
            Subresource::connect("log", "Pod", &[Verb::Get], Connect::Log),
            Subresource::connect(
                "portforward",
                "PodPortForwardOptions",
                &[Verb::Create, Verb::Get],
                Connect::PortForward,
            ),
            Subresource::connect(
                "proxy",
                "PodProxyOptions",
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                Connect::Proxy,
            ),
            Subresource::part("resize"),
            Subresource::status(),
        ],
        returns_deleted: true,
        ..Kind::stored("", "v1", "Pod", "pods")
    }
}
