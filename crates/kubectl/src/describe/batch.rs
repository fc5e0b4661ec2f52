//! Jobs and CronJobs.

use apimachinery::Value;
use apimachinery::table::human_duration;

use super::clock;
use super::common::{self, optional_bool};
use super::pod::write_template;
use super::read::Read;
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

/// The length after which a list of completed indexes is cut.
const INDEXES_LENGTH: usize = 50;

pub(super) fn job(w: &mut Writer<'_>, job: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = job.sub("spec");
    common::identity(w, job);
    write_selector(w, spec.sub("selector"));
    common::metadata(w, job);
    common::controlled_by(w, job);
    if spec.has("parallelism") {
        line!(w, 0, "Parallelism:\t{}", spec.int("parallelism"));
    }
    line!(w, 0, "Completions:\t{}", int_or_unset(spec.sub("completions"), ""));
    if spec.has("completionMode") {
        line!(w, 0, "Completion Mode:\t{}", spec.text("completionMode"));
    }
    if spec.has("suspend") {
        line!(w, 0, "Suspend:\t{}", spec.flag("suspend"));
    }
    for (title, field) in [("Backoff Limit", "backoffLimit"), ("TTL Seconds After Finished", "ttlSecondsAfterFinished")]
    {
        if spec.has(field) {
            line!(w, 0, "{title}:\t{}", spec.int(field));
        }
    }
    write_times(w, job);
    write_counts(w, job);
    if spec.text("completionMode") == "Indexed" {
        line!(w, 0, "Completed Indexes:\t{}", indexes(job.text("status.completedIndexes")));
    }
    write_template(w, spec.sub("template"));
    Ok(())
}

fn write_times(w: &mut Writer<'_>, job: &Value) {
    let status = job.sub("status");
    let [started, completed] = ["startTime", "completionTime"].map(|field| status.text(field));
    if !started.is_empty() {
        common::time(w, "Start Time", started);
    }
    if !completed.is_empty() {
        common::time(w, "Completed At", completed);
    }
    if let (Some(started), Some(completed)) = (clock::parse(started), clock::parse(completed)) {
        line!(w, 0, "Duration:\t{}", human_duration(completed.since(started)));
    }
    if job.has("spec.activeDeadlineSeconds") {
        line!(w, 0, "Active Deadline Seconds:\t{}s", job.int("spec.activeDeadlineSeconds"));
    }
}

fn write_counts(w: &mut Writer<'_>, job: &Value) {
    let status = job.sub("status");
    let [active, succeeded, failed] = ["active", "succeeded", "failed"].map(|field| status.int(field));
    let ready = match status.has("ready") {
        true => format!(" ({} Ready)", status.int("ready")),
        false => String::new(),
    };
    line!(w, 0, "Pods Statuses:\t{active} Active{ready} / {succeeded} Succeeded / {failed} Failed");
}

/// Cuts a long list of indexes after a comma.
fn indexes(indexes: &str) -> String {
    if indexes.is_empty() {
        return "<none>".to_owned();
    }
    match indexes.bytes().enumerate().skip(INDEXES_LENGTH).find(|(_, byte)| *byte == b',') {
        Some((comma, _)) => format!("{}...", &indexes[..=comma]),
        None => indexes.to_owned(),
    }
}

fn write_selector(w: &mut Writer<'_>, selector: &Value) {
    match common::selector(selector) {
        Ok(selector) => line!(w, 0, "Selector:\t{selector}"),
        Err(error) => line!(w, 0, "Selector:\tFailed to get selector: {error}"),
    }
}

/// Formats an optional number with a unit.
fn int_or_unset(value: &Value, unit: &str) -> String {
    value.as_int().map_or_else(|| "<unset>".to_owned(), |int| format!("{int}{unit}"))
}

pub(super) fn cron_job(w: &mut Writer<'_>, job: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = job.sub("spec");
    common::identity(w, job);
    common::metadata(w, job);
    line!(w, 0, "Schedule:\t{}", spec.text("schedule"));
    line!(w, 0, "Concurrency Policy:\t{}", spec.text("concurrencyPolicy"));
    line!(w, 0, "Suspend:\t{}", optional_bool(spec.sub("suspend")));
    line!(w, 0, "Time Zone:\t{}", spec.text_or("timeZone", "<unset>"));
    let numbers = [
        ("Successful Job History Limit", "successfulJobsHistoryLimit", ""),
        ("Failed Job History Limit", "failedJobsHistoryLimit", ""),
        ("Starting Deadline Seconds", "startingDeadlineSeconds", "s"),
    ];
    for (title, field, unit) in numbers {
        line!(w, 0, "{title}:\t{}", int_or_unset(spec.sub(field), unit));
    }
    write_job_template(w, spec.sub("jobTemplate.spec"));
    match job.text("status.lastScheduleTime") {
        "" => line!(w, 0, "Last Schedule Time:\t<unset>"),
        time => common::time(w, "Last Schedule Time", time),
    }
    let active: Vec<&str> = job.list("status.active").iter().map(|job| job.text("name")).collect();
    line!(w, 0, "Active Jobs:\t{}", if active.is_empty() { "<none>".to_owned() } else { active.join(", ") });
    Ok(())
}

fn write_job_template(w: &mut Writer<'_>, spec: &Value) {
    match spec.sub("selector") {
        Value::Null => line!(w, 0, "Selector:\t<unset>"),
        selector => write_selector(w, selector),
    }
    line!(w, 0, "Parallelism:\t{}", int_or_unset(spec.sub("parallelism"), ""));
    line!(w, 0, "Completions:\t{}", int_or_unset(spec.sub("completions"), ""));
    if spec.has("activeDeadlineSeconds") {
        line!(w, 0, "Active Deadline Seconds:\t{}s", spec.int("activeDeadlineSeconds"));
    }
    write_template(w, spec.sub("template"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_indexes_are_cut_after_a_comma() {
        assert_eq!(indexes(""), "<none>");
        assert_eq!(indexes("0-4,6"), "0-4,6");
        let long = "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42";
        assert_eq!(indexes(long), "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,...");
    }
}
