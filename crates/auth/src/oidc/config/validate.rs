//! Validation of the authentication configuration, which also compiles its expressions.

use apimachinery::field::{self, BadValue, Errors};
use apimachinery::{Path, Str, go};
use cel::ExpressionContext;

use super::super::{Anonymous, Authenticator, ClaimRule, Issuer, Mapping, Rule, email, url};
use super::{Config, Raw, RawClaimRule, RawMapping};
use crate::expression::{Expression, ResultType};
use crate::{extra_key, keys};

/// Maximum number of issuers.
const ISSUERS_MAX: usize = 64;

impl RawMapping {
    /// Returns the mapping if it has a claim or an expression.
    fn compile(&self, path: &Path<'_>, errors: &mut Errors) -> Option<Mapping> {
        if !self.expression.is_empty() {
            let compiled = compile_claims(&self.expression, ResultType::Any, &path.field("expression"), errors);
            return compiled.map(Mapping::Expression);
        }
        let prefix = self.prefix.clone().unwrap_or_default();
        (!self.claim.is_empty()).then(|| Mapping::Claim { name: self.claim.clone(), prefix })
    }
}

/// Returns the configuration, or all validation errors.
pub(super) fn validate(raw: Vec<Raw>, anonymous: Option<Anonymous>, disallowed: &[Str]) -> Result<Config, Errors> {
    let list = Path::of("jwt");
    let mut errors = Errors::new();
    if raw.len() > ISSUERS_MAX {
        return Err(vec![field::Error::too_many(&list, raw.len(), ISSUERS_MAX)]);
    }
    let mut authenticators: Vec<Authenticator> = Vec::new();
    let (mut urls, mut discovery_urls): (Vec<Str>, Vec<Str>) = (Vec::new(), Vec::new());
    for (at, raw) in raw.into_iter().enumerate() {
        let path = list.index(at);
        let issuer = path.field("issuer");
        authenticators.extend(validate_one(&raw, &path, disallowed, &mut errors));
        if urls.contains(&raw.issuer.url) {
            errors.push(field::Error::duplicate(&issuer.field("url"), raw.issuer.url.clone()));
        }
        urls.push(raw.issuer.url);
        let discovery = raw.issuer.discovery_url;
        if !discovery.is_empty() && discovery_urls.contains(&discovery) {
            errors.push(field::Error::duplicate(&issuer.field("discoveryURL"), discovery.clone()));
        }
        discovery_urls.push(discovery);
    }
    if let Some(anonymous) = anonymous.as_ref().filter(|anonymous| !anonymous.enabled && !anonymous.paths.is_empty()) {
        let bad_value: Vec<_> =
            anonymous.paths.iter().map(|path| format!("{{\"Path\":{}}}", go::quote(path))).collect();
        let bad_value = BadValue::Text(format!("[{}]", bad_value.join(",")));
        let at = Path::of("anonymous");
        let detail = "enabled should be set to true when conditions are defined";
        errors.push(field::Error::invalid(&at.field("conditions"), bad_value, detail));
    }
    if errors.is_empty() { Ok(Config { authenticators, anonymous }) } else { Err(errors) }
}

/// Returns the authenticator if it has a username mapping. Adds all validation errors to `errors`.
fn validate_one(raw: &Raw, path: &Path<'_>, disallowed: &[Str], errors: &mut Errors) -> Option<Authenticator> {
    validate_issuer(raw, &path.field("issuer"), disallowed, errors);
    let rules = validate_claim_rules(&raw.claim_rules, &path.field("claimValidationRules"), errors);
    let mappings = path.field("claimMappings");
    let username = validate_mapping(&raw.username, &mappings.field("username"), Requirement::Required, errors);
    let groups = validate_mapping(&raw.groups, &mappings.field("groups"), Requirement::Optional, errors);
    let uid_at = mappings.field("uid");
    if !raw.uid.claim.is_empty() && !raw.uid.expression.is_empty() {
        errors.push(field::Error::invalid(&uid_at, "", "claim and expression can't both be set"));
    }
    let uid = raw.uid.compile(&uid_at, errors);
    let extra = validate_extra(&raw.extra, &mappings, errors);
    validate_email(raw, &mappings, errors);
    let user_rules = validate_user_rules(&raw.user_rules, &path.field("userValidationRules"), errors);
    Some(Authenticator { issuer: raw.issuer.clone(), rules, username: username?, groups, uid, extra, user_rules })
}

