//! The Helm chart: linted, and rendered with values of each kind. The tracker reads the variables that come out.

use super::find;
use super::pages::blocks;
use crate::command::{command, output, run};
use crate::setup::install_helm;
use crate::venv::API_TOOLS;
use crate::workspace::binary;
use anyhow::{Context, Result, ensure};
use harness::Directory;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Values, and texts that the rendered chart has then.
const CASES: &[(&[&str], &[&str])] = &[
    (
        &[],
        &[
            "LoadBalancer",
            "\"externalTrafficPolicy\":\"Local\"",
            "/health/ready",
            "volumeClaimTemplates",
        ],
    ),
    (
        &[
            "tls.secretName=web",
            "persistence.enabled=false",
            "metrics.podMonitor.enabled=true",
            "listen.ipv6=false",
        ],
        &["PodMonitor", "emptyDir", "/run/tidegate/tls/tls.crt", "[\\\"0.0.0.0:8443\\\"]"],
    ),
    (
        &[
            "cluster.enabled=true",
            "cluster.secretName=keys",
            "cluster.nodes=5",
            "admin.tokenSecretName=token",
        ],
        &[
            "\"replicas\":5",
            "pod-index",
            "node-$(TIDEGATE_CLUSTER__NODE).nk",
            "PodDisruptionBudget",
            "\"start\":1",
        ],
    ),
];

/// Values that the schema or a template refuses.
const REFUSED: &[&str] =
    &["cluster.nodes=0", "cluster.enabled=true", "listen.port=80", "service.type=Any", "unknown=1"];

/// Checks the chart in `folder`.
pub(super) fn check(folder: &Path) -> Result<()> {
    let helm = install_helm()?.display().to_string();
    let chart = find(folder, ".helm.tgz")?.display().to_string();
    run(command(&[&helm, "lint", "--strict", &chart]))?;
    let template = |values: &[&str]| {
        let mut template = command(&[&helm, "template", "tracker", &chart]);
        for value in values {
            template.args(["--set", value]);
        }
        output(template)
    };
    for (values, texts) in CASES {
        let objects = json(&template(values)?)?;
        let text = objects.to_string();
        for expected in *texts {
            ensure!(text.contains(expected), "{values:?}: no {expected} in {text}");
        }
        read_by_the_tracker(&objects).with_context(|| format!("{values:?}"))?;
    }
    for value in REFUSED {
        ensure!(template(&[value]).is_err(), "{value} is not refused");
    }
    renders_the_page(&helm, &chart)
}

/// Renders the chart with the values of `docs/install/helm.md`. Its commands name what comes out.
fn renders_the_page(helm: &str, chart: &str) -> Result<()> {
    let directory = Directory::new()?;
    let blocks = blocks("helm.md")?;
    // Those that begin with `config:` and no text are for the chart of NATS.
    let values: Vec<_> = blocks
        .iter()
        .filter(|it| it.language == "yaml" && !it.text.starts_with("config:\n"))
        .collect();
    ensure!(values.len() == 2, "expected values for one tracker and for a cluster: {values:?}");
    let commands: String = blocks.iter().map(|it| it.text.as_str()).collect();
    for block in values {
        let file = directory.write("values.yaml", &block.text)?.display().to_string();
        let rendered = output(command(&[helm, "template", "tracker", chart, "--values", &file]))?;
        let objects = json(&rendered)?;
        read_by_the_tracker(&objects).with_context(|| format!("line {}", block.line))?;
        for object in objects.as_array().context("no objects")? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(name.starts_with("tracker-tidegate"), "the page does not know {name}");
        }
    }
    for name in
        ["statefulset/tracker-tidegate", "service tracker-tidegate", "exec tracker-tidegate-1"]
    {
        ensure!(commands.contains(name), "the page lacks {name}");
    }
    Ok(())
}

/// Converts documents of YAML to an array.
fn json(yaml: &str) -> Result<Value> {
    let python = API_TOOLS.program("python3")?;
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.argv[1]))))";
    Ok(serde_json::from_str(&output(command(&[&python, "-c", script, yaml]))?)?)
}

/// Has the tracker read its configuration from the variables of the pods, as Kubernetes would set them.
fn read_by_the_tracker(objects: &Value) -> Result<()> {
    let objects = objects.as_array().context("no objects")?;
    let set = objects.iter().find(|it| it["kind"] == "StatefulSet").context("no StatefulSet")?;
    let variables = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let mut show = Command::new(binary());
    show.args(["config", "show"]);
    for variable in variables.context("no variables")? {
        let name = variable["name"].as_str().context("a variable without a name")?;
        // Kubernetes takes it from the pod.
        let value = variable["value"].as_str().unwrap_or("1");
        if name != "TIDEGATE_BOOTSTRAP_TOKEN" {
            show.env(name, value.replace("$(TIDEGATE_CLUSTER__NODE)", "1"));
        }
    }
    let shown = output(show)?;
    ensure!(shown.contains("state.dir = \"/var/lib/tidegate/state\""), "{shown}");
    Ok(())
}
