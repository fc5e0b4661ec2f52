//! OIDC flags: one issuer without a configuration file.

use apimachinery::Str;

use super::{Authenticator, ClaimRule, Issuer, Mapping, url};

/// The `--oidc-*` flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--oidc-issuer-url`
    pub issuer_url: Str,
    /// `--oidc-client-id`
    pub client_id: Str,
    /// The contents of `--oidc-ca-file`.
    pub certificate_authority: Str,
    /// `--oidc-username-claim`; empty for `sub`.
    pub username_claim: Str,
    /// `--oidc-username-prefix`; `-` for none.
    pub username_prefix: Str,
    /// `--oidc-groups-claim`
    pub groups_claim: Str,
    /// `--oidc-groups-prefix`
    pub groups_prefix: Str,
    /// `--oidc-required-claim`
    pub required_claims: Vec<(Str, Str)>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")]
    Incomplete,
    #[error("oidc-issuer-url: {0}")]
    Url(String),
}

impl Flags {
    /// Returns the authenticator of the flags; `None` if no flag is set.
    pub fn authenticator(self) -> Result<Option<Authenticator>, Error> {
        if self == Self::default() {
            return Ok(None);
        }
        if self.issuer_url.is_empty() || self.client_id.is_empty() {
            return Err(Error::Incomplete);
        }
        if let Some(wrong) = url::validate(&self.issuer_url, &[], &apimachinery::Path::of("url")).first() {
            return Err(Error::Url(wrong.detail.clone()));
        }
        let claim = if self.username_claim.is_empty() { "sub".into() } else { self.username_claim };
        let prefix = match self.username_prefix.as_str() {
            "-" => Str::default(),
            // Usernames of different issuers must not collide. An email address is unique without a prefix.
            "" if claim != "email" => format!("{}#", self.issuer_url).into(),
            _ => self.username_prefix,
        };
        let required = self.required_claims.into_iter().map(|(claim, value)| ClaimRule::Required { claim, value });
        Ok(Some(Authenticator {
            issuer: Issuer {
                url: self.issuer_url,
                certificate_authority: self.certificate_authority,
                audiences: vec![self.client_id],
                ..Issuer::default()
            },
            rules: required.collect(),
            username: Mapping::Claim { name: claim, prefix },
            groups: (!self.groups_claim.is_empty())
                .then_some(Mapping::Claim { name: self.groups_claim, prefix: self.groups_prefix }),
            uid: None,
            extra: Vec::new(),
            user_rules: Vec::new(),
        }))
    }
}
