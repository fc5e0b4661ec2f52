//! ConversionReview: requests to a CRD's conversion webhook, and validation of its responses.

use apimachinery::meta::{Meta, validate_annotations, validate_labels};
use apimachinery::{Errors, GroupVersionKind, Object, Path, Value, go, value};

/// A conversion of objects to another version.
#[derive(Clone, Copy, Debug)]
pub struct Conversion<'a> {
    /// `conversion.webhook` of the CRD.
    pub webhook: &'a Value,
    /// For example `example.com/v2`.
    pub desired: &'a str,
    /// The UID that correlates the response.
    pub uid: &'a str,
    /// Whether the request is for a list; error messages then name the list.
    pub many: bool,
}

/// The ConversionReview versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V1beta1,
}

impl Version {
    const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

impl Conversion<'_> {
    /// Returns the ConversionReview to send.
    pub fn request(&self, objects: &[Value]) -> Result<Value, String> {
        Ok(value!({
            "apiVersion": (self.version()?.api_version()),
            "kind": "ConversionReview",
            "request": {"uid": (self.uid), "desiredAPIVersion": (self.desired), "objects": (objects.to_vec())},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        }))
    }

    /// Returns the converted objects, in the order in which they were sent.
    pub fn converted_objects(&self, sent: &[Value], reply: &Value) -> Result<Vec<Value>, String> {
        let converted = self.verify(reply).map_err(|error| self.failed(sent, &error))?;
        if converted.len() != sent.len() {
            let (got, expected) = (converted.len(), sent.len());
            return Err(format!(
                "conversion webhook for {} returned {got} objects, expected {expected}",
                self.about(sent)
            ));
        }
        let pairs = sent.iter().zip(converted).enumerate();
        pairs.map(|(at, (original, object))| self.check(sent, at, original, object)).collect()
    }

    /// Returns the message for a failed call or a rejection.
    pub fn failed(&self, sent: &[Value], error: &str) -> String {
        format!("conversion webhook for {} failed: {error}", self.about(sent))
    }

    fn version(&self) -> Result<Version, String> {
        let known = self.webhook.list_at(&["conversionReviewVersions"]);
        let version = |name: &Value| match name.as_str() {
            Some("v1") => Some(Version::V1),
            Some("v1beta1") => Some(Version::V1beta1),
            _ => None,
        };
        known.iter().find_map(version).ok_or_else(|| "no supported conversion review versions".to_owned())
    }

    fn verify<'v>(&self, reply: &'v Value) -> Result<&'v [Value], String> {
        let version = self.version()?;
        let field_text = |field: &str| reply.text_at(&[field]);
        if version == Version::V1
            && (field_text("apiVersion"), field_text("kind")) != (version.api_version(), "ConversionReview")
        {
            let api_version = if field_text("apiVersion").is_empty() { "/" } else { field_text("apiVersion") };
            return Err(format!(
                "expected webhook response of {}, Kind=ConversionReview, got {api_version}, Kind={}",
                version.api_version(),
                field_text("kind")
            ));
        }
        let response = reply.get("response").filter(|response| !response.is_null()).ok_or("no response provided")?;
        let uid = response.text_at(&["uid"]);
        if version == Version::V1 && uid != self.uid {
            return Err(format!("expected response.uid={}, got {}", go::quote(self.uid), go::quote(uid)));
        }
        let result = |field: &str| response.text_at(&["result", field]);
        match (result("status"), result("message")) {
            ("Success", _) => {}
            (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
            (_, message) => return Err(message.to_owned()),
        }
        Ok(response.list_at(&["convertedObjects"]))
    }

    /// Validates one converted object and restores its metadata.
    fn check(&self, sent: &[Value], at: usize, original: &Value, object: &Value) -> Result<Value, String> {
        let about = self.about(sent);
        let what = if self.many { "converted object" } else { "object" };
        let invalid = |message: String| {
            format!("conversion webhook for {about} returned invalid {what} at index {at}: {message}")
        };
        let text = |value: &Value, field: &str| value.text_at(&[field]).to_owned();
        for (field, name, expected) in
            [("apiVersion", "groupVersion", self.desired.to_owned()), ("kind", "kind", text(original, "kind"))]
        {
            let got = text(object, field);
            if got != expected {
                return Err(invalid(format!("invalid {name} (expected {expected}, received {got})")));
            }
        }
        let (was, is) = (Meta::of(original), Meta::of(object));
        let immutable_fields = [
            ("name", was.name(), is.name()),
            ("namespace", was.namespace(), is.namespace()),
            ("UID", was.uid(), is.uid()),
        ];
        if let Some((field, was, is)) = immutable_fields.into_iter().find(|(_, was, is)| was != is) {
            return Err(invalid(format!("must have the same {field}: {was} != {is}")));
        }
        restore(original, object).map_err(|message| {
            let location = if self.many { format!(" in object at index {at}") } else { String::new() };
            format!("conversion webhook for {about} returned invalid metadata{location}: {message}")
        })
    }

    /// Returns the description of the objects for error messages.
    fn about(&self, sent: &[Value]) -> String {
        let gvk = sent.first().and_then(|object| GroupVersionKind::of_object(object).ok()).unwrap_or_default();
        let list = if self.many { "List" } else { "" };
        format!("{}, Kind={}{list}", gvk.api_version(), gvk.kind)
    }
}

