//! HTTPRoutes and GRPCRoutes, reduced to a common form: the matches, filters and backends of each rule.

mod filters;
mod matches;

use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use super::super::objects::{list, port};
use super::hostnames::host_pattern;
use super::objects::{GROUP, Identity, ObjectRef};
use crate::kinds::Kind;
use crate::routing::{CorsPolicy, HeaderChange, HostPattern, PathRewrite, Redirect, RequestMatch, RouteOptions};

/// Maximum timeout; a longer one is shortened.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// An HTTPRoute or a GRPCRoute.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub kind: Kind,
    pub identity: Identity,
    pub hostnames: Vec<HostPattern>,
    pub parents: Vec<ParentRef>,
    /// Each rule, or its unsupported value.
    pub rules: Vec<Result<Rule, String>>,
    /// `status.parents`.
    pub observed: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ParentRef {
    pub target: ObjectRef,
    pub section: Option<String>,
    pub port: Option<u16>,
    /// The reference for the status.
    pub value: Value,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// At least one.
    pub matches: Vec<RequestMatch>,
    pub filters: Filters,
    pub backends: Vec<BackendRef>,
    pub options: RouteOptions,
}

/// The filters of a rule or a backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    pub redirect: Option<Redirect>,
    pub cors: Option<Arc<CorsPolicy>>,
    pub others: Vec<FilterSpec>,
}

/// A filter that is applied to forwarded requests.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterSpec {
    RequestHeaders(HeaderChange),
    ResponseHeaders(HeaderChange),
    Rewrite { hostname: Option<String>, path: Option<PathRewrite> },
    Mirror { backend: BackendRef, numerator: u32, denominator: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub struct BackendRef {
    pub target: ObjectRef,
    pub port: Option<u16>,
    pub weight: u32,
    pub filters: Filters,
}

impl Route {
    pub fn read_http(object: &Value) -> Self {
        Self::read(object, Kind::HttpRoute, Rule::read_http)
    }

    pub fn read_grpc(object: &Value) -> Self {
        Self::read(object, Kind::GrpcRoute, Rule::read_grpc)
    }

    fn read(object: &Value, kind: Kind, rule: fn(&Value) -> Result<Rule, String>) -> Self {
        let hostnames = list(object.at(&["spec", "hostnames"])).iter().filter_map(Value::as_str);
        Self {
            kind,
            identity: Identity::of(Meta::of(object)),
            hostnames: hostnames.map(host_pattern).collect(),
            parents: list(object.at(&["spec", "parentRefs"])).iter().map(ParentRef::read).collect(),
            rules: list(object.at(&["spec", "rules"])).iter().map(rule).collect(),
            observed: list(object.at(&["status", "parents"])).to_vec(),
        }
    }

    pub(super) fn kind_name(&self) -> &Str {
        &self.kind.resource().kind
    }
}

impl ParentRef {
    fn read(value: &Value) -> Self {
        let mut target = ObjectRef::read(value, "Gateway");
        if value.get("group").is_none() {
            GROUP.clone_into(&mut target.group);
        }
        Self {
            target,
            section: value.str_at(&["sectionName"]).map(str::to_owned),
            port: port(value.get("port")),
            value: value.clone(),
        }
    }
}

impl Rule {
    fn read_http(value: &Value) -> Result<Self, String> {
        let matches: Vec<_> = list(value.get("matches")).iter().map(matches::read_http).collect::<Result<_, _>>()?;
        let timeouts = |name: &str| value.at(&["timeouts", name]).and_then(Value::as_str).map(timeout).transpose();
        let options = RouteOptions {
            request_timeout: timeouts("request")?.flatten(),
            backend_timeout: timeouts("backendRequest")?.flatten(),
            ..RouteOptions::default()
        };
        if value.get("retry").is_some() {
            return Err("retry".to_owned());
        }
        if value.get("sessionPersistence").is_some() {
            return Err("sessionPersistence".to_owned());
        }
        Ok(Self { options, ..Self::read_common(value, matches)? })
    }

    fn read_grpc(value: &Value) -> Result<Self, String> {
        let matches: Vec<_> = list(value.get("matches")).iter().map(matches::read_grpc).collect::<Result<_, _>>()?;
        if value.get("sessionPersistence").is_some() {
            return Err("sessionPersistence".to_owned());
        }
        Self::read_common(value, matches)
    }

    fn read_common(value: &Value, mut matches: Vec<RequestMatch>) -> Result<Self, String> {
        if matches.is_empty() {
            matches.push(RequestMatch::default());
        }
        let backends: Result<_, _> = list(value.get("backendRefs")).iter().map(BackendRef::read).collect();
        Ok(Self {
            matches,
            filters: Filters::read(value.get("filters"))?,
            backends: backends?,
            options: RouteOptions::default(),
        })
    }
}

impl BackendRef {
    fn read(value: &Value) -> Result<Self, String> {
        let filters = Filters::read(value.get("filters"))?;
        if filters.redirect.is_some() {
            return Err("filter RequestRedirect of a backend".to_owned());
        }
        if filters.cors.is_some() {
            return Err("filter CORS of a backend".to_owned());
        }
        let weight = value.get("weight").and_then(Value::as_int);
        Ok(Self {
            target: ObjectRef::read(value, "Service"),
            port: port(value.get("port")),
            weight: weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0)),
            filters,
        })
    }
}

/// Parses a timeout. Zero disables it.
fn timeout(text: &str) -> Result<Option<Duration>, String> {
    let parsed: Result<apimachinery::time::Duration, _> = text.parse();
    let nanos = parsed.ok().and_then(|duration| u64::try_from(duration.nanos()).ok());
    let duration = Duration::from_nanos(nanos.ok_or_else(|| format!("timeout {text}"))?);
    Ok(Some(duration.min(TIMEOUT_MAX)).filter(|duration| !duration.is_zero()))
}