fn validate_issuer(raw: &Raw, path: &Path<'_>, disallowed: &[Str], errors: &mut Errors) {
    let Issuer { url, discovery_url, certificate_authority, egress_selector_type, audiences } = &raw.issuer;
    if url.is_empty() {
        errors.push(field::Error::required(&path.field("url"), ""));
    } else {
        errors.extend(url::validate(url, disallowed, &path.field("url")));
    }
    let at = path.field("discoveryURL");
    if !discovery_url.is_empty() {
        if !url.is_empty() && url.trim_end_matches('/') == discovery_url.trim_end_matches('/') {
            errors.push(field::Error::invalid(&at, discovery_url.clone(), "discoveryURL must be different from URL"));
        }
        errors.extend(url::validate(discovery_url, &[], &at));
    }
    validate_audiences(audiences, &raw.audience_match_policy, path, errors);
    if !certificate_authority.is_empty() && keys::certificates(certificate_authority).is_empty() {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        errors.push(field::Error::invalid(&path.field("certificateAuthority"), "<omitted>", detail));
    }
    if !matches!(egress_selector_type.as_str(), "" | "controlplane" | "cluster") {
        let at = path.field("egressSelectorType");
        let detail = "egress selector must be either controlplane or cluster";
        errors.push(field::Error::invalid(&at, egress_selector_type.clone(), detail));
    }
}

fn validate_audiences(audiences: &[Str], policy: &Str, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("audiences");
    if audiences.is_empty() {
        errors.push(field::Error::required(&list, format!("at least one {list} is required")));
        return;
    }
    for (at, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.push(field::Error::required(&list.index(at), ""));
        }
        if audiences[..at].contains(audience) {
            errors.push(field::Error::duplicate(&list.index(at), audience.clone()));
        }
    }
    let detail = match (audiences.len(), policy.as_str()) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(field::Error::invalid(&path.field("audienceMatchPolicy"), policy.clone(), detail));
}

fn validate_claim_rules(rules: &[RawClaimRule], list: &Path<'_>, errors: &mut Errors) -> Vec<ClaimRule> {
    let mut compiled = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let (path, before) = (list.index(at), &rules[..at]);
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => {
                errors.push(field::Error::invalid(&path, rule.claim.clone(), "claim and expression can't both be set"));
            }
            (true, true) => errors.push(field::Error::required(&path, "claim or expression is required")),
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.push(field::Error::invalid(&path.field("message"), rule.message.clone(), detail));
                }
                if before.iter().any(|other| other.expression.is_empty() && other.claim == rule.claim) {
                    errors.push(field::Error::duplicate(&path.field("claim"), rule.claim.clone()));
                }
                compiled.push(ClaimRule::Required { claim: rule.claim.clone(), value: rule.required_value.clone() });
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    errors.push(field::Error::invalid(
                        &path.field("requiredValue"),
                        rule.required_value.clone(),
                        detail,
                    ));
                }
                let at = path.field("expression");
                if before.iter().any(|other| other.claim.is_empty() && other.expression == rule.expression) {
                    errors.push(field::Error::duplicate(&at, rule.expression.clone()));
                } else if let Some(expression) = compile_claims(&rule.expression, ResultType::Bool, &at, errors) {
                    compiled.push(ClaimRule::Expression(Rule { expression, message: rule.message.clone() }));
                }
            }
        }
    }
    compiled
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Requirement {
    Required,
    Optional,
}

