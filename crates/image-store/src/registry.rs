//! Client of one registry host.
//!
//! Credentials, client certificate and further headers are sent only to the host itself. A redirect to another host, and
//! a token endpoint on another host, are requested without them; the token endpoint gets the credentials that the host
//! asked to send there.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_auth::ChallengeRef;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::manifest::DOCUMENT_BYTES_MAX;
use crate::registries::{Attempt, Credentials, Host, Registries};

/// Maximum number of redirects of a request.
const REDIRECTS_MAX: usize = 5;
/// Maximum size of a token response.
const TOKEN_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of bytes of an error response that are read, and of characters that are shown.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERROR_CHARS_MAX: usize = 300;

/// A request to a registry failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("failed to set up TLS")]
    Client(#[source] reqwest::Error),
    /// The host was not reached, or the connection failed.
    #[error("{}", describe(.0))]
    Connection(#[source] reqwest::Error),
    #[error("{status}{detail}")]
    Status { status: StatusCode, detail: String },
    #[error("{status}{detail}; {advice}")]
    Unauthorized { status: StatusCode, detail: String, advice: String },
    #[error("the token endpoint {host} {problem}")]
    Token { host: String, problem: String },
    #[error("the registry redirects {0}")]
    Redirect(&'static str),
    #[error("the response is larger than {0} bytes")]
    Large(u64),
    #[error("the URL of the request is invalid")]
    Url,
    #[error("no host of the registry may resolve the tag; add `resolve` to the capabilities of one")]
    Unresolvable,
}

impl RegistryError {
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, RegistryError::Status { status: StatusCode::NOT_FOUND, .. })
    }

    pub(crate) const fn is_unauthorized(&self) -> bool {
        matches!(self, RegistryError::Unauthorized { .. })
    }
}

/// A connection to one host, for one repository and one pull.
pub(crate) struct Session {
    attempt: Attempt,
    repository: String,
    base: Url,
    /// The registry whose content the host has, if the host is not its own.
    mirrored: Option<String>,
    own: Client,
    /// For other hosts, which the host redirects to.
    foreign: Client,
    authorization: Mutex<Option<HeaderValue>>,
}

/// A response of the host itself, or of another one that it redirected to.
struct Answer {
    response: Response,
    is_own: bool,
}

