//! `kubectl auth can-i`.

use std::io::Write;

use apimachinery::{Object, Resource, Value, value};
use client::{Target, WriteOptions};

use crate::command::{Command, Flag};
use crate::print::tabwriter::TabWriter;
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "can-i",
    summary: "Ask whether the current user may do something",
    description: "Ask the API server whether the current user may perform VERB on a type, on one object, or on a URL \
        path that starts with /. The response is yes or no; the exit code is 1 for no. Use --as to ask on behalf of \
        another user.",
    examples: r#"  # May I delete deployments in the current namespace?
  kubectl auth can-i delete deployments.apps

  # May I watch secrets in every namespace? Only the exit code tells
  kubectl auth can-i watch secrets -A --quiet

  # May the service account "worker" of namespace "batch" read the logs of the pod "db-0"?
  kubectl auth can-i get pods/db-0 --subresource=log --as=system:serviceaccount:batch:worker

  # May I read the metrics of the API server?
  kubectl auth can-i get /metrics

  # Show everything that I may do in namespace "batch"
  kubectl auth can-i --list -n batch"#,
    usage: "kubectl auth can-i VERB [TYPE | TYPE/NAME | NONRESOURCEURL] [options]",
    flags: &[&[
        Flag::bool("all-namespaces", "Ask about all namespaces instead of one.").short('A'),
        Flag::bool("list", "List all permitted actions in the namespace."),
        Flag::bool("no-headers", "Omit the column headers of --list."),
        Flag::bool("quiet", "Print nothing; only the exit code contains the result.").short('q'),
        Flag::text("subresource", "", "Subresource to ask about, such as log or scale."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const ACCESS_REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview");
const RULES_REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview");

const VERBS: [&str; 16] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
];
const URL_VERBS: [&str; 8] = ["get", "put", "post", "head", "options", "delete", "patch", "*"];

/// Types that exist for impersonation only.
const UNLISTED: [&str; 2] = ["users", "groups"];

/// A type on the command line.
#[derive(Debug, Default)]
struct Subject {
    group: String,
    resource: String,
    /// [`None`] if the server does not have the type.
    namespaced: Option<bool>,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.bool("list") {
        return list(context, invocation).await;
    }
    let [verb, what] = invocation.args.as_slice() else {
        return Err(Failure::new(
            "you must specify two arguments: verb resource or verb resource/resourceName.\n\
             See 'kubectl auth can-i -h' for help and examples.",
        ));
    };
    let attributes = if what.starts_with('/') {
        if !invocation.text("subresource").is_empty() {
            return Err(Failure::new("--subresource can not be used with NonResourceURL"));
        }
        if !URL_VERBS.contains(&verb.as_str()) {
            context.warn(&format!("verb '{verb}' is not a known verb\n"));
        }
        let attributes = value!({"verb": (verb.as_str()), "path": (what.as_str())});
        value!({"nonResourceAttributes": (attributes)})
    } else {
        resource_attributes(context, invocation, verb, what).await?
    };
    if invocation.bool("no-headers") {
        return Err(Failure::new("--no-headers cannot be set without --list specified"));
    }
    let review = value!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": (attributes)
    });
    let review = context.client()?.create(&Target::all(&ACCESS_REVIEWS), &review, &WriteOptions::default()).await?;
    let status = review.get("status").unwrap_or(&Value::Null);
    let allowed = status.get("allowed").and_then(Value::as_bool).unwrap_or(false);
    if !invocation.bool("quiet") {
        writeln!(context.out(), "{}", response(status, allowed))?;
    }
    if allowed { Ok(()) } else { Err(Failure::silent(1)) }
}

fn response(status: &Value, allowed: bool) -> String {
    if allowed {
        return "yes".to_owned();
    }
    let mut text = "no".to_owned();
    for key in ["reason", "evaluationError"] {
        if let Some(reason) = status.str_at(&[key]).filter(|reason| !reason.is_empty()) {
            text.push_str(&format!(" - {reason}"));
        }
    }
    text
}

async fn resource_attributes(
    context: &Context,
    invocation: &Invocation,
    verb: &str,
    what: &str,
) -> Result<Value, Failure> {
    let (resource, name) = what.split_once('/').unwrap_or((what, ""));
    let subject = subject(context, resource).await?;
    let all = invocation.bool("all-namespaces");
    let namespace = if all { String::new() } else { context.namespace()?.name };
    if !all {
        if subject.namespaced == Some(false) {
            let (resource, group) = (&subject.resource, &subject.group);
            let suffix = if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
            context.warn(&format!("resource '{resource}' is not namespace scoped{suffix}\n"));
        }
        if !VERBS.contains(&verb) {
            context.warn(&format!("verb '{verb}' is not a known verb\n"));
        }
    }
    let mut attributes = Object::new();
    let subresource = invocation.text("subresource");
    let fields = [
        ("namespace", namespace.as_str()),
        ("verb", verb),
        ("group", &subject.group),
        ("resource", &subject.resource),
        ("subresource", subresource),
        ("name", name),
    ];
    for (key, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        attributes.insert(key, value);
    }
    Ok(value!({"resourceAttributes": (attributes)}))
}

