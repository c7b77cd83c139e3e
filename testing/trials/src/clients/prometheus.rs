//! Prometheus and its checker accept our metrics, rules and their tests, and every metric name in the alerts and
//! the Grafana dashboard is among those scraped.

use crate::command::{command, output};
use crate::tracker;
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use harness::{Process, http, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The tracker's management, and Prometheus itself.
const ADMIN: &str = "127.0.0.1:6970";
const ADDRESS: &str = "127.0.0.1:9090";
const SCRAPE_MAX: Duration = Duration::from_secs(60);
const ALERTS: &str = "dist/prometheus/alerts.yml";
/// Metrics that exist only with some configurations.
const OPTIONAL: &[&str] =
    &["tidegate_swarm_memory_budget_bytes", "tidegate_certificate_expiry_timestamp_seconds"];

/// The beginning of names of a cluster's metrics. The tracker scraped here is in none.
const CLUSTER: &str = "tidegate_cluster_";

/// Checks the rules, starts Prometheus and compares the names scraped.
pub(super) fn play(folder: &Path) -> Result<()> {
    output(command(&["promtool", "check", "rules", ALERTS])).context("cargo xtask setup")?;
    output(command(&["promtool", "test", "rules", "dist/prometheus/alerts_test.yml"]))?;
    let tracker = tracker::start(folder, &format!("[state]\ndir = {:?}\n", folder.join("state")))?;
    let page = folder.join("metrics.txt");
    fs::write(&page, tracker.admin("/metrics")?.body)?;
    let mut promtool = command(&["promtool", "check", "metrics"]);
    promtool.stdin(File::open(page)?);
    output(promtool)?;
    let configuration = format!(
        "global: {{ scrape_interval: 1s }}\n\
         rule_files: [{}]\n\
         scrape_configs: [{{ job_name: tidegate, static_configs: [{{ targets: [\"{ADMIN}\"] }}] }}]\n",
        root().join(ALERTS).display()
    );
    let file = folder.join("prometheus.yml");
    fs::write(&file, configuration)?;
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", file.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
    prometheus.arg(format!("--web.listen-address={ADDRESS}"));
    let prometheus = Process::start_with_one_log(prometheus, folder, "prometheus");
    let _prometheus = prometheus.context("cargo xtask setup")?;
    wait_for(SCRAPE_MAX, "a scrape", || {
        let up = ask("query?query=up%3D%3D1")?;
        Ok(up.pointer("/result/0/metric/job").is_some_and(|job| job == "tidegate"))
    })?;
    check_names(&ask("label/__name__/values")?)?;
    tracker.stop()
}

/// Returns the data of Prometheus' response.
fn ask(target: &str) -> Result<Value> {
    let response = http::get(ADDRESS.parse::<SocketAddr>()?, &format!("/api/v1/{target}"))?;
    Ok(serde_json::from_slice::<Value>(&response.body)?["data"].take())
}

/// Every name in alerts and dashboard was scraped.
fn check_names(scraped: &Value) -> Result<()> {
    let scraped: BTreeSet<&str> =
        scraped.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut wanted = BTreeSet::new();
    for file in [ALERTS, "dist/grafana/tidegate.json"] {
        let text = fs::read_to_string(root().join(file))?;
        wanted.extend(names(&text).map(String::from));
    }
    ensure!(wanted.len() > 20, "alerts and dashboard name only {} metrics", wanted.len());
    // Those of a cluster are known by their documentation, which a test compares with what is served.
    let documented = fs::read_to_string(root().join("docs/metrics.md"))?;
    let is_of_cluster =
        |name: &str| name.starts_with(CLUSTER) && documented.contains(&format!("| `{name}` |"));
    wanted.retain(|name| {
        let is_known = OPTIONAL.contains(&&**name) || scraped.contains(&**name);
        !is_known && !is_of_cluster(name)
    });
    ensure!(wanted.is_empty(), "alerts or dashboard name metrics that do not exist: {wanted:?}");
    Ok(())
}

/// Returns the names of our metrics in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(move |c| !is_name(c))
        .filter(|word| word.starts_with("tidegate_") || word.starts_with("process_"))
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
