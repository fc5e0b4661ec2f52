//! What a caller may ask of each verb, and the query parameters and bodies that say so.

use std::fmt;
use std::time::Duration;

use machinery::{Object, Value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Which objects a list holds, how many, and how fresh they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// A condition on labels; empty for none.
    pub label_selector: String,
    /// A condition on fields; empty for none.
    pub field_selector: String,
    /// At most so many in one answer; zero for all.
    pub limit: u32,
    /// Where the answer before this one ended.
    pub continue_token: String,
    /// A version of the store; empty for the newest.
    pub resource_version: String,
    /// How the version counts.
    pub resource_version_match: Option<VersionMatch>,
}

/// How a list relates to the version asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly this one.
    Exact,
    /// This one or a newer one.
    NotOlderThan,
}

/// Which changes a watch tells, and from when on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// A condition on labels; empty for none.
    pub label_selector: String,
    /// A condition on fields; empty for none.
    pub field_selector: String,
    /// Tell what came after this version; empty for the state at some version and what came after.
    pub resource_version: String,
    /// Tell the version reached now and then, even if nothing changed.
    pub bookmarks: bool,
    /// Tell all objects first, then a bookmark that says so. Implies bookmarks.
    pub send_initial_events: bool,
    /// The server ends the watch after this long; its choice if absent.
    pub timeout: Option<Duration>,
}

/// How a create, an update or a patch is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Go all the way but do not store.
    pub dry_run: bool,
    /// Who owns the fields that are set; empty to be named after the client.
    pub field_manager: String,
    /// Take fields away from other managers; only for an apply.
    pub force: bool,
    /// What becomes of unknown and repeated fields.
    pub field_validation: Option<FieldValidation>,
}

/// What the server does about unknown and repeated fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse the request.
    Strict,
}

/// A patch and its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(Value),
    /// RFC 7386: a tree in which `null` removes.
    Merge(Value),
    /// A merge that knows which lists are sets and maps.
    Strategic(Value),
    /// Server-side apply: the fields that the manager wants to own.
    Apply(Value),
}

/// How a delete is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// How long the object may take to stop; its own choice if absent.
    pub grace_seconds: Option<u32>,
    /// What becomes of the objects it owns; the kind's choice if absent.
    pub propagation: Option<Propagation>,
    /// Delete only this very object.
    pub uid: Option<String>,
    /// Delete only this version of it.
    pub resource_version: Option<String>,
    /// Go all the way but do not delete.
    pub dry_run: bool,
}

/// What becomes of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay and lose their owner.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

impl ListOptions {
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::default();
        query.text("labelSelector", &self.label_selector);
        query.text("fieldSelector", &self.field_selector);
        if self.limit > 0 {
            query.add("limit", self.limit);
        }
        query.text("continue", &self.continue_token);
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
            // JSON is YAML.
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
    /// Deletes only the object with this identifier.
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
    pub fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), NON_ALPHANUMERIC));
    }

    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.add(name, value);
        }
    }

    /// The path with the query after it.
    pub fn after(self, mut path: String) -> String {
        path.push_str(&self.0);
        path
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn options_become_the_parameters_that_the_api_documents() {
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
    fn preconditions_travel_in_the_body_of_a_delete() {
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
