//! Audit log lines and log file rotation.

pub mod rotation;

use apimachinery::go;
use apimachinery::time::Time;

use crate::Event;
use crate::request::User;

/// `--audit-log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The complete event as JSON.
    #[default]
    Json,
    /// A text summary.
    Legacy,
}

/// Formats an event as one line with a final newline.
pub fn line(event: &Event, format: Format) -> String {
    let mut line = match format {
        Format::Json => event.to_json(),
        Format::Legacy => legacy(event),
    };
    line.push('\n');
    line
}

fn legacy(event: &Event) -> String {
    let quoted =
        |user: &User| -> String { user.groups.iter().map(|group| go::quote(group)).collect::<Vec<_>>().join(",") };
    let (user, groups) = match &event.user {
        user if user.username.is_empty() => ("<none>", "<none>".to_owned()),
        user if user.groups.is_empty() => (&*user.username, "<none>".to_owned()),
        user => (&*user.username, quoted(user)),
    };
    let (as_user, as_groups) = match &event.impersonated_user {
        None => ("<self>", "<lookup>".to_owned()),
        Some(user) if user.groups.is_empty() => (&*user.username, "<lookup>".to_owned()),
        Some(user) => (&*user.username, quoted(user)),
    };
    let namespace = event.object_ref.as_ref().map_or("", |reference| &reference.namespace);
    let code = event.response_status.as_ref().and_then(|status| status.get("code")?.as_int());
    let response = match (&event.response_status, code) {
        (None, _) => "<deferred>".to_owned(),
        (Some(_), code) => code.unwrap_or(0).to_string(),
    };
    let q = go::quote;
    format!(
        "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} response=\"{response}\"",
        nanos(event.received_at),
        q(&event.audit_id),
        q(event.stage.name()),
        q(event.source_ips.first().map_or("<unknown>", |ip| ip)),
        q(&event.verb),
        q(user),
        q(&groups),
        q(as_user),
        q(&as_groups),
        q(&event.user_agent),
        q(if namespace.is_empty() { "<none>" } else { namespace }),
        q(&event.request_uri),
    )
}

/// Formats a time without trailing zeros of its fraction, which has at most six digits.
fn nanos(time: Time) -> String {
    let text = time.micro().to_string();
    let text = text.strip_suffix('Z').unwrap_or(&text).trim_end_matches('0');
    format!("{}Z", text.strip_suffix('.').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Level;
    use crate::trail::tests::event;

    #[test]
    fn legacy_lines_summarize_the_event() {
        let mut event = event(Level::Metadata);
        let expect = r#"2026-11-16T01:02:03.5Z AUDIT: id="id-1" stage="ResponseComplete" ip="10.0.0.1" method="create" user="ann" groups="\"dev\",\"ops\"" as="<self>" asgroups="<lookup>" user-agent="kubectl" namespace="a" uri="/api/v1/namespaces/a/pods?x=1&y=2" response="201""#;
        assert_eq!(line(&event, Format::Legacy), format!("{expect}\n"));
        event.user = User::default();
        event.impersonated_user = Some(User { username: "bob".into(), ..User::default() });
        (event.object_ref, event.response_status) = (None, None);
        event.source_ips.clear();
        let expect = r#"2026-11-16T01:02:03.5Z AUDIT: id="id-1" stage="ResponseComplete" ip="<unknown>" method="create" user="<none>" groups="<none>" as="bob" asgroups="<lookup>" user-agent="kubectl" namespace="<none>" uri="/api/v1/namespaces/a/pods?x=1&y=2" response="<deferred>""#;
        assert_eq!(line(&event, Format::Legacy), format!("{expect}\n"));
    }

    #[test]
    fn time_fractions_have_no_trailing_zeros() {
        assert_eq!(nanos(Time::from_unix(0, 0)), "1970-01-01T00:00:00Z");
        assert_eq!(nanos(Time::from_unix(0, 120_000_999)), "1970-01-01T00:00:00.12Z");
    }
}
