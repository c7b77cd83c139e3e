//! The folders of the workspace.

use std::path::{Path, PathBuf};

/// Returns the workspace root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns the folder of cargo's release builds.
pub(crate) fn release() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // A relative path starts at cargo's working directory, which is the root.
    root().join(target).join("release")
}
