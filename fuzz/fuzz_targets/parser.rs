//! Searches with libFuzzer for inputs that break one parser: the one that the variable `TIDEGATE_FUZZ` names.
#![no_main]

use std::sync::LazyLock;

static CHECK: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TIDEGATE_FUZZ").expect("TIDEGATE_FUZZ names the parser");
    tidegate_fuzz::parser(&name).unwrap_or_else(|| panic!("no parser {name}")).check
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHECK(bytes));
