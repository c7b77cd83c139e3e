//! Configurations of earlier versions of tidegate.

use std::fs;

use crate::{Directory, run, run_program, stderr, stdout, tidegate};

const OLD: &str = "# Ours.
[http]
listen = [\"127.0.0.1:0\"] # one address
# Phones are slow.
idle_timeout_s = 30
[tracker]
interval_s = 900
peer_lifetime_s = 7200 # two hours
[[listener]]
protocol = \"http\"
listen = [\"127.0.0.1:0\"]
http = { idle_timeout_s = 3, stats = \"off\" }
";
const NEW: &str = "# Ours.
[http]
listen = [\"127.0.0.1:0\"] # one address
# Phones are slow.
# http.idle_timeout_s is no longer a setting: 60 is used.
[tracker]
interval_s = 900
# tracker.peer_lifetime_s is no longer a setting: one and a half times tracker.interval_s is used. (two hours)
[[listener]]
protocol = \"http\"
listen = [\"127.0.0.1:0\"]
http = { stats = \"off\" }
";

#[test]
fn prints_or_replaces_a_configuration_with_removed_keys() {
    let directory = Directory::new().unwrap();
    let path = directory.write("old.toml", OLD).unwrap();
    let file = path.display().to_string();
    let printed = run(&["config", &file]);
    assert_eq!(stdout(&printed), NEW, "{}", stderr(&printed));
    let remark = format!("{file}:12: http.idle_timeout_s is no longer a setting: 60 is used");
    assert!(stderr(&printed).contains(&remark), "{}", stderr(&printed));
    assert_eq!(fs::read_to_string(&path).unwrap(), OLD);

    let replaced = run(&["config", "--write", &file]);
    assert!(replaced.status.success() && stdout(&replaced).is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
    let check = run_program(&tidegate(), &["config", "check", "--config", &file]);
    assert!(!stderr(&check).contains("no longer a setting"), "{}", stderr(&check));

    let again = run(&["config", "--write", &file]);
    assert!(stderr(&again).ends_with("all keys are settings; nothing to remove\n"));
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
}

#[test]
fn leaves_a_configuration_with_mistakes_alone() {
    let directory = Directory::new().unwrap();
    let text = "[udp]\npin_cores = true\nworkers = \"all\"\n[cluster]\nname = \"x\"\n";
    let path = directory.write("wrong.toml", text).unwrap();
    let file = path.display().to_string();
    let output = run(&["config", "--write", &file]);
    let found = stderr(&output);
    assert!(!output.status.success(), "{found}");
    assert!(found.contains(&format!("tidegate-import: {file}:3: udp.workers")), "{found}");
    assert!(
        found.contains(&format!("{file}:5: `cluster.name` is in the join file now")),
        "{found}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
