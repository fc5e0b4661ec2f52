use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::{Reload, Rule};
use crate::kms::{EncryptResponse, Envelope, KeyRequest, KeySource, NewSeed, Next, Status};

/// Deterministic bytes that differ on every call.
struct Counter(u8);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

const PATH: &[u8] = b"/registry/secrets/default/a";
const NOW: Time = Time::from_unix(1_000_000, 0);

fn base64(fill: u8, length: usize) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(vec![fill; length])
}

/// Returns transformers for providers written as `aesgcm:name=fill,name=fill`.
fn transformers(providers: &[&str]) -> Transformers {
    let mut text = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n".to_owned();
    for provider in providers {
        text += &match provider.split_once(':') {
            None => format!("  - {provider}: {{}}\n"),
            Some(("kms", name)) => format!("  - kms: {{apiVersion: v2, name: {name}, endpoint: 'unix:///{name}'}}\n"),
            Some((kind, keys)) => {
                let keys: Vec<String> = keys
                    .split(',')
                    .map(|key| {
                        let (name, fill) = key.split_once('=').unwrap();
                        format!("{{name: {name}, secret: {}}}", base64(fill.parse().unwrap(), 32))
                    })
                    .collect();
                format!("  - {kind}: {{keys: [{}]}}\n", keys.join(", "))
            }
        };
    }
    let configuration = Configuration::parse(text.as_bytes(), Reload::Never).unwrap();
    assert!(matches!(configuration.rules(), [Rule { .. }]));
    Transformers::for_resource(&configuration, "", "secrets")
}

fn encrypt(transformers: &Transformers, keyring: &Keyring) -> Vec<u8> {
    transformers.encrypt(b"{\"a\":1}", PATH, keyring, &mut Counter(0), NOW).unwrap().into_owned()
}

fn value(stale: bool) -> Result<Decryption<'static>, Error> {
    Ok(Decryption::Value { bytes: b"{\"a\":1}".as_slice().into(), stale })
}

fn ring(service: &str, key_id: &str) -> Keyring {
    let mut keyring = Keyring::default();
    adopt(&mut keyring, service, key_id, 1);
    keyring
}

fn status(key_id: &str) -> Status {
    Status { version: "v2".into(), healthz: "ok".into(), key_id: key_id.into() }
}

/// Adopts a seed from a fake plugin that encrypts by inverting bits.
fn adopt(keyring: &mut Keyring, service: &str, key_id: &str, start: u8) {
    let seed = NewSeed::generate(&mut Counter(start));
    let ciphertext = seed.plaintext().iter().map(|byte| !byte).collect();
    let annotations = BTreeMap::from([("version.example.org".to_owned(), vec![1])]);
    let encrypted = EncryptResponse { ciphertext, key_id: key_id.into(), annotations };
    keyring.adopt(service, &seed, encrypted, &status(key_id), NOW).unwrap();
}

