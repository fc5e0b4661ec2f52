use super::*;
use crate::field::Error;
use crate::{Path, json, value};

#[test]
fn failure_messages_match_upstream() {
    let pods = GroupName::new("", "pods");
    let deployments = GroupName::new("apps", "deployments");
    let check = |status: Status, code: u16, reason: &str, message: &str| {
        assert_eq!((status.code, status.reason.name(), status.message.as_str()), (code, reason, message));
        assert_eq!(Status::from_value(&status.to_value()), Some(status));
    };
    check(Status::not_found(deployments, "a"), 404, "NotFound", r#"deployments.apps "a" not found"#);
    check(Status::already_exists(pods, "a"), 409, "AlreadyExists", r#"pods "a" already exists"#);
    check(
        Status::conflict(pods, "a", "it moved"),
        409,
        "Conflict",
        r#"Operation cannot be fulfilled on pods "a": it moved"#,
    );
    check(Status::forbidden(pods, "a", "no"), 403, "Forbidden", r#"pods "a" is forbidden: no"#);
    check(Status::forbidden(pods, "", "no"), 403, "Forbidden", "pods is forbidden: no");
    check(Status::forbidden(GroupName::default(), "", "no"), 403, "Forbidden", "forbidden: no");
    check(Status::unauthorized(""), 401, "Unauthorized", "not authorized");
    check(Status::bad_request("no"), 400, "BadRequest", "no");
    check(
        Status::method_not_supported(deployments, "watch"),
        405,
        "MethodNotAllowed",
        r#"watch is not supported on resources of kind "deployments.apps""#,
    );
    check(Status::gone("x"), 410, "Gone", "x");
    check(Status::expired("x"), 410, "Expired", "x");
    check(Status::timeout("x", 3), 504, "Timeout", "Timeout: x");
    check(
        Status::server_timeout(pods, "list", 2),
        500,
        "ServerTimeout",
        "The list operation against pods could not be completed at this time, please try again.",
    );
    check(Status::overloaded("x"), 429, "TooManyRequests", "Too many requests: x");
    check(Status::request_entity_too_large("x"), 413, "RequestEntityTooLarge", "Request entity too large: x");
    check(Status::internal_error("x"), 500, "InternalError", "Internal error occurred: x");
    check(Status::service_unavailable("x"), 503, "ServiceUnavailable", "x");
    check(
        Status::generic(404, "GET", pods, "a", ""),
        404,
        "NotFound",
        "the server could not find the requested resource (get pods a)",
    );
    check(
        Status::generic(502, "GET", GroupName::default(), "", "x"),
        502,
        "InternalError",
        r#"an error on the server ("x") has prevented the request from succeeding"#,
    );
}

#[test]
fn invalid_object_has_a_cause_for_each_error() {
    let at = Path::of("spec");
    let errors = [Error::required(&at.field("a"), ""), Error::invalid(&at.field("b"), 1, "no")];
    assert_eq!(
        Status::invalid(GroupName::new("apps", "Deployment"), "d", &errors).to_value(),
        value!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "Deployment.apps \"d\" is invalid: [spec.a: Required value, spec.b: Invalid value: 1: no]",
            "details": {"group": "apps", "kind": "Deployment", "name": "d", "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
                {"reason": "FieldValueInvalid", "message": "Invalid value: 1: no", "field": "spec.b"}
            ]}
        })
    );
}

#[test]
fn success_has_no_message_or_details() {
    assert_eq!(
        Status::success().to_value(),
        value!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"})
    );
}

#[test]
fn reasons_round_trip() {
    for reason in Reason::ALL {
        assert_eq!(Reason::of(reason.name()), *reason);
        assert!((400..600).contains(&reason.code()));
    }
    assert_eq!(Reason::of("Odd"), Reason::Other("Odd".into()));
    assert!(Status { code: 404, ..Status::failure(Reason::Other("Odd".into()), "") }.is(&Reason::NotFound));
    assert!(!Status::success().is(&Reason::NotFound));
}

