//! The annotations of an Ingress. An invalid value is reported and ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::quantity::Quantity;
use http::HeaderName;

use super::objects::ANNOTATION_PREFIX;
use crate::routing::RouteOptions;

/// Longest request timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum length of an annotation's value in a message.
const QUOTED_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotations {
    pub options: RouteOptions,
    /// Redirect requests over HTTP to HTTPS if the host has TLS.
    pub https_redirect: bool,
    /// Replaces the matched prefix of the path.
    pub rewrite_prefix: Option<String>,
    pub backend_protocol: Option<Protocol>,
    /// Obtain the certificates of the Ingress by ACME.
    pub acme: bool,
    /// Set if the Ingress is a canary of another one.
    pub canary: Option<Canary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Https,
    Grpc,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    /// Percentage of requests.
    pub weight: u32,
    pub header: Option<HeaderName>,
    /// The value of `header` that selects the canary; `None` for `always`, with `never` as the opposite.
    pub header_value: Option<String>,
}

/// A row of the table of annotations.
struct Annotation {
    name: &'static str,
    /// Stores a valid value, or returns a description of valid values.
    set: fn(&mut Annotations, &str) -> Result<(), &'static str>,
}

const ANNOTATIONS: &[Annotation] = &[
    Annotation { name: "request-timeout", set: set_request_timeout },
    Annotation { name: "body-size-max", set: set_body_size_max },
    Annotation { name: "https-redirect", set: set_https_redirect },
    Annotation { name: "rewrite-prefix", set: set_rewrite_prefix },
    Annotation { name: "backend-protocol", set: set_backend_protocol },
    Annotation { name: "acme", set: set_acme },
    Annotation { name: "canary-weight", set: set_canary_weight },
    Annotation { name: "canary-header", set: set_canary_header },
    Annotation { name: "canary-header-value", set: set_canary_header_value },
];

impl Default for Annotations {
    fn default() -> Self {
        Self {
            options: RouteOptions::default(),
            https_redirect: true,
            rewrite_prefix: None,
            backend_protocol: None,
            acme: false,
            canary: None,
        }
    }
}

impl Annotations {
    /// Reads annotations by name without prefix. Also returns a message for each invalid or unknown one.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let (mut read, mut findings) = (Self::default(), Vec::new());
        // An invalid canary must not become a regular route.
        if annotations.keys().any(|name| name.starts_with("canary-")) {
            read.canary = Some(Canary::default());
        }
        for (name, value) in annotations {
            let known = ANNOTATIONS.iter().find(|annotation| annotation.name == name);
            let problem = match known.map(|annotation| (annotation.set)(&mut read, value)) {
                Some(Ok(())) => continue,
                Some(Err(expected)) => {
                    let quoted: String = value.chars().take(QUOTED_MAX).collect();
                    format!("ignored {ANNOTATION_PREFIX}{name}: {quoted:?} is not {expected}")
                }
                None => {
                    let quoted: String = name.chars().take(QUOTED_MAX).collect();
                    format!("ignored {ANNOTATION_PREFIX}{quoted}: there is no such annotation")
                }
            };
            findings.push(problem);
        }
        (read, findings)
    }
}

fn set_request_timeout(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    let expected = "a duration between 1ms and 24h, such as 30s";
    let duration: apimachinery::time::Duration = value.parse().map_err(|_| expected)?;
    let duration = u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| expected)?;
    if duration < Duration::from_millis(1) || duration > TIMEOUT_MAX {
        return Err(expected);
    }
    read.options.request_timeout = Some(duration);
    Ok(())
}

fn set_body_size_max(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    let expected = "a number of bytes, such as 10Mi";
    let quantity: Quantity = value.parse().map_err(|_| expected)?;
    read.options.body_bytes_max = Some(u64::try_from(quantity.value()).map_err(|_| expected)?);
    Ok(())
}

fn set_https_redirect(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    read.https_redirect = value.parse().map_err(|_| "true or false")?;
    Ok(())
}

