//! JSON Web Key Sets: published for this cluster's tokens, and parsed for other issuers' tokens.

use apimachinery::{Str, Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Curve, Error, PublicKey};

/// Public keys with their key IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(pub Vec<(Str, PublicKey)>);

impl KeySet {
    /// Parses a JSON Web Key Set. Keys of unsupported types are skipped.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let document = json::parse(bytes).map_err(|_| Error::KeySet)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(Error::KeySet)?;
        Ok(Self(keys.iter().filter_map(read).collect()))
    }

    /// Returns a key set with the keys' derived IDs.
    pub fn of(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self(keys.into_iter().map(|key| (key.id(), key)).collect())
    }

    /// Returns the keys with key ID `id`; all keys if `id` is empty.
    pub fn candidates(&self, id: &str) -> impl Iterator<Item = &PublicKey> {
        self.0.iter().filter(move |(have, _)| id.is_empty() || have == id).map(|(_, key)| key)
    }
}

/// Returns the JSON Web Key of a public key.
pub fn jwk(key: &PublicKey) -> Value {
    let (id, algorithm) = (key.id(), key.algorithm().name());
    let text = |bytes: &[u8]| Value::from(URL_SAFE_NO_PAD.encode(bytes));
    match key {
        PublicKey::Rsa { modulus, exponent } => value!({
            "use": "sig", "kty": "RSA", "kid": id, "alg": algorithm, "n": (text(modulus)), "e": (text(exponent)),
        }),
        PublicKey::Elliptic { curve, point } => {
            let (x, y) = point[1..].split_at(curve.coordinate_len());
            value!({
                "use": "sig", "kty": "EC", "kid": id, "crv": (curve.name()), "alg": algorithm,
                "x": (text(x)), "y": (text(y)),
            })
        }
    }
}

/// Returns a key set of the keys.
pub fn jwks(keys: &[PublicKey]) -> Value {
    value!({"keys": (Value::Array(keys.iter().map(jwk).collect()))})
}

fn read(key: &Value) -> Option<(Str, PublicKey)> {
    let bytes = |field: &str| URL_SAFE_NO_PAD.decode(key.str_at(&[field])?.trim_end_matches('=')).ok();
    let number = |field: &str| {
        let bytes = bytes(field)?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        (zeros < bytes.len()).then(|| bytes[zeros..].to_vec())
    };
    let public = match key.str_at(&["kty"])? {
        "RSA" => PublicKey::Rsa { modulus: number("n")?, exponent: number("e")? },
        "EC" => {
            let name = key.str_at(&["crv"])?;
            let curve = [Curve::P256, Curve::P384, Curve::P521].into_iter().find(|curve| curve.name() == name)?;
            let (x, y) = (bytes("x")?, bytes("y")?);
            if x.len() != curve.coordinate_len() || y.len() != curve.coordinate_len() {
                return None;
            }
            PublicKey::Elliptic { curve, point: [&[4], x.as_slice(), y.as_slice()].concat() }
        }
        _ => return None,
    };
    Some((key.text_at(&["kid"]).into(), public))
}
