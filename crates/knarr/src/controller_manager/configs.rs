//! Configurations of the controllers, made from the flags.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use apimachinery::time::Duration;
use auth::keys::PrivateKey;
use auth::service_account::legacy;
use auth::service_account::token::ObjectRef;
use client::Config;
use client::config::Pem;
use controller::Setup;
use controllers::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};
use controllers::csr_signer::CsrSigner;
use controllers::registry::Setups;
use controllers::{
    csr_signer, endpointslice, horizontal_pod_autoscaler, legacy_token_cleaner, node_ipam, node_lifecycle, podgc,
    root_ca, service_lb, serviceaccount_token, trust_bundle,
};
use pki::Pair;

use super::flags::Flags;
use super::signing_cas::Authorities;

/// Returns the configurations of all controllers that have one.
pub(super) fn of(flags: &Flags, config: &Config) -> Result<Setups> {
    let slices = endpointslice::Config { slice_max: usize::try_from(flags.max_endpoints_per_slice)? };
    let tokens =
        legacy_token_cleaner::Config { period: read_duration(flags.legacy_service_account_token_clean_up_period)? };
    Ok(Setups {
        csr_signer: signing(flags)?,
        endpointslice: Setup::new(slices),
        horizontal_pod_autoscaler: Setup::new(autoscaler(flags)),
        legacy_token_cleaner: Setup::new(tokens),
        node_ipam: Setup::new(node_ipam(flags)?),
        node_lifecycle: Setup::new(node_lifecycle(flags)?),
        podgc: Setup::new(podgc::Config { terminated_pods_max: flags.terminated_pod_gc_threshold }),
        root_ca: Setup::new(Some(root_ca::Config(root_certificates(flags, config)?))),
        service_lb: Setup::new(load_balancers(flags)?),
        serviceaccount_token: Setup::new(serviceaccount_token(flags, config)?),
        trust_bundle: Setup::new(trust_bundle::Config(root_certificates(flags, config)?)),
    })
}

/// Returns the address pool of LoadBalancer Services, or `None` if another controller assigns addresses.
fn load_balancers(flags: &Flags) -> Result<Option<service_lb::Config>> {
    let pool = match flags.load_balancer_addresses.as_deref() {
        None => return Ok(None),
        Some("nodes") => "",
        Some(pool) => pool,
    };
    let config = service_lb::Config::parse(pool)
        .with_context(|| format!("--load-balancer-addresses: {pool:?} is neither `nodes` nor a list of addresses"))?;
    let reserved = flags.load_balancer_reserved_ports.iter().copied().map(i64::from).collect();
    Ok(Some(service_lb::Config { reserved, ..config }))
}

/// Returns the signers with their CAs, and the maximum certificate lifetime. A signer without its own CA uses that of
/// `--cluster-signing-cert-file`.
fn signing(flags: &Flags) -> Result<Setup<CsrSigner>> {
    let common = (&flags.cluster_signing_cert_file, &flags.cluster_signing_key_file);
    let own = [
        (
            CLIENT,
            &flags.cluster_signing_kube_apiserver_client_cert_file,
            &flags.cluster_signing_kube_apiserver_client_key_file,
        ),
        (
            KUBELET_CLIENT,
            &flags.cluster_signing_kubelet_client_cert_file,
            &flags.cluster_signing_kubelet_client_key_file,
        ),
        (
            KUBELET_SERVING,
            &flags.cluster_signing_kubelet_serving_cert_file,
            &flags.cluster_signing_kubelet_serving_key_file,
        ),
        (
            LEGACY_UNKNOWN,
            &flags.cluster_signing_legacy_unknown_cert_file,
            &flags.cluster_signing_legacy_unknown_key_file,
        ),
    ];
    let any_own = own.iter().any(|(_, certificate, key)| certificate.is_some() || key.is_some());
    if any_own && (common.0.is_some() || common.1.is_some()) {
        bail!(
            "--cluster-signing-cert-file and --cluster-signing-key-file cannot be combined with those of single signers"
        );
    }
    let mut pairs = Vec::new();
    for (signer, certificate, key) in own {
        match (certificate.as_ref().or(common.0.as_ref()), key.as_ref().or(common.1.as_ref())) {
            (Some(certificate), Some(key)) => {
                pairs.push((signer, Pair { certificate: certificate.clone(), key: key.clone() }));
            }
            (None, None) => {}
            _ => {
                bail!("{signer}: --cluster-signing-*-cert-file and --cluster-signing-*-key-file must be given together")
            }
        }
    }
    let signers = pairs.iter().map(|(signer, _)| *signer).collect();
    let life = read_duration(flags.cluster_signing_duration)?;
    let authorities = Authorities::new(pairs)?;
    Ok(Setup { config: csr_signer::Config { signers, life }, perform: Arc::new(move |sign| authorities.sign(sign)) })
}

