//! Authentication of etcd users: etcd's flags for auth tokens and password hashes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::store::etcd::{AuthConfig, TokenSigner, Tokens};
use anyhow::{Context, Result, bail, ensure};
use apimachinery::value;
use auth::jwt::{self, Token};
use auth::keys::{Algorithm, PrivateKey, PublicKey};
use clap::Args;

use super::retention::duration;

/// Auth tokens and passwords.
#[derive(Args, Debug, Clone)]
pub(super) struct Authentication {
    /// Type of auth tokens: `simple`, or `jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=TIME`.
    #[arg(long, env = "ETCD_AUTH_TOKEN", default_value = "simple")]
    auth_token: String,
    /// Seconds after which an unused simple token expires.
    #[arg(long, env = "ETCD_AUTH_TOKEN_TTL", default_value_t = TOKEN_TTL_SECONDS)]
    auth_token_ttl: u32,
    /// Cost of password hashing, from 4 to 20: each step doubles it.
    // DEVIATION: passwords are hashed with PBKDF2-HMAC-SHA-256, not with bcrypt; `--bcrypt-cost` scales its iterations.
    #[arg(long, env = "ETCD_BCRYPT_COST", default_value_t = COST)]
    bcrypt_cost: u32,
}

/// Default cost, equal to the default number of PBKDF2 iterations.
const COST: u32 = 10;
const TOKEN_TTL_SECONDS: u32 = 300;
/// Default lifetime of a JWT, if the `ttl` option is not given.
const JWT_TTL: Duration = Duration::from_secs(300);

impl Authentication {
    pub(super) fn config(&self, client_cert_auth: bool) -> Result<AuthConfig> {
        let mut parts = self.auth_token.split(',');
        let tokens = match parts.next() {
            Some("simple") => Tokens::Simple { ttl: self.simple_ttl() },
            Some("jwt") => Tokens::Signed(Arc::new(Jwt::read(parts).context("--auth-token")?)),
            _ => bail!("--auth-token {:?} is neither `simple` nor `jwt,…`", self.auth_token),
        };
        Ok(AuthConfig { tokens, client_cert_auth, hash_iterations: self.hash_iterations()? })
    }

    /// Returns the TTL of simple tokens. As in etcd, 0 means the default.
    fn simple_ttl(&self) -> Duration {
        let seconds = if self.auth_token_ttl == 0 { TOKEN_TTL_SECONDS } else { self.auth_token_ttl };
        Duration::from_secs(seconds.into())
    }

    fn hash_iterations(&self) -> Result<NonZeroU32> {
        ensure!((4..=20).contains(&self.bcrypt_cost), "--bcrypt-cost {} is not between 4 and 20", self.bcrypt_cost);
        let default = AuthConfig::default().hash_iterations.get();
        let iterations = if self.bcrypt_cost >= COST {
            default << (self.bcrypt_cost - COST)
        } else {
            default >> (COST - self.bcrypt_cost)
        };
        NonZeroU32::new(iterations).context("--bcrypt-cost")
    }
}

/// Issuer and verifier of JWTs with the user and the auth revision, as in etcd.
#[derive(Debug)]
struct Jwt {
    algorithm: Algorithm,
    /// Without a private key, tokens are verified but not issued.
    private: Option<PrivateKey>,
    public: PublicKey,
    ttl: Duration,
}

