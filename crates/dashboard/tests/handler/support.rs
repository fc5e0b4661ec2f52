//! A dashboard on loopback, an API server behind it, and a client that sends requests byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::User;
use client::config::Tls;
use dashboard::{Config, Dashboard, Exposure, Settings};
use kube_apiserver::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Time limit of every wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Tokens of a user with all rights, and of one without any.
pub(crate) const ADMIN: &str = "admin-token";
pub(crate) const JANE: &str = "jane-token";

pub(crate) struct Stand {
    pub dashboard: Arc<Dashboard>,
    pub port: u16,
    pub server: client::Config,
    serving: JoinHandle<()>,
    _server: Server,
    _node: store::Node,
    _directory: tempfile::TempDir,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub code: u16,
    pub head: String,
    pub body: String,
}

impl Stand {
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default(), None).await
    }

    /// Starts with other settings, and with a CA for client certificates.
    pub(crate) async fn start_with(settings: Settings, client_ca: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        let mut config = kube_apiserver::Config::local(directory.path().join("certs"));
        let user = |name: &str, group: &str| User::authenticated(name, [group.into(), "system:authenticated".into()]);
        config.authenticators.tokens =
            [(ADMIN.into(), user("admin", "system:masters")), (JANE.into(), user("jane", "people"))].into();
        config.authenticators.anonymous = true;
        if let Some(ca) = client_ca {
            let file = directory.path().join("client-ca.crt");
            std::fs::write(&file, ca).unwrap();
            config.tls.client_ca = Some(file);
        }
        let server = Server::start(config, store).await.unwrap();
        let mut target = client::Config::new(format!("https://{}", server.address()).parse().unwrap());
        target.tls = Tls { insecure_skip_verify: true, ..Tls::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let exposure = Exposure::Loopback { port };
        let dashboard =
            Arc::new(Dashboard::new(Config { server: target.clone(), exposure, node_records: None, settings }));
        let serving = tokio::spawn(dashboard::serve(listener, Arc::clone(&dashboard), std::future::pending()));
        let stand =
            Self { dashboard, port, server: target, serving, _server: server, _node: node, _directory: directory };
        stand.until_ready().await;
        stand
    }

    /// Waits until the API server has created its first objects, and the roles by which every user may sign in.
    async fn until_ready(&self) {
        let cookie = self.sign_in(ADMIN).await;
        let ready = async {
            while self.get("/dashboard/api/api/v1/namespaces/default", &cookie).await.code != 200 {
                tokio::task::yield_now().await;
            }
            let jane = format!("{{\"token\": \"{JANE}\"}}");
            loop {
                let reply = self.marked("POST", "/dashboard/session", "", &jane).await;
                if reply.code == 200 {
                    break self.marked("DELETE", "/dashboard/session", &reply.cookie(), "").await;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, ready).await.expect("the namespace default and the roles are created");
        self.marked("DELETE", "/dashboard/session", &cookie, "").await;
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns the headers that a page of the dashboard sends.
    pub(crate) fn own(&self) -> String {
        format!(
            "Host: 127.0.0.1:{0}\r\nOrigin: http://127.0.0.1:{0}\r\nSec-Fetch-Site: same-origin\r\nX-Knarr-Dashboard: 1\r\n",
            self.port
        )
    }

    /// Opens a connection and sends these bytes.
    pub(crate) async fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        // A server that rejects a request early may close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    }

    /// Sends a request with exactly these headers.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request = format!("{method} {path} HTTP/1.1\r\n{headers}{length}Connection: close\r\n\r\n{body}");
        let mut stream = self.open(&request).await;
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("a response in time");
        if bytes.is_empty() {
            read.expect("a response");
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {text:?}"));
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { code, head: lowercase_names(head), body: body.to_owned() }
    }

    /// Sends a request as a page of the dashboard does. `more` are further headers.
    pub(crate) async fn marked(&self, method: &str, path: &str, more: &str, body: &str) -> Reply {
        self.send(method, path, &format!("{}{more}", self.own()), body).await
    }

    pub(crate) async fn get(&self, path: &str, cookie: &str) -> Reply {
        self.marked("GET", path, cookie, "").await
    }

    /// Signs in and returns the header with the cookie.
    pub(crate) async fn sign_in(&self, token: &str) -> String {
        let reply = self.marked("POST", "/dashboard/session", "", &format!("{{\"token\": \"{token}\"}}")).await;
        assert_eq!(reply.code, 200, "{reply:?}");
        reply.cookie()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Reply {
    /// Returns the request headers of the session that this response started: its cookie and the secret of the page.
    /// Session IDs are case-sensitive.
    pub(crate) fn cookie(&self) -> String {
        format!("{}X-Knarr-Session: {}\r\n", self.cookie_alone(), self.secret())
    }

    /// Returns the request header that sends back the cookie of this response.
    pub(crate) fn cookie_alone(&self) -> String {
        let line = self.cookie_line().expect("a cookie");
        format!("Cookie: {}\r\n", line.split(';').next().unwrap().trim())
    }

    /// Returns the secret that the page keeps.
    pub(crate) fn secret(&self) -> &str {
        let rest = self.body.split("\"secret\":\"").nth(1).expect("a secret");
        rest.split('"').next().expect("a secret")
    }

    pub(crate) fn cookie_line(&self) -> Option<String> {
        self.head.lines().find_map(|line| Some(line.strip_prefix("set-cookie:")?.trim().to_owned()))
    }
}

/// Reads until the peer closes, and returns the text.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("the stream is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until the text contains a word.
pub(crate) async fn read_until(stream: &mut TcpStream, word: &str) -> String {
    let mut text = String::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while !text.contains(word) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the stream ended before {word:?}: {text}");
            text += &String::from_utf8_lossy(&buffer[..count]);
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.unwrap_or_else(|_| panic!("{word:?} never arrived"));
    text
}

/// Lowercases the names of headers, but not their values.
fn lowercase_names(head: &str) -> String {
    let lowercase = |line: &str| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    };
    head.lines().map(lowercase).collect::<Vec<_>>().join("\n")
}
