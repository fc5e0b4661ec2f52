//! `create token`: a request for a service account token.

use std::time::Duration;

use apimachinery::{Value, value};

use super::{Error, put, texts, typed};

/// Kinds to which a token can be bound; all are in `v1`.
const BOUND_KINDS: [&str; 3] = ["Node", "Pod", "Secret"];

/// Options of `create token`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub audiences: &'a [String],
    pub duration: Duration,
    /// The flag was negative, which [`Duration`] cannot represent.
    pub negative_duration: bool,
    pub bound_kind: &'a str,
    pub bound_name: &'a str,
    pub bound_uid: &'a str,
}

/// Returns the body of a request to the `token` subresource.
pub fn token_request(options: Options<'_>) -> Result<Value, Error> {
    validate(options)?;
    let mut request = value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    if !options.audiences.is_empty() {
        put(&mut request, &["spec", "audiences"], texts(options.audiences));
    }
    if !options.duration.is_zero() {
        let seconds = i64::try_from(options.duration.as_secs()).unwrap_or(i64::MAX);
        put(&mut request, &["spec", "expirationSeconds"], seconds);
    }
    if !options.bound_kind.is_empty() {
        let bound = value!({
            "kind": (options.bound_kind), "apiVersion": "v1", "name": (options.bound_name), "uid": (options.bound_uid)
        });
        put(&mut request, &["spec", "boundObjectRef"], bound);
    }
    Ok(typed(request))
}

fn validate(options: Options<'_>) -> Result<(), Error> {
    let fault = if options.name.is_empty() {
        "service account name is required".to_owned()
    } else if options.namespace.is_empty() {
        "--namespace is required".to_owned()
    } else if options.negative_duration {
        "--duration must be greater than or equal to 0".to_owned()
    } else if options.duration.subsec_nanos() != 0 {
        "--duration cannot be expressed in units less than seconds".to_owned()
    } else if options.audiences.iter().any(String::is_empty) {
        "--audience must not be an empty string".to_owned()
    } else if options.bound_kind.is_empty() && !options.bound_name.is_empty() {
        "--bound-object-name can only be set if --bound-object-kind is provided".to_owned()
    } else if options.bound_kind.is_empty() && !options.bound_uid.is_empty() {
        "--bound-object-uid can only be set if --bound-object-kind is provided".to_owned()
    } else if !options.bound_kind.is_empty() && !BOUND_KINDS.contains(&options.bound_kind) {
        format!("supported --bound-object-kind values are {}", BOUND_KINDS.join(", "))
    } else if !options.bound_kind.is_empty() && options.bound_name.is_empty() {
        "--bound-object-name is required if --bound-object-kind is provided".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(fault))
}
