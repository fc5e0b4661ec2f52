//! HTTP client of scheduler extenders.
//!
//! Field names are capitalized as Go writes them, and read case-insensitively as Go reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::resources::{NODES, PODS};
use apimachinery::meta::Meta;
use apimachinery::{Key, Str, Value, json, value};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use client::config::{Pem, Tls};
use client::{Client, Config};
use controller_runtime::Caches;
use http::header::CONTENT_TYPE;
use http::{Request, Uri};
use http_body_util::BodyExt;
use scheduler::Pod;
use scheduler::extender::{Eviction, Extender, ExtenderRequest, ExtenderResults, SCALE, TlsConfig};
use scheduler::plugins::default_preemption::Victim;

/// Maximum response size in bytes.
const RESPONSE_MAX: usize = 64 * 1024 * 1024;

/// All extenders with their HTTP clients.
pub struct Extenders {
    all: Vec<(Extender, Client)>,
}

/// An extender's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The URL is invalid.
    #[error("invalid urlPrefix {0:?} of an extender")]
    Address(String, #[source] http::uri::InvalidUri),
    /// Certificate data is not valid base64.
    #[error("certificate data of the extender at {0:?} is not valid base64")]
    Data(String, #[source] base64::DecodeError),
    /// The TLS client could not be created.
    #[error("failed to create the client for the extender at {0:?}")]
    Client(String, #[source] Box<client::Error>),
}

/// Subject of the requests of one scheduling cycle.
struct Subject<'a> {
    caches: &'a Arc<Caches>,
    pod: &'a Pod,
    object: &'a Value,
}

impl Extenders {
    /// Creates a client for each extender.
    pub fn new(all: &[Extender]) -> Result<Self, SetupError> {
        let connect = |extender: &Extender| Ok((extender.clone(), connect(extender)?));
        Ok(Self { all: all.iter().map(connect).collect::<Result<_, _>>()? })
    }

    pub fn list(&self) -> Vec<Extender> {
        self.all.iter().map(|(extender, _)| extender.clone()).collect()
    }

    /// Sends a request about a pod to the extenders and adds their results to `responses`.
    pub async fn call(
        &self,
        caches: &Arc<Caches>,
        pod: &Pod,
        question: &ExtenderRequest,
        mut responses: ExtenderResults,
    ) -> ExtenderResults {
        let key = Key::new(pod.class.namespace.clone(), pod.name.clone());
        let Some(object) = caches.get(PODS, &key) else {
            responses.error = Some(format!("pod {key} no longer exists"));
            return responses;
        };
        let subject = Subject { caches, pod, object: &object };
        let outcome = match question {
            ExtenderRequest::Nodes(nodes) => self.filter_nodes(&subject, nodes, &mut responses).await,
            ExtenderRequest::Victims(evictions) => self.weigh(&subject, evictions, &mut responses).await,
        };
        responses.error = outcome.err();
        responses
    }

    /// Binds a pod by an extender; `None` if no extender binds it, or if all that do fail and are ignorable.
    pub async fn bind(&self, pod: &Pod, node: &str) -> Option<Result<(), String>> {
        let binds = |it: &&(Extender, Client)| !it.0.bind_verb.is_empty() && it.0.is_interested(pod);
        let args = value!({
            "PodName": (pod.name.as_str()), "PodNamespace": (pod.class.namespace.as_str()),
            "PodUID": (pod.uid.as_str()), "Node": node,
        });
        for (extender, client) in self.all.iter().filter(binds) {
            let response = send(client, extender, &extender.bind_verb, "bind", &args).await;
            match response.and_then(|response| failure(&response)) {
                Err(error) if extender.ignorable => tracing::warn!(error, "ignoring the failed extender"),
                bound => return Some(bound),
            }
        }
        None
    }

    async fn filter_nodes(
        &self,
        subject: &Subject<'_>,
        nodes: &[Str],
        responses: &mut ExtenderResults,
    ) -> Result<(), String> {
        let mut passed = nodes.to_vec();
        for (extender, client) in &self.all {
            if passed.is_empty() {
                break;
            }
            if extender.filter_verb.is_empty() || !extender.is_interested(subject.pod) {
                continue;
            }
            let args = subject.about_nodes(extender, &passed);
            let response = send(client, extender, &extender.filter_verb, "filter", &args).await;
            match response.and_then(|response| filtered(extender, &passed, &response, responses)) {
                Ok(left) => passed = left,
                Err(error) if extender.ignorable => tracing::warn!(error, "ignoring the failed extender"),
                Err(error) => return Err(error),
            }
        }
        if passed.len() > 1 {
            self.rank(subject, &passed, responses).await;
        }
        responses.passed = Some(passed);
        Ok(())
    }

    /// Adds scores. Failed calls are ignored.
    async fn rank(&self, subject: &Subject<'_>, nodes: &[Str], responses: &mut ExtenderResults) {
        for (extender, client) in &self.all {
            if extender.prioritize_verb.is_empty() || !extender.is_interested(subject.pod) {
                continue;
            }
            let args = subject.about_nodes(extender, nodes);
            match send(client, extender, &extender.prioritize_verb, "prioritize", &args).await {
                Ok(list) => {
                    for entry in list.as_array().unwrap_or_default() {
                        let host = field(entry, "Host").and_then(Value::as_str).unwrap_or_default();
                        let score = field(entry, "Score").and_then(Value::as_int).unwrap_or_default();
                        let weighted = score.saturating_mul(extender.weight).saturating_mul(SCALE);
                        let sum = responses.scores.entry(host.into()).or_default();
                        *sum = sum.saturating_add(weighted);
                    }
                }
                Err(error) => tracing::warn!(error, "extender failed to score nodes; ignoring its scores"),
            }
        }
    }

    async fn weigh(
        &self,
        subject: &Subject<'_>,
        all: &[Eviction],
        responses: &mut ExtenderResults,
    ) -> Result<(), String> {
        let mut left = all.to_vec();
        for (extender, client) in &self.all {
            if left.is_empty() {
                break;
            }
            if extender.preempt_verb.is_empty() || !extender.is_interested(subject.pod) {
                continue;
            }
            let (args, pods) = subject.about_victims(extender, &left);
            let response = send(client, extender, &extender.preempt_verb, "preempt", &args).await;
            match response.and_then(|response| evictions(extender, &response, &pods)) {
                Ok(some) => left = some,
                Err(error) if extender.ignorable => tracing::warn!(error, "ignoring the failed extender"),
                Err(error) => return Err(error),
            }
        }
        responses.evictions = Some(left);
        Ok(())
    }
}

impl Subject<'_> {
    fn about_nodes(&self, extender: &Extender, nodes: &[Str]) -> Value {
        let pod = self.object.clone();
        if extender.knows_nodes {
            let names: Vec<Value> = nodes.iter().map(|name| name.as_str().into()).collect();
            return value!({"Pod": pod, "Nodes": null, "NodeNames": names});
        }
        let object = |name: &Str| self.caches.get(NODES, &Key::cluster(name.clone()));
        let items: Vec<Value> = nodes.iter().filter_map(object).collect();
        value!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
    }

    /// Returns the victims by node name, and the pods by UID.
    fn about_victims(&self, extender: &Extender, all: &[Eviction]) -> (Value, BTreeMap<String, Victim>) {
        let (mut by_node, mut pods) = (apimachinery::Object::new(), BTreeMap::new());
        for eviction in all {
            let mut list = Vec::new();
            for victim in &eviction.victims {
                let key = Key::new(victim.namespace.clone(), victim.name.clone());
                let Some(object) = self.caches.get(PODS, &key) else { continue };
                let uid = Meta::of(&object).uid().to_owned();
                list.push(if extender.knows_nodes { value!({"UID": (uid.as_str())}) } else { object });
                pods.insert(uid, victim.clone());
            }
            let violations = i64::try_from(eviction.violations).unwrap_or(i64::MAX);
            by_node.insert(eviction.node.clone(), value!({"Pods": list, "NumPDBViolations": violations}));
        }
        let pod = self.object.clone();
        let args = if extender.knows_nodes {
            value!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": by_node})
        } else {
            value!({"Pod": pod, "NodeNameToVictims": by_node, "NodeNameToMetaVictims": null})
        };
        (args, pods)
    }
}