#[test]
fn each_provider_writes_its_prefix_and_decrypts_its_values() {
    let check = |provider: &str, prefix: &str| {
        let (transformers, keyring) = (transformers(&[provider]), ring("vault", "k1"));
        let stored = encrypt(&transformers, &keyring);
        assert!(stored.starts_with(prefix.as_bytes()), "{}", String::from_utf8_lossy(&stored));
        assert_eq!(transformers.open(&stored, PATH, &keyring), value(false), "{provider}");
    };
    check("aescbc:key1=1", "k8s:enc:aescbc:v1:key1:");
    check("aesgcm:key1=1", "k8s:enc:aesgcm:v1:key1:");
    check("secretbox:key1=1", "k8s:enc:secretbox:v1:key1:");
    check("kms:vault", "k8s:enc:kms:v2:vault:");
    check("identity", "{\"a\":1}");
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn values_of_another_implementation_are_decrypted() {
    // Generated with Python's `cryptography` from the format description: keys of 0x01, a seed of 0x07.
    let mut keyring = ring("vault", "k1");
    let transformers = transformers(&["aescbc:a=1", "aesgcm:a=1", "kms:vault"]);
    let mut check = |prefix: &str, hex: &str, stale: bool| {
        let stored = [prefix.as_bytes(), &bytes(hex)].concat();
        if let Ok(Decryption::NeedsKey(request)) = transformers.open(&stored, PATH, &keyring) {
            assert_eq!((&*request.key_id, &*request.ciphertext), ("k1", [0xf8; 32].as_slice()));
            keyring.learn(&request, &[7; 32]).unwrap();
        }
        assert_eq!(transformers.open(&stored, PATH, &keyring), value(stale), "{prefix}");
    };
    check("k8s:enc:aescbc:v1:a:", "000102030405060708090a0b0c0d0e0f887869c7d34b08e1dbc7e4b16bb5b6a3", false);
    check("k8s:enc:aesgcm:v1:a:", "000102030405060708090a0bc084f4041acf7ba7a833bfd647be22a7706cb560d8c0f0", true);
    check(
        "k8s:enc:kms:v2:vault:",
        concat!(
            "0a43000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f000102030405060708090a0b6abf638a",
            "fbe9587848f64fcbf14c8bd67721a1c187228f12026b311a20f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8",
            "f8f8f8f8f8f8f822180a1376657273696f6e2e6578616d706c652e6f72671201012801",
        ),
        true,
    );
}

#[test]
fn first_provider_encrypts_and_values_of_others_are_stale() {
    let keyring = ring("vault", "k1");
    let all = ["aesgcm:b=2,a=1", "aescbc:c=3", "secretbox:d=4", "kms:vault", "identity"];
    let current = transformers(&all);
    let check = |writer: &str, stale: bool| {
        let stored = encrypt(&transformers(&[writer]), &keyring);
        assert_eq!(current.open(&stored, PATH, &keyring), value(stale), "{writer}");
    };
    check("aesgcm:b=2", false);
    check("aesgcm:a=1", true);
    check("aescbc:c=3", true);
    check("secretbox:d=4", true);
    check("kms:vault", true);
    check("identity", true);
}

#[test]
fn two_providers_of_one_type_decrypt_their_own_values() {
    let keyring = Keyring::default();
    let rotated = transformers(&["aescbc:new=2", "aescbc:old=1"]);
    assert_eq!(rotated.open(&encrypt(&transformers(&["aescbc:old=1"]), &keyring), PATH, &keyring), value(true));
    // A key that was replaced under the same name.
    let same_name = transformers(&["aesgcm:a=2", "aesgcm:a=1"]);
    assert_eq!(same_name.open(&encrypt(&transformers(&["aesgcm:a=1"]), &keyring), PATH, &keyring), value(true));
}

#[test]
fn encryption_can_be_disabled_and_enabled() {
    let keyring = Keyring::default();
    let (on, off) = (transformers(&["aesgcm:a=1", "identity"]), transformers(&["identity", "aesgcm:a=1"]));
    let (encrypted, plain) = (encrypt(&on, &keyring), encrypt(&off, &keyring));
    assert_eq!(off.open(&encrypted, PATH, &keyring), value(true));
    assert_eq!(on.open(&plain, PATH, &keyring), value(true));
    assert_eq!(transformers(&["identity"]).open(&encrypted, PATH, &keyring), Err(Error::NoPrefix));
}

#[test]
fn unlisted_resource_is_not_encrypted_and_rejects_encrypted_values() {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm: {{keys: [{{name: a, secret: {}}}]}}\n",
        base64(1, 32)
    );
    let configuration = Configuration::parse(text.as_bytes(), Reload::Never).unwrap();
    let pods = Transformers::for_resource(&configuration, "", "pods");
    let keyring = Keyring::default();
    assert_eq!(encrypt(&pods, &keyring), b"{\"a\":1}");
    assert_eq!(pods.open(b"k8s:enc:aesgcm:v1:a:xyz", PATH, &keyring), Err(Error::NoPrefix));
}

#[test]
fn errors_have_upstreams_messages() {
    let keyring = Keyring::default();
    let check = |providers: &[&str], stored: &[u8], expect: &str| {
        assert_eq!(transformers(providers).open(stored, PATH, &keyring).unwrap_err().to_string(), expect);
    };
    check(&["aesgcm:a=1"], b"{}", "no matching prefix found");
    check(&["aesgcm:a=1"], b"k8s:enc:aesgcm:v1:b:", "no matching key was found for the provided AES transformer");
    check(
        &["secretbox:a=1"],
        b"k8s:enc:secretbox:v1:b:",
        "no matching key was found for the provided Secretbox transformer",
    );
    check(&["aesgcm:a=1"], b"k8s:enc:aesgcm:v1:a:short", "the stored data was shorter than the required size");
    check(
        &["aesgcm:a=1"],
        b"k8s:enc:aesgcm:v1:a:long enough for a nonce and a tag",
        "cipher: message authentication failed",
    );
    check(
        &["aesgcm:a=1", "aesgcm:b=2"],
        b"k8s:enc:aesgcm:v1:a:short",
        "[the stored data was shorter than the required size, no matching key was found for the provided AES transformer]",
    );
    check(&["kms:vault"], b"k8s:enc:kms:v2:vault:", "encrypted data is empty");
}

