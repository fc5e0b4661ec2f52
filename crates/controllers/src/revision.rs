//! ControllerRevisions: their data, names, order and history limit.

use std::cmp::Reverse;

use apimachinery::meta::{Meta, NAME_ALPHABET};
use apimachinery::{Value, json, patch, value};
use controller::{Action, Preconditions, kinds};

/// Maximum length of the name prefix, so that a hash fits after it.
const NAME_MAX: usize = 223;

/// Returns the data of a revision: a patch that restores the workload's template.
pub fn data(workload: &Value) -> Value {
    let mut template = workload.at(&["spec", "template"]).cloned().unwrap_or_else(Value::object);
    if let Some(template) = template.as_object_mut() {
        template.insert("$patch", "replace");
    }
    value!({"spec": {"template": template}})
}

/// Returns the template in a revision.
pub fn template(revision: &Value) -> Value {
    let mut template = revision.at(&["data", "spec", "template"]).cloned().unwrap_or_else(Value::object);
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    template
}

pub fn number(revision: &Value) -> i64 {
    revision.get("revision").and_then(Value::as_int).unwrap_or(0)
}

/// Sorts revisions from the oldest to the newest.
pub fn sorted<'a>(revisions: impl IntoIterator<Item = &'a Value>) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = revisions.into_iter().collect();
    let rank = |one: &Value| (number(one), Meta::of(one).creation_timestamp(), Meta::of(one).name().to_owned());
    all.sort_by_cached_key(|one| rank(one));
    all
}

/// Returns the name of a workload's revision.
pub fn name(workload: &Value, hash: &str) -> String {
    let name = Meta::of(workload).name();
    format!("{}-{hash}", &name[..name.floor_char_boundary(NAME_MAX)])
}

/// Returns a hash of the data and the collision count. The hash equals upstream's, so that both controllers can take
/// over from each other.
pub fn hash(data: &Value, collisions: i64) -> String {
    let text = go_json(data).into_iter().chain(collisions.to_string().into_bytes());
    let fnv1 = |hash: u32, byte: u8| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    letters(text.fold(0x811c_9dc5, fnv1))
}

/// Encodes a hash with an alphabet without vowels (upstream: rand.SafeEncodeString).
pub fn letters(hash: u32) -> String {
    let letter = |digit: char| char::from(NAME_ALPHABET[digit as usize % NAME_ALPHABET.len()]);
    hash.to_string().chars().map(letter).collect()
}

/// Makes a revision the newest one by changing its revision number.
pub fn renumber(revision: &Value, number: i64) -> Action {
    Action::Patch {
        resource: kinds::CONTROLLER_REVISIONS.clone(),
        key: apimachinery::Key::of(revision),
        subresource: "",
        only_if: Preconditions::unchanged(revision),
        patch: controller::Patch::Merge(value!({"revision": number})),
    }
}

/// Deletes the oldest revisions beyond the limit, except live ones.
pub fn drop_old(revisions: &[&Value], limit: Option<i64>, is_live: impl Fn(&Value) -> bool) -> Vec<Action> {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
    let idle: Vec<&Value> = revisions.iter().copied().filter(|one| !is_live(one)).collect();
    let surplus = idle.len().saturating_sub(limit);
    let to_delete = idle.into_iter().take(surplus).filter(|one| !Meta::of(one).is_deleting());
    to_delete.map(|one| Action::delete(&kinds::CONTROLLER_REVISIONS, one)).collect()
}

/// Returns the newest revision with the data.
pub fn equal<'a>(revisions: &[&'a Value], data: &Value) -> Option<&'a Value> {
    all_equal(revisions, data).min_by_key(|one| Reverse(number(one)))
}

pub fn all_equal<'a>(revisions: &[&'a Value], data: &Value) -> impl Iterator<Item = &'a Value> {
    revisions.iter().copied().filter(move |one| one.get("data") == Some(data))
}

/// Returns the workload with the template of a revision.
pub fn applied(workload: &Value, revision: &Value) -> Value {
    let at = patch::merge::apply(workload.clone(), value!({"spec": {"template": null}}));
    patch::merge::apply(at, value!({"spec": {"template": (template(revision))}}))
}

/// Serializes JSON as Go does, which escapes `<`, `>` and `&`.
fn go_json(data: &Value) -> Vec<u8> {
    let text = json::to_string(data);
    let mut out = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(letter)).as_bytes());
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_revision_hash_equals_upstreams() {
        let set = value!({"spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
            "containers": [{"image": "app:v2", "imagePullPolicy": "IfNotPresent", "name": "c", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30}}}});
        assert_eq!(hash(&data(&set), 0), "74cc9bf5f9");
        assert_ne!(hash(&data(&set), 1), "74cc9bf5f9");
        assert_eq!(go_json(&"a<b>&".into()), br#""a\u003cb\u003e\u0026""#);
    }

    #[test]
    fn only_the_oldest_unused_revisions_are_deleted() {
        let all: Vec<Value> = (1..=5)
            .map(|at| value!({"metadata": {"name": (format!("r{at}")), "uid": (format!("u{at}"))}, "revision": at}))
            .collect();
        let check = |limit: Option<i64>, live: &[i64], expect: &[&str]| {
            let deletions = drop_old(&sorted(&all), limit, |one| live.contains(&number(one)));
            let deletions: Vec<String> = deletions.iter().map(ToString::to_string).collect();
            assert_eq!(
                deletions,
                expect.iter().map(|one| format!("delete controllerrevisions.apps {one}")).collect::<Vec<_>>()
            );
        };
        check(Some(2), &[1, 5], &["r2"]);
        check(Some(0), &[5], &["r1", "r2", "r3", "r4"]);
        check(Some(10), &[], &[]);
        check(None, &[], &[]);
    }
}
