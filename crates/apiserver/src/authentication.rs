//! Who asks: each way of proving it is asked in turn.

use std::collections::BTreeMap;

use auth::User;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use machinery::Str;
use machinery::status::Status;

/// The ways of proving who one is that are configured.
#[derive(Debug, Default)]
pub struct Authenticators {
    /// Static tokens (`--token-auth-file`), and the one that the server gives itself.
    pub tokens: BTreeMap<Str, User>,
    /// Whether those who prove nothing are let through to authorization.
    pub anonymous: bool,
}

/// Who a connection's certificate says is at its other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whom a verified client certificate names.
    pub user: Option<User>,
}

impl Authenticators {
    /// Who asks. A wrong proof is refused; none at all is anonymous, where that is allowed.
    pub fn identify(&self, headers: &HeaderMap, peer: &Peer) -> Result<User, Status> {
        if let Some(user) = &peer.user {
            return Ok(user.clone());
        }
        match bearer(headers) {
            Some(token) => self.by_token(token).ok_or_else(unauthorized),
            None if headers.contains_key(AUTHORIZATION) => Err(unauthorized()),
            None if self.anonymous => Ok(User::anonymous()),
            None => Err(unauthorized()),
        }
    }

    fn by_token(&self, token: &str) -> Option<User> {
        let mut user = self.tokens.get(token)?.clone();
        user.join(auth::user::AUTHENTICATED);
        Some(user)
    }
}

fn unauthorized() -> Status {
    Status::unauthorized("Unauthorized")
}

/// The token of an `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
