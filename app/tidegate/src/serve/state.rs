//! Durable records and the management API: opened before anything is served, closed last.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use admin::records::Writer;
use admin::{Api, ApiOptions, Collector, Command, Deliver, Means, Moment, Post, Records};
use anyhow::{Context, Result, anyhow, bail};
use front::Clock;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use tracing::warn;
use tracker::Tracker;

use super::Happening;
use super::workers::Workers;
use crate::acme::{cache, owner};
use crate::config::Config;

/// How mistakes about the folder are headed.
const NAME: &str = "state.dir";
/// A token for the API from outside: for machines that are set up by programs.
const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";
/// How long a webhook may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long it may take to be reached.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Does what only root may.
pub(super) fn prepare(config: &Config) -> Result<()> {
    config.state_dir.as_deref().map_or(Ok(()), |dir| cache::make_folder(NAME, dir, owner(config)))
}

/// What is wrong with the folder, if something is.
pub(super) fn check(config: &Config) -> Option<String> {
    let dir = config.state_dir.as_deref()?;
    cache::probe(NAME, dir, owner(config)).err().map(|error| format!("{error:#}"))
}

/// Opens the records.
pub(super) fn open(config: &Config) -> Result<(Arc<Records>, Writer)> {
    let (records, writer) = Records::open(config.state_dir.as_deref())?;
    Ok((Arc::new(records), writer))
}

/// What the API has set of the configuration.
pub(super) fn settings(writer: &Writer) -> Result<Vec<(String, Value)>> {
    writer.settings().context(NAME)
}

/// Puts in force what is recorded.
pub(super) fn fill(
    config: &Config,
    tracker: &Tracker,
    writer: &Writer,
    clock: Clock,
) -> Result<()> {
    let is_durable = config.state_dir.is_some();
    admin::fill(tracker, writer, moment(clock), is_durable).with_context(|| {
        let dir = config.state_dir.as_deref().unwrap_or_else(|| Path::new("memory"));
        format!(
            "{NAME}: the records in {} cannot be read: put a copy in their place",
            dir.display()
        )
    })
}

/// Builds the API and starts the writer. Gives the first token, if there was none before.
pub(super) fn start(
    workers: &mut Workers,
    config: &Config,
    (records, writer): (Arc<Records>, Writer),
    clock: Clock,
    happen: Sender<Happening>,
) -> Result<(Arc<Api>, Option<String>)> {
    let options = ApiOptions {
        cors_origins: config.cors_origins.clone(),
        requests_per_s: config.requests_per_s,
        wrong_tokens_per_min: config.wrong_tokens_per_min,
        webhook_ports: config.webhook_ports.clone(),
        token: given_token()?,
    };
    let means = Means {
        figures: workers.shared_figures(),
        records,
        control: Box::new(move |command: Command| {
            // Where nobody listens any more, whoever waits for an answer hears so.
            let _ = happen.send(Happening::Command(command));
        }),
        clock: Box::new(move || clock.now()),
        time: Box::new(move || moment(clock).time),
        deliver: courier(config)?,
    };
    let (api, token) = Api::new(means, options, &writer)?;
    let api = Arc::new(api);
    let tracker = Arc::clone(&workers.shared_figures().tracker);
    let collector = Collector::new(tracker, Arc::clone(api.hub()), move || moment(clock));
    let period = Duration::from_secs(config.flush_s.into());
    workers.start_records(move || {
        let mut collector = collector;
        writer.run(&mut collector, period);
    })?;
    Ok((api, token))
}

/// Has the records written out, when nothing is counted any more.
pub(super) fn close(records: &Records, deadline: Instant) {
    let mut closed = records.close();
    while closed
        .try_recv()
        .is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty)
    {
        if Instant::now() >= deadline {
            warn!("stopping without the last counts: the disk of the records does not answer");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn moment(clock: Clock) -> Moment {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment { time: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tick: clock.now() }
}

fn given_token() -> Result<Option<String>> {
    let Some(token) = std::env::var_os(TOKEN).filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    // It is not shown: whatever it is, somebody means it to be a secret.
    let token = token.into_string().ok().filter(|token| admin::is_token(token));
    match token {
        Some(token) => Ok(Some(token)),
        None => bail!("{TOKEN}: tg_ and 32 letters and digits are due"),
    }
}

/// Posts webhooks, over TLS if their URLs say so.
fn courier(config: &Config) -> Result<Deliver> {
    if config.webhook_ports.is_empty() {
        return Ok(Arc::new(|_| Box::pin(async { Err("[admin] webhook_ports is empty".into()) })));
    }
    let roots = client::tls::authorities(None)?;
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIME));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = connector.enable_http1().wrap_connector(tcp);
    let pool: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    Ok(Arc::new(move |post| {
        let pool = pool.clone();
        let sent: Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> =
            Box::pin(async move {
                let request = request(post).map_err(|error| error.to_string())?;
                let answer = tokio::time::timeout(ANSWER_TIME, pool.request(request)).await;
                let answer = answer.map_err(|_| String::from("no answer in time"))?;
                // What it says beside the status is nobody's business.
                answer.map(|answer| answer.status().as_u16()).map_err(|error| reason(&error))
            });
        sent
    }))
}

fn request(post: Post) -> Result<Request<Full<Bytes>>> {
    let request = Request::post(post.url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .header("tidegate-signature", post.signature);
    request.body(Full::from(post.body)).map_err(|error| anyhow!(error))
}

/// An error with what it comes from.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
