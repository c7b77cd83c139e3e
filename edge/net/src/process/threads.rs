//! Processor time of threads, by their names.

use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// Returns the processor time that numbered threads, such as `udp-0` of the kind `udp-`, have used since the start, by
/// kind. Returns `None` where the system does not tell.
pub fn thread_times<const N: usize>(kinds: [&str; N]) -> Option<[Duration; N]> {
    let per_s =
        sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok())?;
    let mut ticks = [0; N];
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((name, used)) = parse(&stat) else { continue };
        for (kind, ticks) in kinds.iter().zip(&mut ticks) {
            let number = name.strip_prefix(kind);
            if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
                *ticks += used;
            }
        }
    }
    Some(ticks.map(|ticks| Duration::from_millis(ticks * 1000 / per_s.max(1))))
}

/// Returns the name of a thread and its ticks in user space and in the kernel. The name is between parentheses, and may
/// contain any characters.
fn parse(stat: &str) -> Option<(&str, u64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // The state follows the name; the 12th and 13th fields from there are the times.
    let mut fields = tail.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((name, ticks()?.checked_add(ticks()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_with_spaces_and_parentheses() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(parse(stat), Some(("a (b) c", 300)));
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn numbered_threads_that_work_use_time() {
        let time = std::thread::Builder::new().name("tested-7".into()).spawn(|| {
            let used = || thread_times(["tested-", "teste"]).expect("Linux tells");
            while used()[0] < Duration::from_millis(20) {}
            used()[1]
        });
        assert_eq!(time.expect("a thread").join().expect("no panic"), Duration::ZERO);
    }
}
