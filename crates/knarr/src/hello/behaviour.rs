//! Responses of `knarr hello`, and the requests that change its behaviour.

use std::fmt::Write as _;
use std::time::Duration;

/// Maximum response delay in seconds.
const SLOW_MAX: f64 = 3600.0;

/// Body of the 404 response.
const HELP: &str = "\
GET  /                  show this pod and the request
GET  /readyz, /healthz  readiness and liveness probes
POST /ready?ok=false    make the readiness probe fail, or pass again with ok=true
POST /live?ok=false     make the liveness probe fail, or pass again with ok=true
POST /slow?seconds=1.5  delay all later responses by this time
POST /exit?code=1       exit with this code
";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Behaviour {
    /// Whether the readiness probe passes.
    pub ready: bool,
    /// Whether the liveness probe passes.
    pub live: bool,
    /// Delay of every response.
    pub slow: Duration,
}

pub(super) struct HelloRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub headers: &'a [(String, String)],
}

/// The pod information that `GET /` returns.
pub(super) struct PodInfo {
    pub pod: String,
    pub namespace: Option<String>,
    pub node: Option<String>,
    pub ip: Option<String>,
}

/// A response, its delay, and the exit code if the process exits after it.
#[derive(Debug, PartialEq)]
pub(super) struct HelloResponse {
    pub status: u16,
    pub body: String,
    pub after: Duration,
    pub exit: Option<i32>,
}

impl Behaviour {
    /// Responds to a request. A POST changes the behaviour of later requests.
    pub(super) fn respond(&mut self, request: &HelloRequest<'_>, pod_info: &PodInfo) -> HelloResponse {
        let after = self.slow;
        let reply = |status: u16, body: String| HelloResponse { status, body, after, exit: None };
        let probe = |ok: bool| if ok { reply(200, "ok\n".to_owned()) } else { reply(503, "set to fail\n".to_owned()) };
        let bad = |message: &str| reply(400, format!("{message}\n"));
        match (request.method, request.path) {
            ("GET" | "HEAD", "/") => reply(200, describe_request(request, pod_info)),
            ("GET" | "HEAD", "/readyz") => probe(self.ready),
            ("GET" | "HEAD", "/healthz" | "/livez") => probe(self.live),
            ("POST", "/ready" | "/live") => match request.field("ok").map(str::parse) {
                Some(Ok(ok)) => {
                    *(if request.path == "/ready" { &mut self.ready } else { &mut self.live }) = ok;
                    reply(200, format!("ok={ok}\n"))
                }
                _ => bad("ok: must be true or false"),
            },
            ("POST", "/slow") => match request.field("seconds").map(str::parse) {
                Some(Ok(seconds)) => {
                    self.slow = duration(seconds);
                    reply(200, format!("seconds={}\n", self.slow.as_secs_f64()))
                }
                _ => bad("seconds: must be a number"),
            },
            ("POST", "/exit") => match request.field("code").unwrap_or("0").parse::<u8>() {
                Ok(code) => HelloResponse { exit: Some(code.into()), ..reply(200, String::new()) },
                Err(_) => bad("code: must be a number from 0 to 255"),
            },
            _ => reply(404, HELP.to_owned()),
        }
    }
}

impl HelloRequest<'_> {
    fn field(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, text)| text)
    }
}

/// Converts seconds to a duration between 0 and [`SLOW_MAX`]. NaN is 0.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, SLOW_MAX)).unwrap_or_default()
}

fn describe_request(request: &HelloRequest<'_>, pod_info: &PodInfo) -> String {
    let mut text = format!("Hello from {}\n\n", pod_info.pod);
    let facts = [("namespace", &pod_info.namespace), ("node", &pod_info.node), ("ip", &pod_info.ip)];
    for (name, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    let _ = writeln!(text, "\n{} {}", request.method, request.path);
    for (name, value) in request.headers {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_info() -> PodInfo {
        PodInfo { pod: "web-1".into(), namespace: None, node: Some("n".into()), ip: Some("10.0.0.7".into()) }
    }

    fn send(behaviour: &mut Behaviour, line: &str) -> HelloResponse {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        behaviour.respond(&HelloRequest { method, path, query, headers: &[("host".into(), "web".into())] }, &pod_info())
    }

    #[test]
    fn root_path_returns_pod_and_request() {
        let mut behaviour = Behaviour { ready: true, live: true, slow: Duration::ZERO };
        let expect = "Hello from web-1\n\nnode: n\nip: 10.0.0.7\n\nGET /\nhost: web\n";
        assert_eq!(send(&mut behaviour, "GET /").body, expect);
    }

    #[test]
    fn post_requests_change_probes_delay_and_exit() {
        let mut behaviour = Behaviour { ready: true, live: true, slow: Duration::ZERO };
        let mut check = |line: &str, status: u16| assert_eq!(send(&mut behaviour, line).status, status, "{line}");
        check("GET /readyz", 200);
        check("POST /ready?ok=false", 200);
        check("GET /readyz", 503);
        check("GET /healthz", 200);
        check("POST /live?ok=false", 200);
        check("GET /healthz", 503);
        check("POST /live?ok=true", 200);
        check("GET /healthz", 200);
        check("POST /live", 400);
        check("POST /slow?seconds=0.5", 200);
        check("POST /slow?seconds=x", 400);
        check("GET /nothing", 404);
        let response = send(&mut behaviour, "POST /exit?code=3");
        assert_eq!((response.exit, response.after), (Some(3), Duration::from_millis(500)));
        assert_eq!(send(&mut behaviour, "POST /exit?code=300").status, 400);
        send(&mut behaviour, "POST /slow?seconds=NaN");
        assert_eq!(behaviour.slow, Duration::ZERO);
    }
}
