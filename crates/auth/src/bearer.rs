//! Bearer tokens in a request: the Authorization header, or a WebSocket subprotocol for browsers.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of the WebSocket subprotocol that carries a token.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Warning for a header with an extra space before the token, which is ignored.
pub const EXTRA_SPACE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("multiple base64.bearer.authorization tokens specified")]
    MultipleTokens,
    /// The token is not UTF-8 text in base64url.
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
    /// The token is the only subprotocol.
    #[error("missing additional subprotocol")]
    NoOtherSubprotocol,
}

/// Returns the token of an `Authorization` header.
pub fn from_header(authorization: &str) -> Option<&str> {
    let mut parts = authorization.trim().splitn(3, ' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

/// Whether the header is ignored because of an extra space before the token.
pub fn has_extra_space(authorization: &str) -> bool {
    let mut parts = authorization.trim().splitn(3, ' ');
    parts.next().is_some_and(|word| word.eq_ignore_ascii_case("bearer"))
        && parts.next() == Some("")
        && parts.next().is_some()
}

/// Returns the token among the WebSocket subprotocols, and the other subprotocols. `None` if there is no token.
pub fn from_protocols(protocols: &str) -> Result<Option<(String, Vec<&str>)>, Error> {
    let is_token = |protocol: &&str| protocol.starts_with(PROTOCOL_PREFIX);
    let (tokens, others): (Vec<&str>, Vec<&str>) = protocols.split(',').map(str::trim).partition(is_token);
    let encoded = match tokens.as_slice() {
        [] => return Ok(None),
        [one] => &one[PROTOCOL_PREFIX.len()..],
        _ => return Err(Error::MultipleTokens),
    };
    let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let token = token.ok_or(Error::Encoding)?;
    // If the token were the only subprotocol, the response would echo it as the selected one.
    if others.is_empty() { Err(Error::NoOtherSubprotocol) } else { Ok(Some((token, others))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_header_is_parsed() {
        let check = |header: &str, expect: Option<&str>| assert_eq!(from_header(header), expect, "{header:?}");
        check("Bearer abc", Some("abc"));
        check("bearer abc rest", Some("abc"));
        check(" Bearer abc ", Some("abc"));
        check("Bearer", None);
        check("Bearer  abc", None);
        check("Basic abc", None);
        check("", None);
        assert!(has_extra_space("Bearer  abc") && !has_extra_space("Bearer abc") && !has_extra_space("Basic  abc"));
    }

    #[test]
    fn websocket_subprotocol_carries_the_token() {
        let token = format!("{PROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("abc"));
        let both = format!("v5.channel.k8s.io, {token}");
        assert_eq!(from_protocols(&both), Ok(Some(("abc".to_owned(), vec!["v5.channel.k8s.io"]))));
        assert_eq!(from_protocols("v5.channel.k8s.io"), Ok(None));
        assert_eq!(from_protocols(&token), Err(Error::NoOtherSubprotocol));
        assert_eq!(from_protocols(&format!("{token},{token},a")), Err(Error::MultipleTokens));
        assert_eq!(from_protocols(&format!("{PROTOCOL_PREFIX}!,a")), Err(Error::Encoding));
    }
}
