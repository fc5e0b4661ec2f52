//! OpenID discovery document and key set of the service account issuer.

use std::collections::BTreeSet;

use apimachinery::{Value, value};

use crate::keys::PublicKey;

pub const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
pub const KEYS_PATH: &str = "/openid/v1/jwks";
/// Cache lifetime of both documents.
pub const MAX_AGE_SECONDS: u32 = 3600;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("empty issuer URL")]
    NoIssuer,
    #[error("issuer URL must use https scheme, got: {0}")]
    IssuerScheme(String),
    #[error("issuer URL may not include a query, got: {0}")]
    IssuerQuery(String),
    #[error("issuer URL may not include a fragment, got: {0}")]
    IssuerFragment(String),
    #[error("either the JWKS URI or the default external address, or both, must be set")]
    NoKeysUri,
    #[error("jwksURI requires https scheme, parsed as: {0}")]
    KeysUriScheme(String),
    #[error("no keys provided for validating keyset")]
    NoKeys,
}

/// Returns the discovery document of `issuer`. The key set is at `keys_uri`, or if that is empty at the server's
/// external address.
pub fn discovery(issuer: &str, keys_uri: &str, external_address: &str, keys: &[PublicKey]) -> Result<Value, Error> {
    check_issuer(issuer)?;
    let keys_uri = match (keys_uri, external_address) {
        ("", "") => return Err(Error::NoKeysUri),
        ("", address) => format!("https://{address}{KEYS_PATH}"),
        (uri, _) if uri.starts_with("https://") => uri.to_owned(),
        (uri, _) => return Err(Error::KeysUriScheme(uri.to_owned())),
    };
    if keys.is_empty() {
        return Err(Error::NoKeys);
    }
    let algorithms: BTreeSet<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
    Ok(value!({
        "issuer": issuer,
        "jwks_uri": keys_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": (Value::Array(algorithms.into_iter().map(Value::from).collect())),
    }))
}

fn check_issuer(issuer: &str) -> Result<(), Error> {
    let owned = || issuer.to_owned();
    match issuer {
        "" => Err(Error::NoIssuer),
        _ if !issuer.starts_with("https://") => Err(Error::IssuerScheme(owned())),
        _ if issuer.split('#').next().is_some_and(|head| head.contains('?')) => Err(Error::IssuerQuery(owned())),
        _ if issuer.contains('#') => Err(Error::IssuerFragment(owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::{p256_pem, rsa_pem};

    #[test]
    fn discovery_document_has_issuer_and_key_set() {
        let keys: Vec<_> = [p256_pem().as_str(), rsa_pem(), rsa_pem()]
            .into_iter()
            .flat_map(|pem| PublicKey::all_from_pem(pem).unwrap())
            .collect();
        let expect = value!({
            "issuer": "https://kubernetes.default.svc",
            "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256", "RS256"],
        });
        assert_eq!(discovery("https://kubernetes.default.svc", "", "10.0.0.1:6443", &keys), Ok(expect));
        let elsewhere = discovery("https://a", "https://b/keys", "c", &keys).unwrap();
        assert_eq!(elsewhere.str_at(&["jwks_uri"]), Some("https://b/keys"));
        let error = |issuer, uri, address| discovery(issuer, uri, address, &keys).unwrap_err();
        assert_eq!(error("", "", "c"), Error::NoIssuer);
        assert_eq!(error("http://a", "", "c"), Error::IssuerScheme("http://a".into()));
        assert_eq!(error("https://a?b", "", "c"), Error::IssuerQuery("https://a?b".into()));
        assert_eq!(error("https://a#b?", "", "c"), Error::IssuerFragment("https://a#b?".into()));
        assert_eq!(error("https://a", "", ""), Error::NoKeysUri);
        assert_eq!(error("https://a", "http://b", ""), Error::KeysUriScheme("http://b".into()));
        assert_eq!(discovery("https://a", "", "c", &[]), Err(Error::NoKeys));
    }
}
