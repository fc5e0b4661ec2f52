//! CSR signing: signs certificates for controllers with the CAs of the `--cluster-signing-*` flags.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use apimachinery::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controllers::csr_signer::Sign;
use pki::Pair;
use pki::sign::{SigningRequest, sign};

/// The CA of each signer. Its files are read for every signature, so that they can be replaced.
pub(super) struct Authorities(BTreeMap<&'static str, Pair>);

impl Authorities {
    /// Fails if a file is missing, so that an error is reported at start and not when a kubelet waits for a
    /// certificate.
    pub(super) fn new(pairs: Vec<(&'static str, Pair)>) -> Result<Self> {
        for (signer, pair) in &pairs {
            for file in [&pair.certificate, &pair.key] {
                let read = std::fs::read(file);
                read.with_context(|| format!("the CA of {signer}: failed to read {}", file.display()))?;
            }
        }
        Ok(Self(pairs.into_iter().collect()))
    }

    /// Returns the PEM certificate in base64.
    pub(super) fn sign(&self, order: &Sign) -> Result<Value, String> {
        let pair = self.0.get(order.signer.as_str()).ok_or_else(|| format!("{} has no authority", order.signer))?;
        let signing_request = SigningRequest { request: &order.request, usages: &order.usages, life: order.life };
        let certificate = sign(pair, &signing_request, component_base::clock::now()).map_err(|error| {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
        })?;
        Ok(STANDARD.encode(certificate).into())
    }
}
