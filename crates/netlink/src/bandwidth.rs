//! Bandwidth limits of pods: token buckets (TBF) on their links.
//!
//! Ingress packets leave through the node's end of the veth pair, where a bucket can queue them. Egress packets arrive
//! there, where they cannot be queued; they are redirected to an IFB link with a bucket.
//!
//! ```text
//! to the pod:   node ──> kn…: bucket ──> pod
//! from the pod: pod ──> kn…: redirect ──> ki…: bucket ──> node
//! ```

use std::collections::BTreeMap;

use crate::socket::{ACK, Attributes, CREATE, Error, REPLACE, Request, Socket};

const NEWQDISC: u16 = 36;
const NEWFILTER: u16 = 44;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_HANDLE: u32 = 0xffff_0000;
const ALL_PROTOCOLS: u16 = 3;

const INGRESS_ANNOTATION: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS_ANNOTATION: &str = "kubernetes.io/egress-bandwidth";
/// Range of rates that Kubernetes allows, in bits per second.
const RATE_MIN: u64 = 1_000;
const RATE_MAX: u64 = 1_000_000_000_000_000;
/// Maximum time in the queue: longer queues only add latency.
const LATENCY_MS: u64 = 25;
/// Burst: a tenth of a second, and at least some packets of the maximum offload size.
const BURST_DIVISOR: u64 = 10;
const BURST_BYTES_MIN: u64 = 64 << 10;

/// Bandwidth limits of a pod in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub ingress: Option<u64>,
    pub egress: Option<u64>,
}

/// An invalid bandwidth annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {value:?} is not a rate between 1k and 1P bits per second")]
pub struct BandwidthError {
    name: &'static str,
    value: String,
}

impl Bandwidth {
    /// Parses the bandwidth annotations of a pod.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Self, BandwidthError> {
        let one = |name: &'static str| {
            let Some(value) = annotations.get(name) else { return Ok(None) };
            let rate = bits(value).filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
            rate.map(Some).ok_or_else(|| BandwidthError { name, value: value.clone() })
        };
        Ok(Self { ingress: one(INGRESS_ANNOTATION)?, egress: one(EGRESS_ANNOTATION)? })
    }
}

/// Parses a quantity of bits: `10M`, `1Gi`, `1500k`.
fn bits(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor: u64 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Limits the egress rate of a link.
pub fn limit(link: u32, bits_per_second: u64) -> Result<(), Error> {
    let bytes = (bits_per_second / 8).max(1);
    let burst = (bytes / BURST_DIVISOR).max(BURST_BYTES_MIN);
    let queued = bytes.saturating_mul(LATENCY_MS) / 1_000 + burst;
    let whole = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    send_request(NEWQDISC, CREATE | REPLACE, header(link, 0x0001_0000, ROOT, 0), "set a bandwidth limit", |it| {
        it.put_str(KIND, "tbf");
        it.nest(OPTIONS, |it| {
            // tc_tbf_qopt: rate, peak rate, queue limit, bucket in ticks (replaced by the exact size below), and
            // maximum packet.
            let mut parameters = rate(whole(bytes)).to_vec();
            parameters.extend_from_slice(&[0; 12]);
            for number in [whole(queued), 0, 0] {
                parameters.extend_from_slice(&number.to_ne_bytes());
            }
            it.put(1, &parameters);
            if bytes > u64::from(u32::MAX) {
                it.put(4, &bytes.to_ne_bytes());
            }
            it.put_u32(6, whole(burst));
        });
    })
}

/// Redirects all ingress packets of a link to the egress of another.
pub fn redirect(from: u32, to: u32) -> Result<(), Error> {
    let what = "redirect ingress packets";
    send_request(NEWQDISC, CREATE | REPLACE, header(from, INGRESS_HANDLE, INGRESS, 0), what, |it| {
        it.put_str(KIND, "ingress");
    })?;
    let information = 1 << 16 | u32::from(ALL_PROTOCOLS.to_be());
    send_request(NEWFILTER, CREATE | REPLACE, header(from, 0, INGRESS_HANDLE, information), what, |it| {
        it.put_str(KIND, "u32");
        it.nest(OPTIONS, |it| {
            // A u32 match with an empty mask, which matches every packet. The first byte is the flag for the last key.
            let mut selector = [0; 32];
            selector[0] = 1;
            selector[2] = 1;
            it.put(5, &selector);
            it.nest(7, |it| {
                it.nest(1, |it| redirection(it, to));
            });
        });
    })
}

/// Writes the redirect action of a filter.
fn redirection(it: &mut Attributes<'_>, to: u32) {
    const STOLEN: u32 = 4;
    const EGRESS_REDIRECT: u32 = 1;
    it.put_str(1, "mirred");
    it.nest(2, |it| {
        it.put(2, &[0, 0, STOLEN, 0, 0, EGRESS_REDIRECT, to].map(u32::to_ne_bytes).concat());
    });
}

/// Builds a tc_ratespec of bytes per second for Ethernet-like links.
fn rate(bytes: u32) -> [u8; 12] {
    const ETHERNET: u8 = 1;
    let mut rate = [0; 12];
    rate[1] = ETHERNET;
    rate[8..].copy_from_slice(&bytes.to_ne_bytes());
    rate
}

fn header(link: u32, handle: u32, parent: u32, information: u32) -> [u8; 20] {
    let mut header = [0; 20];
    for (at, number) in [link, handle, parent, information].into_iter().enumerate() {
        header[4 + at * 4..8 + at * 4].copy_from_slice(&number.to_ne_bytes());
    }
    header
}

fn send_request(
    kind: u16,
    flags: u16,
    header: [u8; 20],
    what: &'static str,
    fill: impl FnOnce(&mut Attributes<'_>),
) -> Result<(), Error> {
    Socket::open(crate::socket::Protocol::Route)?.execute(what, Request::of(kind, ACK | flags, &header, fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_annotations_are_parsed() {
        let read = |ingress: &str| {
            let annotations = BTreeMap::from([(INGRESS_ANNOTATION.to_owned(), ingress.to_owned())]);
            Bandwidth::of(&annotations).map(|it| it.ingress)
        };
        assert_eq!(Bandwidth::of(&BTreeMap::new()), Ok(Bandwidth::default()));
        assert_eq!(read("10M"), Ok(Some(10_000_000)));
        assert_eq!(read("1Mi"), Ok(Some(1 << 20)));
        assert_eq!(read("1000"), Ok(Some(1_000)));
        for wrong in ["", "999", "2P", "-1M", "M", "10X", "99999999999999999999"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with("kubernetes.io/ingress-bandwidth: "), "{wrong}: {error}");
        }
    }
}
