//! Tests of extenders over HTTP, with a small extender server.

use std::sync::{Arc, Mutex};

use apimachinery::{Value, json, value};
use controller::kinds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, node_of, placed};

/// An extender server with its recorded requests.
pub(crate) struct Extender {
    pub address: String,
    pub requests: Arc<Mutex<Vec<(String, Value)>>>,
    _serving: JoinSet<()>,
}

impl Extender {
    pub(crate) async fn start(handler: impl Fn(&str, &Value) -> (u16, Value) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (heard, mut serving) = (Arc::clone(&requests), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&heard), handler.clone()));
            }
        });
        Self { address, requests, _serving: serving }
    }

    fn verbs(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(verb, _)| verb.clone()).collect()
    }
}

/// Serves the requests of a connection sequentially; each must have a Content-Length.
async fn serve(
    mut stream: TcpStream,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    handler: impl Fn(&str, &Value) -> (u16, Value),
) {
    let mut read = Vec::new();
    loop {
        let (head, length) = loop {
            let end = read.windows(4).position(|it| it == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&read[..end]).into_owned();
                let length =
                    head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                break (head, end + 4 + length.unwrap_or(0_usize));
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        while read.len() < length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body_at = read.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let body = json::parse(&read[body_at..length]).unwrap();
        read.drain(..length);
        let path = head.split(' ').nth(1).unwrap().to_owned();
        // Recorded before the response, so that a test that sees its effect finds the request.
        requests.lock().unwrap().push((path.clone(), body.clone()));
        let (code, value) = handler(&path, &body);
        let bytes = json::to_vec(&value);
        let head =
            format!("HTTP/1.1 {code} OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", bytes.len());
        if stream.write_all(&[head.as_bytes(), &bytes].concat()).await.is_err() {
            return;
        }
    }
}

fn names(args: &Value) -> Vec<String> {
    let list = args["NodeNames"].as_array().unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_filters_and_scores_nodes() {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2", "n3"] {
        cluster.node(node, "a", "4").await;
    }
    let extender = Extender::start(|path, args| match path {
        "/x/filter" => {
            let left: Vec<Value> = names(args).into_iter().filter(|it| it != "n1").map(Value::from).collect();
            (200, value!({"nodenames": left, "failedNodes": {"n1": "not this one"}}))
        }
        "/x/prioritize" => (200, value!([{"Host": "n2", "Score": 1}, {"Host": "n3", "Score": 10}])),
        _ => (404, Value::Null),
    })
    .await;
    let _scheduler = cluster.schedule(&format!(
        "extenders:\n- {{urlPrefix: 'http://{}/x', filterVerb: filter, prioritizeVerb: prioritize, weight: 100, \
         nodeCacheCapable: true}}\n",
        extender.address
    ));
    cluster.pod("p", "1", value!({})).await;
    cluster.until("placed", |pods| node_of(pods, "p") == "n3").await;
    assert_eq!(extender.verbs(), ["/x/filter", "/x/prioritize"]);
    let requests = extender.requests.lock().unwrap();
    assert_eq!(requests[0].1["Pod"].str_at(&["metadata", "name"]), Some("p"));
    assert_eq!(names(&requests[1].1).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_extender_blocks_pods_unless_ignorable() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "a", "4").await;
    let extender = Extender::start(|_, _| (500, Value::Null)).await;
    let prefix = format!("http://{}", extender.address);
    let _strict = cluster.schedule(&format!("extenders:\n- {{urlPrefix: '{prefix}', filterVerb: filter}}\n"));
    let _lenient = cluster.schedule(&format!(
        "profiles: [{{schedulerName: lenient}}]\nextenders:\n- {{urlPrefix: '{prefix}', filterVerb: filter, ignorable: true}}\n"
    ));
    cluster.pod("strict", "1", value!({})).await;
    cluster.pod("lenient", "1", value!({"schedulerName": "lenient"})).await;
    let failed = |pods: &controller::Objects| crate::condition(pods, "strict").cloned();
    let pods = cluster.until("one waits", |pods| failed(pods).is_some() && node_of(pods, "lenient") == "n1").await;
    let condition = failed(&pods).unwrap();
    assert_eq!(condition.str_at(&["reason"]), Some("SchedulerError"));
    assert_eq!(
        condition.str_at(&["message"]),
        Some(format!("failed filter with extender at URL {prefix}, code 500").as_str())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_binds_and_chooses_victims() {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2"] {
        cluster.node(node, "a", "4").await;
    }
    let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    cluster.create(&kinds::PRIORITY_CLASSES, class).await;
    // The extender claims to bind pods but does not: the test sees its requests, and pods stay without a node.
    let extender = Extender::start(|path, args| match path {
        "/preempt" => {
            let one = args["NodeNameToMetaVictims"]["n2"].clone();
            (200, value!({"NodeNameToMetaVictims": {"n2": one}}))
        }
        _ => (200, value!({"Error": "not today"})),
    })
    .await;
    let first = cluster.schedule("");
    for name in ["a", "b"] {
        cluster.pod(name, "3", value!({})).await;
    }
    let pods = cluster.until("both placed", |pods| placed(pods) == 2).await;
    let on_n2 = ["a", "b"].into_iter().find(|name| node_of(&pods, name) == "n2").unwrap();
    drop(first);
    let _second = cluster.schedule(&format!(
        "profiles: [{{schedulerName: second}}]\nextenders:\n- {{urlPrefix: 'http://{}', preemptVerb: preempt, bindVerb: \
         bind, nodeCacheCapable: true}}\n",
        extender.address
    ));
    cluster.pod("high", "3", value!({"priorityClassName": "high", "schedulerName": "second"})).await;
    let is_deleted = |pods: &controller::Objects| pods.get(&apimachinery::Key::new("default", on_n2)).is_none();
    let is_rejected = |pods: &controller::Objects| {
        crate::condition(pods, "high").and_then(|it| it.str_at(&["message"])) == Some("not today")
    };
    cluster
        .until("victims on n2 are deleted, and the extender is called to bind", |pods| {
            is_deleted(pods) && is_rejected(pods)
        })
        .await;
    assert!(extender.verbs().contains(&"/bind".to_owned()));
    let requests = extender.requests.lock().unwrap();
    let (_, args) = requests.iter().find(|(verb, _)| verb == "/bind").unwrap();
    assert_eq!((args.str_at(&["PodName"]), args.str_at(&["Node"])), (Some("high"), Some("n2")));
}