/// Returns the converted object with the metadata of the original, except labels and annotations.
fn restore(original: &Value, converted: &Value) -> Result<Value, String> {
    let mut object = converted.as_object().cloned().ok_or("it is not an object")?;
    let converted_metadata = match object.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(converted_metadata)) => converted_metadata.clone(),
        Some(_) => return Err("invalid metadata in converted object".to_owned()),
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        metadata.remove(field);
        match converted_metadata.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) if map.iter().all(|(_, value)| value.as_str().is_some()) => {
                metadata.insert(field, map.clone());
            }
            Some(_) => return Err(format!("metadata.{field} is not a map of strings")),
        }
    }
    validate_metadata(&metadata)?;
    object.insert("metadata", metadata);
    Ok(Value::Object(object))
}

fn validate_metadata(metadata: &Object) -> Result<(), String> {
    let mut errors = Errors::new();
    let root = Path::of("metadata");
    let map = |field: &str| metadata.get(field).and_then(Value::as_object);
    if let Some(labels) = map("labels") {
        validate_labels(labels, &root.field("labels"), &mut errors);
    }
    if let Some(annotations) = map("annotations") {
        validate_annotations(annotations, &root.field("annotations"), &mut errors);
    }
    match errors.first() {
        Some(error) => Err(error.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Value {
        value!({
            "apiVersion": "e.com/v1", "kind": "Foo",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"x": "y"}},
        })
    }

    fn converted(reply: &Value) -> String {
        let webhook = value!({"conversionReviewVersions": ["v9", "v1"]});
        let conversion = Conversion { webhook: &webhook, desired: "e.com/v2", uid: "id", many: false };
        match conversion.converted_objects(&[sent()], reply) {
            Ok(objects) => objects[0].to_string(),
            Err(error) => error,
        }
    }

    fn review(response: Value) -> Value {
        value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
    }

    fn with(object: Value) -> Value {
        let objects = vec![object];
        review(value!({"uid": "id", "result": {"status": "Success"}, "convertedObjects": objects}))
    }

    #[test]
    fn conversion_keeps_metadata_except_labels_and_annotations() {
        let object = value!({
            "apiVersion": "e.com/v2", "kind": "Foo", "spec": {"a": 1},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 9, "annotations": {"k": "v"}},
        });
        let expect = r#"{"apiVersion":"e.com/v2","kind":"Foo","metadata":{"annotations":{"k":"v"},"generation":3,"name":"a","namespace":"n","uid":"u"},"spec":{"a":1}}"#;
        assert_eq!(converted(&with(object)), expect);
    }

    #[test]
    fn invalid_conversion_responses_are_rejected_with_upstreams_messages() {
        let check = |reply: Value, expect: &str| {
            assert_eq!(converted(&reply), format!("conversion webhook for e.com/v1, Kind=Foo {expect}"));
        };
        check(
            value!({}),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        );
        check(review(Value::Null), "failed: no response provided");
        check(review(value!({"uid": "x"})), "failed: expected response.uid=\"id\", got \"x\"");
        check(review(value!({"uid": "id"})), "failed: response.result.status was '', not 'Success'");
        let failure = value!({"uid": "id", "result": {"status": "Failure", "message": "cannot"}});
        check(review(failure), "failed: cannot");
        check(review(value!({"uid": "id", "result": {"status": "Success"}})), "returned 0 objects, expected 1");
        check(
            with(sent()),
            "returned invalid object at index 0: invalid groupVersion (expected e.com/v2, received e.com/v1)",
        );
        let renamed = value!({"apiVersion": "e.com/v2", "kind": "Foo", "metadata": {"name": "b"}});
        check(with(renamed), "returned invalid object at index 0: must have the same name: a != b");
        let labeled = value!({"apiVersion": "e.com/v2", "kind": "Foo",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": 1}}});
        check(with(labeled), "returned invalid metadata: metadata.labels is not a map of strings");
    }
}
