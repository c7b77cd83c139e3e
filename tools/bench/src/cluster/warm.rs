//! `tidegate-bench cluster warm`: how long a fresh node takes to know what the others know.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use ::load::Usage;
use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};
use harness::nats::Client;
use harness::network::sites::Backbone;
use harness::wait_for;

use super::arrangement::{NAME, STREAM};
use super::content::{LogContent, WRITERS};
use super::nodes::{Cluster, ClusterPlan, Node};
use super::usage::{Traffic, process_times};
use crate::figures::{count, mib};
use crate::program::ProgramArgs;
use crate::record::Figures;
use crate::session::{ResultArgs, RunKey, Session, print_line};

/// Messages between two questions whether the log has stored them: fewer than a server keeps waiting.
const STORED_AT_ONCE: u64 = 2000;
/// Time for the log to store them.
const STORED_WITHIN: Duration = Duration::from_secs(30);
/// Time for a node to know what it has read: counts of peers are a second old.
const KNOWN_WITHIN: Duration = Duration::from_secs(180);
/// Part of the peers that a node must know; some expire meanwhile.
const KNOWN_MIN: f64 = 0.98;

/// Measure how long a fresh node takes to know what the others know.
#[derive(Args)]
pub(super) struct Warm {
    /// Peers that the others know.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = value_parser!(u32).range(1000..=100_000_000))]
    peers: u32,
    /// Megabits per second that each host may send; 0 = unlimited.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rate_mbit: u32,
    /// Starts of a fresh node.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Warm {
    /// Runs it and reports it.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut session = Session::start("cluster warm", &self.output, Path::new("."))?;
        let content = LogContent::new(self.peers);
        print_line(&format!(
            "{} records of {} peers in {} blocks",
            count(content.records() as f64),
            count(content.present as f64),
            count(content.blocks() as f64)
        ));
        let plan = ClusterPlan {
            hosts: 3,
            backbone: Backbone::Bridge { rate_mbit: self.rate_mbit },
            servers: &[3],
            stream_mib: 8192,
        };
        let cluster = Cluster::start(&self.program, plan)?;
        let neighbour = cluster.node(1)?;
        let began = Instant::now();
        let bytes = publish(&cluster, &content)?;
        print_line(&format!("stored in {:.1} s", began.elapsed().as_secs_f64()));
        wait_until_known(&neighbour, content.present)?;
        let case = format!("{} peers, {}", count(self.peers.into()), self.rate());
        for round in 1..=self.runs {
            if session.is_stopped() {
                break;
            }
            let figures = measure(&cluster, &content)?;
            let figures = figures
                .with("bytes_per_record", bytes as f64 / content.records() as f64)
                .with("records_per_peer", content.records() as f64 / f64::from(self.peers));
            let show = |name: &str| figures.get(name).map_or(f64::NAN, |it| it.median);
            let text = format!(
                "ready after {:.2} s with {} peers, node {}, NATS {}",
                show("ready_s"),
                count(show("known")),
                mib(show("resident_bytes")),
                mib(show("nats_bytes"))
            );
            session.add(RunKey::tidegate(&case, 2, round), figures, &text)?;
        }
        session.finish()
    }

    fn rate(&self) -> String {
        match self.rate_mbit {
            0 => "unlimited".to_owned(),
            rate => format!("{} Mbit/s", count(rate.into())),
        }
    }
}

/// Publishes the log. Returns its bytes.
fn publish(cluster: &Cluster, content: &LogContent) -> Result<u64> {
    let mut client = cluster.client()?;
    // Each message of a node names the secret, and so must these.
    client.subscribe(&format!("tg.{NAME}.h.1"))?;
    let header = client.next_message()?.headers;
    let header = String::from_utf8(header).context("headers are text")?;
    let header = header.lines().find(|line| line.starts_with("Tidegate:"));
    let header = format!("{}\r\n", header.context("a heartbeat without a secret")?);
    drop(client);
    let mut client = cluster.client()?;
    let stored = |client: &mut Client| -> Result<u64> {
        let info = client.jetstream(&format!("STREAM.INFO.{STREAM}"), "")?;
        info["state"]["last_seq"].as_u64().context("no sequence")
    };
    let first = stored(&mut client)?;
    let subjects = WRITERS.map(|writer| format!("tg.{NAME}.d.{writer}"));
    let (mut block, mut bytes) = (Vec::new(), 0);
    for number in 0..content.blocks() {
        let now_ms = SystemTime::UNIX_EPOCH.elapsed()?.as_millis() as u64;
        let writer = content.write(number, now_ms, &mut block);
        bytes += block.len() as u64;
        let at = WRITERS.iter().position(|it| *it == writer).unwrap_or(0);
        client.publish(&subjects[at], &header, &block)?;
        let sent = number as u64 + 1;
        if sent.is_multiple_of(STORED_AT_ONCE) || sent == content.blocks() as u64 {
            wait_for(STORED_WITHIN, "the log to store everything", || {
                Ok(stored(&mut client)? >= first + sent)
            })?;
        }
    }
    let lost = stored(&mut client)? - first;
    ensure!(lost >= content.blocks() as u64, "the log has only {lost} messages");
    Ok(bytes)
}

/// Starts a fresh node, and waits until it is ready.
fn measure(cluster: &Cluster, content: &LogContent) -> Result<Figures> {
    let servers = cluster.nats_processes();
    let (nats_before, traffic) = (process_times(&servers)?, Traffic::of(cluster.sites.host(2))?);
    let began = Instant::now();
    let node = cluster.node(2)?;
    let ready_s = began.elapsed().as_secs_f64();
    let traffic = Traffic::of(&node.host)?.since(traffic);
    wait_until_known(&node, content.present)?;
    let known_s = began.elapsed().as_secs_f64();
    let usage = Usage::of(node.process())?;
    let nats: Result<Vec<Usage>> = servers.iter().map(|it| Usage::of(*it)).collect();
    Ok(Figures::default()
        .with("ready_s", ready_s)
        .with("warm_s", node.metric("tidegate_cluster_warm_seconds", &[])?)
        .with("known", peers(&node)?)
        .with("known_s", known_s)
        .with("cpu_s", usage.cpu_s())
        .with("nats_cpu_s", process_times(&servers)? - nats_before)
        .with("resident_bytes", usage.resident_bytes as f64)
        .with("nats_bytes", nats?.iter().map(|it| it.resident_bytes as f64).sum())
        .with("received_bytes", traffic.received))
}

fn peers(node: &Node) -> Result<f64> {
    node.metric("tidegate_peers", &[])
}

fn wait_until_known(node: &Node, present: u64) -> Result<()> {
    wait_for(KNOWN_WITHIN, "a node to know all peers", || {
        let (known, present) = (peers(node)?, present as f64);
        ensure!(known >= KNOWN_MIN * present, "{known} of {present}; {}", node.drops());
        Ok(true)
    })
}
