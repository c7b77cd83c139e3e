//! Settings changed through the API, applied at startup to what file and environment say.
//!
//! The API checks a change before it is recorded, but the file may be edited afterwards. Of what then
//! contradicts itself as little as possible is left out, with a warning. Settings that decide who is
//! served are never left out: the tracker would serve more than its operator allowed.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::Value;
use tracing::warn;

use config::{Config, Problem, Settings};

/// The name of a key and the value that was set through the API.
type Override = (String, Value);

type LeftOut = (Override, Vec<Problem>);

/// Applies settings changed through the API to the configuration read at startup. Returns whether there
/// were any. `file` is where the configuration comes from.
pub(super) fn apply(
    overrides: &[Override],
    settings: &mut Settings,
    config: &mut Config,
    file: Option<&Path>,
) -> Result<bool> {
    if overrides.is_empty() {
        return Ok(false);
    }
    let (kept, left_out) = choose(settings, overrides);
    for ((name, value), problems) in left_out {
        let why = problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ");
        if is_needed(&name, &value) {
            let file = file.map_or_else(|| "a file".into(), |file| file.display().to_string());
            bail!(
                "{name} = {value} was set through the API and cannot be applied, and without it the \
                 tracker would serve more than it should: {why}. Change the configuration ({file}); or \
                 start with the previous one and run `tidegate admin config unset {name}`"
            );
        }
        warn!("ignored {name} = {value}, set through the API: {why}");
    }
    if let Ok((with, mut made)) = try_all(settings, &kept) {
        // The listeners, already bound, refer to these.
        made.challenges = Arc::clone(&config.challenges);
        // The one that is there: the configured one may have been refused.
        made.engine = config.engine;
        (*settings, *config) = (with, made);
    }
    Ok(true)
}

/// Returns true if the tracker might serve more without this value. Values that open access are not needed.
fn is_needed(name: &str, value: &Value) -> bool {
    let opens = match name {
        "access.private" => *value == Value::Bool(false),
        "access.private_and_open" => *value == Value::Bool(true),
        "access.mode" => value == "open",
        "access.jwt" => *value == Value::Bool(false),
        "access.networks_allow" | "access.networks_deny" => {
            value.as_array().is_some_and(Vec::is_empty)
        }
        _ => false,
    };
    name.starts_with("access.") && !opens
}

/// Chooses overrides that are valid together: all, or as many as can be added one by one.
fn choose(settings: &Settings, overrides: &[Override]) -> (Vec<Override>, Vec<LeftOut>) {
    let (mut kept, mut left_out) = (overrides.to_vec(), Vec::new());
    if try_all(settings, &kept).is_ok() {
        return (kept, left_out);
    }
    let mut pending = std::mem::take(&mut kept);
    // Those that are needed first.
    pending.sort_by_key(|(name, value)| !is_needed(name, value));
    loop {
        let count = kept.len();
        pending.retain(|one| {
            kept.push(one.clone());
            let is_valid = try_all(settings, &kept).is_ok();
            if !is_valid {
                kept.pop();
            }
            !is_valid
        });
        // Some are valid only with later ones.
        if kept.len() == count {
            break;
        }
    }
    for one in pending {
        let with = [&*kept, std::slice::from_ref(&one)].concat();
        left_out.push((one, try_all(settings, &with).err().unwrap_or_default()));
    }
    (kept, left_out)
}

fn try_all(
    settings: &Settings,
    overrides: &[Override],
) -> Result<(Settings, Config), Vec<Problem>> {
    let mut with = settings.clone();
    let problems = with.apply_overrides(overrides);
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = Config::from_settings(&with)?;
    Ok((with, config))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(overrides: Value) -> (Vec<String>, Vec<String>) {
        let Value::Object(overrides) = overrides else { panic!("{overrides}") };
        let overrides: Vec<Override> = overrides.into_iter().collect();
        let (kept, left_out) = choose(&Settings::default(), &overrides);
        let mut kept: Vec<_> = kept.into_iter().map(|(name, _)| name).collect();
        kept.sort();
        (kept, left_out.into_iter().map(|((name, _), _)| name).collect())
    }

    #[test]
    fn leaves_out_as_few_as_possible() {
        let wrong = json!(["10.0.0.0/33"]);
        let (kept, left_out) = chosen(json!({
            "access.private": true, "limits.exempt": wrong, "no.such": 1, "tracker.interval_s": 77,
        }));
        assert_eq!(kept, ["access.private", "tracker.interval_s"]);
        assert_eq!(left_out, ["limits.exempt", "no.such"]);
        let (kept, left_out) = chosen(json!({
            "access.clients_deny": [""], "limits.exempt": wrong, "tracker.interval_s": 77,
        }));
        assert_eq!(kept, ["tracker.interval_s"]);
        assert_eq!(left_out, ["access.clients_deny", "limits.exempt"]);
    }
}
