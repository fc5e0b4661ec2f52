//! Authenticators of kube-apiserver, configured from flags and the files that they name.

use std::path::{Path, PathBuf};

use ::kube_apiserver::authentication::{Authenticators, Issuers, ServiceAccounts};
use ::kube_apiserver::reload::ReloadedValue;
use ::kube_apiserver::tls;
use anyhow::{Context, Result, ensure};
use apimachinery::Str;
use auth::keys::{KeySet, PrivateKey, PublicKey};
use auth::oidc;
use auth::request_header;
use auth::service_account::request;
use auth::service_account::token::Checker;

use super::flags::Flags;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("invalid file {}: {message}", .file.display())]
struct Unusable {
    file: PathBuf,
    message: String,
}

/// Returns all configured authenticators.
pub(super) fn authenticators(flags: &Flags) -> Result<Authenticators> {
    let service_accounts = service_accounts(flags)?;
    let mut authenticators = Authenticators {
        anonymous: flags.anonymous_auth,
        bootstrap_tokens: flags.service_accounts.enable_bootstrap_token_auth,
        request_header: request_header(flags)?,
        webhook: flags.webhooks.tokens()?,
        ..Authenticators::default()
    };
    if let Some(file) = &flags.token_auth_file {
        let path = file.clone();
        let parse = move || {
            let text = read(&path)?;
            auth::token_file::parse(&text).map_err(|error| Unusable { file: path.clone(), message: error.to_string() })
        };
        authenticators.token_file = Some(ReloadedValue::new(vec![file.clone()], parse)?);
    }
    issuers(flags, &service_accounts.checker.issuers, &mut authenticators)?;
    authenticators.service_accounts = Some(service_accounts);
    Ok(authenticators)
}

/// Adds the OIDC issuers from `--authentication-config` or the `--oidc-*` flags.
fn issuers(flags: &Flags, own: &[Str], authenticators: &mut Authenticators) -> Result<()> {
    let by_flags = oidc_flags(flags)?;
    let Some(file) = &flags.authentication_config else {
        if by_flags.authenticator()?.is_some() {
            let given = flags.clone();
            let unusable =
                |message: String| Unusable { file: "invalid OIDC issuer of --oidc-issuer-url".into(), message };
            let made = move || {
                let issuer = oidc_flags(&given).map_err(|error| unusable(format!("{error:#}")))?;
                let issuer = issuer.authenticator().map_err(|error| unusable(error.to_string()))?;
                Ok::<_, Unusable>(issuer.into_iter().collect())
            };
            authenticators.issuers = Some(Issuers::new(flags.oidc.oidc_ca_file.clone().into_iter().collect(), made)?);
        }
        return Ok(());
    };
    ensure!(
        by_flags.issuer_url.is_empty() && by_flags.client_id.is_empty(),
        "authentication-config file and oidc-* flags are mutually exclusive"
    );
    let anonymous = parse_config(file, own)?.anonymous;
    if let Some(anonymous) = anonymous {
        authenticators.anonymous = anonymous.enabled;
        authenticators.anonymous_paths = anonymous.paths;
    }
    let (path, own) = (file.clone(), own.to_vec());
    let parse = move || Ok::<_, Unusable>(parse_config(&path, &own)?.authenticators);
    authenticators.issuers = Some(Issuers::new(vec![file.clone()], parse)?);
    Ok(())
}

fn parse_config(file: &Path, own: &[Str]) -> Result<oidc::Config, Unusable> {
    let text = read(file)?;
    oidc::Config::parse(&text, own).map_err(|error| Unusable { file: file.to_owned(), message: error.to_string() })
}

