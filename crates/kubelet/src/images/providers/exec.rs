//! Runs a credential provider plugin: a request on standard input, a response on standard output.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use apimachinery::{Object, Value, json, time, value};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::config::ProviderConfig;

/// Time limit of a plugin.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of bytes of standard error that are read, and of characters that are logged.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERROR_CHARS_MAX: usize = 500;

/// A plugin returned no valid response. The messages do not contain its output, which may have credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    #[error("failed to run the plugin")]
    Io(#[from] io::Error),
    #[error("the plugin did not finish within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("the plugin failed: {status}: {message}")]
    Status { status: std::process::ExitStatus, message: String },
    #[error("the output of the plugin is larger than {OUTPUT_BYTES_MAX} bytes")]
    Large,
    #[error("the response of the plugin is not valid JSON")]
    Syntax,
    #[error("the response of the plugin has no valid {0}")]
    Field(&'static str),
}

/// A CredentialProviderRequest.
pub(super) struct Request<'a> {
    pub image: &'a str,
    pub token: Option<&'a str>,
    pub annotations: Option<&'a BTreeMap<String, String>>,
}

/// A CredentialProviderResponse.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub cache_key_type: CacheKeyType,
    /// Zero if the response must not be cached; the default of the provider if absent.
    pub cache_duration: Option<Duration>,
    /// Logins by image pattern.
    pub auth: BTreeMap<String, Login>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheKeyType {
    Image,
    Registry,
    Global,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub username: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Login(…)")
    }
}

/// Runs the plugin of a provider.
pub(super) async fn run(config: &ProviderConfig, request: &Request<'_>) -> Result<Response, ExecError> {
    let mut command = Command::new(&config.executable);
    command.args(&config.args).envs(config.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
    let output = tokio::time::timeout(TIMEOUT, converse(&mut child, encode(config, request).as_bytes())).await;
    if let Ok(Some(_)) = child.try_wait() {
        // The process ID may belong to another process now.
        group.0 = None;
    }
    parse(&output.map_err(|_| ExecError::Timeout)??, &config.api_version)
}

/// Kills a process and those that it has started when it is dropped.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group is usually gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Returns the standard output of a plugin.
async fn converse(child: &mut Child, request: &[u8]) -> Result<Vec<u8>, ExecError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its request may still succeed.
            let _ = stdin.write_all(request).await;
        }
    };
    let read_output = async {
        let bytes = read(stdout, OUTPUT_BYTES_MAX + 1).await?;
        // Returning closes the pipe, and so ends a plugin that writes on.
        if bytes.len() as u64 > OUTPUT_BYTES_MAX { Err(ExecError::Large) } else { Ok(bytes) }
    };
    let read_error = async { Ok(read(stderr, ERROR_BYTES_MAX).await?) };
    let read_both = async { tokio::try_join!(read_output, read_error) };
    let ((), read) = tokio::join!(write, read_both);
    let (output, error) = read?;
    let status = child.wait().await?;
    if !status.success() {
        let text = String::from_utf8_lossy(&error);
        let printable = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        return Err(ExecError::Status { status, message: printable.take(ERROR_CHARS_MAX).collect() });
    }
    Ok(output)
}

async fn read(from: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn encode(config: &ProviderConfig, request: &Request<'_>) -> String {
    let mut object = value!({"kind": "CredentialProviderRequest", "apiVersion": (config.api_version.as_str()), "image": (request.image)});
    if let Some(object) = object.as_object_mut() {
        if let Some(token) = request.token {
            object.insert("serviceAccountToken", token);
        }
        if let Some(annotations) = request.annotations.filter(|annotations| !annotations.is_empty()) {
            let annotations: Object = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            object.insert("serviceAccountAnnotations", Value::Object(annotations));
        }
    }
    json::to_string(&object)
}

fn parse(output: &[u8], api_version: &str) -> Result<Response, ExecError> {
    let object = json::parse(output).map_err(|_| ExecError::Syntax)?;
    let field = |name: &'static str| object.str_at(&[name]).ok_or(ExecError::Field(name));
    if field("apiVersion")? != api_version {
        return Err(ExecError::Field("apiVersion"));
    }
    if field("kind")? != "CredentialProviderResponse" {
        return Err(ExecError::Field("kind"));
    }
    let cache_key_type = match field("cacheKeyType")? {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        _ => return Err(ExecError::Field("cacheKeyType")),
    };
    let cache_duration = match &object["cacheDuration"] {
        Value::Null => None,
        value => Some(value.as_str().and_then(duration).ok_or(ExecError::Field("cacheDuration"))?),
    };
    let mut auth = BTreeMap::new();
    match &object["auth"] {
        Value::Null => {}
        Value::Object(entries) => {
            for (pattern, login) in entries.iter() {
                let text = |name: &str| login.str_at(&[name]).unwrap_or_default().to_owned();
                auth.insert(pattern.to_owned(), Login { username: text("username"), password: text("password") });
            }
        }
        _ => return Err(ExecError::Field("auth")),
    }
    Ok(Response { cache_key_type, cache_duration, auth })
}

fn duration(text: &str) -> Option<Duration> {
    let duration = text.parse::<time::Duration>().ok()?;
    u64::try_from(duration.nanos()).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    #[test]
    fn responses_are_checked() {
        let check = |fields: &str, expect: Result<(CacheKeyType, Option<u64>, usize), &str>| {
            let text = format!(r#"{{"kind": "CredentialProviderResponse", "apiVersion": "{V1}", {fields}}}"#);
            let found = parse(text.as_bytes(), V1).map_err(|error| error.to_string());
            let found = found.map(|it| (it.cache_key_type, it.cache_duration.map(|d| d.as_secs()), it.auth.len()));
            assert_eq!(
                found,
                expect.map_err(|field| format!("the response of the plugin has no valid {field}")),
                "{text}"
            );
        };
        let auth = r#""auth": {"r.example": {"username": "u", "password": "p"}}"#;
        check(&format!(r#""cacheKeyType": "Registry", {auth}"#), Ok((CacheKeyType::Registry, None, 1)));
        check(r#""cacheKeyType": "Image", "cacheDuration": "0s""#, Ok((CacheKeyType::Image, Some(0), 0)));
        check(
            r#""cacheKeyType": "Global", "cacheDuration": "6h", "auth": {}"#,
            Ok((CacheKeyType::Global, Some(21600), 0)),
        );
        check(r#""cacheKeyType": "Host""#, Err("cacheKeyType"));
        check(r#""cacheKeyType": "Image", "cacheDuration": "long""#, Err("cacheDuration"));
        check(r#""cacheKeyType": "Image", "cacheDuration": "-1s""#, Err("cacheDuration"));
        check(r#""cacheKeyType": "Image", "auth": []"#, Err("auth"));
        let other = br#"{"kind": "CredentialProviderResponse", "apiVersion": "other/v1", "cacheKeyType": "Image"}"#;
        assert!(matches!(parse(other, V1), Err(ExecError::Field("apiVersion"))));
        assert!(matches!(parse(b"secret", V1), Err(ExecError::Syntax)));
    }
}