impl Session {
    pub(crate) fn open(
        attempt: Attempt,
        registry: &str,
        repository: &str,
        registries: &Registries,
    ) -> Result<Session, RegistryError> {
        let host = &attempt.host;
        let scheme = if host.plain_http { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{}{}/", host.address, host.path)).map_err(|_| RegistryError::Url)?;
        let is_own = Host::of(registry).address == host.address;
        let own = client(host, registries, true)?;
        let has_identity = host.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        let foreign = if has_identity { client(host, registries, false)? } else { own.clone() };
        Ok(Session {
            repository: host.repository(repository),
            base,
            mirrored: (!is_own).then(|| registry.to_owned()),
            own,
            foreign,
            authorization: Mutex::default(),
            attempt,
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.attempt.host.address
    }

    /// Returns a manifest by tag or digest, and the digest that the registry claims.
    pub(crate) async fn manifest(
        &self,
        reference: &str,
        kinds: &[&str],
    ) -> Result<(Vec<u8>, Option<String>), RegistryError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(&kinds.join(", ")).expect("media types are ASCII"));
        let response = self.get(&format!("{}/manifests/{reference}", self.repository), headers).await?;
        let digest = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        let digest = digest.map(str::to_owned);
        Ok((read(response, DOCUMENT_BYTES_MAX).await?, digest))
    }

    /// Requests a blob from an offset. Returns the response, and whether it starts at the offset.
    pub(crate) async fn blob(&self, digest: &str, offset: u64) -> Result<(Response, bool), RegistryError> {
        let mut headers = HeaderMap::new();
        if offset > 0 {
            let range = HeaderValue::from_str(&format!("bytes={offset}-")).expect("a number is ASCII");
            headers.insert(RANGE, range);
        }
        let response = self.get(&format!("{}/blobs/{digest}", self.repository), headers).await?;
        let is_partial = response.status() == StatusCode::PARTIAL_CONTENT;
        Ok((response, is_partial))
    }

    /// Requests a path. A challenge of the registry is answered once per token.
    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response, RegistryError> {
        let mut url = self.base.join(path).map_err(|_| RegistryError::Url)?;
        if let Some(registry) = &self.mirrored {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        let presented = self.authorization.lock().await.clone();
        let answer = self.follow(url.clone(), &headers, presented.as_ref()).await?;
        if !(answer.is_own && answer.response.status() == StatusCode::UNAUTHORIZED) {
            return self.checked(answer, presented.is_some()).await;
        }
        match self.authorize(&answer.response, presented).await? {
            None => self.checked(answer, false).await,
            Some(fresh) => {
                let answer = self.follow(url, &headers, Some(&fresh)).await?;
                self.checked(answer, true).await
            }
        }
    }

    /// Requests a URL of the host, and follows redirects.
    async fn follow(
        &self,
        mut url: Url,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let mut is_own = true;
        for _ in 0..=REDIRECTS_MAX {
            // Once redirected elsewhere, a request stays without credentials.
            is_own = is_own && url.origin() == self.base.origin();
            let client = if is_own { &self.own } else { &self.foreign };
            let mut request = client.get(url.clone()).headers(headers.clone());
            if is_own {
                for (name, value) in &self.attempt.host.headers {
                    request = request.header(name, value);
                }
                if let Some(authorization) = authorization {
                    request = request.header(AUTHORIZATION, authorization);
                }
            }
            let response = request.send().await.map_err(connection)?;
            if !response.status().is_redirection() {
                return Ok(Answer { response, is_own });
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let target = location.and_then(|location| url.join(location).ok());
            let target = target.ok_or(RegistryError::Redirect("without a valid Location"))?;
            if url.scheme() == "https" && target.scheme() != "https" {
                return Err(RegistryError::Redirect("from HTTPS to an unencrypted connection"));
            }
            url = target;
        }
        Err(RegistryError::Redirect("too often"))
    }

    /// Returns a successful response, or the error of another.
    async fn checked(&self, answer: Answer, was_authorized: bool) -> Result<Response, RegistryError> {
        let Answer { response, is_own } = answer;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let detail = detail(&read(response, ERROR_BYTES_MAX).await.unwrap_or_default());
        if !(is_own && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) {
            return Err(RegistryError::Status { status, detail });
        }
        Err(RegistryError::Unauthorized { status, detail, advice: self.advice(was_authorized) })
    }

    fn advice(&self, was_authorized: bool) -> String {
        let address = self.address();
        match (&self.attempt.credentials, self.attempt.is_requested) {
            (Credentials::Anonymous, _) if self.mirrored.is_some() => {
                format!("set `auth` of {address} in registries.yaml")
            }
            (Credentials::Anonymous, _) => {
                format!(
                    "the registry requires credentials: use imagePullSecrets, or `auth` of {address} in registries.yaml"
                )
            }
            (_, true) if was_authorized => {
                "the given credentials were rejected: check the image pull secret, or --creds".to_owned()
            }
            (_, false) if was_authorized => {
                format!("the credentials were rejected: check `auth` of {address} in registries.yaml")
            }
            _ => "the registry offers no way to send the credentials".to_owned(),
        }
    }

    /// Returns an authorization for a challenge, or `None` if there is no other than the rejected one.
    async fn authorize(
        &self,
        response: &Response,
        rejected: Option<HeaderValue>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let mut current = self.authorization.lock().await;
        if *current != rejected {
            // Another request of this pull has got a newer one.
            return Ok(current.clone());
        }
        let fresh = self.answer(response).await?;
        if fresh == rejected {
            return Ok(None);
        }
        current.clone_from(&fresh);
        Ok(fresh)
    }

    async fn answer(&self, response: &Response) -> Result<Option<HeaderValue>, RegistryError> {
        if let Credentials::Token(token) = &self.attempt.credentials {
            return Ok(bearer(token));
        }
        let texts = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<ChallengeRef<'_>> =
            texts.filter_map(|text| http_auth::parse_challenges(text).ok()).flatten().collect();
        let find = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme));
        if let Some(challenge) = find("bearer") {
            return self.token(challenge).await;
        }
        match (&self.attempt.credentials, find("basic")) {
            (Credentials::Basic { user, password }, Some(_)) => Ok(basic(user, password)),
            _ => Ok(None),
        }
    }

    /// Requests a token from the endpoint of a challenge.
    async fn token(&self, challenge: &ChallengeRef<'_>) -> Result<Option<HeaderValue>, RegistryError> {
        let param = |wanted: &str| {
            let mut params = challenge.params.iter();
            params.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_unescaped())
        };
        let realm = param("realm").and_then(|realm| Url::parse(&realm).ok());
        let Some(mut realm) = realm.filter(|realm| matches!(realm.scheme(), "http" | "https")) else {
            return Err(self.token_error(self.address(), "is not a URL".to_owned()));
        };
        let host = realm.host_str().unwrap_or_default().to_owned();
        if self.base.scheme() == "https" && realm.scheme() != "https" {
            return Err(self.token_error(&host, "is not encrypted, but the registry is".to_owned()));
        }
        let scope = param("scope").filter(|scope| !scope.is_empty());
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository));
        let service = param("service");
        let client = if realm.origin() == self.base.origin() { &self.own } else { &self.foreign };
        let request = match &self.attempt.credentials {
            Credentials::Identity(token) => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair("grant_type", "refresh_token").append_pair("client_id", "knarr");
                form.append_pair("scope", &scope).append_pair("refresh_token", token);
                if let Some(service) = &service {
                    form.append_pair("service", service);
                }
                client.post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish())
            }
            credentials => {
                realm.query_pairs_mut().append_pair("scope", &scope);
                if let Some(service) = &service {
                    realm.query_pairs_mut().append_pair("service", service);
                }
                let request = client.get(realm);
                match credentials {
                    Credentials::Basic { user, password } => request.basic_auth(user, Some(password)),
                    _ => request,
                }
            }
        };
        let response = request.send().await.map_err(connection)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(self.token_error(&host, "redirects".to_owned()));
        }
        if !status.is_success() {
            let detail = detail(&read(response, ERROR_BYTES_MAX).await.unwrap_or_default());
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Err(RegistryError::Unauthorized { status, detail, advice: self.advice(true) });
            }
            return Err(self.token_error(&host, format!("answered {status}{detail}")));
        }
        let granted: Option<Granted> = serde_json::from_slice(&read(response, TOKEN_BYTES_MAX).await?).ok();
        let token = granted.and_then(|granted| granted.token.or(granted.access_token)).and_then(|token| bearer(&token));
        token.map(Some).ok_or_else(|| self.token_error(&host, "answered without a token".to_owned()))
    }

    fn token_error(&self, host: &str, problem: String) -> RegistryError {
        RegistryError::Token { host: host.to_owned(), problem }
    }
}

