//! An ACME server (RFC 8555) that verifies signatures, nonces and HTTP-01 challenges, and issues certificates.

use std::collections::BTreeSet;
use std::sync::Mutex;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value as Json, json};
use x509_parser::prelude::{FromDer, ParsedExtension, X509CertificationRequest};

use super::*;

pub(super) struct AcmeServer {
    pub directory: String,
    pub state: Arc<State>,
    serving: JoinHandle<()>,
}

/// A fault of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Its directory names a URL without TLS.
    PlainUrl,
    /// Its directory is larger than any response.
    Endless,
    /// It asks for the validation of a host that was not ordered.
    OtherHost,
}

pub(super) struct State {
    url: String,
    fault: Fault,
    /// The address that answers challenges, instead of port 80 of the host.
    proxy: SocketAddr,
    ca: Issuer<'static, KeyPair>,
    issued: Mutex<Issued>,
}

#[derive(Default)]
struct Issued {
    nonces: BTreeSet<String>,
    next_nonce: usize,
    /// The JWK of the account.
    account: Option<Json>,
    orders: Vec<Order>,
}

#[derive(Clone)]
struct Order {
    hosts: Vec<String>,
    valid: Vec<Option<bool>>,
    chain: Option<String>,
}

/// The key of a CSR.
struct CsrKey(Vec<u8>);

impl PublicKeyData for CsrKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl Drop for AcmeServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl AcmeServer {
    /// Starts a server that validates hosts at this address.
    pub(super) async fn start(proxy: SocketAddr, fault: Fault) -> AcmeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        let ca = Issuer::new(params, KeyPair::generate().unwrap());
        let state = Arc::new(State { url: url.clone(), fault, proxy, ca, issued: Mutex::default() });
        let served = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                let service = service_fn(move |request| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, std::convert::Infallible>(state.answer(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        AcmeServer { directory: format!("{url}/directory"), state, serving }
    }
}

impl State {
    pub(super) fn orders(&self) -> usize {
        self.issued.lock().unwrap().orders.len()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let body = body.collect().await.unwrap().to_bytes();
        let answered = match path.as_str() {
            "/directory" => Ok((StatusCode::OK, String::new(), self.directory())),
            "/nonce" => Ok((StatusCode::OK, String::new(), Json::Null)),
            _ => match self.verify(&path, &body) {
                Ok(payload) => self.act(&path, &payload).await,
                Err(problem) => Err(problem),
            },
        };
        let mut issued = self.issued.lock().unwrap();
        issued.next_nonce += 1;
        let nonce = format!("nonce-{}", issued.next_nonce);
        issued.nonces.insert(nonce.clone());
        let response = Response::builder().header("replay-nonce", nonce);
        match answered {
            Ok((status, location, Json::String(pem))) => {
                response.status(status).header("location", location).body(Full::from(pem)).unwrap()
            }
            Ok((status, location, json)) => {
                response.status(status).header("location", location).body(Full::from(json.to_string())).unwrap()
            }
            Err(problem) => {
                let json = json!({"type": format!("urn:ietf:params:acme:error:{problem}"), "status": 400});
                response.status(StatusCode::BAD_REQUEST).body(Full::from(json.to_string())).unwrap()
            }
        }
    }

    fn directory(&self) -> Json {
        let url = &self.url;
        let nonce = if self.fault == Fault::PlainUrl { "http://acme.test" } else { url };
        let padding = if self.fault == Fault::Endless { 2 << 20 } else { 0 };
        json!({
            "newNonce": format!("{nonce}/nonce"), "newAccount": format!("{url}/account"),
            "newOrder": format!("{url}/order"), "revokeCert": format!("{url}/none"),
            "keyChange": format!("{url}/none"), "padding": "x".repeat(padding),
        })
    }

    /// Returns the payload of a JWS whose nonce, URL and signature are valid.
    fn verify(&self, path: &str, body: &[u8]) -> Result<Json, &'static str> {
        let jws: Json = serde_json::from_slice(body).map_err(|_| "malformed")?;
        let text = |name: &str| jws[name].as_str().unwrap_or_default().to_owned();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| "malformed");
        let header: Json = serde_json::from_slice(&decode(&text("protected"))?).map_err(|_| "malformed")?;
        let mut issued = self.issued.lock().unwrap();
        if !issued.nonces.remove(header["nonce"].as_str().unwrap_or_default()) {
            return Err("badNonce");
        }
        if header["url"] != format!("{}{path}", self.url) || header["alg"] != "ES256" {
            return Err("unauthorized");
        }
        if path == "/account" {
            issued.account = Some(header["jwk"].clone());
        } else if header["kid"] != format!("{}/account/1", self.url) {
            return Err("accountDoesNotExist");
        }
        let key = issued.account.as_ref().ok_or("accountDoesNotExist")?;
        let coordinate = |name: &str| decode(key[name].as_str().unwrap_or_default());
        let point = [&[4], &coordinate("x")?[..], &coordinate("y")?[..]].concat();
        let signed = format!("{}.{}", text("protected"), text("payload"));
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        key.verify(signed.as_bytes(), &decode(&text("signature"))?).map_err(|_| "unauthorized")?;
        let payload = decode(&text("payload"))?;
        // An empty payload is POST-as-GET.
        if payload.is_empty() { Ok(Json::Null) } else { serde_json::from_slice(&payload).map_err(|_| "malformed") }
    }

