//! CronJob: creates Jobs on a schedule.

pub mod schedule;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::table::{self, Column};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value, labels};

use super::job;
use crate::core::object_meta;
use crate::field_rules::{
    column, default_empty_to, default_to, non_negative, raise_generation, start_generation, wide_column,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};
use crate::{status, workload};

/// The controller appends a dash and ten digits, and Job names have at most 63 characters.
const NAME_LENGTH_MAX: usize = 63 - 11;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["cj"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        rules: Arc::new(CronJob),
        ..Kind::stored("batch", "v1", "CronJob", "cronjobs")
    }
    .with_columns(&columns())
}

#[derive(Debug)]
struct CronJob;

impl Rules for CronJob {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_empty_to(spec, "concurrencyPolicy", "Allow");
        default_to(spec, "suspend", false);
        default_to(spec, "successfulJobsHistoryLimit", 3);
        default_to(spec, "failedJobsHistoryLimit", 1);
        if let Some(job) = spec.get_mut("jobTemplate").and_then(|template| template.get_mut("spec")) {
            job::default_template(job);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if status::separate(object, old, context) {
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), None, errors);
        let metadata = root.get("metadata");
        let name = metadata.get("name");
        if name.len() > NAME_LENGTH_MAX {
            errors.push(name.invalid(format!("must be no more than {NAME_LENGTH_MAX} characters")));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        if context.subresource.is_empty() {
            validate_spec(&At::root(object).get("spec"), Some(&At::root(old).get("spec")), errors);
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let root = At::root(object);
        let spec = root.get("spec");
        let name = Meta::of(object).name();
        let mut warnings: Vec<_> =
            old.is_none().then(|| workload::pod_name_warning(name)).flatten().into_iter().collect();
        let template = spec.get("jobTemplate");
        warnings.extend(job::spec::warnings(
            &template.get("spec"),
            object,
            old,
            &["spec", "jobTemplate", "spec", "template"],
        ));
        if spec.get("schedule").str().contains("TZ") {
            // `spec.spec.schedule` is upstream's path.
            warnings.push(
                "CRON_TZ or TZ used in spec.spec.schedule is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn validate_spec(spec: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let at = spec.get("schedule");
    if at.is_empty() {
        errors.push(at.required(""));
    } else {
        validate_schedule(spec, old, errors);
    }
    non_negative(&spec.get("startingDeadlineSeconds"), errors);
    let zone = spec.get("timeZone");
    if old.is_none_or(|old| old.get("timeZone").value() != zone.value()) {
        validate_zone(&zone, errors);
    }
    let policy = spec.get("concurrencyPolicy");
    match policy.str() {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.push(policy.required("")),
        _ => errors.push(policy.not_supported(&["Allow", "Forbid", "Replace"])),
    }
    let template = spec.get("jobTemplate");
    validate_template(&template.get("spec"), errors);
    non_negative(&spec.get("successfulJobsHistoryLimit"), errors);
    non_negative(&spec.get("failedJobsHistoryLimit"), errors);
}

/// Rejects a time zone in `schedule` (use `timeZone`), unless the old schedule already has one.
fn validate_schedule(spec: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let at = spec.get("schedule");
    if let Err(error) = schedule::Schedule::parse(at.str()) {
        errors.push(at.invalid(error.to_string()));
    }
    let had_zone = old.is_some_and(|old| old.get("schedule").str().contains("TZ"));
    if !at.str().contains("TZ") {
        return;
    }
    if !had_zone {
        errors.push(at.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if spec.get("timeZone").is_present() {
        errors.push(at.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
    }
}

fn validate_zone(zone: &At<'_>, errors: &mut Errors) {
    if zone.is_absent() {
        return;
    }
    if zone.is_empty() {
        errors.push(zone.invalid("timeZone must be nil or non-empty string"));
        return;
    }
    let is_valid_segment = |segment: &str| {
        (1..=14).contains(&segment.len())
            && !matches!(segment, "." | "..")
            && !segment.starts_with('-')
            && segment.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_+".contains(&c))
    };
    let unknown = || zone.invalid(format!("unknown time zone {}", zone.str()));
    if !zone.str().split('/').all(is_valid_segment) {
        errors.push(unknown());
        return;
    }
    if zone.str().eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(zone.invalid(detail));
    }
    // Go accepts `Local`, which was rejected above.
    if zone.str() != "Local" && !schedule::is_zone(zone.str()) {
        errors.push(unknown());
    }
}

fn validate_template(job: &At<'_>, errors: &mut Errors) {
    job::spec::validate(job, errors);
    let selector = job.get("selector");
    if selector.is_present() {
        let bad_value = workload::selector_bad_value(selector.value());
        errors.push(Error::invalid(selector.path(), bad_value, "`selector` will be auto-generated"));
    }
    if job.get("manualSelector").bool() {
        errors.push(job.get("manualSelector").not_supported(&["nil", "false"]));
    }
}

fn columns() -> Vec<Column> {
    fn pod(object: &Value) -> Option<&Value> {
        object.at(&["spec", "jobTemplate", "spec", "template", "spec"])
    }
    vec![
        name_column(),
        column("Schedule", "string", "Schedule in cron format.", |object, _| {
            object.text_at(&["spec", "schedule"]).into()
        }),
        column("Timezone", "string", "Time zone of the schedule.", |object, _| {
            object.str_at(&["spec", "timeZone"]).unwrap_or("<none>").into()
        }),
        column("Suspend", "boolean", "Whether the CronJob is suspended.", suspended),
        column("Active", "integer", "Number of active Jobs.", |object, _| {
            crate::field_rules::count_cell(&At::root(object).get("status").get("active"))
        }),
        column("Last Schedule", "string", "Time since the last run.", last_schedule),
        age_column(),
        wide_column("Containers", "string", "The names of the containers.", |object, _| {
            workload::names_of(pod(object), "name")
        }),
        wide_column("Images", "string", "The images of the containers.", |object, _| {
            workload::names_of(pod(object), "image")
        }),
        wide_column("Selector", "string", "Label selector of the pods.", |object, _| {
            labels::format_selector(object.at(&["spec", "jobTemplate", "spec", "selector"])).into()
        }),
    ]
}

fn suspended(object: &Value, _now: Time) -> Value {
    match object.at(&["spec", "suspend"]).and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    }
    .into()
}

fn last_schedule(object: &Value, now: Time) -> Value {
    match object.str_at(&["status", "lastScheduleTime"]).map(Time::parse) {
        None => "<none>".into(),
        Some(time) => table::age(time.ok(), now).into(),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn time_zones_are_iana_names_in_exact_case() {
        let check = |zone: &str, expect: Option<&str>| {
            let mut errors = Errors::new();
            validate_zone(&At::root(&value!(zone)), &mut errors);
            assert_eq!(errors.first().map(|error| error.detail.as_str()), expect, "{zone}");
        };
        check("UTC", None);
        check("Asia/Seoul", None);
        check("America/Argentina/Ushuaia", None);
        check("asia/seoul", Some("unknown time zone asia/seoul"));
        check("Asia//Seoul", Some("unknown time zone Asia//Seoul"));
        check("../etc/passwd", Some("unknown time zone ../etc/passwd"));
        check("", Some("timeZone must be nil or non-empty string"));
        check("Local", Some("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
    }

    #[test]
    fn time_zone_in_schedule_is_accepted_only_if_unchanged() {
        let check = |schedule: &str, old: Option<&str>, expect: &[&str]| {
            let spec = value!({"schedule": schedule});
            let old = old.map(|old| value!({"schedule": old}));
            let mut errors = Errors::new();
            validate_schedule(&At::root(&spec), old.as_ref().map(At::root).as_ref(), &mut errors);
            assert_eq!(errors.iter().map(|error| error.detail.as_str()).collect::<Vec<_>>(), expect);
        };
        check("TZ=UTC 0 0 * * *", None, &["cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]);
        check("TZ=UTC 0 0 * * *", Some("CRON_TZ=UTC 1 1 * * *"), &[]);
    }
}
