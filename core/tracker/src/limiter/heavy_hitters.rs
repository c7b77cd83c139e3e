//! Those who are so far over their limit that even dropping what they send takes time from others.

use arrayvec::ArrayVec;
use primitives::IpPrefix;
use types::{Tick, limits};

/// What one worker knows of them. Only requests of verified clients are noted here, so nobody can
/// have another one shut out by forging his address.
///
/// The suspects are the Misra-Gries summary of a second's refusals: who makes more than one in
/// seventeen of them is among its sixteen, however many others there are.
#[derive(Debug, Default)]
pub struct HeavyHitters {
    second: Tick,
    suspects: ArrayVec<(IpPrefix, u32), SUSPECTS_MAX>,
    source_filter: ArrayVec<(IpPrefix, Tick), { limits::SOURCE_FILTER_MAX }>,
    has_changed: bool,
}

const SUSPECTS_MAX: usize = 16;

impl HeavyHitters {
    /// A request from the network `from` was refused. One from which more than `max` are refused in
    /// this second is shut out for `time_s`, if there is room: says whether it has just been.
    pub(super) fn refused(&mut self, now: Tick, from: IpPrefix, max: u32, time_s: u32) -> bool {
        if self.second != now {
            self.second = now;
            self.suspects.clear();
        }
        if self.count(from) <= max {
            return false;
        }
        // What it had sent before is still coming.
        let is_known = self.source_filter.iter().any(|(known, _)| *known == from);
        let is_new = !is_known && self.source_filter.try_push((from, now.after(time_s))).is_ok();
        self.has_changed |= is_new;
        is_new
    }

    /// Lets those in again whose time is over.
    pub fn expire(&mut self, now: Tick) {
        let before = self.source_filter.len();
        self.source_filter.retain(|(_, until)| now < *until);
        self.has_changed |= self.source_filter.len() != before;
    }

    /// The networks that are shut out, if they are others than when this was last asked.
    pub fn change(&mut self) -> Option<impl Iterator<Item = IpPrefix>> {
        std::mem::take(&mut self.has_changed)
            .then(|| self.source_filter.iter().map(|(from, _)| *from))
    }

    /// Counts a refusal. Gives how many there were at least.
    fn count(&mut self, from: IpPrefix) -> u32 {
        if let Some((_, count)) = self.suspects.iter_mut().find(|(known, _)| *known == from) {
            *count += 1;
            return *count;
        }
        if self.suspects.try_push((from, 1)).is_err() {
            self.suspects.iter_mut().for_each(|(_, count)| *count -= 1);
            self.suspects.retain(|(_, count)| *count > 0);
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MAX: u32 = 1000;

    fn v4(number: u32) -> IpPrefix {
        IpPrefix::v4(Ipv4Addr::from_bits(number), 32)
    }

    fn changed(heavy_hitters: &mut HeavyHitters) -> Option<Vec<IpPrefix>> {
        heavy_hitters.change().map(Iterator::collect)
    }

    #[test]
    fn who_goes_too_far_is_shut_out_for_a_time() {
        let mut heavy_hitters = HeavyHitters::default();
        for now in 0..3 {
            (0..MAX).for_each(|_| assert!(!heavy_hitters.refused(Tick(now), v4(1), MAX, 10)));
        }
        assert_eq!(changed(&mut heavy_hitters), None, "never too much in one second");
        let new = (0..100).filter(|_| heavy_hitters.refused(Tick(2), v4(1), MAX, 10));
        assert_eq!(new.count(), 1);
        assert_eq!(changed(&mut heavy_hitters), Some(vec![v4(1)]));
        assert_eq!(changed(&mut heavy_hitters), None);
        heavy_hitters.expire(Tick(11));
        assert_eq!(changed(&mut heavy_hitters), None);
        heavy_hitters.expire(Tick(12));
        assert_eq!(changed(&mut heavy_hitters), Some(vec![]));
    }

    #[test]
    fn a_crowd_hides_nobody_and_nobody_in_it_is_shut_out() {
        let mut heavy_hitters = HeavyHitters::default();
        for number in 0..20 * MAX {
            heavy_hitters.refused(Tick(0), v4(1000 + number), MAX, 10);
            if number % 4 == 0 {
                heavy_hitters.refused(Tick(0), v4(1), MAX, 10);
            }
        }
        assert_eq!(changed(&mut heavy_hitters), Some(vec![v4(1)]));
    }

    #[test]
    fn no_more_are_shut_out_than_there_is_room_for() {
        let mut heavy_hitters = HeavyHitters::default();
        for number in 0..2 * limits::SOURCE_FILTER_MAX as u32 {
            for _ in 0..=MAX {
                heavy_hitters.refused(Tick(number), v4(number), MAX, 1000);
            }
        }
        assert_eq!(changed(&mut heavy_hitters).unwrap().len(), limits::SOURCE_FILTER_MAX);
    }
}
