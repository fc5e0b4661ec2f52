//! `AuthenticationConfiguration`: parsing, validation, and compilation of expressions.

mod validate;

use apimachinery::Str;
use apimachinery::field::{self, Errors};

use super::{Anonymous, Authenticator, Issuer};
use crate::config_file::{self, Fields, File};

/// The issuers, and the configuration of anonymous requests.
#[derive(Debug, Default)]
pub struct Config {
    /// One authenticator per issuer.
    pub authenticators: Vec<Authenticator>,
    /// If set, replaces `--anonymous-auth`.
    pub anonymous: Option<Anonymous>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] config_file::Error),
    /// The file has validation errors.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
}

impl Config {
    /// Parses and validates a configuration file. `disallowed` are the cluster's own issuers, whose tokens are verified
    /// elsewhere.
    pub fn parse(text: &str, disallowed: &[Str]) -> Result<Self, Error> {
        let mut file = File::parse(text, "AuthenticationConfiguration", &["v1", "v1beta1", "v1alpha1"])?;
        let (fields, problems) = file.open(&["jwt", "anonymous"]);
        let known = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        let raw: Vec<Raw> =
            fields.objects("jwt", &known, problems).iter().map(|one| Raw::read(one, problems)).collect();
        let anonymous = fields.has("anonymous").then(|| read_anonymous(&fields, problems));
        if !file.problems.is_empty() {
            return Err(config_file::Error::Strict(file.problems).into());
        }
        validate::validate(raw, anonymous, disallowed).map_err(Error::Invalid)
    }
}

/// An issuer as written in the file.
struct Raw {
    issuer: Issuer,
    audience_match_policy: Str,
    claim_rules: Vec<RawClaimRule>,
    username: RawMapping,
    groups: RawMapping,
    uid: RawMapping,
    /// Key and expression.
    extra: Vec<(Str, Str)>,
    /// Expression and message.
    user_rules: Vec<(Str, Str)>,
}

struct RawClaimRule {
    claim: Str,
    required_value: Str,
    expression: Str,
    message: Str,
}

struct RawMapping {
    claim: Str,
    prefix: Option<Str>,
    expression: Str,
}

impl Raw {
    fn read(fields: &Fields<'_>, problems: &mut Vec<String>) -> Self {
        let known =
            ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
        let issuer = fields.object("issuer", &known, problems);
        let mappings = fields.object("claimMappings", &["username", "groups", "uid", "extra"], problems);
        let known = ["claim", "requiredValue", "expression", "message"];
        let claim_rules = fields.objects("claimValidationRules", &known, problems);
        let extra = mappings.objects("extra", &["key", "valueExpression"], problems);
        let user_rules = fields.objects("userValidationRules", &["expression", "message"], problems);
        let mut pairs = |list: Vec<Fields<'_>>, one: &str, other: &str| -> Vec<(Str, Str)> {
            list.iter().map(|fields| (fields.text(one, problems), fields.text(other, problems))).collect()
        };
        let (extra, user_rules) = (pairs(extra, "key", "valueExpression"), pairs(user_rules, "expression", "message"));
        Self {
            issuer: Issuer {
                url: issuer.text("url", problems),
                discovery_url: issuer.text("discoveryURL", problems),
                certificate_authority: issuer.text("certificateAuthority", problems),
                egress_selector_type: issuer.text("egressSelectorType", problems),
                audiences: issuer.texts("audiences", problems),
            },
            audience_match_policy: issuer.text("audienceMatchPolicy", problems),
            claim_rules: claim_rules.iter().map(|rule| RawClaimRule::read(rule, problems)).collect(),
            username: RawMapping::read(&mappings, "username", problems),
            groups: RawMapping::read(&mappings, "groups", problems),
            uid: RawMapping::read(&mappings, "uid", problems),
            extra,
            user_rules,
        }
    }
}

impl RawClaimRule {
    fn read(fields: &Fields<'_>, problems: &mut Vec<String>) -> Self {
        Self {
            claim: fields.text("claim", problems),
            required_value: fields.text("requiredValue", problems),
            expression: fields.text("expression", problems),
            message: fields.text("message", problems),
        }
    }
}

impl RawMapping {
    fn read(mappings: &Fields<'_>, key: &str, problems: &mut Vec<String>) -> Self {
        let known: &[&str] = if key == "uid" { &["claim", "expression"] } else { &["claim", "prefix", "expression"] };
        let fields = mappings.object(key, known, problems);
        Self {
            claim: fields.text("claim", problems),
            prefix: fields.optional_text("prefix", problems),
            expression: fields.text("expression", problems),
        }
    }
}

fn read_anonymous(fields: &Fields<'_>, problems: &mut Vec<String>) -> Anonymous {
    let anonymous = fields.object("anonymous", &["enabled", "conditions"], problems);
    let conditions = anonymous.objects("conditions", &["path"], problems);
    Anonymous {
        enabled: anonymous.optional_bool("enabled", problems).unwrap_or(false),
        paths: conditions.iter().map(|condition| condition.text("path", problems)).collect(),
    }
}
