//! `knarr hello`: the entry point of the image `knarr.local/hello`, a web server for testing pods and probes.

mod behaviour;
mod http_get;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use component_base::connection::{self, Body};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};

use crate::output::{out, outln};
use behaviour::{Behaviour, HelloRequest, PodInfo};

/// Maximum number of concurrent connections. Further clients wait.
const CONNECTIONS_MAX: usize = 256;

/// Adds the flags. Each has an environment variable, so that a pod spec can set it.
pub(crate) fn arguments(command: Command) -> Command {
    let seconds = |name: &'static str, variable: &'static str, help: &'static str| {
        Arg::new(name).long(name).env(variable).value_name("SECONDS").value_parser(value_parser!(f64)).help(help)
    };
    let flag = |name: &'static str, variable: &'static str, help: &'static str| {
        Arg::new(name).long(name).env(variable).action(ArgAction::SetTrue).help(help)
    };
    command
        .hide(true)
        .arg(
            Arg::new("port")
                .long("port")
                .env("PORT")
                .default_value("8080")
                .value_parser(value_parser!(u16))
                .help("Port on which to serve HTTP"),
        )
        .arg(
            Arg::new("ask")
                .long("ask")
                .value_name("URL")
                .help("Send a GET to this URL, print the response body, and exit"),
        )
        .arg(flag("unready", "UNREADY", "Start with a failing readiness probe"))
        .arg(flag("unhealthy", "UNHEALTHY", "Start with a failing liveness probe"))
        .arg(seconds("slow", "SLOW", "Delay of every response"))
        .arg(seconds("exit-after", "EXIT_AFTER", "Exit after this time"))
        .arg(
            Arg::new("exit-code")
                .long("exit-code")
                .env("EXIT_CODE")
                .default_value("0")
                .value_parser(value_parser!(u8))
                .help("Exit code of --exit-after"),
        )
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let seconds = |name: &str| matches.get_one::<f64>(name).copied().map(behaviour::duration);
    let behaviour = Behaviour {
        ready: !matches.get_flag("unready"),
        live: !matches.get_flag("unhealthy"),
        slow: seconds("slow").unwrap_or_default(),
    };
    let port = *matches.get_one::<u16>("port").expect("it has a default");
    let code = *matches.get_one::<u8>("exit-code").expect("it has a default");
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        if let Some(url) = matches.get_one::<String>("ask") {
            out!("{}", http_get::get(url).await?);
            return Ok(());
        }
        let listener = listen(port).await.with_context(|| format!("failed to listen on port {port}"))?;
        outln!("listening on {}", listener.local_addr()?);
        let end = async {
            match seconds("exit-after") {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = serve(listener, behaviour) => Ok(()),
            () = end => std::process::exit(code.into()),
            stopped = crate::etcd::signal() => stopped,
        }
    })
}

/// Listens on all addresses of both IP families, or of IPv4 if IPv6 is unavailable.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

async fn serve(listener: TcpListener, behaviour: Behaviour) {
    let behaviour = Arc::new(Mutex::new(behaviour));
    component_base::accept(listener, CONNECTIONS_MAX, std::future::pending(), |stream, _, slot| {
        let behaviour = Arc::clone(&behaviour);
        async move {
            connection(stream, behaviour).await;
            drop(slot);
        }
    })
    .await;
}

async fn connection(stream: TcpStream, behaviour: Arc<Mutex<Behaviour>>) {
    let local = stream.local_addr().ok();
    component_base::serve_connection(stream, move |request| {
        let behaviour = Arc::clone(&behaviour);
        async move { respond(&request, local, &behaviour).await }
    })
    .await;
}

async fn respond(
    request: &Request<Incoming>,
    local: Option<SocketAddr>,
    behaviour: &Mutex<Behaviour>,
) -> Response<Body> {
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let parsed_request = HelloRequest {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        headers: &headers,
    };
    let reply = behaviour.lock().unwrap_or_else(PoisonError::into_inner).respond(&parsed_request, &pod_info(local));
    outln!("{} {} {}", parsed_request.method, request.uri(), reply.status);
    tokio::time::sleep(reply.after).await;
    if let Some(code) = reply.exit {
        std::process::exit(code);
    }
    let mut response = Response::new(connection::full(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Returns pod, namespace, node and address from the environment variables of the pod spec and from the host.
fn pod_info(local: Option<SocketAddr>) -> PodInfo {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let hostname = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    PodInfo {
        pod: variable("POD_NAME").unwrap_or_else(hostname),
        namespace: variable("POD_NAMESPACE"),
        node: variable("NODE_NAME"),
        ip: variable("POD_IP").or_else(|| local.map(|local| local.ip().to_canonical().to_string())),
    }
}