/// Returns the nodes that passed, in the extender's order, and adds the reasons of the others to `responses`.
fn filtered(
    extender: &Extender,
    sent_nodes: &[Str],
    response: &Value,
    responses: &mut ExtenderResults,
) -> Result<Vec<Str>, String> {
    failure(response)?;
    let names: Vec<Str> = match field(response, "NodeNames").and_then(Value::as_array) {
        Some(names) if extender.knows_nodes => names.iter().filter_map(Value::as_str).map(Str::from).collect(),
        _ => {
            let list = field(response, "Nodes").and_then(|nodes| field(nodes, "items")).and_then(Value::as_array);
            list.unwrap_or_default().iter().map(|node| Meta::of(node).name().into()).collect()
        }
    };
    if let Some(unknown) = names.iter().find(|name| !sent_nodes.contains(name)) {
        let url = &extender.url_prefix;
        return Err(format!(
            "extender {url:?} claims a filtered node {unknown:?} which is not found in the input node list"
        ));
    }
    for (map, resolvable) in [("FailedNodes", true), ("FailedAndUnresolvableNodes", false)] {
        let entries = field(response, map).and_then(Value::as_object);
        for (node, reason) in entries.into_iter().flat_map(apimachinery::Object::iter) {
            responses.failed.insert(node.into(), (reason.as_str().unwrap_or_default().to_owned(), resolvable));
        }
    }
    Ok(names)
}