impl Jwt {
    // DEVIATION: JWTs are signed with RS256, ES256, ES384 or ES512; HMAC, Ed25519 and other RSA hashes are rejected.
    fn read<'a>(options: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut given = BTreeMap::new();
        for option in options {
            let (name, text) = option.split_once('=').with_context(|| format!("{option:?} is not NAME=VALUE"))?;
            ensure!(given.insert(name, text).is_none(), "{name} is given twice");
        }
        let mut take = |name| given.remove(name).filter(|text| !text.is_empty());
        let method = take("sign-method").context("sign-method is missing")?;
        let algorithm = Algorithm::named(method).with_context(|| format!("sign-method {method} is not supported"))?;
        let private =
            take("priv-key").map(|path| PrivateKey::from_pem(&read(path)?).context(path.to_owned())).transpose()?;
        let public = take("pub-key").map(|path| public_key(path).context(path.to_owned())).transpose()?;
        let ttl = take("ttl").map_or(Ok(JWT_TTL), duration)?;
        ensure!(given.is_empty(), "unknown options: {}", given.into_keys().collect::<Vec<_>>().join(", "));
        let public = match (&private, public) {
            (None, None) => bail!("priv-key or pub-key is missing"),
            (Some(private), Some(public)) if *private.public() != public => {
                bail!("pub-key and priv-key do not belong together")
            }
            (Some(private), _) => private.public().clone(),
            (None, Some(public)) => public,
        };
        if private.is_some() {
            ensure!(
                algorithm == public.algorithm(),
                "a key of type {} cannot sign with {method}",
                public.algorithm().name()
            );
        }
        Ok(Self { algorithm, private, public, ttl })
    }

    fn sign_at(&self, user: &str, revision: u64, now: i64) -> Option<String> {
        let expires = now.saturating_add(i64::try_from(self.ttl.as_secs()).ok()?);
        let revision = i64::try_from(revision).ok()?;
        let claims = value!({"username": user, "revision": revision, "exp": expires});
        jwt::sign(self.private.as_ref()?, &claims).ok()
    }

    fn verify_at(&self, token: &str, now: i64) -> Option<(String, u64)> {
        let token = Token::parse(token).ok().filter(|token| token.algorithm == self.algorithm)?;
        token.verify(&self.public).ok()?;
        let is_valid = token.seconds("exp")? > now && token.seconds("nbf").is_none_or(|from| from <= now);
        let user = token.claims.str_at(&["username"])?.to_owned();
        let revision = u64::try_from(token.seconds("revision")?).ok()?;
        is_valid.then_some((user, revision))
    }
}

impl TokenSigner for Jwt {
    fn sign(&self, user: &str, revision: u64) -> Option<String> {
        self.sign_at(user, revision, unix_seconds())
    }

    fn verify(&self, token: &str) -> Option<(String, u64)> {
        self.verify_at(token, unix_seconds())
    }
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(Path::new(path)).with_context(|| format!("cannot read {path}"))
}

fn public_key(path: &str) -> Result<PublicKey> {
    PublicKey::all_from_pem(&read(path)?)?.into_iter().next().context("the file contains no public key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(dir: &Path) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let (private, public) = (dir.join("private.pem"), dir.join("public.pem"));
        std::fs::write(&private, key.serialize_pem()).expect("it is written");
        std::fs::write(&public, key.public_key_pem()).expect("it is written");
        (private.display().to_string(), public.display().to_string())
    }

    fn jwt(options: &str) -> Result<Jwt> {
        Jwt::read(options.split(','))
    }

    #[test]
    fn jwt_is_valid_until_expiry_and_only_for_its_key() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (private, public) = keys(dir.path());
        let signer = jwt(&format!("sign-method=ES256,priv-key={private},pub-key={public},ttl=10s")).unwrap();
        let token = signer.sign_at("alice", 7, 1000).unwrap();
        let verifier = jwt(&format!("sign-method=ES256,pub-key={public}")).unwrap();
        assert_eq!(verifier.verify_at(&token, 1009), Some(("alice".to_owned(), 7)));
        assert_eq!(verifier.verify_at(&token, 1010), None, "it has expired");
        assert_eq!(verifier.sign_at("alice", 7, 1000), None, "a public key does not sign");
        let (stranger, _) = keys(other.path());
        let stranger = jwt(&format!("sign-method=ES256,priv-key={stranger}")).unwrap();
        assert_eq!(stranger.verify_at(&token, 1000), None);
        let anonymous = jwt::sign(signer.private.as_ref().unwrap(), &value!({"revision": 7, "exp": 2000})).unwrap();
        assert_eq!(signer.verify_at(&anonymous, 1000), None, "it names no user");
    }

    #[test]
    fn invalid_jwt_options_are_rejected() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ((private, public), (_, stranger)) = (keys(dir.path()), keys(other.path()));
        let check = |options: &str, expect: &str| {
            let error = format!("{:#}", jwt(options).expect_err(options));
            assert!(error.contains(expect), "{options}: {error}");
        };
        check(&format!("priv-key={private}"), "sign-method is missing");
        check("sign-method=ES256", "priv-key or pub-key is missing");
        check(&format!("sign-method=HS256,priv-key={private}"), "HS256 is not supported");
        check(&format!("sign-method=RS256,priv-key={private}"), "cannot sign with RS256");
        check(&format!("sign-method=ES256,priv-key={private},pub-key={stranger}"), "do not belong together");
        check(&format!("sign-method=ES256,pub-key={public},ttl=x"), "is not a duration");
        check(&format!("sign-method=ES256,pub-key={public},pub-key={public}"), "given twice");
        check(&format!("sign-method=ES256,pub-key={public},ttls=1s"), "unknown options: ttls");
        check("sign-method=ES256,pub-key=/nonexistent", "cannot read /nonexistent");
    }
}
