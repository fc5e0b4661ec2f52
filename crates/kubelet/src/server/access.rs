//! Delegated authentication and authorization of the kubelet server: TokenReview and SubjectAccessReview.

use apimachinery::value;
use auth::User;
use client::Client;
use component_base::reviews::Reviews;
use http::{HeaderMap, Method, header};

use crate::config::Config;

/// The result of authentication.
pub(super) enum Authentication {
    User(User),
    /// The request is rejected.
    Rejected,
}

/// Authenticates and authorizes requests.
pub(super) struct Access {
    reviews: Reviews,
    node: String,
    anonymous: bool,
    tokens: bool,
    authorize: bool,
}

/// Returns the verb of a request. Exec, attach, port-forward and run are `create`, also for WebSocket requests, which
/// use GET: permission to read from a node must not allow running commands on it.
// DEVIATION: exec, attach and port-forward by GET need the verb `create` of nodes/proxy; upstream's kubelet accepts
// `get` for them.
pub(super) fn verb(method: &Method, parts: &[String]) -> &'static str {
    let first = parts.first().map_or("", String::as_str);
    if matches!(first, "exec" | "attach" | "run" | "portForward") {
        return "create";
    }
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Returns the node subresources of a path; permission for one of them suffices.
pub(super) fn subresources(parts: &[String]) -> Vec<&'static str> {
    let first = parts.first().map_or("", String::as_str);
    match first {
        "stats" => vec!["stats"],
        "metrics" => vec!["metrics"],
        "logs" => vec!["log"],
        "checkpoint" => vec!["checkpoint"],
        "healthz" | "livez" | "readyz" => vec!["healthz", "proxy"],
        "pods" | "runningpods" => vec!["pods", "proxy"],
        "configz" => vec!["configz", "proxy"],
        _ => vec!["proxy"],
    }
}

impl Access {
    /// Creates the authenticator and authorizer of a configuration.
    pub(super) fn new(config: &Config, client: Client) -> Self {
        Self {
            reviews: Reviews::new(client),
            node: config.node_name.clone(),
            anonymous: config.anonymous,
            tokens: config.token_webhook,
            authorize: config.authorization_webhook,
        }
    }

    /// Authenticates a request by certificate, by token, or as anonymous.
    pub(super) async fn authenticate(&self, headers: &HeaderMap, by_certificate: Option<User>) -> Authentication {
        if let Some(user) = by_certificate {
            return Authentication::User(user);
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|text| text.strip_prefix("Bearer ")).filter(|_| self.tokens);
        match token {
            Some(token) => self.reviews.who(token).await.map_or(Authentication::Rejected, Authentication::User),
            None if self.anonymous => Authentication::User(User::anonymous()),
            None => Authentication::Rejected,
        }
    }

    /// Fails unless the user may apply the verb to one of the node's subresources.
    pub(super) async fn authorize(
        &self,
        user: &User,
        verb: &str,
        subresources: Vec<&'static str>,
    ) -> Result<(), String> {
        if !self.authorize {
            return Ok(());
        }
        let mut last = Ok(());
        for subresource in subresources {
            last = self.review_access(user, verb, subresource).await;
            if last.is_ok() {
                break;
            }
        }
        last
    }

    async fn review_access(&self, user: &User, verb: &str, subresource: &str) -> Result<(), String> {
        let about = value!({"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource,
            "name": (self.node.as_str())});
        let allowed = self.reviews.may_use(user, about).await;
        if allowed.map_err(|error| format!("Authorization error ({error})"))? {
            return Ok(());
        }
        Err(format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource}])", user.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_needs_the_create_verb_for_every_method() {
        let check = |method: Method, path: &str, expect: &str| {
            let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
            assert_eq!(verb(&method, &parts), expect, "{method} {path}");
        };
        for path in ["/exec/n/p/c", "/attach/n/p/u/c", "/run/n/p/c", "/portForward/n/p"] {
            for method in [Method::GET, Method::POST, Method::HEAD, Method::DELETE] {
                check(method, path, "create");
            }
        }
        check(Method::GET, "/containerLogs/n/p/c", "get");
        check(Method::GET, "/pods", "get");
        check(Method::POST, "/checkpoint/n/p/c", "create");
        check(Method::PUT, "/x", "update");
        check(Method::GET, "/", "get");
    }
}