fn set_rewrite_prefix(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    let is_path = value.starts_with('/') && value.parse::<http::uri::PathAndQuery>().is_ok();
    if !is_path || value.contains(['?', '#']) {
        return Err("an absolute path, such as /");
    }
    read.rewrite_prefix = Some(value.to_owned());
    Ok(())
}

fn set_backend_protocol(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    read.backend_protocol = Some(match value {
        "HTTP" => Protocol::Http,
        "HTTPS" => Protocol::Https,
        "GRPC" => Protocol::Grpc,
        _ => return Err("HTTP, HTTPS or GRPC"),
    });
    Ok(())
}

fn set_acme(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    read.acme = value.parse().map_err(|_| "true or false")?;
    Ok(())
}

fn set_canary_weight(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    let weight = value.parse().ok().filter(|weight| *weight <= 100).ok_or("a percentage between 0 and 100")?;
    read.canary.get_or_insert_default().weight = weight;
    Ok(())
}

fn set_canary_header(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    let header = value.parse().map_err(|_| "the name of an HTTP header")?;
    read.canary.get_or_insert_default().header = Some(header);
    Ok(())
}

fn set_canary_header_value(read: &mut Annotations, value: &str) -> Result<(), &'static str> {
    http::HeaderValue::from_str(value).map_err(|_| "the value of an HTTP header")?;
    read.canary.get_or_insert_default().header_value = Some(value.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `name=value`, and returns the finding or `ok`.
    fn check(annotation: &str, expect: &str) -> Annotations {
        let (name, value) = annotation.split_once('=').unwrap();
        let (read, findings) = Annotations::read(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        let found = findings.first().map_or("ok", String::as_str);
        assert_eq!(found, expect, "{annotation}");
        read
    }

    #[test]
    fn valid_annotations_change_the_routes() {
        assert_eq!(check("request-timeout=1m30s", "ok").options.request_timeout, Some(Duration::from_secs(90)));
        assert_eq!(check("body-size-max=10Mi", "ok").options.body_bytes_max, Some(10 << 20));
        assert!(!check("https-redirect=false", "ok").https_redirect);
        assert_eq!(check("rewrite-prefix=/v1", "ok").rewrite_prefix.as_deref(), Some("/v1"));
        assert_eq!(check("backend-protocol=GRPC", "ok").backend_protocol, Some(Protocol::Grpc));
        assert!(check("acme=true", "ok").acme);
        assert_eq!(check("canary-weight=20", "ok").canary.unwrap().weight, 20);
        assert_eq!(check("canary-header=X-Canary", "ok").canary.unwrap().header.unwrap(), "x-canary");
    }

    #[test]
    fn invalid_annotations_are_reported_and_ignored() {
        let default = Annotations::default();
        for (annotation, expect) in [
            (
                "request-timeout=soon",
                r#"ignored knarr.io/request-timeout: "soon" is not a duration between 1ms and 24h, such as 30s"#,
            ),
            (
                "request-timeout=-1s",
                r#"ignored knarr.io/request-timeout: "-1s" is not a duration between 1ms and 24h, such as 30s"#,
            ),
            ("body-size-max=-1", r#"ignored knarr.io/body-size-max: "-1" is not a number of bytes, such as 10Mi"#),
            ("https-redirect=no", r#"ignored knarr.io/https-redirect: "no" is not true or false"#),
            ("rewrite-prefix=v1", r#"ignored knarr.io/rewrite-prefix: "v1" is not an absolute path, such as /"#),
            ("backend-protocol=FCGI", r#"ignored knarr.io/backend-protocol: "FCGI" is not HTTP, HTTPS or GRPC"#),
            ("configuration-snippet=x", "ignored knarr.io/configuration-snippet: there is no such annotation"),
        ] {
            assert_eq!(check(annotation, expect), default, "{annotation}");
        }
    }

    #[test]
    fn canary_with_an_invalid_weight_receives_no_requests() {
        let read = check(
            "canary-weight=101",
            r#"ignored knarr.io/canary-weight: "101" is not a percentage between 0 and 100"#,
        );
        assert_eq!(read.canary, Some(Canary::default()));
    }
}
