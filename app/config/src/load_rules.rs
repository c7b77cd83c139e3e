//! `[load]`: intervals that grow with load, and budgets of services.

use tracker::{Budget, LoadRules, Policy, SERVICES, Service, Stretch};

use super::key::Problem;
use super::keys::{LoadSection, Sections};
use super::policy;

/// Reactions of the tracker to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadConfig {
    /// The rules of the controller.
    pub rules: LoadRules,
    /// Seconds between its steps.
    pub step_s: u32,
}

impl LoadConfig {
    pub(super) fn from_sections(sections: &Sections, problems: &mut Vec<Problem>) -> Self {
        let Sections { load, tracker, cluster, .. } = sections;
        let policy: Policy = policy(sections);
        let max_s = load.interval_max_s.value;
        if max_s > 0 && max_s < policy.interval_s {
            problems.push(load.interval_max_s.problem(format!(
                "expected at least tracker.interval_s, which is {}, or 0 for constant intervals; found {max_s}",
                tracker.interval_s.value
            )));
        }
        let rules = LoadRules {
            interval_s: Service::ALL
                .map(|service| policy.interval(service, Stretch::NONE).interval_s),
            stretch_max: Stretch::between(policy.interval_s, max_s),
            cpu_percent: load.cpu_percent.value,
            budgets: budgets(load, problems),
            lifetime_s: policy.peer_lifetime_s,
            web_lifetime_s: policy.web_lifetime_s(),
            keeps_longest: !cluster.join.value.is_empty(),
        };
        Self { rules, step_s: load.step_s.value }
    }
}

fn budgets(load: &LoadSection, problems: &mut Vec<Problem>) -> [Budget; SERVICES] {
    let mut budgets = [Budget::default(); SERVICES];
    load.budgets.items(problems, |text| {
        let (services, budget) = parse(text)?;
        for service in services {
            let known = &mut budgets[service.index()];
            if !known.is_unlimited() {
                return Err(format!("{} has a budget already", service.label()));
            }
            *known = budget;
        }
        Ok(())
    });
    budgets
}

/// Reads a budget and the services that have it, each for itself.
fn parse(text: &str) -> Result<(Vec<Service>, Budget), String> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let has_name = |service: &Service| {
        let label = service.label();
        label == name || label.trim_end_matches(['4', '6']) == name
    };
    let services: Vec<Service> = Service::ALL.into_iter().filter(has_name).collect();
    if services.is_empty() {
        return Err("expected udp, http, https or ws first, with 4 or 6 for one family, e.g. \
                    `https4 announces_per_s=2000`"
            .into());
    }
    let mut budget = Budget::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "announces_per_s" => budget.announces_per_s = announces(value)?,
            "bytes_per_day" => budget.bytes_per_day = bytes(value)?,
            _ => {
                return Err(format!(
                    "expected announces_per_s=NUMBER or bytes_per_day=NUMBER, found `{word}`"
                ));
            }
        }
    }
    if budget.is_unlimited() {
        return Err("expected announces_per_s=NUMBER, bytes_per_day=NUMBER or both".into());
    }
    Ok((services, budget))
}

fn announces(value: &str) -> Result<u32, String> {
    let parsed = value.parse().ok().filter(|number| *number > 0);
    parsed.ok_or_else(|| format!("announces_per_s: expected a number from 1, found `{value}`"))
}

/// Reads a number of bytes: digits, and k, M, G or T for thousands, millions and so on.
fn bytes(value: &str) -> Result<u64, String> {
    let (digits, unit) = match value.find(|letter: char| !letter.is_ascii_digit()) {
        Some(at) => value.split_at(at),
        None => (value, ""),
    };
    let factor = match unit {
        "" => Some(1),
        "k" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "T" => Some(1_000_000_000_000),
        _ => None,
    };
    let product = factor.and_then(|factor: u64| digits.parse::<u64>().ok()?.checked_mul(factor));
    product.filter(|bytes| *bytes > 0).ok_or_else(|| {
        format!(
            "bytes_per_day: expected a number from 1, such as 500000000 or 500G, found `{value}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<&'static str>, u32, u64), String> {
        let (services, budget) = parse(text)?;
        let labels = services.into_iter().map(Service::label).collect();
        Ok((labels, budget.announces_per_s, budget.bytes_per_day))
    }

    #[test]
    fn budgets_name_services_and_limits() {
        assert_eq!(read("udp4 announces_per_s=50000"), Ok((vec!["udp4"], 50_000, 0)));
        assert_eq!(
            read("https bytes_per_day=1T announces_per_s=7"),
            Ok((vec!["https4", "https6"], 7, 1_000_000_000_000))
        );
        assert_eq!(read("ws6  bytes_per_day=12"), Ok((vec!["ws6"], 0, 12)));
        for (text, expected) in [
            ("", "expected udp, http"),
            ("wss announces_per_s=1", "expected udp, http"),
            ("udp", "expected announces_per_s=NUMBER, bytes_per_day=NUMBER or both"),
            ("udp connects=1", "found `connects=1`"),
            ("udp announces_per_s=0", "from 1, found `0`"),
            ("udp announces_per_s=-1", "from 1, found `-1`"),
            ("udp bytes_per_day=1GiB", "found `1GiB`"),
            ("udp bytes_per_day=99999999999T", "found `99999999999T`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