/// Rebuilds each recorded kube-apiserver failure from its parts with the matching constructor; the result must be
/// equal.
#[test]
fn compare_failures_with_recordings() {
    let files = std::fs::read_dir(test_requirements::upstream("golden")).unwrap();
    let (mut seen, mut made) = (0, 0);
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "jsonl")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            each_status(&json::parse(line.as_bytes()).unwrap(), &mut |recorded| {
                seen += 1;
                let status = Status::from_value(recorded).unwrap();
                assert_eq!(&status.to_value(), recorded, "read and written again");
                if let Some(again) = made_again(&status) {
                    made += 1;
                    assert_eq!(again, status);
                }
            });
        }
    }
    println!("{seen} recorded failures read and written, {made} of them made again from their parts");
    assert!(made > 1000, "only {made} of {seen} recognised");
}

fn each_status(value: &Value, visit: &mut impl FnMut(&Value)) {
    if value.str_at(&["kind"]) == Some("Status") && value.get("code").is_some() {
        visit(value);
        return;
    }
    for item in value.as_array().unwrap_or_default() {
        each_status(item, visit);
    }
    for item in value.as_object().into_iter().flat_map(Object::values) {
        each_status(item, visit);
    }
}

/// Returns `None` for a failure whose message has a different prefix than the reason's constructor: parts of upstream
/// use their own messages.
fn made_again(status: &Status) -> Option<Status> {
    let none = Details::default();
    let details = status.details.as_deref().unwrap_or(&none);
    let resource = GroupName::new(&details.group, &details.kind);
    let rest = |start: String| status.message.strip_prefix(start.as_str());
    let quoted = crate::go::quote(&details.name);
    match status.reason {
        Reason::NotFound | Reason::Invalid if details == &none => {
            Some(Status::generic(status.code, "GET", resource, "", ""))
        }
        Reason::NotFound => Some(Status::not_found(resource, &details.name)),
        Reason::AlreadyExists => Some(Status::already_exists(resource, &details.name)),
        Reason::Conflict if details.kind.is_empty() => {
            Some(Status::apply_conflict(details.causes.clone(), status.message.clone()))
        }
        Reason::Conflict => rest(format!("Operation cannot be fulfilled on {resource} {quoted}: "))
            .filter(|_| details.causes.is_empty())
            .map(|cause| Status::conflict(resource, &details.name, cause)),
        Reason::Forbidden => rest(format!("{resource} {quoted} is forbidden: "))
            .filter(|_| details.causes.is_empty())
            .map(|cause| Status::forbidden(resource, &details.name, cause)),
        Reason::MethodNotAllowed => Some(Status::generic(405, "GET", resource, "", "")),
        Reason::Invalid => invalid_again(details, resource),
        Reason::BadRequest if status.details.is_none() => Some(Status::bad_request(status.message.clone())),
        _ => None,
    }
}

/// Splits each cause into reason, field and detail, and rebuilds the status.
fn invalid_again(details: &Details, kind: GroupName<'_>) -> Option<Status> {
    let errors: Vec<_> = details.causes.iter().map(error_of).collect::<Option<_>>()?;
    Some(Status::invalid(kind, &details.name, &errors))
}

fn error_of(cause: &Cause) -> Option<Error> {
    use crate::field::{BadValue, Reason};
    let reasons = [
        Reason::NotFound,
        Reason::Required,
        Reason::Duplicate,
        Reason::Invalid,
        Reason::NotSupported,
        Reason::Forbidden,
        Reason::TooLong,
        Reason::TooMany,
        Reason::TooFew,
        Reason::Internal,
        Reason::TypeInvalid,
        Reason::TooShort,
    ];
    let reason = *reasons.iter().find(|reason| reason.name() == cause.reason)?;
    let rest = cause.message.strip_prefix(reason.message_prefix())?;
    let detail = rest.strip_prefix(": ").unwrap_or(rest).to_owned();
    Some(Error { reason, field: cause.field.clone(), value: BadValue::Omitted, detail })
}
