//! The texts of packages, and the command of the tracker that was here before.

use crate::{Directory, run, run_program, stderr, stdout, tidegate};

#[test]
fn prints_the_manual_page_and_completions() {
    let page = stdout(&run(&["--man"]));
    assert!(page.contains("tidegate\\-import") && page.contains("dry\\-run"), "{page}");
    assert!(
        page.contains("tidegate\\-import config") && !page.contains("import\\-config"),
        "{page}"
    );
    for shell in ["bash", "fish", "zsh"] {
        let script = stdout(&run(&["--completions", shell]));
        assert!(script.contains("dry-run"), "{shell}");
    }
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("<TRACKER> <FILE>"), "{}", stderr(&output));
}

/// Scripts of before call the tracker's program.
#[test]
fn the_tracker_runs_it_for_scripts() {
    let directory = Directory::new().unwrap();
    let list = directory.write("list.txt", "ab".repeat(20)).unwrap().display().to_string();
    let state = directory.path("state").display().to_string();
    let more = ["--list", "allow", "--state", &state, "--dry-run"];
    let imports = [&["import", "opentracker", &list], &more[..]].concat();
    let output = run_program(&tidegate(), &imports);
    let text = stderr(&output);
    assert!(output.status.success() && text.contains("tidegate-import: read: 1"), "{text}");
}
