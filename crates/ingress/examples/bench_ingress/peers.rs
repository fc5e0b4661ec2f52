//! The proxies that are compared, and the backend that they share.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use crate::load::Target;

/// HTTP and HTTPS ports in the namespace of the benchmark.
pub(crate) const KNARR_PORTS: (u16, u16) = (8000, 8001);
const NGINX_PORTS: (u16, u16) = (8010, 8011);
const HAPROXY_PORTS: (u16, u16) = (8020, 8021);
const BACKEND_PORT: u16 = 8100;
pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
/// Idle connections to the backend that nginx keeps, as in the configuration of ingress-nginx.
const KEEP_ALIVE: usize = 320;
const START: Duration = Duration::from_secs(20);

/// A running proxy.
pub(crate) struct Peer {
    pub name: &'static str,
    ports: (u16, u16),
    pub process: Child,
}

/// The proxies and their backend. They are killed on drop.
pub(crate) struct Stand {
    pub peers: Vec<Peer>,
    backend: Child,
    certificate: CertificateDer<'static>,
    requests: Rc<Vec<Vec<u8>>>,
    _dir: TempDir,
}

/// Returns the host of an Ingress.
pub(crate) fn host(number: usize) -> String {
    format!("host-{number}.bench.test")
}

impl Stand {
    /// Starts the proxies with this number of Ingresses.
    pub(crate) fn start(ingresses: usize) -> Result<Stand> {
        let dir = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed(["*.bench.test".to_owned()])?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(dir.path().join(CERTIFICATE), &chain)?;
        std::fs::write(dir.path().join(KEY), &key)?;
        std::fs::write(dir.path().join("both.pem"), chain.clone() + &key)?;
        let this = std::env::current_exe()?;
        let backend = Command::new(&this).arg("backend").arg(BACKEND_PORT.to_string()).spawn()?;
        let request = |number| {
            format!("GET /path HTTP/1.1\r\nHost: {}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", host(number))
        };
        let mut stand = Stand {
            peers: Vec::new(),
            backend,
            certificate: CertificateDer::from_pem_slice(chain.as_bytes())?,
            requests: Rc::new((0..ingresses).map(|number| request(number).into_bytes()).collect()),
            _dir: dir,
        };
        let dir = stand._dir.path().to_owned();
        wait_for(BACKEND_PORT)?;
        let mut knarr = on_cpu_0(&this);
        knarr.arg("proxy").arg(&dir).args([ingresses.to_string(), BACKEND_PORT.to_string()]);
        stand.add("knarr", KNARR_PORTS, knarr)?;
        std::fs::write(dir.join("nginx.conf"), nginx(&dir, ingresses)?)?;
        let mut command = on_cpu_0("nginx".as_ref());
        command.args(["-e", "stderr", "-p"]).arg(&dir).arg("-c").arg(dir.join("nginx.conf"));
        stand.add("nginx", NGINX_PORTS, command)?;
        let map: String = (0..ingresses).map(|number| format!("{} web\n", host(number))).collect();
        std::fs::write(dir.join("hosts.map"), map)?;
        std::fs::write(dir.join("haproxy.cfg"), haproxy(&dir))?;
        let mut command = on_cpu_0("haproxy".as_ref());
        command.arg("-f").arg(dir.join("haproxy.cfg"));
        stand.add("haproxy", HAPROXY_PORTS, command)?;
        Ok(stand)
    }

    /// Returns what clients of a proxy connect to.
    pub(crate) fn target(&self, peer: &Peer, tls: bool) -> Result<Target> {
        let port = if tls { peer.ports.1 } else { peer.ports.0 };
        let connector = || {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.clone())?;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            let config = builder.with_root_certificates(roots).with_no_client_auth();
            anyhow::Ok((TlsConnector::from(Arc::new(config)), ServerName::try_from(host(0))?))
        };
        let tls = tls.then(connector).transpose()?;
        Ok(Target { address: (Ipv4Addr::LOCALHOST, port).into(), tls, requests: Rc::clone(&self.requests) })
    }

    fn add(&mut self, name: &'static str, ports: (u16, u16), mut command: Command) -> Result<()> {
        let start = command.stdin(Stdio::null()).spawn();
        let process = start.with_context(|| format!("failed to start {name}; is its package installed?"))?;
        self.peers.push(Peer { name, ports, process });
        wait_for(ports.0).with_context(|| format!("{name} does not listen; is its package installed?"))?;
        wait_for(ports.1)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let proxies = self.peers.iter_mut().map(|peer| &mut peer.process);
        for process in proxies.chain([&mut self.backend]) {
            // The master of nginx stops its worker.
            let _ = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
            let _ = process.wait();
        }
    }
}

fn on_cpu_0(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

fn wait_for(port: u16) -> Result<()> {
    let (address, start) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Instant::now());
    while TcpStream::connect(address).is_err() {
        ensure!(start.elapsed() < START, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns a configuration with the headers that ingress-nginx sets, and one server per Ingress.
fn nginx(dir: &Path, ingresses: usize) -> Result<String> {
    let (dir, (http, https)) = (dir.display(), NGINX_PORTS);
    let mut text = format!(
        "daemon off;\nuser root;\nworker_processes 1;\nworker_rlimit_nofile 16384;\npid {dir}/nginx.pid;\n\
         events {{ worker_connections 8192; }}\nhttp {{\naccess_log off;\nkeepalive_requests 1000000000;\n\
         server_names_hash_max_size 16384;\nserver_names_hash_bucket_size 128;\nclient_body_temp_path {dir}/body;\n\
         proxy_temp_path {dir}/proxy;\nfastcgi_temp_path {dir}/fastcgi;\nuwsgi_temp_path {dir}/uwsgi;\n\
         scgi_temp_path {dir}/scgi;\nssl_certificate {dir}/{CERTIFICATE};\nssl_certificate_key {dir}/{KEY};\n\
         ssl_protocols TLSv1.2 TLSv1.3;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host;\nproxy_set_header X-Request-ID $request_id;\n\
         proxy_set_header X-Real-IP $remote_addr;\nproxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Forwarded-Host $http_host;\nproxy_set_header X-Forwarded-Port $server_port;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\n\
         upstream web {{ server 127.0.0.1:{BACKEND_PORT}; keepalive {KEEP_ALIVE}; keepalive_requests 1000000000; }}\n"
    );
    for number in 0..ingresses {
        writeln!(
            text,
            "server {{ listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl; server_name {}; \
             location / {{ proxy_pass http://web; }} }}",
            host(number)
        )?;
    }
    Ok(text + "}\n")
}

/// Returns a configuration with the same headers, and a map of hosts to the backend.
fn haproxy(dir: &Path) -> String {
    let (dir, (http, https)) = (dir.display(), HAPROXY_PORTS);
    format!(
        "global\n nbthread 1\n maxconn 8000\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 75s\n timeout server 60s\n\
         frontend web\n bind 127.0.0.1:{http}\n bind 127.0.0.1:{https} ssl crt {dir}/both.pem ssl-min-ver TLSv1.2\n \
         http-request set-header X-Request-ID %[uuid()]\n http-request set-header X-Real-IP %[src]\n \
         http-request set-header X-Forwarded-For %[src]\n http-request set-header X-Forwarded-Host %[req.hdr(host)]\n \
         http-request set-header X-Forwarded-Port %[dst_port]\n \
         http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]\n \
         use_backend %[req.hdr(host),lower,map({dir}/hosts.map)]\n\
         backend web\n http-reuse always\n server web 127.0.0.1:{BACKEND_PORT}\n"
    )
}
