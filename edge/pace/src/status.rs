//! The state of services: JSON, metrics, and what is wrong.

use serde::Serialize;
use subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, Value, json};
use tracker::{BytesLeft, LoadRules, Policy, Service, ServiceLoad, Stretch};
use utoipa::ToSchema;

/// The services that have listeners.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct PaceStatus {
    /// Each of them.
    pub services: Vec<ServiceStatus>,
}

/// A service: a protocol, and the family of its listeners' addresses.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ServiceStatus {
    /// udp4, udp6, http4, http6, https4, https6, ws4 or ws6.
    pub service: &'static str,
    /// The interval in responses now, seconds, without its random part.
    pub interval_s: u32,
    /// The longest that load can make it, seconds; 0 = it does not grow.
    pub interval_max_s: u32,
    /// True if the interval has grown to its maximum.
    pub is_interval_max: bool,
    /// Announces in a second, averaged over a minute.
    pub announces_per_s: f64,
    /// Announces in a second that the budget has; 0 = no budget.
    pub announces_budget_per_s: u32,
    /// Payload bytes since midnight in UTC. Without a budget of bytes or a state directory, they begin at the start.
    pub bytes_today: u64,
    /// Bytes of a day that the budget has; 0 = no budget.
    pub bytes_budget_per_day: u64,
    /// Announces answered over the budget since the start.
    pub over_budget: u64,
    /// True if there were any in the last seconds.
    pub is_over_budget: bool,
}

impl ServiceStatus {
    pub(crate) fn new(
        service: Service,
        load: &ServiceLoad,
        rules: &LoadRules,
        policy: &Policy,
        over_budget: u64,
    ) -> Self {
        let interval_s = |stretch| policy.interval(service, stretch).interval_s;
        let budget = rules.budgets[service.index()];
        let can_grow = rules.stretch_max > Stretch::NONE;
        Self {
            service: service.label(),
            interval_s: interval_s(load.stretch),
            interval_max_s: if can_grow { interval_s(rules.stretch_max) } else { 0 },
            is_interval_max: can_grow && load.stretch >= rules.stretch_max,
            announces_per_s: (load.announces_per_s * 10.0).round() / 10.0,
            announces_budget_per_s: budget.announces_per_s,
            bytes_today: load.bytes_today,
            bytes_budget_per_day: budget.bytes_per_day,
            over_budget,
            is_over_budget: load.is_over || load.bytes_left == BytesLeft::None,
        }
    }

    fn problem(&self) -> Option<HealthItem> {
        let Self { service, interval_s, .. } = self;
        let is_out_of_bytes =
            self.bytes_budget_per_day > 0 && self.bytes_today >= self.bytes_budget_per_day;
        let (text, remedy) = if is_out_of_bytes {
            let text = format!(
                "{service} has used its {} bytes of today: until midnight in UTC, announces get no peers.",
                self.bytes_budget_per_day
            );
            (text, "Raise bytes_per_day in load.budgets, or wait.")
        } else if self.is_over_budget {
            let text = format!(
                "{service} is over its budget: some announces get no peers and the longest interval, those of new \
                 torrents first."
            );
            (
                text,
                "Raise the budget in load.budgets, or load.interval_max_s, so that clients return later.",
            )
        } else if self.is_interval_max {
            let text = format!(
                "The interval of {service} is at its maximum of {interval_s} s: more load will not make it longer."
            );
            (text, "Raise load.interval_max_s, or give the tracker more processors.")
        } else {
            return None;
        };
        Some(HealthItem::new(Level::Warning, HealthArea::Listeners, text).with_remedy(remedy))
    }
}

impl Subsystem for PaceStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        type Read = fn(&ServiceStatus) -> u64;
        let families: [(&str, &str, &str, Read); 4] = [
            (
                "tidegate_service_interval_seconds",
                "gauge",
                "Interval in the responses of a service, without its random part.",
                |it| it.interval_s.into(),
            ),
            (
                "tidegate_service_interval_max_seconds",
                "gauge",
                "Longest interval that load can cause; 0 = it does not grow.",
                |it| it.interval_max_s.into(),
            ),
            (
                "tidegate_service_bytes_today",
                "gauge",
                "Payload bytes of a service since midnight in UTC, or since the start.",
                |it| it.bytes_today,
            ),
            (
                "tidegate_service_over_budget_total",
                "counter",
                "Announces answered without peers, because their service was over its budget.",
                |it| it.over_budget,
            ),
        ];
        for (name, kind, help, read) in families {
            let values = self.services.iter().map(|it| (it.service, read(it)));
            page.by_label(name, kind, help, "service", values);
        }
    }

    fn problems(&self) -> Vec<HealthItem> {
        self.services.iter().filter_map(ServiceStatus::problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use tracker::{Budget, SERVICES};

    use super::*;

    fn status(load: ServiceLoad, budget: Budget) -> ServiceStatus {
        let policy = Policy::default();
        let rules = LoadRules {
            interval_s: [1800; SERVICES],
            stretch_max: Stretch(2000),
            cpu_percent: 70,
            budgets: [budget; SERVICES],
            lifetime_s: 2700,
            web_lifetime_s: 180,
            keeps_longest: false,
        };
        ServiceStatus::new(Service::Https6, &load, &rules, &policy, 5)
    }

    const IDLE: ServiceLoad = ServiceLoad {
        stretch: Stretch::NONE,
        announces_per_s: 1.0,
        clients: 0,
        bytes_today: 70,
        bytes_left: BytesLeft::Enough,
        is_over: false,
    };

    #[test]
    fn sentences_name_the_worst_problem_of_a_service() {
        let text = |load, budget| status(load, budget).problem().map(|problem| problem.text);
        let budget = Budget { announces_per_s: 9, bytes_per_day: 100 };
        assert_eq!(text(IDLE, budget), None);
        let contains = |load: ServiceLoad, expected: &str| {
            let text = text(load, budget).expect("there is a problem");
            assert!(text.contains(expected), "{text}");
        };
        let longest = ServiceLoad { stretch: Stretch(2000), ..IDLE };
        contains(longest, "https6 is at its maximum of 3600 s");
        contains(ServiceLoad { is_over: true, ..longest }, "https6 is over its budget");
        let spent =
            ServiceLoad { bytes_today: 120, bytes_left: BytesLeft::None, is_over: true, ..IDLE };
        contains(spent, "used its 100 bytes of today");
    }

    #[test]
    fn metrics_and_json_have_each_service() {
        let status = PaceStatus { services: vec![status(IDLE, Budget::default())] };
        let mut page = Page::default();
        status.metrics(&mut page);
        let page = page.into_text();
        for expected in [
            r#"tidegate_service_interval_seconds{service="https6"} 1800"#,
            r#"tidegate_service_interval_max_seconds{service="https6"} 3600"#,
            r#"tidegate_service_bytes_today{service="https6"} 70"#,
            r#"tidegate_service_over_budget_total{service="https6"} 5"#,
        ] {
            assert!(page.lines().any(|line| line == expected), "{expected}\n{page}");
        }
        let service = &status.to_json()["services"][0];
        assert_eq!(
            (&service["interval_s"], &service["is_over_budget"]),
            (&1800.into(), &false.into())
        );
    }
}
