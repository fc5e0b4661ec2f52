//! What becomes of a password before it goes into the log: PBKDF2 with a salt of its own, so slow that trying many takes long.

use std::fmt::Write;
use std::num::NonZeroU32;

use aws_lc_rs::{pbkdf2, rand};
use mvcc::PasswordHash;
use tokio::sync::Semaphore;
use tonic::Status;

/// What OWASP asks for of HMAC-SHA-256.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("it is not zero");
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// How many are made at once: whoever adds many users must not keep every thread busy.
static HASHING: Semaphore = Semaphore::const_new(2);

/// Hashes a password, away from the tasks that serve others.
pub(super) async fn hashed(password: String) -> Result<PasswordHash, Status> {
    let failed = |_| Status::internal("the password cannot be hashed");
    let _turn = HASHING.acquire().await.map_err(|error| Status::internal(error.to_string()))?;
    let hashing = tokio::task::spawn_blocking(move || {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).map(|()| text(&password, &salt))
    });
    hashing.await.map_err(|error| Status::internal(error.to_string()))?.map(PasswordHash::new).map_err(failed)
}

/// How it was made and what came of it: `pbkdf2-sha256:ITERATIONS:SALT:HASH`, the last two in hexadecimal.
fn text(password: &str, salt: &[u8]) -> String {
    let mut hash = [0; HASH_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, password.as_bytes(), &mut hash);
    format!("pbkdf2-sha256:{ITERATIONS}:{}:{}", hex(salt), hex(&hash))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_becomes_what_others_make_of_it_too() {
        // Python: hashlib.pbkdf2_hmac("sha256", b"secret", bytes(16), 600000).hex()
        let expect = "cd6556c33a6b0ca61f96fc4b7b96664c4d4660abd91296fcd650ab6626564af4";
        let made = text("secret", &[0; SALT_BYTES]);
        assert_eq!(made, format!("pbkdf2-sha256:600000:{}:{expect}", "00".repeat(SALT_BYTES)));
    }

    #[tokio::test]
    async fn the_same_password_never_becomes_the_same_twice_and_cannot_be_seen() {
        let (one, two) = (hashed("secret".to_owned()).await, hashed("secret".to_owned()).await);
        let (one, two) = (one.expect("a hash"), two.expect("another"));
        assert_ne!(one, two);
        assert!(!one.as_str().contains("secret") && !one.as_str().contains(&hex(b"secret")));
    }
}