fn oidc_flags(flags: &Flags) -> Result<oidc::Flags> {
    let given = &flags.oidc;
    let required = given.oidc_required_claim.iter().map(|claim| {
        let (key, value) = claim
            .split_once('=')
            .with_context(|| format!("--oidc-required-claim {claim:?} is not of the form key=value"))?;
        Ok((key.into(), value.into()))
    });
    let is_default = given.oidc_issuer_url.is_empty() && given.oidc_client_id.is_empty();
    Ok(oidc::Flags {
        issuer_url: given.oidc_issuer_url.as_str().into(),
        client_id: given.oidc_client_id.as_str().into(),
        certificate_authority: given.oidc_ca_file.as_deref().map(read).transpose()?.unwrap_or_default().into(),
        username_claim: if is_default { Str::default() } else { given.oidc_username_claim.as_str().into() },
        username_prefix: given.oidc_username_prefix.as_str().into(),
        groups_claim: given.oidc_groups_claim.as_str().into(),
        groups_prefix: given.oidc_groups_prefix.as_str().into(),
        required_claims: required.collect::<Result<_>>()?,
    })
}

fn request_header(flags: &Flags) -> Result<Option<request_header::Config>> {
    let given = &flags.request_header;
    if given.requestheader_client_ca_file.is_none() {
        return Ok(None);
    }
    let config = request_header::Config {
        allowed_names: texts(&given.requestheader_allowed_names),
        username_headers: texts(&given.requestheader_username_headers),
        uid_headers: texts(&given.requestheader_uid_headers),
        group_headers: texts(&given.requestheader_group_headers),
        extra_header_prefixes: texts(&given.requestheader_extra_headers_prefix),
    };
    Ok(Some(config.normalize()?))
}

/// Returns the issuer and verifier of service account tokens.
fn service_accounts(flags: &Flags) -> Result<ServiceAccounts> {
    let given = &flags.service_accounts;
    // DEVIATION: service account tokens are signed with a key file, not by an external signer.
    ensure!(
        given.service_account_signing_endpoint.is_none(),
        "--service-account-signing-endpoint is not supported; give a key with --service-account-signing-key-file"
    );
    let file = match &given.service_account_signing_key_file {
        Some(file) => file.clone(),
        None => own_key(&flags.cert_dir)?,
    };
    let key = PrivateKey::from_pem(&read(&file)?).with_context(|| format!("{} contains no key", file.display()))?;
    let mut keys = vec![key.public().clone()];
    for file in &given.service_account_key_file {
        keys.extend(
            PublicKey::all_from_pem(&read(file)?).with_context(|| format!("{} contains no key", file.display()))?,
        );
    }
    let issuers = match given.service_account_issuer.as_slice() {
        [] => vec![Str::from("https://kubernetes.default.svc")],
        some => texts(some),
    };
    let audiences = if given.api_audiences.is_empty() { issuers.clone() } else { texts(&given.api_audiences) };
    let longest = given.service_account_max_token_expiration.filter(|longest| !longest.is_zero());
    let longest = longest.map(|longest| i64::try_from(longest.as_secs()).unwrap_or(i64::MAX));
    ensure!(
        longest.is_none_or(|seconds| (3600..=1 << 32).contains(&seconds)),
        "the service-account-max-token-expiration must be between 1h and 2^32 seconds"
    );
    let config = request::Config {
        issuer: issuers[0].clone(),
        audiences: audiences.clone(),
        extend_expiration: given.service_account_extend_token_expiration,
        max_seconds: longest,
    };
    let checker = Checker { issuers, keys: KeySet::of(keys), audiences };
    Ok(ServiceAccounts { key, config, checker, keys_uri: given.service_account_jwks_uri.as_str().into() })
}

/// Returns the server's generated service account key, and generates it on first use.
fn own_key(dir: &Path) -> Result<PathBuf> {
    let file = dir.join("service-account.key");
    if !file.is_file() {
        std::fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
        tls::write_new_key(&file)?;
    }
    Ok(file)
}

fn read(file: &Path) -> Result<String, Unusable> {
    std::fs::read_to_string(file).map_err(|error| Unusable { file: file.to_owned(), message: error.to_string() })
}

fn texts(list: &[String]) -> Vec<Str> {
    list.iter().map(|text| Str::from(text.as_str())).collect()
}
