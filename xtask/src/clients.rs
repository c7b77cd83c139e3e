use crate::command::Tally;
use anyhow::Result;
pub(crate) fn run(_: &[&str]) -> Result<Tally> {
    Ok(Tally::ONE)
}
pub(crate) fn run_case(_: &str, _: &std::path::Path) -> Result<()> {
    Ok(())
}