/// A token response.
#[derive(Deserialize)]
struct Granted {
    token: Option<String>,
    access_token: Option<String>,
}

/// Returns a client for the host itself, or for hosts that it redirects to, which do not get the client certificate.
fn client(host: &Host, registries: &Registries, is_own: bool) -> Result<Client, RegistryError> {
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("knarr/", env!("CARGO_PKG_VERSION")))
        .read_timeout(registries.stall)
        .connect_timeout(host.connect.unwrap_or(registries.connect).max(Duration::from_millis(1)));
    if let Some(tls) = &host.tls {
        if !tls.ca.is_empty() {
            builder = builder.tls_certs_merge(tls.ca.clone());
        }
        if let Some(identity) = tls.identity.clone().filter(|_| is_own) {
            builder = builder.identity(identity);
        }
        if tls.skip_verify {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
    }
    builder.build().map_err(RegistryError::Client)
}

fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    sensitive(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {token}"))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

async fn read(mut response: Response, bytes_max: u64) -> Result<Vec<u8>, RegistryError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection)? {
        if (bytes.len() + chunk.len()) as u64 > bytes_max {
            return Err(RegistryError::Large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Removes the URL, which has a signature if it is that of a redirect.
pub(crate) fn connection(error: reqwest::Error) -> RegistryError {
    RegistryError::Connection(error.without_url())
}

/// Returns the registry's own message, as one line of printable characters.
fn detail(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let first = &json["errors"][0];
    let texts = [&first["message"], &first["code"], &json["details"], &json["message"], &json["error"]];
    let Some(text) = texts.iter().find_map(|text| text.as_str().filter(|text| !text.is_empty())) else {
        return String::new();
    };
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    format!(": {}", printable.take(ERROR_CHARS_MAX).collect::<String>())
}

/// Returns the innermost cause of a failed connection, and what to do about it.
fn describe(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string();
    let advice = match text.as_str() {
        text if text.contains("UnknownIssuer") => "; set the CA of the host in registries.yaml",
        text if text.contains("InvalidContentType") => "; the host does not use TLS: use an http:// endpoint",
        text if text.contains("CertificateRequired") => "; set a client certificate in registries.yaml",
        _ => "",
    };
    format!("{text}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_registry_is_one_short_line() {
        let check = |body: &str, expect: &str| assert_eq!(detail(body.as_bytes()), expect, "{body}");
        check(r#"{"errors": [{"code": "DENIED", "message": "not\nyou"}]}"#, ": not you");
        check(r#"{"errors": [{"code": "DENIED"}]}"#, ": DENIED");
        check(r#"{"details": "incorrect username or password"}"#, ": incorrect username or password");
        check("<html>", "");
        assert_eq!(detail(format!(r#"{{"message": "{}"}}"#, "x".repeat(9999)).as_bytes()).len(), 2 + ERROR_CHARS_MAX);
    }
}
