//! The failure of a command: kubectl's message and exit code.

use std::error::Error;
use std::fmt;
use std::io;

use apimachinery::Resource;
use apimachinery::status::{Reason, Status};
use client::transport::CredentialError;
use client::{ListOptions, ResponseError, TargetError, TransportError};

use crate::print::format::PrintError;

/// The message of a request for an object without a name.
pub const EMPTY_NAME: &str = "resource name may not be empty";

/// The failure of a command. `Display` formats the text for standard error.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The message without the prefix `error: `.
    pub message: String,
    /// The exit code.
    pub code: u8,
    /// Whether a failure that is printed alone starts with `error: `.
    prefixed: bool,
    status: Option<Box<Status>>,
    /// The request that did not reach the server, with the reason, as it appears inside of another message.
    request: Option<Box<str>>,
}

impl Failure {
    /// Returns a failure that is printed as `error: MESSAGE`.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, prefixed: true, status: None, request: None }
    }

    /// Returns a failure whose message is printed unchanged.
    pub fn plain(message: impl Into<String>) -> Self {
        Self { prefixed: false, ..Self::new(message) }
    }

    /// Returns a failure of wrong usage, which refers to the command's help. `path` is `kubectl get`.
    pub fn usage(path: &str, message: impl fmt::Display) -> Self {
        Self::new(format!("{message}\nSee '{path} -h' for help and examples"))
    }

    /// Returns a failure without a message.
    pub fn silent(code: u8) -> Self {
        Self { code, ..Self::plain("") }
    }

    /// Returns a failure with a server's Status.
    pub fn from_status(status: Status) -> Self {
        let message = status_message(&status);
        Self { status: Some(Box::new(status)), ..Self::plain(message) }
    }

    /// Combines failures; `Ok` if there are none. Several are printed one per line.
    pub fn all(mut failures: Vec<Self>) -> Result<(), Self> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.swap_remove(0)),
            _ => {
                let lines: Vec<String> = failures.iter().map(Self::line).collect();
                Err(Self::plain(lines.join("\n")))
            }
        }
    }

    /// Returns the message of one of several failures, in which the causes of a rejection are not listed.
    fn line(&self) -> String {
        match self.status() {
            Some(status) if status.is(&Reason::Invalid) => format!("Error from server (Invalid): {}", status.message),
            _ => self.message.clone(),
        }
    }

    /// Combines failures of one operation into one, in which several are listed in brackets.
    pub fn list(mut failures: Vec<Self>) -> Option<Self> {
        if failures.len() < 2 {
            return failures.pop();
        }
        let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        Some(Self::plain(format!("[{}]", messages.join(", "))))
    }

    #[must_use]
    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Adds the operation and the file: `error when creating "pod.yaml": …`.
    #[must_use]
    pub fn when(self, verb: &str, source: &str) -> Self {
        if source.is_empty() {
            return self;
        }
        match self.status {
            Some(mut status) => {
                status.message = format!("error when {verb} {source:?}: {}", status.message);
                Self { code: self.code, ..Self::from_status(*status) }
            }
            None => Self::new(format!("error when {verb} {source:?}: {}", self.cause())).with_code(self.code),
        }
    }

    // DEVIATION: with validation, upstream's `kubectl apply`, `create` and `replace` name the download of OpenAPI as
    // the request that did not reach the server. Here it is that of discovery, as without validation.
    /// Adds the file of an object to a failure to reach the server for the type of the object.
    #[must_use]
    pub fn recognizing(self, source: &str) -> Self {
        match &self.request {
            Some(request) => Self::new(format!("unable to recognize {source:?}: {request}")).with_code(self.code),
            None => self,
        }
    }

    /// Returns the message as it appears inside of another one.
    pub fn cause(&self) -> &str {
        match (&self.status, &self.request) {
            (Some(status), _) => &status.message,
            (None, Some(request)) => request,
            (None, None) => &self.message,
        }
    }

    /// Adds the resource and the selectors to the rejection of a list request.
    #[must_use]
    pub fn listing(self, resource: &Resource, options: &ListOptions) -> Self {
        let Some(mut status) = self.status.clone() else { return self };
        if !status.is(&Reason::BadRequest) && !status.is(&Reason::NotFound) {
            return self;
        }
        let subject = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
        let (labels, fields) = (&options.label_selector, &options.field_selector);
        status.message = if labels.is_empty() && fields.is_empty() {
            format!("Unable to list {subject:?}: {}", status.message)
        } else {
            format!(
                "Unable to find {subject:?} that match label selector {labels:?}, field selector {fields:?}: {}",
                status.message
            )
        };
        Self { code: self.code, ..Self::from_status(*status) }
    }

    /// Returns the server's Status, if the server rejected a request.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_deref()
    }

    /// Returns the failure to connect to the server because of a problem.
    fn connecting(request: Option<String>, problem: &str) -> Self {
        Self::plain(format!("Unable to connect to the server: {problem}")).of_request(request, problem)
    }

    /// Adds the request that failed because of a problem.
    fn of_request(self, request: Option<String>, problem: &str) -> Self {
        Self { request: request.map(|request| format!("{request}: {problem}").into()), ..self }
    }

    pub fn is(&self, reason: &Reason) -> bool {
        self.status().is_some_and(|status| status.is(reason))
    }

    pub fn is_not_found(&self) -> bool {
        self.is(&Reason::NotFound)
    }

    pub fn is_conflict(&self) -> bool {
        self.is(&Reason::Conflict)
    }

    pub fn is_already_exists(&self) -> bool {
        self.is(&Reason::AlreadyExists)
    }
}

