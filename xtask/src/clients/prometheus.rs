//! Prometheus and its checker accept our metrics, rules and their tests, and every metric name in the alerts and
//! the Grafana dashboard is among those scraped.

use super::case::wait_for;
use super::tracker::{ADMIN, Tracker};
use crate::command::{command, output};
use crate::workspace::root;
use anyhow::{Context, Result, bail, ensure};
use harness::http;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
const SCRAPE_MAX: Duration = Duration::from_secs(60);
const ALERTS: &str = "dist/prometheus/alerts.yml";
/// Metrics that exist only with some configurations.
const OPTIONAL: &[&str] =
    &["tidegate_swarm_memory_budget_bytes", "tidegate_certificate_expiry_timestamp_seconds"];

/// Checks the rules, starts Prometheus and compares the names scraped.
pub(super) fn play(folder: &Path) -> Result<()> {
    output(command(&["promtool", "check", "rules", ALERTS])).context("cargo xtask setup")?;
    output(command(&["promtool", "test", "rules", "dist/prometheus/alerts_test.yml"]))?;
    let tracker = Tracker::start(folder, "")?;
    check_page(folder)?;
    let alerts = root().join(ALERTS);
    let configuration = format!(
        "global: {{ scrape_interval: 1s }}\n\
         rule_files: [{}]\n\
         scrape_configs: [{{ job_name: tidegate, static_configs: [{{ targets: [\"{ADMIN}\"] }}] }}]\n",
        alerts.display()
    );
    let file = folder.join("prometheus.yml");
    fs::write(&file, configuration)?;
    let log = File::create(folder.join("prometheus.log"))?;
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", file.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
    prometheus.arg(format!("--web.listen-address={ADDRESS}"));
    prometheus.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
    let mut child = prometheus.spawn().context("prometheus does not start; cargo xtask setup")?;
    let scraped = wait_for(SCRAPE_MAX, "a scrape", || {
        Ok(text(ADDRESS, "/api/v1/query?query=up%3D%3D1")?.contains("\"job\":\"tidegate\""))
    });
    let found = scraped.and_then(|()| text(ADDRESS, "/api/v1/label/__name__/values"));
    let found = found.and_then(|names| check_names(&names));
    child.kill()?;
    child.wait()?;
    found?;
    tracker.stop()
}

/// Runs Prometheus' own checker on the page.
fn check_page(folder: &Path) -> Result<()> {
    let body = text(ADMIN, "/metrics")?;
    let file = folder.join("metrics.txt");
    fs::write(&file, body)?;
    let mut promtool = command(&["promtool", "check", "metrics"]);
    promtool.stdin(File::open(file)?);
    output(promtool)?;
    Ok(())
}

/// Every name in alerts and dashboard was scraped.
fn check_names(scraped: &str) -> Result<()> {
    let mut wanted = BTreeSet::new();
    for file in [ALERTS, "dist/grafana/tidegate.json"] {
        let text = fs::read_to_string(root().join(file))?;
        wanted.extend(names(&text).map(String::from));
    }
    ensure!(wanted.len() > 20, "alerts and dashboard name only {} metrics", wanted.len());
    let missing = |name: &&String| {
        !OPTIONAL.contains(&name.as_str()) && !scraped.contains(&format!("\"{name}\""))
    };
    let missing: Vec<&String> = wanted.iter().filter(missing).collect();
    if !missing.is_empty() {
        bail!("alerts or dashboard name metrics that do not exist: {missing:?}");
    }
    Ok(())
}

/// Returns the names of our metrics in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(move |c| !is_name(c))
        .filter(|word| word.starts_with("tidegate_") || word.starts_with("process_"))
}

fn text(address: SocketAddr, path: &str) -> Result<String> {
    Ok(http::get(address, path)?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_in_expressions() {
        let text = r#"rate(tidegate_a_total{x="tidegate"}[5m]) > 2 * process_b"#;
        assert_eq!(names(text).collect::<Vec<_>>(), ["tidegate_a_total", "process_b"]);
    }
}
