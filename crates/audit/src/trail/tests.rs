use super::*;
use crate::event::list_to_json;
use crate::policy::Stages;

const ARRIVED: Time = Time::from_unix(1_794_790_923, 500_000_000);

fn later(millis: i64) -> Time {
    ARRIVED.plus(Duration::from_nanos(millis * 1_000_000))
}

fn user() -> User {
    let extra = BTreeMap::from([(Str::from("scopes"), vec![Str::from("a")])]);
    User { username: "ann".into(), uid: "u1".into(), groups: vec!["dev".into(), "ops".into()], extra }
}

const TARGET: Target<'static> =
    Target::Resource { group: "", version: "v1", resource: "pods", subresource: "", namespace: "a", name: "" };

fn verdict(level: Level) -> AuditDecision {
    AuditDecision { level, omit_stages: Stages::default(), omit_managed_fields: false }
}

fn start(verdict: AuditDecision, length: Length) -> Option<Trail> {
    let user = user();
    let received = ReceivedRequest {
        audit_id: "id-1",
        request_uri: "/api/v1/namespaces/a/pods?x=1&y=2",
        user_agent: "kubectl",
        source_ips: &["10.0.0.1".into()],
        at: ARRIVED,
        attributes: Attributes { user: &user, verb: "create", target: TARGET },
    };
    Trail::start(verdict, &received, length)
}

/// Returns the event of a pod creation.
pub(crate) fn event(level: Level) -> Event {
    let mut trail = start(verdict(level), Length::Short).unwrap();
    trail.responds(201, later(2));
    trail.complete(later(3)).remove(0)
}

fn pod() -> Value {
    value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "b", "uid": "p1", "managedFields": [{"manager": "m"}]},
    })
}

#[test]
fn level_none_records_no_event() {
    assert!(start(verdict(Level::None), Length::Short).is_none());
}