/// Returns the candidates that the extender accepts. A node without victims is an error, unless the extender is
/// ignorable.
fn evictions(extender: &Extender, response: &Value, pods: &BTreeMap<String, Victim>) -> Result<Vec<Eviction>, String> {
    let mut all = Vec::new();
    let entries = field(response, "NodeNameToMetaVictims").and_then(Value::as_object);
    for (node, victims) in entries.into_iter().flat_map(apimachinery::Object::iter) {
        let list = field(victims, "Pods").and_then(Value::as_array).unwrap_or_default();
        let known = |pod: &Value| {
            let uid = field(pod, "UID").and_then(Value::as_str).unwrap_or_default();
            pods.get(uid).cloned().ok_or_else(|| {
                let url = &extender.url_prefix;
                format!(
                    "extender: {url} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
                )
            })
        };
        let victims_left: Vec<_> = list.iter().map(known).collect::<Result<_, _>>()?;
        if victims_left.is_empty() {
            if extender.ignorable {
                continue;
            }
            return Err(format!("expected at least one victim pod on node {node:?}"));
        }
        let violations = field(victims, "NumPDBViolations").and_then(Value::as_int).unwrap_or_default();
        let violations = usize::try_from(violations).unwrap_or_default();
        all.push(Eviction { node: node.into(), victims: victims_left, violations });
    }
    Ok(all)
}

fn failure(response: &Value) -> Result<(), String> {
    match field(response, "Error").and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(error) => Err(error.to_owned()),
    }
}

/// Returns a field by its case-insensitive name.
fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = object.as_object()?;
    let own = fields
        .get(name)
        .or_else(|| fields.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value));
    own.filter(|value| !value.is_null())
}

async fn send(client: &Client, extender: &Extender, verb: &str, what: &str, args: &Value) -> Result<Value, String> {
    let url = format!("{}/{verb}", extender.url_prefix.trim_end_matches('/'));
    let request = Request::post(format!("/{verb}")).header(CONTENT_TYPE, "application/json");
    let request = request.body(Bytes::from(json::to_vec(args))).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = client.raw(request).await.map_err(|error| format!("Post {url:?}: {error}"))?;
        if !response.status().is_success() {
            let code = response.status().as_u16();
            return Err(format!("failed {what} with extender at URL {}, code {code}", extender.url_prefix));
        }
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("Post {url:?}: {error}"))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if bytes.len() > RESPONSE_MAX {
                return Err(format!("Post {url:?}: the response is longer than {RESPONSE_MAX} bytes"));
            }
        }
        json::parse(&bytes).map_err(|error| format!("Post {url:?}: {error}"))
    };
    match tokio::time::timeout(extender.timeout, exchange).await {
        Ok(received) => received,
        Err(_) => Err(format!("Post {url:?}: context deadline exceeded")),
    }
}

