//! TokenReview, served by this server and sent to webhooks, and SelfSubjectReview.

use apimachinery::status::Status;
use apimachinery::time::Time;
use apimachinery::{Object, Str, Value, value};

use crate::User;

/// A parsed TokenReview.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenReviewSpec {
    pub token: String,
    /// The requested audiences; the server's own if the review has none.
    pub audiences: Vec<Str>,
}

/// A successful authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationResponse {
    pub user: User,
    /// The requested audiences that the token has.
    pub audiences: Vec<Str>,
}

/// A webhook's TokenReview is unusable or has an error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the webhook's response is not a TokenReview")]
    Kind,
    /// The error in the response's status.
    #[error("{0}")]
    Rejected(String),
}

/// Parses a TokenReview.
pub fn read(review: &Value, own_audiences: &[Str]) -> Result<TokenReviewSpec, Status> {
    let token = review.text_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(&review["spec"]["audiences"]);
    let audiences = if audiences.is_empty() { own_audiences.to_vec() } else { audiences };
    Ok(TokenReviewSpec { token: token.to_owned(), audiences })
}

/// Returns the status of a review for a result.
pub fn status(
    request: &TokenReviewSpec,
    found: Result<Option<AuthenticationResponse>, String>,
) -> Result<Value, Status> {
    let mut status = Object::new();
    status.insert("user", Value::object());
    match found {
        Ok(None) => {}
        Err(error) => drop(status.insert("error", error)),
        Ok(Some(response)) => {
            let shared = request.audiences.iter().any(|audience| response.audiences.contains(audience));
            // An authenticator that ignores audiences would make a token valid for every audience.
            if !request.audiences.is_empty() && !shared {
                return Err(Status::internal_error("error validating audiences"));
            }
            status.insert("authenticated", true);
            status.insert("user", response.user.to_user_info());
            if !response.audiences.is_empty() {
                status.insert("audiences", Value::Array(response.audiences.into_iter().map(Value::String).collect()));
            }
        }
    }
    Ok(Value::Object(status))
}

/// Returns the TokenReview for a webhook.
pub fn request(api_version: &str, token: &str, audiences: &[Str]) -> Value {
    let mut spec: Object = [("token", token)].into_iter().collect();
    if !audiences.is_empty() {
        spec.insert("audiences", Value::Array(audiences.iter().cloned().map(Value::String).collect()));
    }
    value!({"apiVersion": api_version, "kind": "TokenReview", "metadata": {}, "spec": spec, "status": {"user": {}}})
}

/// Parses a webhook's response. A webhook without audience support is taken to authenticate for the server's own
/// audiences.
pub fn read_response(
    review: &Value,
    requested: &[Str],
    own_audiences: &[Str],
) -> Result<Option<AuthenticationResponse>, Error> {
    let is_review = review.str_at(&["kind"]) == Some("TokenReview");
    let status = review.get("status").filter(|_| is_review).ok_or(Error::Kind)?;
    let mut audiences = Vec::new();
    if !requested.is_empty() {
        let status_audiences = texts(&status["audiences"]);
        let status_audiences = if status_audiences.is_empty() { own_audiences } else { status_audiences.as_slice() };
        audiences = requested.iter().filter(|audience| status_audiences.contains(audience)).cloned().collect();
        if audiences.is_empty() {
            return Ok(None);
        }
    }
    if status.get("authenticated").and_then(Value::as_bool) == Some(true) {
        return Ok(Some(AuthenticationResponse { user: User::from_user_info(&status["user"]), audiences }));
    }
    match status.text_at(&["error"]) {
        "" => Ok(None),
        error => Err(Error::Rejected(error.to_owned())),
    }
}

/// Returns the response to a SelfSubjectReview.
pub fn self_subject_review(api_version: &str, user: &User, now: Time) -> Value {
    value!({
        "apiVersion": api_version,
        "kind": "SelfSubjectReview",
        "metadata": {"creationTimestamp": (now.to_string())},
        "status": {"userInfo": (user.to_user_info())},
    })
}

fn texts(list: &Value) -> Vec<Str> {
    list.as_array().unwrap_or_default().iter().filter_map(Value::as_str).map(Str::from).collect()
}

/// Prints the audiences and never the token.
impl std::fmt::Debug for TokenReviewSpec {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Asked({:?})", self.audiences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review_request(audiences: &[&str]) -> TokenReviewSpec {
        let audiences: Vec<Value> = audiences.iter().map(|audience| Value::from(*audience)).collect();
        read(&value!({"spec": {"token": "t", "audiences": audiences}}), &["own".into()]).unwrap()
    }

    fn found(audiences: &[&str]) -> AuthenticationResponse {
        let audiences = audiences.iter().map(|audience| Str::from(*audience)).collect();
        AuthenticationResponse { user: User::authenticated("jane", []), audiences }
    }

    #[test]
    fn review_requires_a_token() {
        let error = read(&value!({"spec": {}}), &[]).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, "token is required for TokenReview in authentication"));
        assert_eq!(review_request(&[]).audiences, ["own"]);
        assert_eq!(review_request(&["a"]).audiences, ["a"]);
    }

    #[test]
    fn status_has_the_authenticated_user() {
        let user = value!({"username": "jane", "groups": ["system:authenticated"]});
        let expect = value!({"authenticated": true, "user": user, "audiences": ["a"]});
        assert_eq!(status(&review_request(&["a"]), Ok(Some(found(&["a"])))), Ok(expect));
        assert_eq!(status(&review_request(&[]), Ok(None)), Ok(value!({"user": {}})));
        let expected = value!({"user": {}, "error": "invalid bearer token"});
        assert_eq!(status(&review_request(&[]), Err("invalid bearer token".into())), Ok(expected));
        assert_eq!(status(&review_request(&["a"]), Ok(Some(found(&["b"])))).unwrap_err().code, 500);
    }

    #[test]
    fn webhook_response_is_parsed() {
        let check = |state: Value, requested: &[Str], expect: Result<Option<AuthenticationResponse>, Error>| {
            let review = value!({"kind": "TokenReview", "status": state});
            assert_eq!(read_response(&review, requested, &["own".into()]), expect);
        };
        let user = value!({"username": "jane", "groups": ["system:authenticated"]});
        let good = value!({"authenticated": true, "user": (user.clone()), "audiences": ["a", "b"]});
        check(good.clone(), &["a".into(), "c".into()], Ok(Some(found(&["a"]))));
        check(good.clone(), &["c".into()], Ok(None));
        check(good, &[], Ok(Some(found(&[]))));
        let silent = value!({"authenticated": true, "user": user});
        check(silent.clone(), &["own".into()], Ok(Some(found(&["own"]))));
        check(silent, &["other".into()], Ok(None));
        check(value!({"error": "expired"}), &[], Err(Error::Rejected("expired".into())));
        check(value!({}), &[], Ok(None));
        assert_eq!(read_response(&value!({"kind": "Status"}), &[], &[]), Err(Error::Kind));
    }

    #[test]
    fn token_is_only_in_the_spec() {
        let sent = request("authentication.k8s.io/v1", "t", &["a".into()]);
        assert_eq!(sent["spec"], value!({"token": "t", "audiences": ["a"]}));
        assert_eq!(format!("{:?}", review_request(&["a"])), r#"Asked(["a"])"#);
    }
}