#[test]
fn event_is_encoded_as_upstream_does() {
    let mut trail = start(verdict(Level::RequestResponse), Length::Short).unwrap();
    assert_eq!(
        trail.received().unwrap().to_json(),
        concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-1","stage":"RequestReceived","#,
            r#""requestURI":"/api/v1/namespaces/a/pods?x=1\u0026y=2","verb":"create","#,
            r#""user":{"username":"ann","uid":"u1","groups":["dev","ops"],"extra":{"scopes":["a"]}},"#,
            r#""sourceIPs":["10.0.0.1"],"userAgent":"kubectl","objectRef":{"resource":"pods","namespace":"a","apiVersion":"v1"},"#,
            r#""requestReceivedTimestamp":"2026-11-16T01:02:03.500000Z","stageTimestamp":"2026-11-16T01:02:03.500000Z"}"#,
        )
    );
    trail.authorized(Decision::Allow, "RBAC: allowed");
    trail.impersonates(User { username: "bob".into(), ..User::default() }, None);
    trail.request_object(&pod(), TARGET);
    trail.response_object(&pod());
    assert_eq!(trail.responds(201, later(2)), None);
    let events = trail.complete(later(3));
    let [event] = events.as_slice() else { panic!("one event") };
    let object =
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[{"manager":"m"}],"name":"b","uid":"p1"}}"#;
    let expect = [
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-1","stage":"ResponseComplete","#,
        r#""requestURI":"/api/v1/namespaces/a/pods?x=1\u0026y=2","verb":"create","#,
        r#""user":{"username":"ann","uid":"u1","groups":["dev","ops"],"extra":{"scopes":["a"]}},"impersonatedUser":{"username":"bob"},"#,
        r#""sourceIPs":["10.0.0.1"],"userAgent":"kubectl","#,
        r#""objectRef":{"resource":"pods","namespace":"a","name":"b","uid":"p1","apiVersion":"v1"},"#,
        r#""responseStatus":{"metadata":{},"code":201},"#,
        &format!(r#""requestObject":{object},"responseObject":{object},"#),
        r#""requestReceivedTimestamp":"2026-11-16T01:02:03.500000Z","stageTimestamp":"2026-11-16T01:02:03.503000Z","#,
        r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed"}}"#,
    ];
    assert_eq!(event.to_json(), expect.concat());
    assert_eq!(event.to_value(), json::parse(expect.concat().as_bytes()).unwrap());
    let list = list_to_json(&events);
    assert!(list.starts_with(r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"level":"#));
}

#[test]
fn objects_are_recorded_only_at_their_level() {
    let check = |level, request: bool, response: bool| {
        let mut trail = start(verdict(level), Length::Short).unwrap();
        trail.request_object(&pod(), TARGET);
        trail.response_object(&pod());
        let event = trail.complete(later(1)).remove(0);
        assert_eq!((event.request_object.is_some(), event.response_object.is_some()), (request, response), "{level}");
        assert_eq!(event.object_ref.unwrap().name, "b", "the object reference exists at every level");
    };
    check(Level::Metadata, false, false);
    check(Level::Request, true, false);
    check(Level::RequestResponse, true, true);
    let mut patched = start(verdict(Level::Request), Length::Short).unwrap();
    patched.request_patch(br#"{"a":1}"#);
    assert_eq!(patched.complete(later(1))[0].request_object, Some(value!({"a": 1})));
    let mut hidden = start(verdict(Level::Metadata), Length::Short).unwrap();
    hidden.request_patch(br#"{"a":1}"#);
    assert_eq!(hidden.complete(later(1))[0].request_object, None);
}

#[test]
fn managed_fields_are_removed_from_objects_lists_and_tables() {
    let verdict = AuditDecision { omit_managed_fields: true, ..verdict(Level::RequestResponse) };
    let check = |object: Value| {
        let mut trail = start(verdict, Length::Short).unwrap();
        trail.response_object(&object);
        let event_json = trail.complete(later(1))[0].to_json();
        assert!(event_json.contains("p1") && !event_json.contains("managedFields"), "{event_json}");
    };
    check(pod());
    check(value!({"kind": "PodList", "items": [(pod()), (pod())]}));
    check(value!({"kind": "Table", "rows": [{"cells": ["b"], "object": (pod())}]}));
}

#[test]
fn failure_is_recorded_with_its_status() {
    let mut trail = start(verdict(Level::Metadata), Length::Short).unwrap();
    trail.response_object(&value!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden",
        "details": {"kind": "pods"}, "code": 403,
    }));
    trail.responds(403, later(1));
    let event = trail.complete(later(1)).remove(0);
    assert!(event.to_json().contains(
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"no","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#
    ));
}

#[test]
fn long_running_request_has_a_response_started_event() {
    let stages = |events: &[Event]| -> Vec<Stage> { events.iter().map(|event| event.stage).collect() };
    let mut trail = start(verdict(Level::Metadata), Length::LongRunning).unwrap();
    let started = trail.responds(200, later(1)).unwrap();
    assert_eq!((started.stage, started.stage_at), (Stage::ResponseStarted, later(1)));
    assert_eq!(trail.responds(500, later(2)), None, "the first head counts");
    assert_eq!(stages(&trail.complete(later(9))), [Stage::ResponseComplete]);
    let unanswered = start(verdict(Level::Metadata), Length::LongRunning).unwrap().complete(later(1));
    assert_eq!(stages(&unanswered), [Stage::ResponseStarted, Stage::ResponseComplete]);
    assert!(unanswered[0].to_json().contains(r#""status":"Success","message":"Connection closed early","code":200"#));
}

#[test]
fn omitted_stage_has_no_event() {
    let stages = Stages::default().with(Stage::RequestReceived).with(Stage::Panic);
    let verdict = AuditDecision { omit_stages: stages, ..verdict(Level::Metadata) };
    let mut trail = start(verdict, Length::Short).unwrap();
    assert_eq!(trail.received(), None);
    assert_eq!(trail.clone().panicked("x", later(1)), None);
    assert_eq!(trail.complete(later(1)).len(), 1);
}

#[test]
fn panic_is_recorded() {
    let event =
        start(verdict(Level::Metadata), Length::Short).unwrap().panicked("index out of range", later(1)).unwrap();
    let expect = r#""stage":"Panic","#;
    let json = event.to_json();
    assert!(json.contains(expect) && json.contains("APIServer panic'd: index out of range"), "{json}");
}

#[test]
fn first_value_of_an_annotation_wins() {
    let mut trail = start(verdict(Level::Metadata), Length::Short).unwrap();
    assert!(trail.annotate("a", "1"));
    assert!(trail.annotate("a", "1"));
    assert!(!trail.annotate("a", "2"));
    for at in 0..2000 {
        trail.annotate(at.to_string(), "x");
    }
    let event = trail.complete(later(1)).remove(0);
    assert_eq!((event.annotations["a"].as_str(), event.annotations.len()), ("1", ANNOTATIONS_MAX));
}

#[test]
fn slow_request_has_latency_annotations() {
    let second = Duration::from_seconds(1);
    let mut trail = start(verdict(Level::Metadata), Length::Short).unwrap();
    trail.took(Duration::from_nanos(500_000_000), &[("etcd", second)]);
    trail.took(second, &[("etcd", Duration::from_nanos(900_000_000)), ("apf-queue-wait", Duration::default())]);
    let annotations = trail.complete(later(1)).remove(0).annotations;
    let expect = [("apiserver.latency.k8s.io/etcd", "900ms"), ("apiserver.latency.k8s.io/total", "1s")];
    assert!(annotations.iter().map(|(key, value)| (&**key, &**value)).eq(expect), "{annotations:?}");
}

#[test]
fn long_user_agent_is_truncated() {
    assert_eq!(cut_user_agent(&"x".repeat(1024)).len(), 1024);
    assert_eq!(cut_user_agent(&"x".repeat(1025)), format!("{}...TRUNCATED", "x".repeat(1024)));
    assert_eq!(cut_user_agent(&"é".repeat(1024)), format!("{}...TRUNCATED", "é".repeat(512)));
}
