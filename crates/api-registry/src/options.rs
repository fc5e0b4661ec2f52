//! Request options, parsed from the query (or the body of a delete) and validated.

use apimachinery::field::Error;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::{Errors, Path, Value};

use crate::query::Query;

/// CreateOptions, UpdateOptions and PatchOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Empty if the client does not specify one.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Take over fields of other managers; only for an apply.
    pub force: bool,
}

/// The write requests, by the names of their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    Create,
    Update,
    /// PATCH of any type other than apply.
    Patch,
    Apply,
}

/// ListOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// The minimum or exact revision, according to `resource_version_match`.
    pub resource_version: String,
    pub resource_version_match: String,
    /// Maximum number of items.
    pub limit: i64,
    pub continue_token: String,
    /// Duration of a watch.
    pub timeout_seconds: Option<i64>,
    pub allow_watch_bookmarks: bool,
    /// Whether a watch starts with the current objects.
    pub send_initial_events: Option<bool>,
}

/// DeleteOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    /// Precondition: the object's UID.
    pub uid: Option<String>,
    /// Precondition: the object's resourceVersion.
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
}

/// propagationPolicy: the handling of a deleted object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are kept without an owner.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

impl WriteOptions {
    /// Parses and validates the options of a write.
    pub fn of(query: &Query, kind: WriteKind) -> Result<Self, Status> {
        let mut errors = Errors::new();
        let manager = query.text("fieldManager");
        meta::validate_field_manager(manager, &Path::of("fieldManager"), &mut errors);
        let dry_run = dry_run(&query.all("dryRun"), &mut errors);
        let mode = query.text("fieldValidation");
        let field_validation = mode.parse().unwrap_or_else(|_| {
            let modes = ["", "Ignore", "Strict", "Warn"];
            errors.push(Error::not_supported(&Path::of("fieldValidation"), mode, &modes));
            FieldValidation::default()
        });
        let force = query.switch("force");
        match kind {
            WriteKind::Apply if manager.is_empty() => {
                errors.insert(0, Error::required(&Path::of("fieldManager"), "is required for apply patch"));
            }
            WriteKind::Patch if force.is_some() => {
                errors.insert(0, Error::forbidden(&Path::of("force"), "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        check_errors(kind.options(), &errors)?;
        let force = force.unwrap_or_default();
        Ok(Self { dry_run, field_manager: manager.to_owned(), field_validation, force })
    }

    /// Returns the field manager: the specified one, or the prefix of the `User-Agent`.
    pub fn manager(&self, user_agent: &str) -> String {
        const BYTES_MAX: usize = 128;
        if !self.field_manager.is_empty() {
            return self.field_manager.clone();
        }
        let program = user_agent.split('/').next().unwrap_or_default();
        let program: String = program.chars().filter(|letter| !letter.is_control()).collect();
        let end = (0..=program.len().min(BYTES_MAX)).rev().find(|end| program.is_char_boundary(*end)).unwrap_or(0);
        if program.is_empty() { "unknown".to_owned() } else { program[..end].to_owned() }
    }
}

impl WriteKind {
    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

impl ListOptions {
    /// Parses and validates the options of a list.
    pub fn of_list(query: &Query) -> Result<Self, Status> {
        let options = Self::read(query)?;
        let mut errors = Errors::new();
        let path = Path::of("resourceVersionMatch");
        let (matching, version) = (options.resource_version_match.as_str(), options.resource_version.as_str());
        let mut forbid = |detail: &str| errors.push(Error::forbidden(&path, detail));
        if !matching.is_empty() {
            if version.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !options.continue_token.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if matching == "Exact" && version == "0" {
                forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.push(Error::not_supported(&path, matching, &["Exact", "NotOlderThan", ""]));
            }
        }
        if options.send_initial_events.is_some() {
            errors.push(Error::forbidden(&Path::of("sendInitialEvents"), "sendInitialEvents is forbidden for list"));
        }
        check_errors("ListOptions", &errors)?;
        Ok(options)
    }

    /// Parses and validates the options of a watch.
    pub fn of_watch(query: &Query) -> Result<Self, Status> {
        let options = Self::read(query)?;
        let mut errors = Errors::new();
        let path = Path::of("resourceVersionMatch");
        let matching = options.resource_version_match.as_str();
        if options.send_initial_events.is_some() {
            if matching != "NotOlderThan" {
                let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                errors.push(Error::forbidden(&path, detail));
            }
            if !options.continue_token.is_empty() {
                let detail = "sendInitialEvents is forbidden when continue is provided";
                errors.push(Error::forbidden(&Path::of("sendInitialEvents"), detail));
            }
        } else if !matching.is_empty() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(Error::forbidden(&path, detail));
        }
        check_errors("ListOptions", &errors)?;
        Ok(options)
    }

    fn read(query: &Query) -> Result<Self, Status> {
        Ok(Self {
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
            resource_version: query.text("resourceVersion").to_owned(),
            resource_version_match: query.text("resourceVersionMatch").to_owned(),
            limit: query.int("limit")?.unwrap_or_default(),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: query.int("timeoutSeconds")?,
            allow_watch_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.switch("sendInitialEvents"),
        })
    }
}

impl DeleteOptions {
    /// Parses and validates the options of a delete: those of the body if there is one, otherwise those of the query.
    pub fn of(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        let mut errors = Errors::new();
        let text = |name: &str| body.map_or_else(|| query.get(name), |body| body.str_at(&[name]));
        let orphan = match body {
            Some(body) => body.get("orphanDependents").and_then(Value::as_bool),
            None => query.switch("orphanDependents"),
        };
        let grace_period_seconds = match body {
            Some(body) => body.get("gracePeriodSeconds").and_then(Value::as_int),
            None => query.int("gracePeriodSeconds")?,
        };
        let dry = match body {
            Some(body) => body.list_at(&["dryRun"]).iter().filter_map(Value::as_str).collect(),
            None => query.all("dryRun"),
        };
        let policy = text("propagationPolicy");
        let path = Path::of("propagationPolicy");
        if orphan.is_some() && policy.is_some() {
            errors.push(Error::invalid(
                &path,
                policy.unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(Error::not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]));
                None
            }
        };
        let dry_run = dry_run(&dry, &mut errors);
        check_errors("DeleteOptions", &errors)?;
        let precondition = |name: &str| body.and_then(|body| body.str_at(&["preconditions", name])).map(str::to_owned);
        Ok(Self {
            dry_run,
            grace_period_seconds,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            propagation,
        })
    }
}

fn dry_run(values: &[&str], errors: &mut Errors) -> bool {
    if values.iter().any(|value| *value != "All") {
        let list: Vec<Value> = values.iter().map(|value| Value::from(*value)).collect();
        errors.push(Error::not_supported(&Path::of("dryRun"), Value::Array(list), &["All"]));
    }
    !values.is_empty()
}

fn check_errors(kind: &str, errors: &[Error]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GroupName::new("meta.k8s.io", kind), "", errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_options_are_rejected() {
        let message = |query: &str| ListOptions::of_list(&Query::parse(query)).unwrap_err().message;
        assert_eq!(
            message("resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is \
             forbidden unless resourceVersion is provided"
        );
        let apply = WriteOptions::of(&Query::parse(""), WriteKind::Apply).unwrap_err().message;
        assert!(apply.contains("fieldManager: Required value: is required for apply patch"), "{apply}");
        let write = WriteOptions::of(&Query::parse("dryRun=Some"), WriteKind::Create).unwrap_err().message;
        assert!(write.contains("dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""), "{write}");
    }

    #[test]
    fn field_manager_defaults_to_the_user_agent() {
        let options = WriteOptions::default();
        assert_eq!(options.manager("kubectl/v1.36.0 (linux/amd64)"), "kubectl");
        assert_eq!(options.manager(""), "unknown");
    }
}