#[test]
fn moved_value_is_rejected_if_its_path_is_authenticated() {
    let keyring = ring("vault", "k1");
    for provider in ["aesgcm:a=1", "kms:vault"] {
        let transformers = transformers(&[provider]);
        let stored = encrypt(&transformers, &keyring);
        assert_eq!(transformers.open(&stored, b"/registry/secrets/default/b", &keyring), Err(Error::Authentication));
    }
}

#[test]
fn unknown_key_is_requested_and_then_cached() {
    let transformers = transformers(&["kms:vault"]);
    let stored = encrypt(&transformers, &ring("vault", "k1"));
    let mut fresh = Keyring::default();
    let Ok(Decryption::NeedsKey(request)) = transformers.open(&stored, PATH, &fresh) else { panic!("a request") };
    assert_eq!((&*request.service, &*request.key_id), ("vault", "k1"));
    assert_eq!(request.annotations["version.example.org"], [1]);
    let plaintext: Vec<u8> = request.ciphertext.iter().map(|byte| !byte).collect();
    fresh.learn(&request, &plaintext).unwrap();
    assert_eq!(transformers.open(&stored, PATH, &fresh), value(true), "without its own seed it encrypts nothing");
    adopt(&mut fresh, "vault", "k1", 9);
    assert_eq!(transformers.open(&stored, PATH, &fresh), value(false), "the same key of the service, another seed");
    adopt(&mut fresh, "vault", "k2", 9);
    assert_eq!(transformers.open(&stored, PATH, &fresh), value(true));
}

#[test]
fn value_with_a_plain_dek_is_decrypted_and_stale() {
    let key = Gcm::new(&[5; 32]).unwrap();
    let mut data = Vec::new();
    key.encrypt(b"{\"a\":1}", PATH, [1; 12], &mut data).unwrap();
    let envelope = Envelope {
        data,
        key_id: "k1".into(),
        encrypted_key: vec![1],
        annotations: BTreeMap::new(),
        source: KeySource::Key,
    };
    let mut stored = b"k8s:enc:kms:v2:vault:".to_vec();
    stored.extend(envelope.encode());
    let mut keyring = ring("vault", "k1");
    let transformers = transformers(&["kms:vault"]);
    let Ok(Decryption::NeedsKey(request)) = transformers.open(&stored, PATH, &keyring) else { panic!("a request") };
    keyring.learn(&request, &[5; 32]).unwrap();
    assert_eq!(transformers.open(&stored, PATH, &keyring), value(true));
}

#[test]
fn seed_encrypts_while_its_kms_plugin_confirms_the_key_id() {
    let mut keyring = ring("vault", "k1");
    let transformers = transformers(&["kms:vault"]);
    let later = |seconds: i64| Time::from_unix(1_000_000 + seconds, 0);
    let writes =
        |keyring: &Keyring, seconds: i64| transformers.encrypt(b"x", PATH, keyring, &mut Counter(0), later(seconds));
    assert!(writes(&keyring, 180).is_ok());
    let expired = writes(&keyring, 181).unwrap_err().to_string();
    assert!(expired.starts_with("encryptedDEKSource with keyID hash \"sha256:"), "{expired}");
    assert!(expired.ends_with("expired at 1970-01-12T13:49:40Z (current time is 1970-01-12T13:49:41Z)"), "{expired}");
    assert_eq!(keyring.status("vault", &status("k1"), later(170)), Ok(Next::Keep));
    assert!(writes(&keyring, 350).is_ok());
    assert_eq!(keyring.status("vault", &status("k2"), later(340)), Ok(Next::Rotate));
    assert_eq!(keyring.status("other", &status("k1"), NOW), Ok(Next::Rotate));
    assert_eq!(writes(&Keyring::default(), 0), Err(Error::Kms(crate::kms::Error::NoSeed)));
}

