//! Options of the API verbs as query parameters and bodies.

use std::fmt;
use std::time::Duration;

use apimachinery::{Object, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are not escaped in a query: the unreserved ones, as in Go.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Empty for all labels.
    pub label_selector: String,
    /// Empty for all fields.
    pub field_selector: String,
    /// Maximum objects per response; zero for all.
    pub limit: u32,
    /// The continue token of the previous response.
    pub continue_token: String,
    /// Empty for the newest version.
    pub resource_version: String,
    pub resource_version_match: Option<VersionMatch>,
}

/// The relation of a list to the requested version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Empty for all labels.
    pub label_selector: String,
    /// Empty for all fields.
    pub field_selector: String,
    /// Send events after this version. If empty, the current objects are sent first, as ADDED events.
    pub resource_version: String,
    /// Send bookmarks, which report the reached version even without changes.
    pub bookmarks: bool,
    /// Send all objects first, then a bookmark that marks their end. Implies bookmarks.
    pub send_initial_events: bool,
    /// The server closes the watch after this duration; the server's default if `None`.
    pub timeout: Option<Duration>,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Process the request without storing the result.
    pub dry_run: bool,
    /// The manager of the written fields; empty for a name derived from the user agent.
    pub field_manager: String,
    /// Take over fields of other managers; only for apply.
    pub force: bool,
    /// The handling of unknown and duplicate fields.
    pub field_validation: Option<FieldValidation>,
}

/// The handling of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// Drop the fields and return a warning.
    Warn,
    /// Reject the request.
    Strict,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(Value),
    /// RFC 7386: a tree in which `null` removes.
    Merge(Value),
    /// Strategic merge patch, which merges lists by their merge keys.
    Strategic(Value),
    /// Server-side apply: the fields that the manager wants to own.
    Apply(Value),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Grace period in seconds; the object's default if `None`.
    pub grace_seconds: Option<u32>,
    /// Propagation to dependents; the kind's default if `None`.
    pub propagation: Option<Propagation>,
    /// Precondition: the UID of the object.
    pub uid: Option<String>,
    /// Precondition: the resourceVersion of the object.
    pub resource_version: Option<String>,
    /// Process the request without deleting.
    pub dry_run: bool,
}

/// The handling of dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are kept without the owner reference.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

impl ListOptions {
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::default();
        query.text("continue", &self.continue_token);
        query.text("fieldSelector", &self.field_selector);
        query.text("labelSelector", &self.label_selector);
        if self.limit > 0 {
            query.add("limit", self.limit);
        }
        query.text("resourceVersion", &self.resource_version);
        if let Some(how) = self.resource_version_match {
            query.add("resourceVersionMatch", how);
        }
        query
    }
}

impl WatchOptions {
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::default();
        query.add("watch", true);
        query.text("labelSelector", &self.label_selector);
        query.text("fieldSelector", &self.field_selector);
        query.text("resourceVersion", &self.resource_version);
        if self.bookmarks || self.send_initial_events {
            query.add("allowWatchBookmarks", true);
        }
        if self.send_initial_events {
            query.add("sendInitialEvents", true);
            query.add("resourceVersionMatch", VersionMatch::NotOlderThan);
        }
        if let Some(timeout) = self.timeout {
            query.add("timeoutSeconds", timeout.as_secs().max(1));
        }
        query
    }
}

impl WriteOptions {
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::default();
        if self.dry_run {
            query.add("dryRun", "All");
        }
        query.text("fieldManager", &self.field_manager);
        if self.force {
            query.add("force", true);
        }
        if let Some(how) = self.field_validation {
            query.add("fieldValidation", how);
        }
        query
    }
}

impl Patch {
    pub(crate) const fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
            // JSON is valid YAML.
            Self::Apply(_) => "application/apply-patch+yaml",
        }
    }

    pub(crate) const fn value(&self) -> &Value {
        match self {
            Self::Json(value) | Self::Merge(value) | Self::Strategic(value) | Self::Apply(value) => value,
        }
    }
}

impl DeleteOptions {
    /// Returns options with the UID as precondition.
    pub fn of(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..Self::default() }
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = Object::new();
        body.insert("apiVersion", "v1");
        body.insert("kind", "DeleteOptions");
        if let Some(seconds) = self.grace_seconds {
            body.insert("gracePeriodSeconds", seconds);
        }
        if let Some(how) = self.propagation {
            body.insert("propagationPolicy", how.to_string());
        }
        let mut preconditions = Object::new();
        if let Some(uid) = &self.uid {
            preconditions.insert("uid", uid.as_str());
        }
        if let Some(version) = &self.resource_version {
            preconditions.insert("resourceVersion", version.as_str());
        }
        if !preconditions.is_empty() {
            body.insert("preconditions", preconditions);
        }
        if self.dry_run {
            body.insert("dryRun", vec![Value::from("All")]);
        }
        Value::Object(body)
    }
}

macro_rules! named_after_variants {
    ($($name:ident { $($variant:ident),* })*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(match self {
                    $(Self::$variant => stringify!($variant),)*
                })
            }
        })*
    };
}

named_after_variants! {
    VersionMatch { Exact, NotOlderThan }
    FieldValidation { Ignore, Warn, Strict }
    Propagation { Orphan, Background, Foreground }
}

/// Query parameters in the order they were added.
#[derive(Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), QUERY));
    }

    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.add(name, value);
        }
    }

    /// Appends the query to a path.
    pub(crate) fn after(self, mut path: String) -> String {
        path.push_str(&self.0);
        path
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn options_become_documented_query_parameters() {
        let list = ListOptions {
            label_selector: "app in (a,b)".into(),
            limit: 500,
            resource_version: "7".into(),
            resource_version_match: Some(VersionMatch::Exact),
            ..ListOptions::default()
        };
        let expect = "/x?labelSelector=app%20in%20%28a%2Cb%29&limit=500&resourceVersion=7&resourceVersionMatch=Exact";
        assert_eq!(list.query().after("/x".into()), expect);
        let watch = WatchOptions {
            send_initial_events: true,
            timeout: Some(Duration::from_secs(300)),
            ..WatchOptions::default()
        };
        let expect = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
            &resourceVersionMatch=NotOlderThan&timeoutSeconds=300";
        assert_eq!(watch.query().after(String::new()), expect);
        assert_eq!(WriteOptions::default().query().after("/x".into()), "/x");
    }

    #[test]
    fn delete_preconditions_are_in_the_body() {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            propagation: Some(Propagation::Foreground),
            resource_version: Some("9".into()),
            ..DeleteOptions::of("u")
        };
        let expect = value!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "9"},
        });
        assert_eq!(options.body(), expect);
    }
}