fn connect(extender: &Extender) -> Result<Client, SetupError> {
    let url = extender.url_prefix.to_string();
    let server: Uri = url.trim_end_matches('/').parse().map_err(|error| SetupError::Address(url.clone(), error))?;
    let mut config = Config::new(server);
    if extender.https {
        config.tls = tls(&extender.tls).map_err(|error| SetupError::Data(url.clone(), error))?;
    }
    let settings = client::Settings {
        user_agent: "kube-scheduler".to_owned(),
        qps: 0.0,
        request_timeout: extender.timeout,
        // No retries: the scheduler continues without the extender or retries the pod.
        attempts_max: 1,
        ..client::Settings::default()
    };
    Client::connect(&config, settings).map_err(|error| SetupError::Client(url, Box::new(error)))
}

/// Converts the TLS configuration. Without a CA the server certificate is not verified, as upstream.
fn tls(config: &TlsConfig) -> Result<Tls, base64::DecodeError> {
    let pem = |[file, data]: &[Str; 2]| -> Result<Option<Pem>, base64::DecodeError> {
        Ok(match (data.is_empty(), file.is_empty()) {
            (false, _) => Some(Pem::Inline(BASE64_STANDARD.decode(data.as_bytes())?.into())),
            (true, false) => Some(Pem::File(file.as_str().into())),
            (true, true) => None,
        })
    };
    let ca = pem(&config.ca)?;
    Ok(Tls {
        insecure_skip_verify: config.insecure || ca.is_none(),
        certificate_authority: ca,
        server_name: (!config.server_name.is_empty()).then(|| config.server_name.to_string()),
        client: pem(&config.cert)?.zip(pem(&config.key)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_fields_are_case_insensitive() {
        let extender = Extender { knows_nodes: true, ..Extender::default() };
        let sent_nodes = ["n1".into(), "n2".into(), "n3".into()];
        let mut responses = ExtenderResults::default();
        let response = value!({"nodenames": ["n2"], "failedNodes": {"n1": "full"},
            "FailedAndUnresolvableNodes": {"n3": "never"}, "error": ""});
        assert_eq!(filtered(&extender, &sent_nodes, &response, &mut responses), Ok(vec!["n2".into()]));
        assert_eq!(responses.failed["n1"], ("full".to_owned(), true));
        assert_eq!(responses.failed["n3"], ("never".to_owned(), false));
        let error_response = value!({"Error": "no"});
        assert_eq!(filtered(&extender, &sent_nodes, &error_response, &mut responses), Err("no".to_owned()));
        let foreign = filtered(&extender, &sent_nodes, &value!({"NodeNames": ["n9"]}), &mut responses);
        assert!(foreign.unwrap_err().contains("not found in the input node list"));
    }

    #[test]
    fn accepted_victims_must_be_offered_and_not_empty() {
        let victim = Victim { namespace: "ns".into(), name: "p".into() };
        let pods = BTreeMap::from([("u".to_owned(), victim.clone())]);
        let strict = Extender { url_prefix: "http://x".into(), ..Extender::default() };
        let lenient = Extender { ignorable: true, ..strict.clone() };
        let one = value!({"nodeNameToMetaVictims": {"n1": {"pods": [{"uid": "u"}], "numPDBViolations": 1}}});
        let expect = Eviction { node: "n1".into(), victims: vec![victim], violations: 1 };
        assert_eq!(evictions(&strict, &one, &pods), Ok(vec![expect]));
        let no_victims = value!({"NodeNameToMetaVictims": {"n1": {"Pods": []}}});
        let expected = "expected at least one victim pod on node \"n1\"";
        assert_eq!(evictions(&strict, &no_victims, &pods), Err(expected.to_owned()));
        assert_eq!(evictions(&lenient, &no_victims, &pods), Ok(Vec::new()));
        let stranger = value!({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}]}}});
        let expected =
            "extender: http://x claims to preempt pod (UID: v) on node: n1, but the pod is not found on that node";
        assert_eq!(evictions(&lenient, &stranger, &pods), Err(expected.to_owned()));
    }

    #[test]
    fn server_is_not_verified_without_a_ca() {
        let none = tls(&TlsConfig::default()).unwrap();
        assert!(none.insecure_skip_verify);
        let config = TlsConfig { ca: ["".into(), BASE64_STANDARD.encode("pem").into()], ..TlsConfig::default() };
        let some = tls(&config).unwrap();
        assert!(!some.insecure_skip_verify && matches!(some.certificate_authority, Some(Pem::Inline(_))));
    }
}