async fn subject(context: &Context, text: &str) -> Result<Subject, Failure> {
    let plain = |resource: &str| Subject { resource: resource.to_owned(), ..Subject::default() };
    if text == "*" {
        return Ok(Subject { namespaced: Some(true), ..plain(text) });
    }
    let lower = text.to_lowercase();
    match context.mapper().await?.resource(&lower).await {
        Ok(mapping) => Ok(Subject {
            group: mapping.resource.group.to_string(),
            resource: mapping.resource.plural.to_string(),
            namespaced: Some(mapping.namespaced()),
        }),
        Err(_) => {
            let (resource, group) = lower.split_once('.').unwrap_or((&lower, ""));
            if !UNLISTED.contains(&lower.as_str()) {
                let suffix = if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
                context.warn(&format!("the server doesn't have a resource type '{resource}'{suffix}\n"));
            }
            Ok(plain(text))
        }
    }
}

async fn list(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        return Err(Failure::new("list option must be specified with no arguments"));
    }
    if invocation.bool("quiet") || invocation.bool("all-namespaces") || !invocation.text("subresource").is_empty() {
        let problem = "list option can't be specified with neither quiet, all-namespaces nor subresource options";
        return Err(Failure::new(problem));
    }
    let namespace = context.namespace()?.name;
    let review = value!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": (namespace.as_str())}
    });
    let review = context.client()?.create(&Target::all(&RULES_REVIEWS), &review, &WriteOptions::default()).await?;
    let status = review.get("status").unwrap_or(&Value::Null);
    if status.get("incomplete").and_then(Value::as_bool) == Some(true) {
        let reason = status.str_at(&["evaluationError"]).unwrap_or_default();
        context.warn(&format!("the list may be incomplete: {reason}"));
    }
    let mut text = String::new();
    if !invocation.bool("no-headers") {
        text.push_str("Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    }
    for rule in rules(status) {
        text.push_str(&rule.line());
    }
    Ok(context.out().write_all(TabWriter::for_tables().format(&text).as_bytes())?)
}

/// A rule with one resource and at most one name, or with one URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    verbs: Vec<String>,
    group: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    url: Option<String>,
}

/// Returns the rules of a review; verbs for the same resource and name are in one rule.
fn rules(status: &Value) -> Vec<Rule> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let items = rule.get(key).and_then(Value::as_array).unwrap_or_default();
        items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let mut simple: Vec<Rule> = Vec::new();
    for rule in status.get("resourceRules").and_then(Value::as_array).unwrap_or_default() {
        let mut names: Vec<_> = texts(rule, "resourceNames").into_iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    for name in &names {
                        let (group, resource) = (Some(group.clone()), Some(resource.clone()));
                        let verbs = vec![verb.clone()];
                        merge(&mut simple, Rule { verbs, group, resource, name: name.clone(), url: None });
                    }
                }
            }
        }
    }
    let mut rules = Vec::new();
    for rule in status.get("nonResourceRules").and_then(Value::as_array).unwrap_or_default() {
        for url in texts(rule, "nonResourceURLs") {
            for verb in texts(rule, "verbs") {
                rules.push(Rule { verbs: vec![verb], url: Some(url.clone()), ..Rule::default() });
            }
        }
    }
    rules.extend(simple);
    rules.sort_by_cached_key(Rule::sort_key);
    rules
}

fn merge(rules: &mut Vec<Rule>, new: Rule) {
    let same = |rule: &&mut Rule| (&rule.group, &rule.resource, &rule.name) == (&new.group, &new.resource, &new.name);
    match rules.iter_mut().find(same) {
        Some(rule) if rule.verbs.contains(&new.verbs[0]) => {}
        Some(rule) => rule.verbs.extend(new.verbs),
        None => rules.push(new),
    }
}

impl Rule {
    /// Returns the text by which kubectl sorts rules.
    fn sort_key(&self) -> String {
        let list = |item: &Option<String>| format!("[{}]", item.as_deref().unwrap_or_default());
        format!(
            "&PolicyRule{{Verbs:[{}],APIGroups:{},Resources:{},ResourceNames:{},NonResourceURLs:{},}}",
            self.verbs.join(" "),
            list(&self.group),
            list(&self.resource),
            list(&self.name),
            list(&self.url)
        )
    }

    fn line(&self) -> String {
        let list = |item: &Option<String>| format!("[{}]", item.as_deref().unwrap_or_default());
        let resource = match (&self.resource, self.group.as_deref()) {
            (None, _) => String::new(),
            (Some(resource), None | Some("")) => resource.clone(),
            (Some(resource), Some(group)) => match resource.split_once('/') {
                Some((resource, subresource)) => format!("{resource}.{group}/{subresource}"),
                None => format!("{resource}.{group}"),
            },
        };
        format!("{resource}\t{}\t{}\t[{}]\n", list(&self.url), list(&self.name), self.verbs.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_a_resource_are_in_one_rule() {
        let status = value!({
            "resourceRules": [
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"]},
                {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "pods/log"]},
                {"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
            ],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez"]}]
        });
        let lines: Vec<_> =
            rules(&status).iter().map(|rule| rule.line().replace('\t', " ").trim().to_owned()).collect();
        assert_eq!(
            lines,
            [
                "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]",
                "pods [] [] [get list watch]",
                "pods/log [] [] [get list]",
                "pods.apps/log [] [] [get list]",
                "pods.apps [] [] [get list]",
                "[/healthz] [] [get]",
                "[/livez] [] [get]",
                "pods [] [a] [get]",
            ]
        );
    }

    #[test]
    fn denials_have_their_reason() {
        assert_eq!(response(&value!({"reason": "no"}), false), "no - no");
        assert_eq!(response(&value!({"allowed": true}), true), "yes");
    }
}
