//! The requirements of the protocols: which are met, tested, or excepted.
//!
//! `spec/bepNN.toml` lists what a tracker must or should do, in our own words. A comment
//! `//= bepNN#id` marks the line that does it, and the same comment followed by `//= type=test` marks
//! the test that proves it. Requirements that are not met have a reason in
//! `spec/exceptions/bepNN.toml`; the line that implements the exception may cite the id. This task
//! checks that the three agree.

mod citations;
mod requirements;

use crate::tree::Tree;
use anyhow::{Result, ensure};
use citations::Citation;
use requirements::Requirement;

/// Prints the table of requirements, and its errors.
pub(crate) fn run() -> Result<()> {
    let report = Report::of(&Tree::read()?)?;
    println!("{report}");
    for fault in &report.faults {
        println!("{fault}");
    }
    ensure!(report.faults.is_empty(), "{} faults", report.faults.len());
    Ok(())
}

/// The state of every requirement.
#[derive(Debug)]
struct Report {
    lines: Vec<RequirementState>,
    faults: Vec<String>,
}

/// A requirement, and the first citations of it.
#[derive(Debug)]
struct RequirementState {
    requirement: Requirement,
    code: Option<Citation>,
    test: Option<Citation>,
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
            let first = |is_test| {
                let is_it = |one: &&Citation| one.id == requirement.id && one.is_test == is_test;
                citations.iter().find(is_it).cloned()
            };
            RequirementState { code: first(false), test: first(true), requirement }
        };
        let lines: Vec<_> = requirements.list.into_iter().map(line).collect();
        faults.extend(lines.iter().filter_map(RequirementState::fault));
        Ok(Self { lines, faults })
    }
}

impl RequirementState {
    fn fault(&self) -> Option<String> {
        let id = &self.requirement.id;
        let fault = match (&self.code, &self.test) {
            _ if self.requirement.exception.is_some() => return None,
            (None, _) => "is not cited by code: implement it, or add a reason to spec/exceptions/",
            (_, None) => "is met, but not cited by a test: add a test",
            _ => return None,
        };
        Some(format!("{id} {fault}"))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = |yes: bool, word: &'static str| if yes { word } else { "-" };
        let mut sums = [0; 3];
        for RequirementState { requirement, code, test } in &self.lines {
            let excepted = requirement.exception.is_some();
            let states = [!excepted && code.is_some(), test.is_some(), excepted];
            sums.iter_mut().zip(states).for_each(|(sum, yes)| *sum += u32::from(yes));
            let (met, tested) = (mark(states[0], "met"), mark(states[1], "tested"));
            let place = code.as_ref().map_or("", |citation| &citation.place);
            let place = requirement.exception.as_deref().unwrap_or(place);
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
    fn accepts_tested_and_excepted_requirements() {
        assert_eq!(faults(&format!("{MET}{TESTED}"), ""), [""; 0]);
        assert_eq!(faults("", EXCEPTION), [""; 0]);
        assert_eq!(faults(MET, EXCEPTION), [""; 0]);
    }

    #[test]
    fn reports_missing_code_tests_and_requirements() {
        for (code, exceptions, fault) in [
            ("", "", "not cited by code"),
            (TESTED, "", "not cited by code"),
            (MET, "", "not cited by a test"),
            ("//= bep99#b\n", EXCEPTION, "no requirement bep99#b"),
            ("", "[[exception]]\nid = 'b'\nwhy = 'w'\n", "unknown requirement"),
        ] {
            let faults = faults(code, exceptions).join("\n");
            assert!(faults.contains(fault), "{code:?} {exceptions:?} gave {faults:?}");
        }
    }

    #[test]
    fn table_has_a_row_for_each_requirement_and_a_sum() {
        let tree = Tree::of(&[("spec/bep99.toml", SPEC), ("a.rs", MET)]);
        let table = Report::of(&tree).unwrap().to_string();
        assert!(table.starts_with("bep99#a "), "{table}");
        assert!(table.contains("a.rs:1"), "{table}");
        assert!(table.ends_with("1 requirements: 1 met, 0 tested, 0 excepted"), "{table}");
    }
}
