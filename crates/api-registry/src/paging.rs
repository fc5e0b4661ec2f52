//! Continue tokens of paginated lists.

use apimachinery::status::Status;
use apimachinery::{Object, Value, json};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The position at which a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    /// The revision of the list; negative if the rest may be read at the latest revision.
    pub revision: i64,
    /// The first key of the rest, below the kind's prefix.
    pub start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

impl Continue {
    /// Parses a token.
    pub fn parse(token: &str) -> Result<Self, Status> {
        let bad_token = |message: String| Status::bad_request(format!("invalid continue token: {message}"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            bad_token(format!(
                "continue key is not valid: illegal base64 data at input byte {}",
                position(&error, token)
            ))
        })?;
        let value = json::parse(&bytes).map_err(|error| bad_token(format!("continue key is not valid: {error}")))?;
        if value.str_at(&["v"]) != Some(VERSION) {
            let version = value.text_at(&["v"]);
            return Err(bad_token(format!(
                "continue key is not valid: server does not recognize this encoded version \"{version}\""
            )));
        }
        let revision = value.get("rv").and_then(Value::as_int).unwrap_or_default();
        if revision == 0 {
            return Err(bad_token(
                "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into(),
            ));
        }
        let start = value.text_at(&["start"]).to_owned();
        if start.is_empty() || start.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(bad_token(
                "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)".into(),
            ));
        }
        Ok(Self { revision, start })
    }

    /// Encodes a token.
    pub fn token(&self) -> String {
        let mut fields = Object::new();
        fields.insert("v", VERSION);
        fields.insert("rv", self.revision);
        fields.insert("start", self.start.as_str());
        BASE64_URL_SAFE_NO_PAD.encode(json::to_vec(&Value::Object(fields)))
    }
}

/// Returns the position that Go's base64 decoder reports for an error.
fn position(error: &base64::DecodeError, token: &str) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        // Go reports the start of the last, incomplete quantum.
        _ => token.len() / 4 * 4,
    }
}

/// Returns the 410 for a compacted revision, with a token to continue at the latest one.
pub fn expired(start: &str) -> Status {
    let token = Continue { revision: -1, start: start.to_owned() }.token();
    let status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    Status { continue_token: token, ..status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_token_round_trips() {
        let one = Continue { revision: 7, start: "default/a\u{0}".to_owned() };
        assert_eq!(Continue::parse(&one.token()), Ok(one));
        let error = Continue::parse("bogus").unwrap_err().message;
        assert_eq!(error, "invalid continue token: continue key is not valid: illegal base64 data at input byte 4");
    }
}
