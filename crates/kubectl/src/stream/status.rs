//! The exit status of a remote command, which the server sends on the error channel.

use apimachinery::{Value, json};

use super::StreamError;

/// Returns the outcome of a command. An empty message is success.
pub fn decode_status(message: &[u8]) -> Result<(), StreamError> {
    let remote = |text: String| Err(StreamError::Remote(text));
    if message.is_empty() {
        return Ok(());
    }
    let status = match json::parse(message) {
        Ok(status) => status,
        Err(error) => {
            let text = String::from_utf8_lossy(message);
            return remote(format!("error stream protocol error: {error} in {text:?}"));
        }
    };
    match status.str_at(&["status"]) {
        Some("Success") => Ok(()),
        Some("Failure") if status.str_at(&["reason"]) == Some("NonZeroExitCode") => exit_code(&status),
        Some("Failure") => remote(status.str_at(&["message"]).unwrap_or_default().to_owned()),
        _ => remote("error stream protocol error: unknown error".to_owned()),
    }
}

fn exit_code(status: &Value) -> Result<(), StreamError> {
    let remote = |text: String| Err(StreamError::Remote(text));
    let Some(details) = status.get("details") else {
        return remote("error stream protocol error: details must be set".to_owned());
    };
    let causes = details.get("causes").and_then(Value::as_array).unwrap_or_default();
    let Some(cause) = causes.iter().find(|cause| cause.str_at(&["reason"]) == Some("ExitCode")) else {
        return remote("error stream protocol error: no ExitCode cause given".to_owned());
    };
    let text = cause.str_at(&["message"]).unwrap_or_default();
    match text.parse() {
        Ok(code) => Err(StreamError::Exit(code)),
        Err(_) => remote(format!("error stream protocol error: invalid exit code value {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_channel_has_the_exit_code() {
        let check = |message: &str, expect: &str| {
            let found = match decode_status(message.as_bytes()) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expect, "{message}");
        };
        check("", "ok");
        check(r#"{"metadata":{},"status":"Success"}"#, "ok");
        let exited = |causes: &str| {
            format!(
                r#"{{"status":"Failure","reason":"NonZeroExitCode","message":"m","details":{{"causes":{causes}}}}}"#
            )
        };
        check(&exited(r#"[{"reason":"ExitCode","message":"3"}]"#), "command terminated with exit code 3");
        check(
            &exited(r#"[{"reason":"Other"},{"reason":"ExitCode","message":"137"}]"#),
            "command terminated with exit code 137",
        );
        check(
            &exited(r#"[{"reason":"ExitCode","message":"x"}]"#),
            "error stream protocol error: invalid exit code value \"x\"",
        );
        check(
            &exited(r#"[{"reason":"ExitCode","message":"300"}]"#),
            "error stream protocol error: invalid exit code value \"300\"",
        );
        check(&exited("[]"), "error stream protocol error: no ExitCode cause given");
        check(r#"{"status":"Failure","reason":"NonZeroExitCode"}"#, "error stream protocol error: details must be set");
        check(r#"{"status":"Failure","reason":"InternalError","message":"no shell"}"#, "no shell");
        check("{}", "error stream protocol error: unknown error");
    }
}
