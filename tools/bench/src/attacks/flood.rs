//! One address announces at five times the rate that the tracker serves, while forty other addresses send few requests.
//! Without limits these lose most of their requests.

mod traffic;

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{BEFORE_US, HONEST, LATENCIES, Outcome, SENDS, Target};
use crate::datagrams::ANNOUNCE;
use crate::figures::{count, percent};
use crate::record::Figures;
use traffic::{Crowd, Flood};

const FLOOD_RATIO: f64 = 5.0;
/// Time of the honest clients before the flood.
const BEFORE: Duration = Duration::from_secs(2);
/// Counters are published a few times a second.
const SETTLE: Duration = Duration::from_secs(1);

/// Limits of a tracker.
struct Scene {
    case: &'static str,
    /// Announces, connects and scrapes per second of an address.
    per_s: &'static str,
    /// How many at once. With a larger burst the limit takes effect later.
    burst: &'static str,
}

const UNLIMITED: Scene = Scene { case: "flood, no limits", per_s: "0", burst: "0" };
const LIMITED: Scene =
    Scene { case: "flood, 1,000 per second and address", per_s: "1000", burst: "10000" };

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let flood_s = FLOOD_RATIO * capacity(target)?;
    [UNLIMITED, LIMITED].iter().map(|scene| scene.play(target, flood_s)).collect()
}

/// Returns the announces per second that the tracker serves under overload, without limits.
fn capacity(target: &Target<'_>) -> Result<f64> {
    let (tracker, mut api) = target.start(&UNLIMITED.settings())?;
    let mut flood = Flood::new(tracker.address, f64::INFINITY)?;
    let mut served = || api.metric("tidegate_responses_total", &[("kind", "announce")]);
    flood.run(SETTLE)?;
    let (begun, before) = (Instant::now(), served()?);
    flood.run(BEFORE)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok((served()? - before) / seconds)
}

impl Scene {
    fn settings(&self) -> [(&'static str, &'static str); 7] {
        [
            // All clients are on the loopback device, which is exempt by default.
            ("TIDEGATE_LIMITS__EXEMPT", "[]"),
            ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__SCRAPES_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__CONNECTS_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__ANNOUNCES_BURST", self.burst),
            ("TIDEGATE_LIMITS__SCRAPES_BURST", self.burst),
            ("TIDEGATE_LIMITS__CONNECTS_BURST", self.burst),
        ]
    }

    fn play(&self, target: &Target<'_>, flood_s: f64) -> Result<Outcome> {
        let (tracker, _api) = target.start(&self.settings())?;
        let mut alone = Crowd::new(tracker.address)?;
        let begun = Instant::now();
        while begun.elapsed() < BEFORE {
            alone.step()?;
        }
        alone.finish()?;
        let mut crowd = Crowd::new(tracker.address)?;
        let mut flood = Flood::new(tracker.address, flood_s)?;
        let begun = Instant::now();
        while begun.elapsed() < target.during {
            // Few steps at once, so that none of the crowd has to wait for the core of the flood.
            for _ in 0..16 {
                flood.step()?;
            }
            crowd.step()?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        crowd.finish()?;
        let us = |crowd: &Crowd, part| {
            crowd.latencies.quantile(part).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
        };
        let lost = crowd.lost() as f64 / crowd.asked() as f64;
        let [p50, p99, max] = LATENCIES;
        let figures = Figures::default()
            .with(HONEST, 1.0 - lost)
            .with(BEFORE_US, us(&alone, 0.5))
            .with(p50, us(&crowd, 0.5))
            .with(p99, us(&crowd, 0.99))
            .with(max, us(&crowd, 1.0))
            .with(SENDS, (flood.sent * ANNOUNCE as u64) as f64 / seconds);
        let flooded = count(flood.sent as f64 / seconds);
        let text = format!("flooded with {flooded}/s, others lost {}", percent(lost));
        Ok((self.case, figures, text))
    }
}
