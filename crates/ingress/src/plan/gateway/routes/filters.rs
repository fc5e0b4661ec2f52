//! The filters of rules and backends. An error names the filter that is not supported.

use std::sync::Arc;

use apimachinery::Value;
use http::{HeaderName, HeaderValue, StatusCode};

use super::super::super::objects::{list, port};
use super::super::objects::text;
use super::{BackendRef, FilterSpec, Filters};
use crate::routing::{CorsNames, CorsOrigins, CorsPolicy, HeaderChange, OriginPattern, PathRewrite, Redirect};

/// Percentages are fractions of this number.
const PERCENT: u32 = 100;
/// Default of `maxAge` of a CORS filter.
const MAX_AGE_SECONDS: u32 = 5;

impl Filters {
    pub(super) fn read(value: Option<&Value>) -> Result<Self, String> {
        let mut filters = Self::default();
        for filter in list(value) {
            let name = filter.str_at(&["type"]).unwrap_or_default();
            let settings = |field: &str| filter.get(field).ok_or_else(|| format!("filter {name} without settings"));
            let spec = match name {
                "RequestHeaderModifier" => FilterSpec::RequestHeaders(change(settings("requestHeaderModifier")?)?),
                "ResponseHeaderModifier" => FilterSpec::ResponseHeaders(change(settings("responseHeaderModifier")?)?),
                "URLRewrite" => {
                    let rewrite = settings("urlRewrite")?;
                    let hostname = rewrite.str_at(&["hostname"]).map(str::to_owned);
                    FilterSpec::Rewrite { hostname, path: path(rewrite)? }
                }
                "RequestMirror" => mirror(settings("requestMirror")?)?,
                "CORS" => {
                    filters.cors = Some(Arc::new(cors(settings("cors")?)?));
                    continue;
                }
                "RequestRedirect" => {
                    filters.redirect = Some(redirect(settings("requestRedirect")?)?);
                    continue;
                }
                _ => return Err(format!("filter {name}")),
            };
            filters.others.push(spec);
        }
        Ok(filters)
    }
}

fn change(value: &Value) -> Result<HeaderChange, String> {
    let name = |text: &str| HeaderName::try_from(text).map_err(|_| format!("header name {text}"));
    let headers = |field: &str| {
        let header = |one: &Value| {
            let header = text(one.get("name"));
            let invalid = |_| format!("value of header {header}");
            Ok((name(&header)?, HeaderValue::try_from(text(one.get("value"))).map_err(invalid)?))
        };
        list(value.get(field)).iter().map(header).collect::<Result<Vec<_>, String>>()
    };
    let remove = list(value.get("remove")).iter().filter_map(Value::as_str).map(name).collect::<Result<_, _>>()?;
    Ok(HeaderChange { set: headers("set")?, add: headers("add")?, remove })
}

fn path(value: &Value) -> Result<Option<PathRewrite>, String> {
    let Some(path) = value.get("path") else { return Ok(None) };
    match path.str_at(&["type"]) {
        Some("ReplaceFullPath") => Ok(Some(PathRewrite::Full(text(path.get("replaceFullPath"))))),
        Some("ReplacePrefixMatch") => Ok(Some(PathRewrite::Prefix(text(path.get("replacePrefixMatch"))))),
        other => Err(format!("path modifier {}", other.unwrap_or_default())),
    }
}

fn redirect(value: &Value) -> Result<Redirect, String> {
    let status = value.get("statusCode").and_then(Value::as_int).unwrap_or(302);
    let code = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    Ok(Redirect {
        scheme: value.str_at(&["scheme"]).map(str::to_owned),
        hostname: value.str_at(&["hostname"]).map(str::to_owned),
        port: port(value.get("port")),
        path: path(value)?,
        status: code.filter(StatusCode::is_redirection).ok_or_else(|| format!("redirect status {status}"))?,
    })
}

fn mirror(value: &Value) -> Result<FilterSpec, String> {
    let number = |keys: &[&str]| value.at(keys).and_then(Value::as_int).and_then(|number| u32::try_from(number).ok());
    let backend = value.get("backendRef").ok_or("filter RequestMirror without a backend")?;
    let (numerator, denominator) = match (number(&["percent"]), number(&["fraction", "numerator"])) {
        (Some(percent), _) => (percent, PERCENT),
        (None, Some(numerator)) => (numerator, number(&["fraction", "denominator"]).unwrap_or(PERCENT).max(1)),
        (None, None) => (1, 1),
    };
    Ok(FilterSpec::Mirror { backend: BackendRef::read(backend)?, numerator, denominator })
}

fn cors(value: &Value) -> Result<CorsPolicy, String> {
    let texts = |field: &str| {
        let texts = list(value.get(field)).iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let names = |field: &str| match texts(field) {
        names if names.iter().any(|name| name == "*") => CorsNames::Any,
        names => CorsNames::Some(names),
    };
    let origins = match texts("allowOrigins") {
        origins if origins.iter().any(|origin| origin == "*") => CorsOrigins::Any,
        origins => {
            let parse = |origin: &String| OriginPattern::parse(origin).ok_or_else(|| format!("origin {origin}"));
            CorsOrigins::Some(origins.iter().map(parse).collect::<Result<_, _>>()?)
        }
    };
    let seconds = value.get("maxAge").and_then(Value::as_int).and_then(|seconds| u32::try_from(seconds).ok());
    Ok(CorsPolicy {
        origins,
        credentials: value.get("allowCredentials").and_then(Value::as_bool).unwrap_or(false),
        methods: names("allowMethods"),
        request_headers: names("allowHeaders"),
        exposed_headers: texts("exposeHeaders"),
        max_age_seconds: seconds.unwrap_or(MAX_AGE_SECONDS),
    })
}