#[test]
fn unhealthy_kms_plugin_is_not_used() {
    let mut keyring = Keyring::default();
    let mut check = |status: Status, expect: &str| {
        assert_eq!(keyring.status("vault", &status, NOW).unwrap_err().to_string(), expect);
    };
    let sick = Status { healthz: "down".into(), ..status("k1") };
    check(sick.clone(), "kmsv2 Provider vault is not healthy, error: got unexpected healthz status: down");
    check(
        Status { version: "v1".into(), key_id: String::new(), ..sick },
        "kmsv2 Provider vault is not healthy, error: [got unexpected healthz status: down, expected KMSv2 API version v2, got v1, expected KMSv2 KeyID to be set, got ]",
    );
    let seed = NewSeed::generate(&mut Counter(0));
    let encrypted = EncryptResponse { ciphertext: vec![1], key_id: "k2".into(), annotations: BTreeMap::new() };
    let mismatch = keyring.adopt("vault", &seed, encrypted.clone(), &status("k1"), NOW);
    assert!(matches!(mismatch, Err(crate::kms::Error::KeyMismatch { .. })));
    let annotations = BTreeMap::from([("plain".to_owned(), vec![])]);
    let named = EncryptResponse { annotations, ..encrypted };
    assert_eq!(
        keyring.adopt("vault", &seed, named, &status("k2"), NOW).unwrap_err().to_string(),
        "failed to validate annotations: annotations: Invalid value: \"plain\": should be a domain with at least two segments separated by dots"
    );
}

#[test]
fn cached_keys_per_kms_plugin_are_bounded() {
    let mut keyring = Keyring::default();
    for at in 0..3000_u32 {
        let request = KeyRequest {
            service: "vault".into(),
            ciphertext: at.to_be_bytes().to_vec(),
            key_id: "k".into(),
            annotations: BTreeMap::new(),
            source: KeySource::Seed,
        };
        keyring.learn(&request, &[1; 32]).unwrap();
    }
    assert_eq!(keyring.remembered(), 1024);
}

const PROVIDERS: [&str; 4] = ["aescbc:a=1", "aesgcm:a=1", "secretbox:a=1", "kms:vault"];

proptest! {
    #[test]
    fn encrypted_values_round_trip(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        path in prop::collection::vec(any::<u8>(), 0..50),
        provider in 0..PROVIDERS.len(),
        start: u8,
    ) {
        let (transformers, keyring) = (transformers(&[PROVIDERS[provider]]), ring("vault", "k1"));
        let stored = transformers.encrypt(&bytes, &path, &keyring, &mut Counter(start), NOW).unwrap();
        prop_assert_eq!(transformers.open(&stored, &path, &keyring), Ok(Decryption::Value { bytes: bytes.as_slice().into(), stale: false }));
    }

    #[test]
    fn changed_byte_is_detected(at: prop::sample::Index, change in 1_u8..=255, provider in 1..PROVIDERS.len()) {
        let (transformers, keyring) = (transformers(&[PROVIDERS[provider]]), ring("vault", "k1"));
        let mut stored = encrypt(&transformers, &keyring);
        let at = at.index(stored.len());
        stored[at] ^= change;
        // The result must never be a value. AES-CBC is excluded because it has no authentication tag.
        let opened = transformers.open(&stored, PATH, &keyring);
        prop_assert!(!matches!(opened, Ok(Decryption::Value { .. })), "{:?}", opened);
    }

    #[test]
    fn another_key_does_not_decrypt(provider in 1_usize..3, fill in 2_u8..=255) {
        let kind = PROVIDERS[provider].split_once(':').unwrap().0;
        let keyring = Keyring::default();
        let stored = encrypt(&transformers(&[PROVIDERS[provider]]), &keyring);
        let other = transformers(&[&format!("{kind}:a={fill}")]);
        prop_assert!(other.open(&stored, PATH, &keyring).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        prefix in prop::sample::select(vec!["", "k8s:enc:", "k8s:enc:aescbc:v1:a:", "k8s:enc:aesgcm:v1:a:", "k8s:enc:secretbox:v1:a:", "k8s:enc:kms:v2:vault:"]),
        rest in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let transformers = transformers(&["aescbc:a=1", "aesgcm:a=1", "secretbox:a=1", "kms:vault", "identity"]);
        let stored: Vec<u8> = prefix.bytes().chain(rest).collect();
        let _ = transformers.open(&stored, PATH, &ring("vault", "k1"));
    }

    #[test]
    fn truncated_or_modified_envelope_never_panics(at: prop::sample::Index, cut: prop::sample::Index, change: u8) {
        let (transformers, keyring) = (transformers(&["kms:vault"]), ring("vault", "k1"));
        let mut stored = encrypt(&transformers, &keyring);
        let at = at.index(stored.len());
        stored[at] = change;
        stored.truncate(cut.index(stored.len()) + 1);
        let _ = transformers.open(&stored, PATH, &keyring);
    }
}
