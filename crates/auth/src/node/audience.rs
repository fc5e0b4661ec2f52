//! For whom a kubelet may ask tokens of its pods' service accounts: for those that the pods themselves name.

use machinery::{Str, Value};

use crate::User;
use crate::attributes::{About, OwnedResource, Question};

/// The verb that lets a kubelet ask for other audiences.
pub const VERB: &str = "request-serviceaccounts-token-audience";

/// A request for more than one audience.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("node may only request 0 or 1 audiences")]
pub struct TooMany;

/// The audience that a TokenRequest asks for; empty for the server's own.
pub fn requested(request: &Value) -> Result<&str, TooMany> {
    match request.at(&["spec", "audiences"]).and_then(Value::as_array).unwrap_or_default() {
        [] => Ok(""),
        [one] => Ok(one.as_str().unwrap_or_default()),
        _ => Err(TooMany),
    }
}

/// Whether a volume of the pod holds a token for the audience.
pub fn is_projected(pod: &Value, audience: &str) -> bool {
    volumes(pod).any(|volume| {
        let sources = volume.at(&["projected", "sources"]).and_then(Value::as_array).unwrap_or_default();
        let mut tokens =
            sources.iter().filter_map(|source| source.get("serviceAccountToken").filter(|token| !token.is_null()));
        tokens.any(|token| token.str_at(&["audience"]).unwrap_or_default() == audience)
    })
}

/// The CSI drivers that the pod names itself; each may ask for tokens of its pods.
pub fn drivers(pod: &Value) -> impl Iterator<Item = &str> {
    volumes(pod).filter_map(|volume| volume.str_at(&["csi", "driver"]))
}

/// Whether a CSIDriver asks for tokens for the audience.
pub fn is_requested_by(driver: &Value, audience: &str) -> bool {
    let requests = driver.at(&["spec", "tokenRequests"]).and_then(Value::as_array).unwrap_or_default();
    requests.iter().any(|request| request.str_at(&["audience"]).unwrap_or_default() == audience)
}

/// What the authorizers are asked if the pod does not name the audience.
pub fn question(user: &User, namespace: &str, account: &str, audience: &str) -> Question {
    let about = About::Resource(OwnedResource {
        version: "v1".into(),
        resource: audience.into(),
        namespace: namespace.into(),
        name: account.into(),
        ..OwnedResource::default()
    });
    Question { user: user.clone(), verb: Str::from(VERB), about }
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap_or_default().iter()
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn a_pod_names_its_audiences_in_volumes_and_by_drivers() {
        let pod = value!({"spec": {"volumes": [
            {"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}, {"serviceAccountToken": {}}]}},
            {"csi": {"driver": "secrets.example"}},
        ]}});
        assert!(is_projected(&pod, "vault") && is_projected(&pod, ""));
        assert!(!is_projected(&pod, "other"));
        assert!(!is_projected(&value!({}), ""));
        assert_eq!(drivers(&pod).collect::<Vec<_>>(), ["secrets.example"]);
        let driver = value!({"spec": {"tokenRequests": [{"audience": "gcp"}]}});
        assert!(is_requested_by(&driver, "gcp") && !is_requested_by(&driver, ""));
    }

    #[test]
    fn one_audience_is_asked_for_at_a_time() {
        let check =
            |audiences: Value, expect| assert_eq!(requested(&value!({"spec": {"audiences": audiences}})), expect);
        check(Value::Null, Ok(""));
        check(value!(["a"]), Ok("a"));
        check(value!(["a", "b"]), Err(TooMany));
    }
}
