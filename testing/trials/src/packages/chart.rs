//! The Helm chart: linted, and rendered with values of each kind. The tracker reads the variables that come out.

use super::find;
use super::pages::blocks;
use super::program::unpack;
use crate::artifacts::ARCHITECTURES;
use crate::command::{command, output, run};
use crate::setup::install_helm;
use crate::venv::API_TOOLS;
use anyhow::{Context, Result, ensure};
use harness::Directory;
use serde_json::Value;
use std::path::Path;

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
        &["\"replicas\":5", "pod-index", "node-$(NODE).join", "PodDisruptionBudget", "\"start\":1"],
    ),
];

/// Values that the schema or a template refuses, and what the error says.
const REFUSED: &[(&str, &str)] = &[
    ("cluster.nodes=0", "/cluster/nodes"),
    ("cluster.enabled=true", "cluster.secretName is needed"),
    ("listen.port=80", "/listen/port"),
    ("service.type=Any", "/service/type"),
    ("unknown=1", "'unknown' not allowed"),
];

/// The oldest version that the chart is for. A helm that was built from its module assumes an older one.
const KUBERNETES: &str = "--kube-version=1.28.0";

/// Checks the chart in `folder`.
pub(super) fn check(folder: &Path) -> Result<()> {
    let helm = install_helm()?.display().to_string();
    let program = native_program(folder)?;
    let chart = find(folder, ".helm.tgz")?.display().to_string();
    run(command(&[&helm, "lint", "--strict", KUBERNETES, &chart]))?;
    let template = |values: &[&str]| {
        let mut template = command(&[&helm, "template", "tracker", &chart, KUBERNETES]);
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
        program.reads(&objects).with_context(|| format!("{values:?}"))?;
    }
    for (value, reason) in REFUSED {
        let error = template(&[value]).err().with_context(|| format!("{value} is not refused"))?;
        ensure!(format!("{error:#}").contains(reason), "{value}: {error:#}");
    }
    renders_the_page(&helm, &chart, &program)
}

/// Renders the chart with the values of `docs/install/helm.md`. Its commands name what comes out.
fn renders_the_page(helm: &str, chart: &str, program: &Program) -> Result<()> {
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
        let rendered =
            output(command(&[helm, "template", "tracker", chart, KUBERNETES, "--values", &file]))?;
        let objects = json(&rendered)?;
        program.reads(&objects).with_context(|| format!("line {}", block.line))?;
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

/// The static program of the release.
struct Program(Directory);

/// Unpacks the program for this machine.
fn native_program(folder: &Path) -> Result<Program> {
    let mut all = ARCHITECTURES.iter().filter(|it| it.is_native());
    let native = all.next().context("no releases for this machine")?;
    unpack(folder, *native).map(Program)
}

impl Program {
    /// Reads the configuration from the file and the variables of the pods, as Kubernetes would set them.
    fn reads(&self, objects: &Value) -> Result<()> {
        let objects = objects.as_array().context("no objects")?;
        let of_kind = |kind: &str| {
            let found = objects.iter().find(|it| it["kind"] == kind);
            found.with_context(|| format!("no {kind}"))
        };
        let file = of_kind("ConfigMap")?["data"]["tidegate.toml"].as_str().context("no file")?;
        let file = self.0.write("of-the-chart.toml", file)?.display().to_string();
        let program = self.0.path("tidegate").display().to_string();
        let mut show = command(&[&program, "config", "show", "--config", &file]);
        let container = &of_kind("StatefulSet")?["spec"]["template"]["spec"]["containers"][0];
        for variable in container["env"].as_array().context("no variables")? {
            let name = variable["name"].as_str().context("a variable without a name")?;
            // Kubernetes takes it from the pod.
            let value = variable["value"].as_str().unwrap_or("1");
            if name != "TIDEGATE_BOOTSTRAP_TOKEN" {
                show.env(name, value.replace("$(NODE)", "1"));
            }
        }
        let shown = output(show)?;
        ensure!(shown.contains("state.dir = \"/var/lib/tidegate/state\""), "{shown}");
        Ok(())
    }
}