fn validate_mapping(raw: &RawMapping, path: &Path<'_>, need: Requirement, errors: &mut Errors) -> Option<Mapping> {
    match (raw.claim.is_empty(), raw.expression.is_empty()) {
        (false, false) => {
            errors.push(field::Error::invalid(path, "", "claim and expression can't both be set"));
            return None;
        }
        (true, true) if need == Requirement::Required => {
            errors.push(field::Error::required(path, "claim or expression is required"));
        }
        (true, false) if raw.prefix.is_some() => {
            let prefix = raw.prefix.clone().unwrap_or_default();
            let detail = "may not be specified when expression is set";
            errors.push(field::Error::invalid(&path.field("prefix"), prefix, detail));
        }
        (false, true) if raw.prefix.is_none() => {
            let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            errors.push(field::Error::required(&path.field("prefix"), detail));
        }
        _ => {}
    }
    raw.compile(path, errors)
}

fn validate_extra(extra: &[(Str, Str)], mappings: &Path<'_>, errors: &mut Errors) -> Vec<(Str, Expression)> {
    let list = mappings.field("extra");
    let mut compiled = Vec::new();
    for (at, (key, expression)) in extra.iter().enumerate() {
        let path = list.index(at);
        let key_at = path.field("key");
        errors.extend(extra_key::validate(key, &key_at));
        if key.to_lowercase() != key.as_str() {
            errors.push(field::Error::invalid(&key_at, key.clone(), "must be lowercase"));
        }
        if extra_key::is_reserved(key) {
            let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.push(field::Error::invalid(&key_at, key.clone(), detail));
        }
        let at_expression = path.field("valueExpression");
        if extra[..at].iter().any(|(other, _)| other == key) {
            errors.push(field::Error::duplicate(&key_at, key.clone()));
        } else if expression.is_empty() {
            errors.push(field::Error::required(&at_expression, ""));
        } else if let Some(expression) = compile_claims(expression, ResultType::Any, &at_expression, errors) {
            compiled.push((key.clone(), expression));
        }
    }
    compiled
}

/// Requires that an expression which uses the email as username also reads `email_verified`.
fn validate_email(raw: &Raw, mappings: &Path<'_>, errors: &mut Errors) {
    let name = &raw.username.expression;
    let expressions = [name].into_iter().chain(raw.extra.iter().map(|(_, expression)| expression));
    let mut expressions = expressions.chain(raw.claim_rules.iter().map(|rule| &rule.expression));
    if email::reads_claim(name, "email")
        && !expressions.any(|expression| email::reads_claim(expression, "email_verified"))
    {
        let username = mappings.field("username");
        let detail = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
        errors.push(field::Error::invalid(&username.field("expression"), name.clone(), detail));
    }
}

fn validate_user_rules(rules: &[(Str, Str)], list: &Path<'_>, errors: &mut Errors) -> Vec<Rule> {
    let mut compiled = Vec::new();
    for (at, (expression, message)) in rules.iter().enumerate() {
        let item = list.index(at);
        let path = item.field("expression");
        if expression.is_empty() {
            errors.push(field::Error::required(&path, ""));
        } else if rules[..at].iter().any(|(other, _)| other == expression) {
            errors.push(field::Error::duplicate(&path, expression.clone()));
        } else {
            match Expression::compile(ExpressionContext::AuthenticationUser, expression, ResultType::Bool, &path) {
                Ok(expression) => compiled.push(Rule { expression, message: message.clone() }),
                Err(error) => errors.push(error),
            }
        }
    }
    compiled
}

fn compile_claims(source: &str, gives: ResultType, path: &Path<'_>, errors: &mut Errors) -> Option<Expression> {
    Expression::compile(ExpressionContext::AuthenticationClaims, source, gives, path)
        .map_err(|error| errors.push(error))
        .ok()
}
