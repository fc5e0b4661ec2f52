use apimachinery::value;

use super::*;
use crate::kind::Requester;

fn created(mut job: Value) -> Value {
    let kind = kind();
    let requester = Requester::default();
    let context =
        Context { version: &kind.versions[0], subresource: "", now: Time::from_unix(0, 0), requester: &requester };
    Job.default(&mut job, "v1");
    Job.prepare_create(&mut job, &context);
    job
}

fn job() -> Value {
    value!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    })
}

#[test]
fn template_labels_and_selector_contain_the_job_uid() {
    let job = created(job());
    let labels = value!({
        "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "j", "batch.kubernetes.io/job-name": "j"
    });
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["selector"], value!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
}

#[test]
fn job_labels_are_not_replaced_by_template_labels() {
    let mut labeled = job();
    labeled.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("labels", value!({"a": "b"}));
    assert_eq!(created(labeled)["metadata"]["labels"], value!({"a": "b"}));
}

#[test]
fn template_with_another_jobs_label_is_rejected() {
    let mut wrong = job();
    let template = wrong.get_mut("spec").unwrap().get_mut("template").unwrap();
    template.as_object_mut().unwrap().insert("metadata", value!({"labels": {"job-name": "other"}}));
    let job = created(wrong);
    let mut errors = Errors::new();
    validate_generated_selector(&At::root(&job), &mut errors);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].field, "spec.template.metadata.labels[job-name]");
    assert_eq!(errors[0].detail, "must be 'j'");
}

#[test]
fn indexed_job_completions_change_only_with_parallelism() {
    let check = |new: Value, old: Value, expect: &[&str]| {
        let mut errors = Errors::new();
        validate_completions(&At::root(&new), &At::root(&old), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    };
    let old = value!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
    check(value!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}), old.clone(), &[]);
    check(
        value!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}),
        old,
        &["completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"],
    );
    check(
        value!({"completions": 3}),
        value!({"completions": 2}),
        &["completions: Invalid value: 3: field is immutable"],
    );
}

#[test]
fn table_row_contains_job_progress() {
    let mut job = created(job());
    assert_eq!(state(&job, Time::from_unix(0, 0)), value!("Running"));
    let status = value!({"succeeded": 1, "startTime": "1970-01-01T00:00:10Z", "completionTime": "1970-01-01T00:01:00Z",
        "conditions": [{"type": "Complete", "status": "True"}]});
    job.as_object_mut().unwrap().insert("status", status);
    assert_eq!(state(&job, Time::from_unix(0, 0)), value!("Complete"));
    assert_eq!(completions(&job, Time::from_unix(0, 0)), value!("1/1"));
    assert_eq!(duration(&job, Time::from_unix(500, 0)), value!("50s"));
}