/// Returns how Secrets of type service-account-token are filled, or `None` without a signing key.
fn serviceaccount_token(flags: &Flags, config: &Config) -> Result<Option<serviceaccount_token::Config>> {
    let Some(file) = &flags.service_account_private_key_file else { return Ok(None) };
    let flag = "--service-account-private-key-file";
    let key = PrivateKey::from_pem(&read(file, flag)?).with_context(|| format!("{flag}: the file contains no key"))?;
    let sign = move |namespace: &str, name: &str, uid: &str, secret: &str| {
        let account = ObjectRef { name: name.into(), uid: uid.into() };
        legacy::issue(&key, namespace, &account, secret).ok()
    };
    let root_certificates = root_certificates(flags, config)?;
    Ok(Some(serviceaccount_token::Config { sign: Arc::new(sign), root_certificates }))
}

fn node_lifecycle(flags: &Flags) -> Result<node_lifecycle::Config> {
    let read = |flag: &'static str, time| read_duration(time).context(flag);
    Ok(node_lifecycle::Config {
        grace: read("--node-monitor-grace-period", flags.node_monitor_grace_period)?,
        startup_grace: read("--node-startup-grace-period", flags.node_startup_grace_period)?,
        rates: node_lifecycle::Rates {
            normal: flags.node_eviction_rate.into(),
            secondary: flags.secondary_node_eviction_rate.into(),
            unhealthy_share: flags.unhealthy_zone_threshold.into(),
            large_size: usize::try_from(flags.large_cluster_size_threshold)?,
        },
    })
}

fn read_duration(time: std::time::Duration) -> Result<Duration> {
    Ok(Duration::from_nanos(i64::try_from(time.as_nanos()).context("a duration is too long")?))
}

/// Returns the CIDRs from which nodes get their pod CIDRs. The default mask sizes are upstream's.
fn node_ipam(flags: &Flags) -> Result<Option<node_ipam::Config>> {
    if !flags.allocate_node_cidrs {
        return Ok(None);
    }
    let read = |flag: &str, texts: &[String]| -> Result<Vec<node_ipam::Range>> {
        let range =
            |text: &String| node_ipam::Range::parse(text).with_context(|| format!("{flag}: {text:?} is not a CIDR"));
        texts.iter().map(range).collect()
    };
    let or = |given: u8, otherwise: u8| if given == 0 { otherwise } else { given };
    let mut ranges = Vec::new();
    for range in read("--cluster-cidr", &flags.cluster_cidr)? {
        let bits = if range.first.is_ipv4() {
            or(flags.node_cidr_mask_size_ipv4, or(flags.node_cidr_mask_size, 24))
        } else {
            or(flags.node_cidr_mask_size_ipv6, or(flags.node_cidr_mask_size, 64))
        };
        if bits < range.bits || bits - range.bits > 16 {
            bail!("--cluster-cidr: {range} cannot be divided into node CIDRs of mask size {bits}");
        }
        ranges.push((range, bits));
    }
    if ranges.is_empty() {
        bail!("--allocate-node-cidrs needs --cluster-cidr");
    }
    let taken = read("--service-cluster-ip-range", &flags.service_cluster_ip_range)?;
    Ok(Some(node_ipam::Config { ranges, taken }))
}

fn autoscaler(flags: &Flags) -> horizontal_pod_autoscaler::Config {
    let duration =
        |given: std::time::Duration| Duration::from_nanos(i64::try_from(given.as_nanos()).unwrap_or(i64::MAX));
    horizontal_pod_autoscaler::Config {
        sync: duration(flags.horizontal_pod_autoscaler_sync_period),
        downscale_stabilization: duration(flags.horizontal_pod_autoscaler_downscale_stabilization),
        tolerance: flags.horizontal_pod_autoscaler_tolerance,
        cpu_initialization: duration(flags.horizontal_pod_autoscaler_cpu_initialization_period),
        initial_readiness: duration(flags.horizontal_pod_autoscaler_initial_readiness_delay),
    }
}

/// Returns the CA bundle published to pods: the file of `--root-ca-file`, or the CA that this process uses.
fn root_certificates(flags: &Flags, config: &Config) -> Result<String> {
    if let Some(file) = &flags.root_ca_file {
        return read(file, "--root-ca-file");
    }
    match &config.tls.certificate_authority {
        Some(Pem::File(file)) => read(file, "the kubeconfig's certificate-authority"),
        Some(Pem::Inline(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        None => Ok(String::new()),
    }
}

fn read(file: &Path, named_by: &str) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{named_by}: failed to read {}", file.display()))
}
