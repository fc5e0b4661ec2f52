//! Password hashing with PBKDF2 and a random salt, before passwords are proposed to the log.
//!
//! Hashing is slow by design. It runs on a limited number of blocking threads and never where commands are applied.

use std::fmt::Write;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use aws_lc_rs::{pbkdf2, rand};
use mvcc::PasswordHash;
use tokio::sync::Semaphore;
use tonic::Status;

use super::status;
use crate::backend::BackendError;

/// OWASP's recommendation for HMAC-SHA-256.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("the constant is not zero");
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
const PREFIX: &str = "pbkdf2-sha256";
/// Limits the requests that wait for a hash, because unauthenticated clients can send passwords.
static QUEUE: Semaphore = Semaphore::const_new(1024);

pub(super) async fn hashed(password: String, iterations: NonZeroU32) -> Result<PasswordHash, Status> {
    let hash = in_turn(move || {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).map(|()| text(&password, &salt, iterations))
    });
    let failed = |_| Status::internal("the password cannot be hashed");
    hash.await?.map(PasswordHash::new).map_err(failed)
}

/// Whether the password matches the hash. Without a hash the result is false after the same time, so that timing does
/// not reveal which users exist.
pub(super) async fn verify(
    password: String,
    hash: Option<PasswordHash>,
    iterations: NonZeroU32,
) -> Result<bool, Status> {
    let parsed = hash.as_ref().and_then(|hash| parse(hash.as_str()));
    let exists = parsed.is_some();
    let (iterations, salt, expected) = parsed.unwrap_or((iterations, vec![0; SALT_BYTES], vec![0; HASH_BYTES]));
    let verified = in_turn(move || {
        pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &expected).is_ok()
    });
    Ok(verified.await? && exists)
}

/// Runs blocking work on at most half of the CPUs.
async fn in_turn<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, Status> {
    static HASHING: OnceLock<Semaphore> = OnceLock::new();
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hashing = HASHING.get_or_init(|| Semaphore::new((cpus() / 2).max(1)));
    let _permit = QUEUE.try_acquire().map_err(|_| status::of_backend(BackendError::TooManyRequests))?;
    let _turn = hashing.acquire().await.map_err(|error| Status::internal(error.to_string()))?;
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}

/// Formats a hash as `pbkdf2-sha256:ITERATIONS:SALT:HASH`, with salt and hash in hexadecimal.
fn text(password: &str, salt: &[u8], iterations: NonZeroU32) -> String {
    let mut hash = [0; HASH_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), &mut hash);
    format!("{PREFIX}:{iterations}:{}:{}", hex(salt), hex(&hash))
}

fn parse(text: &str) -> Option<(NonZeroU32, Vec<u8>, Vec<u8>)> {
    let mut parts = text.split(':');
    let parsed = match (parts.next()?, parts.next()?.parse().ok()?, parts.next()?, parts.next()?) {
        (PREFIX, iterations, salt, hash) => (iterations, bytes(salt)?, bytes(hash)?),
        _ => return None,
    };
    parts.next().is_none().then_some(parsed)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |letter: u8| char::from(letter).to_digit(16);
    let pair = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(pair).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: NonZeroU32 = NonZeroU32::new(1000).expect("the constant is not zero");

    #[test]
    fn hash_equals_that_of_other_implementations() {
        // Python: hashlib.pbkdf2_hmac("sha256", b"secret", bytes(16), 600000).hex()
        let expect = "cd6556c33a6b0ca61f96fc4b7b96664c4d4660abd91296fcd650ab6626564af4";
        let made = text("secret", &[0; SALT_BYTES], ITERATIONS);
        assert_eq!(made, format!("pbkdf2-sha256:600000:{}:{expect}", "00".repeat(SALT_BYTES)));
    }

    #[tokio::test]
    async fn hash_has_a_random_salt_and_does_not_contain_the_password() {
        let (one, two) = (hashed("secret".to_owned(), FEW).await, hashed("secret".to_owned(), FEW).await);
        let (one, two) = (one.expect("a hash"), two.expect("another"));
        assert_ne!(one, two);
        assert!(!one.as_str().contains("secret") && !one.as_str().contains(&hex(b"secret")));
    }

    #[tokio::test]
    async fn only_the_hashed_password_is_accepted() {
        let hash = hashed("secret".to_owned(), FEW).await.expect("a hash");
        let check = async |password: &str, hash: Option<&str>, expect: bool| {
            let hash = hash.map(|hash| PasswordHash::new(hash.to_owned()));
            assert_eq!(verify(password.to_owned(), hash, FEW).await.expect("an answer"), expect, "{password}");
        };
        check("secret", Some(hash.as_str()), true).await;
        check("Secret", Some(hash.as_str()), false).await;
        check("", Some(hash.as_str()), false).await;
        check("secret", None, false).await;
        check("secret", Some("pbkdf2-sha256:1000:00"), false).await;
        check("secret", Some(&format!("{}00", hash.as_str())), false).await;
        check("secret", Some(&format!("{}:", hash.as_str())), false).await;
    }
}
