//! PodLogOptions.

use apimachinery::field::Error;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::Time;
use apimachinery::{Errors, Path, Value};

use super::encode;
use crate::query::Query;

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The container, empty for the only one.
    pub container: String,
    pub follow: bool,
    /// `insecureSkipTLSVerifyBackend`.
    pub insecure: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Time>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
}

impl LogOptions {
    /// Parses and validates the options for the log of pod `name`.
    pub fn of(query: &Query, name: &str) -> Result<Self, Status> {
        let since_time = match query.text("sinceTime") {
            "" | "null" => None,
            text => Some(Time::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        let options = Self {
            container: query.text("container").to_owned(),
            follow: query.flag("follow"),
            insecure: query.flag("insecureSkipTLSVerifyBackend"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since_seconds: query.int("sinceSeconds")?,
            since_time,
            tail_lines: query.int("tailLines")?,
            limit_bytes: query.int("limitBytes")?,
            stream: query.get("stream").filter(|stream| !stream.is_empty()).map(str::to_owned),
        };
        let errors = options.findings();
        let kind = GroupName::new("", "PodLogOptions");
        if errors.is_empty() { Ok(options) } else { Err(Status::invalid(kind, name, &errors)) }
    }

    /// Returns the query of the kubelet request.
    pub fn query(&self) -> String {
        let switches = [("follow", self.follow), ("previous", self.previous), ("timestamps", self.timestamps)];
        let mut pairs: Vec<(&str, String)> =
            switches.iter().filter(|(_, on)| *on).map(|(name, _)| (*name, "true".to_owned())).collect();
        let numbers =
            [("limitBytes", self.limit_bytes), ("sinceSeconds", self.since_seconds), ("tailLines", self.tail_lines)];
        pairs.extend(numbers.iter().filter_map(|(name, number)| Some((*name, (*number)?.to_string()))));
        pairs.extend(self.since_time.map(|time| ("sinceTime", time.to_seconds().to_string())));
        encode(pairs)
    }

    fn findings(&self) -> Errors {
        let mut errors = Errors::new();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.push(Error::invalid(&Path::of("tailLines"), lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(Error::invalid(&Path::of("limitBytes"), bytes, "must be greater than 0"));
        }
        match (self.since_seconds, self.since_time) {
            (Some(_), Some(_)) => {
                let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(Error::forbidden(&Path::of(""), detail));
            }
            (Some(seconds), None) if seconds < 1 => {
                errors.push(Error::invalid(&Path::of("sinceSeconds"), seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if self.stream.is_some() {
            errors.push(Error::forbidden(&Path::of("stream"), "may not be specified"));
        }
        errors
    }
}

/// Returns the node of a pod; `None` if the pod is not scheduled yet.
pub fn node_of(pod: &Value) -> Option<&str> {
    pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_options_are_validated_and_forwarded() {
        let check = |query: &str, expect: &str| {
            let found = LogOptions::of(&Query::parse(query), "p");
            let found = found.map_or_else(|status| status.message, |options| options.query());
            assert_eq!(found, expect, "{query}");
        };
        check("", "");
        check("follow=true&tailLines=5&container=c&timestamps=1", "follow=true&tailLines=5&timestamps=true");
        check("sinceTime=2026-01-02T03:04:05%2B01:00", "sinceTime=2026-01-02T02%3A04%3A05Z");
        check(
            "tailLines=-1&limitBytes=0",
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, \
             limitBytes: Invalid value: 0: must be greater than 0]",
        );
        check("tailLines=x", "strconv.ParseInt: parsing \"x\": invalid syntax");
        check("stream=Stdout", "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified");
        let both = LogOptions::of(&Query::parse("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z"), "p").unwrap_err();
        assert!(both.message.ends_with("at most one of `sinceTime` or `sinceSeconds` may be specified"), "{both}");
        assert_eq!(LogOptions::of(&Query::parse("sinceTime=x"), "p").unwrap_err().code, 400);
    }
}
