//! JSON Web Keys: what a relying party needs to check our tokens, and what we need to check others'.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::{Str, Value, json, value};

use super::{Curve, Error, PublicKey};

/// Public keys with their names, as an issuer publishes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(pub Vec<(Str, PublicKey)>);

impl KeySet {
    /// Reads a JSON Web Key Set. Keys of kinds that no token of ours is signed with are passed over.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let document = json::parse(bytes).map_err(|_| Error::KeySet)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(Error::KeySet)?;
        Ok(Self(keys.iter().filter_map(read).collect()))
    }

    /// The keys, each under the name derived from it.
    pub fn of(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self(keys.into_iter().map(|key| (key.id(), key)).collect())
    }

    /// The keys that may have signed a token whose header names `id`; all of them if it names none.
    pub fn candidates(&self, id: &str) -> impl Iterator<Item = &PublicKey> {
        self.0.iter().filter(move |(have, _)| id.is_empty() || have == id).map(|(_, key)| key)
    }
}

/// A key as it stands in a key set.
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

/// A key set of these keys.
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
    Some((key.str_at(&["kid"]).unwrap_or_default().into(), public))
}
