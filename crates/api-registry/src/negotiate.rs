//! Content negotiation: encoding and response form (object, Table or PartialObjectMetadata).

use apimachinery::table::IncludeObject;

use crate::query::Query;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// The form of objects in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The object itself.
    #[default]
    Object,
    /// A `Table`.
    Table,
    /// A `PartialObjectMetadata`.
    Metadata,
    /// A `PartialObjectMetadataList`.
    MetadataList,
}

/// The negotiated response format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFormat {
    pub encoding: Encoding,
    pub form: Form,
    /// Whether JSON is indented.
    pub pretty: bool,
}

/// Reasons why the Accept header cannot be satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegotiationError {
    /// No listed encoding is supported; rejected before the request is processed.
    Encoding,
    /// The encoding is supported, but not the form.
    Form,
}

impl Encoding {
    /// Returns the Content-Type, for example `application/json`.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the Content-Type of a watch stream.
    pub const fn stream_type(self) -> &'static str {
        match self {
            Self::Json | Self::Yaml => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// The response forms of objects.
pub const FORMS: &[Form] = &[Form::Object, Form::Table, Form::Metadata, Form::MetadataList];
/// The response forms of kinds without table columns: reviews, bindings, tokens, evictions.
pub const FORMS_WITHOUT_TABLE: &[Form] = &[Form::Object, Form::Metadata, Form::MetadataList];

/// Selects the clause of the `Accept` header with the highest weight that one of `forms` can satisfy.
pub fn negotiate(accept: &str, pretty: bool, forms: &[Form]) -> Result<ResponseFormat, NegotiationError> {
    let mut clauses: Vec<(u32, &str)> = accept.split(',').map(|clause| (weight(clause), clause.trim())).collect();
    // The sort is stable: clauses of equal weight keep their order.
    clauses.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let mut rejection = NegotiationError::Encoding;
    for (_, clause) in clauses {
        let Some(encoding) = encoding(clause) else { continue };
        match form(clause).filter(|form| forms.contains(form)) {
            Some(form) => {
                return Ok(ResponseFormat { encoding, form, pretty: pretty || parameter(clause, "pretty") == "1" });
            }
            None => rejection = NegotiationError::Form,
        }
    }
    Err(rejection)
}

/// Whether JSON is indented: according to the `pretty` parameter, otherwise for curl, Wget and browsers.
pub fn is_pretty(query: &Query, user_agent: &str) -> bool {
    const READ_BY_PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
    match query.text("pretty") {
        "" => READ_BY_PEOPLE.iter().any(|agent| user_agent.starts_with(agent)),
        text => matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// Parses the `includeObject` parameter.
pub fn include_object(word: &str) -> Option<IncludeObject> {
    match word {
        "" | "Metadata" => Some(IncludeObject::Metadata),
        "None" => Some(IncludeObject::None),
        "Object" => Some(IncludeObject::Object),
        _ => None,
    }
}

fn encoding(clause: &str) -> Option<Encoding> {
    match clause.split(';').next().unwrap_or_default().trim() {
        "" | "*/*" | "application/*" | "application/json" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
        _ => None,
    }
}

fn form(clause: &str) -> Option<Form> {
    match (parameter(clause, "as"), parameter(clause, "g"), parameter(clause, "v")) {
        ("", _, _) => Some(Form::Object),
        ("Table", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::Table),
        ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::Metadata),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::MetadataList),
        _ => None,
    }
}

/// Returns a parameter of a clause, empty if absent.
fn parameter<'c>(clause: &'c str, name: &str) -> &'c str {
    let pairs = clause.split(';').skip(1).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).next().unwrap_or_default()
}

/// Returns the weight of a clause in thousandths.
fn weight(clause: &str) -> u32 {
    let quality = clause.split(';').skip(1).find_map(|pair| pair.trim().strip_prefix("q="));
    let quality: f64 = quality.and_then(|text| text.trim().parse().ok()).unwrap_or(1.0);
    (quality.clamp(0.0, 1.0) * 1000.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_for_browsers_and_curl_unless_pretty_is_false() {
        let check = |query: &str, agent: &str, expect: bool| {
            assert_eq!(is_pretty(&Query::parse(query), agent), expect, "{query} {agent}");
        };
        check("", "curl/8.5.0", true);
        check("", "Wget/1.21", true);
        check("", "Mozilla/5.0 (X11; Linux x86_64)", true);
        check("", "kubectl/v1.36.4", false);
        check("pretty=true", "kubectl/v1.36.4", true);
        check("pretty=1&watch=0", "", true);
        check("pretty", "kubectl/v1.36.4", false);
        check("pretty=0", "curl/8.5.0", false);
        check("pretty=yes", "curl/8.5.0", false);
        let accepted = |accept| negotiate(accept, false, FORMS).unwrap().pretty;
        assert!(accepted("application/json;pretty=1"));
        assert!(!accepted("application/json;pretty=0"));
    }

    fn check(accept: &str, expect: Result<(Encoding, Form), NegotiationError>) {
        let found = negotiate(accept, false, FORMS).map(|accepted| (accepted.encoding, accepted.form));
        assert_eq!(found, expect, "{accept}");
    }

    #[test]
    fn first_supported_clause_is_selected() {
        check("", Ok((Encoding::Json, Form::Object)));
        check("*/*", Ok((Encoding::Json, Form::Object)));
        check("application/vnd.kubernetes.protobuf,application/json", Ok((Encoding::Protobuf, Form::Object)));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        check(table, Ok((Encoding::Json, Form::Table)));
        check("application/json;q=0.1,application/yaml", Ok((Encoding::Yaml, Form::Object)));
        check("application/nonsense", Err(NegotiationError::Encoding));
        check("application/json;as=Nope;v=v1;g=meta.k8s.io", Err(NegotiationError::Form));
        check("application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", Ok((Encoding::Json, Form::Object)));
    }

    #[test]
    fn kinds_without_columns_reject_tables() {
        let check = |accept: &str, expect: Result<Form, NegotiationError>| {
            let found = negotiate(accept, false, FORMS_WITHOUT_TABLE).map(|accepted| accepted.form);
            assert_eq!(found, expect, "{accept}");
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        check(table, Err(NegotiationError::Form));
        check(&format!("{table},application/json"), Ok(Form::Object));
        check("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Ok(Form::Metadata));
    }
}