/// The text on standard error, without the final newline.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefixed && !self.message.starts_with("error: ") {
            out.write_str("error: ")?;
        }
        // The message is printed with a line break. Some of kubectl's end with more.
        out.write_str(self.message.strip_suffix('\n').unwrap_or(&self.message))
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Status(status) => Self::from_status(*status),
            client::Error::Transport(error) => error.into(),
            client::Error::Timeout(_) => Self::plain(
                "Unable to connect to the server: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            ),
            client::Error::Target(TargetError::NameMissing(_)) => Self::new(EMPTY_NAME),
            other => Self::new(chain(&other)),
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::plain(match &error {
            TransportError::Broken(_) | TransportError::Connect { .. } => return connection_failure(&error, ""),
            TransportError::Credentials(CredentialError::Exec(error)) => {
                format!("Unable to connect to the server: getting credentials: {}", chain(error))
            }
            TransportError::Credentials(_) => {
                format!("Unable to connect to the server: getting credentials: {}", innermost(&error))
            }
            TransportError::Tls(_) | TransportError::Request(_) | TransportError::UpgradeUnsupported => {
                return Self::new(chain(&error));
            }
        })
    }
}

impl From<ResponseError> for Failure {
    fn from(error: ResponseError) -> Self {
        client::Error::from(error).into()
    }
}

impl From<PrintError> for Failure {
    fn from(error: PrintError) -> Self {
        Self::new(error.message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(go_io_error(&error))
    }
}

/// The server could not be reached. The transport wraps the cause in it, so that the client does not retry.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {server}")]
pub struct Unreachable {
    /// `host:port`.
    pub server: String,
    /// The method and the URL as Go prints them: `Get "https://127.0.0.1:6443/api"`.
    pub request: String,
    pub source: client::transport::BoxError,
}

/// The server has another version than this kubectl, and `--match-server-version` is given.
#[derive(Debug, thiserror::Error)]
#[error("server version ({server}) differs from client version ({})", crate::VERSION)]
pub struct VersionMismatch {
    pub server: String,
}

fn status_message(status: &Status) -> String {
    match &status.reason {
        Reason::Invalid => invalid_message(status),
        Reason::Unauthorized => format!("error: You must be logged in to the server ({})", status.message),
        reason if reason.name().is_empty() => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({}): {}", reason.name(), status.message),
    }
}

fn invalid_message(status: &Status) -> String {
    let Some(details) = &status.details else {
        let message = &status.message;
        return if message.is_empty() {
            "The request is invalid".to_owned()
        } else {
            format!("The request is invalid: {message}")
        };
    };
    let subject = if details.kind.is_empty() && details.name.is_empty() {
        if !status.message.is_empty() && details.causes.is_empty() {
            return format!("The request is invalid: {}", status.message);
        }
        "The request is invalid".to_owned()
    } else {
        format!("The {} {:?} is invalid", details.kind, details.name)
    };
    let mut causes: Vec<String> = Vec::new();
    for cause in &details.causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !causes.contains(&line) {
            causes.push(line);
        }
    }
    match causes.as_slice() {
        [] => subject,
        [one] => format!("{subject}: {one}"),
        _ => causes.iter().fold(format!("{subject}: "), |text, cause| format!("{text}\n* {cause}")),
    }
}

/// Returns the failure of a request to `server`, a host with a port.
pub fn request_failure(error: client::Error, server: &str) -> Failure {
    match error {
        client::Error::Transport(error @ (TransportError::Broken(_) | TransportError::Connect { .. })) => {
            connection_failure(&error, server)
        }
        other => other.into(),
    }
}

