//! Parts of the tracker that a build may lack, as cargo features. Their keys cannot be set then.

use serde_json::Value as Json;

struct Feature {
    name: &'static str,
    is_built: bool,
    /// The keys that need it, by how their names begin.
    keys: &'static [&'static str],
}

const FEATURES: [Feature; 8] = [
    Feature { name: "acme", is_built: cfg!(feature = "acme"), keys: &["tls.acme."] },
    Feature { name: "cluster", is_built: cfg!(feature = "cluster"), keys: &["cluster."] },
    Feature { name: "geo", is_built: cfg!(feature = "geo"), keys: &["geo."] },
    Feature { name: "journal", is_built: JOURNAL, keys: &["state.swarms"] },
    Feature { name: "jwt", is_built: cfg!(feature = "jwt"), keys: &["access.jwt"] },
    Feature { name: "site", is_built: cfg!(feature = "site"), keys: &["site.kind"] },
    Feature { name: "webhooks", is_built: cfg!(feature = "webhooks"), keys: &["admin.webhook_"] },
    Feature { name: "xdp", is_built: XDP, keys: &["xdp."] },
];

/// True if the journal of swarms is built in. It is on by default then.
pub(super) const JOURNAL: bool = cfg!(feature = "journal");

/// True if engines with an XDP program are built in.
pub(super) const XDP: bool = cfg!(feature = "xdp");

/// Checks that a key may get a value other than its present one. Values that turn something off are always accepted.
pub(super) fn check(key: &str, value: &Json) -> Result<(), String> {
    let needs = |feature: &&Feature| feature.keys.iter().any(|start| key.starts_with(start));
    match FEATURES.iter().find(needs) {
        Some(feature) if !feature.is_built && !is_off(value) => {
            Err(format!("{key}: {}", lacks(feature.name)))
        }
        _ => Ok(()),
    }
}

pub(super) fn lacks(name: &str) -> String {
    format!(
        "this build has no `{name}`: remove the key, or use a build with the cargo feature `{name}`"
    )
}

fn is_off(value: &Json) -> bool {
    match value {
        Json::Bool(is_on) => !is_on,
        Json::String(text) => text.is_empty() || text == "off",
        Json::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_missing_features_are_refused_unless_they_are_off() {
        for feature in &FEATURES {
            let key = feature.keys.concat();
            assert_eq!(check(&key, &Json::from("x")).is_ok(), feature.is_built, "{key}");
            assert_eq!(check(&key, &Json::from("")), Ok(()));
        }
        assert_eq!(check("tls.listen", &Json::from("x")), Ok(()));
    }
}
