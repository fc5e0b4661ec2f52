//! The proxy of this crate, serving the table that the planner makes of Ingresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use apimachinery::collection::{Collection, Entry};
use apimachinery::time::Time;
use apimachinery::{Key, Value, value};
use ingress::plan::objects::{Ingress, IngressClass, Service, Slice};
use ingress::plan::{self, CLASS, CONTROLLER, Objects, Settings};
use ingress::proxy::{self, Proxy};
use ingress::routing::Certificate;

use crate::peers::{self, CERTIFICATE, KEY, KNARR_PORTS};

/// Serves until the process is killed.
pub(crate) fn serve(dir: &Path, ingresses: usize, backend: u16) -> Result<()> {
    let certificate =
        Certificate { chain_pem: std::fs::read(dir.join(CERTIFICATE))?, key_pem: std::fs::read(dir.join(KEY))? };
    let settings = Settings {
        http_port: KNARR_PORTS.0,
        https_port: KNARR_PORTS.1,
        addresses: Vec::new(),
        gateway_addresses: Vec::new(),
        default_certificate: Some(Arc::new(certificate)),
        acme: false,
        proxy_protocol: false,
    };
    let table = plan::plan(&settings, &objects(ingresses, backend), Time::from_unix(0, 0)).table;
    ensure!(table.listeners.values().all(|listener| listener.hosts.len() >= ingresses), "Ingresses are not served");
    // The allocator's settings and the runtime of `knarr ingress`.
    sys::reserve_arena();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let proxy =
            Proxy::new(proxy::Settings { bind: vec![Ipv4Addr::LOCALHOST.into()], ..proxy::Settings::default() });
        if let Some(error) = proxy.replace(table).await.into_iter().next() {
            return Err(error).context("the proxy cannot listen");
        }
        std::future::pending().await
    })
}

fn objects(ingresses: usize, backend: u16) -> Objects {
    let mut objects = Objects {
        ingresses: Collection::new(Vec::new()),
        classes: Collection::new(Vec::new()),
        services: Collection::new(Vec::new()),
        slices: Collection::new(plan::slices_by_service()),
        secrets: Collection::new(Vec::new()),
        gateway: plan::gateway::Objects::default(),
        unavailable: BTreeMap::new(),
        acme: plan::acme::Progress::default(),
    };
    let class = value!({"metadata": {"name": CLASS}, "spec": {"controller": CONTROLLER}});
    objects.classes.insert(entry(&class, IngressClass::read));
    let service = value!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    objects.services.insert(entry(&service, Service::read));
    let slice = value!({
        "metadata": {"namespace": "default", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "http", "port": (i64::from(backend))}],
    });
    objects.slices.insert(entry(&slice, Slice::read));
    for number in 0..ingresses {
        let ingress = value!({
            "metadata": {
                "namespace": "default",
                "name": (format!("web-{number}")),
                "annotations": {"knarr.io/https-redirect": "false"},
            },
            "spec": {
                "ingressClassName": CLASS,
                "tls": [{"hosts": [(peers::host(number))]}],
                "rules": [{
                    "host": (peers::host(number)),
                    "http": {"paths": [{
                        "path": "/",
                        "pathType": "Prefix",
                        "backend": {"service": {"name": "web", "port": {"number": 80}}},
                    }]},
                }],
            },
        });
        objects.ingresses.insert(entry(&ingress, Ingress::read));
    }
    objects
}

fn entry<T>(object: &Value, read: fn(&Value) -> T) -> Entry<T> {
    Entry { key: Key::of(object), revision: 1, observed_at: Time::from_unix(0, 0), value: read(object) }
}