/// Returns the failure of a broken connection to `server`, or to the server that the error names.
fn connection_failure(error: &(dyn Error + 'static), server: &str) -> Failure {
    let (mut server, mut request) = (server.to_owned(), None);
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(unreachable) = error.downcast_ref::<Unreachable>() {
            server.clone_from(&unreachable.server);
            request = Some(unreachable.request.clone());
        }
        if let Some(mismatch) = error.downcast_ref::<VersionMismatch>() {
            return Failure::new(mismatch.to_string());
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            if io.kind() == io::ErrorKind::ConnectionRefused {
                let message = format!(
                    "The connection to the server {server} was refused - did you specify the right host or port?"
                );
                return Failure::plain(message)
                    .of_request(request, &format!("dial tcp {server}: connect: connection refused"));
            }
            // The error of TLS is inside of an I/O error, which has no source.
            next = io.get_ref().map(|inner| inner as &(dyn Error + 'static)).or(error.source());
            if next.is_some() {
                continue;
            }
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Failure::connecting(request, &tls_message(tls));
        }
        next = error.source();
    }
    let problem = innermost(error);
    let problem = match problem.strip_prefix("failed to lookup address information: ") {
        Some(reason) => lookup_message(&server, reason),
        None => problem,
    };
    Failure::connecting(request, &problem)
}

/// Returns Go's message of a failed lookup of a name. The C library does not report the DNS server.
fn lookup_message(server: &str, reason: &str) -> String {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let reason = match reason {
        "Name or service not known" | "No address associated with hostname" => "no such host",
        other => other,
    };
    format!("dial tcp: lookup {host}: {reason}")
}

/// Returns Go's message of a failed TLS handshake.
fn tls_message(error: &rustls::Error) -> String {
    use rustls::CertificateError::{
        ApplicationVerificationFailure, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer,
    };
    let problem = match error {
        rustls::Error::InvalidCertificate(UnknownIssuer | ApplicationVerificationFailure) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => {
            "x509: certificate has expired or is not yet valid".to_owned()
        }
        rustls::Error::InvalidCertificate(error @ (NotValidForName | NotValidForNameContext { .. })) => {
            format!("x509: {error}")
        }
        rustls::Error::InvalidCertificate(error) => format!("x509: {error}"),
        rustls::Error::AlertReceived(alert) => return format!("remote error: tls: {alert:?}"),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {problem}")
}

/// Returns the messages of an error and its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        next = cause.source();
    }
    text
}

fn innermost(error: &dyn Error) -> String {
    let mut last = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        last = cause.to_string();
        next = cause.source();
    }
    last
}

/// Returns Go's message of an I/O error: `no such file or directory`.
pub fn go_io_error(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::status::Status;
    use apimachinery::{Value, json};

    use super::*;

    fn status(text: &str) -> Failure {
        let value: Value = json::parse(text.as_bytes()).unwrap();
        Failure::from_status(Status::from_value(&value).unwrap())
    }

    #[test]
    fn rejections_are_worded_like_kubectl() {
        let check = |text: &str, expect: &str| assert_eq!(status(text).to_string(), expect);
        check(
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"x\" not found","reason":"NotFound","code":404}"#,
            "Error from server (NotFound): pods \"x\" not found",
        );
        check(
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
            "error: You must be logged in to the server (Unauthorized)",
        );
        check(
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","reason":"Invalid","code":422,"details":{"kind":"Pod","name":"a","causes":[{"field":"spec.x","message":"one"},{"field":"spec.y","message":"two"},{"field":"spec.y","message":"two"}]}}"#,
            "The Pod \"a\" is invalid: \n* spec.x: one\n* spec.y: two",
        );
        check(
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","reason":"Invalid","code":422,"details":{"kind":"Pod","name":"a","causes":[{"field":"spec.x","message":"one"}]}}"#,
            "The Pod \"a\" is invalid: spec.x: one",
        );
    }

    #[test]
    fn source_of_an_object_is_part_of_the_message() {
        let failure = status(
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#,
        );
        assert_eq!(
            failure.when("creating", "a.yaml").to_string(),
            "Error from server (Forbidden): error when creating \"a.yaml\": no"
        );
        assert_eq!(
            Failure::new("no").when("creating", "STDIN").to_string(),
            "error: error when creating \"STDIN\": no"
        );
    }

    #[test]
    fn unknown_hosts_are_named() {
        let check = |reason: &str, expect: &str| assert_eq!(lookup_message("a.invalid:6443", reason), expect);
        check("Name or service not known", "dial tcp: lookup a.invalid: no such host");
        check(
            "Temporary failure in name resolution",
            "dial tcp: lookup a.invalid: Temporary failure in name resolution",
        );
    }

    #[test]
    fn several_failures_are_printed_one_per_line_without_prefix() {
        let all = Failure::all(vec![Failure::new("a"), Failure::new("b")]).unwrap_err();
        assert_eq!(all.to_string(), "a\nb");
        assert_eq!(Failure::all(vec![Failure::new("a")]).unwrap_err().to_string(), "error: a");
        assert!(Failure::all(Vec::new()).is_ok());
    }
}