    /// Returns the status, the location and the body of the response.
    async fn act(&self, path: &str, payload: &Json) -> Result<(StatusCode, String, Json), &'static str> {
        let mut segments = path.trim_start_matches('/').split('/');
        let kind = segments.next().unwrap_or_default();
        let numbers: Vec<usize> = segments.map_while(|number| number.parse().ok()).collect();
        let ok = |json: Json| Ok((StatusCode::OK, String::new(), json));
        match (kind, numbers.as_slice()) {
            ("account", []) => Ok((StatusCode::CREATED, format!("{}/account/1", self.url), json!({"status": "valid"}))),
            ("order", []) => {
                let identifiers = payload["identifiers"].as_array().ok_or("malformed")?;
                let hosts: Vec<String> =
                    identifiers.iter().filter_map(|one| Some(one["value"].as_str()?.to_owned())).collect();
                let number = {
                    let mut issued = self.issued.lock().unwrap();
                    issued.orders.push(Order { valid: vec![None; hosts.len()], hosts, chain: None });
                    issued.orders.len() - 1
                };
                Ok((StatusCode::CREATED, format!("{}/order/{number}", self.url), self.order(number)))
            }
            ("order", [order]) => ok(self.order(*order)),
            ("authorization", [order, host]) => ok(self.authorization(*order, *host)),
            ("challenge", [order, host]) => {
                self.validate(*order, *host).await;
                ok(self.authorization(*order, *host)["challenges"][0].clone())
            }
            ("finalize", [order]) => {
                let csr = payload["csr"].as_str().and_then(|csr| URL_SAFE_NO_PAD.decode(csr).ok()).ok_or("badCSR")?;
                self.finalize(*order, &csr)?;
                ok(self.order(*order))
            }
            ("certificate", [order]) => {
                let chain = self.issued.lock().unwrap().orders[*order].chain.clone();
                ok(Json::String(chain.ok_or("orderNotReady")?))
            }
            _ => Err("malformed"),
        }
    }

    fn order(&self, number: usize) -> Json {
        let (url, order) = (&self.url, self.issued.lock().unwrap().orders[number].clone());
        let is_ready = order.valid.iter().all(|valid| *valid == Some(true));
        let status = match &order.chain {
            Some(_) => "valid",
            None if order.valid.contains(&Some(false)) => "invalid",
            None if is_ready => "ready",
            None => "pending",
        };
        let authorizations: Vec<String> =
            (0..order.hosts.len()).map(|host| format!("{url}/authorization/{number}/{host}")).collect();
        let mut json = json!({
            "status": status,
            "identifiers": order.hosts.iter().map(|host| json!({"type": "dns", "value": host})).collect::<Vec<_>>(),
            "authorizations": authorizations,
            "finalize": format!("{url}/finalize/{number}"),
        });
        if order.chain.is_some() {
            json["certificate"] = json!(format!("{url}/certificate/{number}"));
        }
        json
    }

    fn authorization(&self, order: usize, host: usize) -> Json {
        let placed = self.issued.lock().unwrap().orders[order].clone();
        let status = match placed.valid[host] {
            Some(true) => "valid",
            Some(false) => "invalid",
            None => "pending",
        };
        let name = if self.fault == Fault::OtherHost { "other.test" } else { &placed.hosts[host] };
        json!({
            "status": status,
            "identifier": {"type": "dns", "value": name},
            "challenges": [{
                "type": "http-01", "status": status, "token": format!("token-{order}-{host}"),
                "url": format!("{}/challenge/{order}/{host}", self.url),
            }],
        })
    }

    /// Asks the host for the answer to its challenge.
    async fn validate(&self, order: usize, host: usize) {
        let (name, key) = {
            let issued = self.issued.lock().unwrap();
            (issued.orders[order].hosts[host].clone(), issued.account.clone().unwrap())
        };
        let canonical = json!({"crv": key["crv"], "kty": key["kty"], "x": key["x"], "y": key["y"]}).to_string();
        let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()));
        let token = format!("token-{order}-{host}");
        let response = get(self.proxy, &name, &format!("/.well-known/acme-challenge/{token}")).await;
        let is_valid = response.is_some_and(|response| {
            response.contains(" 200 OK") && response.ends_with(&format!("{token}.{thumbprint}"))
        });
        self.issued.lock().unwrap().orders[order].valid[host] = Some(is_valid);
    }

    /// Issues a certificate for the hosts of an order, which must be those of the CSR.
    fn finalize(&self, order: usize, csr: &[u8]) -> Result<(), &'static str> {
        let (_, csr) = X509CertificationRequest::from_der(csr).map_err(|_| "badCSR")?;
        let names: BTreeSet<String> = csr
            .requested_extensions()
            .into_iter()
            .flatten()
            .filter_map(|extension| match extension {
                ParsedExtension::SubjectAlternativeName(names) => Some(names),
                _ => None,
            })
            .flat_map(|names| &names.general_names)
            .map(|name| name.to_string().trim_start_matches("DNSName(").trim_end_matches(')').to_owned())
            .collect();
        let mut issued = self.issued.lock().unwrap();
        let order = &mut issued.orders[order];
        if names != order.hosts.iter().cloned().collect() || order.valid.contains(&None) {
            return Err("badCSR");
        }
        let params = CertificateParams::new(order.hosts.clone()).map_err(|_| "badCSR")?;
        let key = csr.certification_request_info.subject_pki.subject_public_key.data.to_vec();
        let certificate = params.signed_by(&CsrKey(key), &self.ca).map_err(|_| "badCSR")?;
        order.chain = Some(certificate.pem());
        Ok(())
    }
}
