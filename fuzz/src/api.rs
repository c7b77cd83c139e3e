//! Bodies of the management API, through its socket: every operation that reads one. Whatever the body,
//! the response is one that the API documents; what was created is there, and can be removed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use admin::{
    AcmeAttempts, Api, ApiDeps, ApiOptions, Command, FirstTokenDisplay, Live, MetricSources,
    ProcessStats, Records, ReloadOutcome, Service, Settings, Status,
};
use harness::http::{Connection, Response};
use serde_json::Value;
use tracker::{Options, Policy, Secrets, Tracker};
use types::Tick;

const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";
/// Unix time in seconds.
const NOW: i64 = 1_700_000_000;
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// Method, path and type of the body. The first byte of an input selects one, so new ones come last.
const OPERATIONS: [(&str, &str, &str); 13] = [
    ("POST", "/keys", JSON),
    ("PATCH", "/keys/1", JSON),
    ("POST", "/bans", JSON),
    ("POST", "/bans/bulk", JSON),
    ("POST", "/tokens", JSON),
    ("POST", "/webhooks", JSON),
    ("PATCH", "/config", JSON),
    ("PUT", "/log/level", JSON),
    ("POST", "/lists/deny", JSON),
    ("DELETE", "/lists/deny", JSON),
    ("POST", "/lists/deny", TEXT),
    ("DELETE", "/lists/deny", TEXT),
    ("POST", "/keys", "application/octet-stream"),
];

/// Any body gets a response that the API documents, and what is created can be read and removed. The first byte selects
/// the operation.
pub fn check(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let (method, path, media_type) = OPERATIONS[usize::from(*first) % OPERATIONS.len()];
    let response = send(method, path, media_type, body);
    let request = format!("{method} {path} {}: {}", body.escape_ascii(), response.text());
    match response.status {
        200 => drop(json(&response)),
        201 => check_created(path, &response),
        // A webhook at a port that is not configured.
        403 if path != "/webhooks" => panic!("forbidden: {request}"),
        400 | 403 | 404 | 409 | 413 | 415 => {
            let problem = json(&response);
            assert_eq!(problem["status"], response.status, "{request}");
            assert!(!problem["detail"].as_str().unwrap_or_default().is_empty(), "{request}");
        }
        _ => panic!("{} after {request}", response.status),
    }
}

/// Removes what was created, so that each input meets the same state.
fn check_created(path: &str, response: &Response) {
    let created = json(response);
    let path = match (created["id"].as_u64(), created["network"].as_str()) {
        (Some(id), _) => format!("{path}/{id}"),
        (None, Some(network)) => format!("{path}/{network}"),
        (None, None) => panic!("{path} created {created}"),
    };
    if path.starts_with("/keys/") {
        assert_eq!(json(&send("GET", &path, JSON, b"")), created);
    }
    assert_eq!(send("DELETE", &path, JSON, b"").status, 204, "{path}");
}

fn json(response: &Response) -> Value {
    let value = serde_json::from_slice(&response.body);
    value.unwrap_or_else(|error| panic!("{error}: {}", response.text()))
}

fn send(method: &str, path: &str, media_type: &str, body: &[u8]) -> Response {
    thread_local!(static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) });
    let request = format!("{method} /api/v1{path}");
    let headers = format!(
        "Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {media_type}\r\n"
    );
    CONNECTION.with_borrow_mut(|connection| {
        let open = connection.get_or_insert_with(|| Connection::open(address()).unwrap());
        let response = open.ask(&request, &headers, body).unwrap();
        if response.closes() {
            *connection = None;
        }
        response
    })
}

/// Returns where the API listens. The first call starts it; it ends with the process.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(start)
}

fn start() -> SocketAddr {
    let sources = Arc::new(sources());
    let (records, mut writer) = Records::open(None).unwrap();
    let deps = ApiDeps {
        is_upgrade_pending: Box::new(|| false),
        sources: Arc::clone(&sources),
        records: Arc::new(records),
        control: Box::new(obey),
        time: Arc::new(|| NOW),
        send_post: Arc::new(|_| Box::pin(async { Ok(204) })),
        announce_urls: Vec::new(),
        first_token: FirstTokenDisplay { show: Box::new(|_| Ok(false)), remove: Box::new(|| ()) },
    };
    let bootstrap_token = Some(TOKEN.into());
    let webhook_ports = vec![80, 443];
    let options = ApiOptions { bootstrap_token, webhook_ports, ..ApiOptions::default() };
    let api = Arc::new(Api::new(deps, options, &mut writer).unwrap());
    let mut live = Live::new(Arc::clone(&api));
    thread::spawn(move || writer.run(&mut live, Duration::from_secs(1)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        // Without the sender, the server would stop.
        let (_running, stop) = tokio::sync::watch::channel(false);
        let service = Service {
            sources,
            api: Some(api),
            hosts: Vec::new(),
            metrics_token: false,
            tls: None,
            lower_priority: || {},
        };
        admin::serve(vec![listener], &service, stop).unwrap();
    });
    create_first_key(address);
    address
}

/// Creates the key that `PATCH /keys/1` changes.
fn create_first_key(address: SocketAddr) {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: {JSON}\r\n");
    let body = br#"{"key":"abcdefghijklmnop"}"#;
    let response = harness::http::request(address, "POST /api/v1/keys", &headers, body).unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
}

/// Handles commands as the tracker does, without the files.
fn obey(command: Command) {
    match command {
        Command::Settings(reply) => {
            drop(reply.send(Settings { settings: Vec::new(), sections: Vec::new() }));
        }
        Command::Reload(reply) => drop(reply.send(Ok(ReloadOutcome::default()))),
        Command::SetOverrides { values, reply, .. } => {
            let mistakes = crate::config::mistakes(&values);
            let outcome =
                if mistakes.is_empty() { Ok(ReloadOutcome::default()) } else { Err(mistakes) };
            drop(reply.send(outcome));
        }
        Command::ReloadFiles(reply) => drop(reply.send(Ok(()))),
        Command::Upgrade(reply) => drop(reply.send(Ok(()))),
        Command::NodeIgnored { .. } | Command::SecretsRecorded(_) => {}
        // Outside clusters, the API sends neither.
        Command::ChangeSecret { .. } | Command::Drain { .. } => {}
        Command::LogLevels(levels, reply) => drop(reply.send(levels.unwrap_or_default())),
    }
}

fn sources() -> MetricSources {
    MetricSources {
        tracker: Arc::new(Tracker::new(&Options::predictable(Policy::default()), &Secrets::PUBLIC)),
        registry: Arc::default(),
        status: Status::default(),
        process: || ProcessStats {
            started: SystemTime::UNIX_EPOCH,
            uptime_s: 1.0,
            cpu_s: 0.0,
            resident_bytes: 0,
            open_fds: 0,
        },
        clock: Box::new(|| Tick(100)),
        certificates: Box::new(BTreeMap::new),
        acme: AcmeAttempts::default(),
        subsystems: Default::default(),
        site: OnceLock::new(),
        receive_losses: OnceLock::new(),
        version: "0.0.0",
    }
}
