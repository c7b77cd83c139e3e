//! Which requirements of the protocols are met, tested or knowingly not met.
//!
//! `spec/bepNN.toml` states what a tracker must or should do, in our own words. Next to the line
//! that does it stands a comment `//= bepNN#id`; at the test that proves it the same, followed by
//! `//= type=test`. What is not done, or done otherwise, has its reason in
//! `spec/exceptions/bepNN.toml`; the line that decides so may cite it. This task holds the three
//! together.

mod citations;
mod requirements;

use crate::command::Tally;
use crate::workspace::Tree;
use anyhow::Result;
use citations::Citation;
use requirements::Requirement;

/// Prints the table, and what is wrong with it.
pub(crate) fn run() -> Result<Tally> {
    let report = Report::of(&Tree::read()?)?;
    println!("{report}");
    for fault in &report.faults {
        println!("{fault}");
    }
    let failed = u32::try_from(report.faults.len())?;
    Ok(Tally { passed: u32::from(failed == 0), failed })
}

/// The state of every requirement.
#[derive(Debug)]
struct Report {
    lines: Vec<Line>,
    faults: Vec<String>,
}

/// A requirement with its citations.
#[derive(Debug)]
struct Line {
    requirement: Requirement,
    code: Vec<Citation>,
    tests: Vec<Citation>,
}

impl Report {
    fn of(tree: &Tree) -> Result<Self> {
        let requirements = requirements::read(tree)?;
        let (mut faults, citations) = (requirements.faults, citations::find(tree));
        for citation in &citations {
            if !requirements.list.iter().any(|requirement| requirement.id == citation.id) {
                faults.push(format!("{}: no requirement {} in spec/", citation.place, citation.id));
            }
        }
        let line = |requirement: Requirement| {
            let mine = |test: bool| {
                let mine = citations.iter().filter(|one| one.id == requirement.id);
                mine.filter(|one| one.is_test == test).cloned().collect()
            };
            Line { code: mine(false), tests: mine(true), requirement }
        };
        let lines: Vec<_> = requirements.list.into_iter().map(line).collect();
        faults.extend(lines.iter().filter_map(Line::fault));
        Ok(Self { lines, faults })
    }
}

impl Line {
    fn fault(&self) -> Option<String> {
        let id = &self.requirement.id;
        let fault = match (&*self.code, &*self.tests) {
            _ if self.requirement.exception.is_some() => return None,
            ([], _) => "is cited by no code: meet it, or give the reason in spec/exceptions/",
            (_, []) => "is met, but no test says so",
            _ => return None,
        };
        Some(format!("{id} {fault}"))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = |yes: bool, word: &'static str| if yes { word } else { "-" };
        let mut sums = [0; 3];
        for Line { requirement, code, tests } in &self.lines {
            let excepted = requirement.exception.is_some();
            let states = [!excepted && !code.is_empty(), !tests.is_empty(), excepted];
            sums.iter_mut().zip(states).for_each(|(sum, yes)| *sum += u32::from(yes));
            let (met, tested) = (mark(states[0], "met"), mark(states[1], "tested"));
            let place = match (&requirement.exception, code.first()) {
                (Some(why), _) => why,
                (None, Some(citation)) => &citation.place,
                (None, None) => "",
            };
            let excepted = mark(excepted, "excepted");
            writeln!(f, "{:<36} {met:<4} {tested:<7} {excepted:<9} {place}", requirement.id)?;
        }
        let [met, tested, excepted] = sums;
        let all = self.lines.len();
        write!(f, "{all} requirements: {met} met, {tested} tested, {excepted} excepted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "[[requirement]]\nid = 'a'\nsection = 's'\nlevel = 'must'\ntext = 't'\n";

    fn faults(code: &str, exceptions: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("spec/bep99.toml", SPEC),
            ("spec/exceptions/bep99.toml", exceptions),
            ("core/a.rs", code),
        ]);
        Report::of(&tree).unwrap().faults
    }

    const MET: &str = "//= bep99#a\nfn f() {}\n";
    const TESTED: &str = "//= bep99#a\n//= type=test\nfn g() {}\n";
    const EXCEPTION: &str = "[[exception]]\nid = 'a'\nwhy = 'w'\n";

    #[test]
    fn met_and_tested_is_well_and_so_is_an_exception() {
        assert_eq!(faults(&format!("{MET}{TESTED}"), ""), [""; 0]);
        assert_eq!(faults("", EXCEPTION), [""; 0]);
        assert_eq!(faults(MET, EXCEPTION), [""; 0]);
    }

    #[test]
    fn everything_else_is_a_fault() {
        for (code, exceptions, fault) in [
            ("", "", "cited by no code"),
            (TESTED, "", "cited by no code"),
            (MET, "", "no test says so"),
            ("//= bep99#b\n", EXCEPTION, "no requirement bep99#b"),
            ("", "[[exception]]\nid = 'b'\nwhy = 'w'\n", "excepts nothing"),
        ] {
            let faults = faults(code, exceptions).join("\n");
            assert!(faults.contains(fault), "{code:?} {exceptions:?} gave {faults:?}");
        }
    }

    #[test]
    fn the_table_has_a_line_each_and_a_sum() {
        let tree = Tree::of(&[("spec/bep99.toml", SPEC), ("a.rs", MET)]);
        let table = Report::of(&tree).unwrap().to_string();
        assert!(table.starts_with("bep99#a "), "{table}");
        assert!(table.contains("a.rs:1"), "{table}");
        assert!(table.ends_with("1 requirements: 1 met, 0 tested, 0 excepted"), "{table}");
    }
}
