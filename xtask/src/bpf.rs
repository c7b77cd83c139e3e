//! Compiles the XDP programs, whose instructions are committed beside their sources.
//!
//! No user of the tracker needs a compiler for BPF. Whether the committed files belong together can be
//! checked with the one compiler that made them.

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use trials::command::{command, output, run};
use trials::workspace::{root, target};

/// A source, and both files made from it: NAME.c, NAME.bin and NAME.rs in a folder.
#[derive(Clone, Copy)]
struct Source {
    folder: &'static str,
    name: &'static str,
}

/// The tracker's program, and those of the benchmarks on a veth pair.
const SOURCES: [Source; 3] = [
    Source { folder: "edge/xdp/src", name: "program" },
    Source { folder: "tools/bench/src/xdp", name: "sender" },
    Source { folder: "tools/bench/src/xdp", name: "counter" },
];
/// Another version makes other instructions of the same source.
const COMPILER: &str = "clang-14";
const FLAGS: &[&str] = &[
    "-O2",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-g0",
    "-fno-stack-protector",
    "-nostdinc",
    "-Wall",
    "-Wextra",
    "-Werror",
];
/// The section that has the program.
const SECTION: &str = "program";
const ADDRESS_OF_MAP: RelocationFlags = RelocationFlags::Elf { r_type: object::elf::R_BPF_64_64 };

/// The content of the files made from a source.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// 8 bytes each, little-endian.
    instructions: Vec<u8>,
    /// Numbers of instructions that load the address of a map, with its name in the source.
    relocations: Vec<(usize, String)>,
}

/// Compiles the programs and writes their files.
pub(crate) fn compile() -> Result<()> {
    for source in SOURCES {
        let program = compiled(source)?;
        for (path, content) in files(source, &program)? {
            fs::write(root().join(path), content)?;
        }
        println!("{}: {} instructions", source.name, program.instructions.len() / 8);
    }
    Ok(())
}

/// Compiles the programs and compares their files. Skipped where the compiler is not installed.
pub(crate) fn check() -> Result<()> {
    if output(command(&[COMPILER, "--version"])).is_err() {
        println!("skipped: no {COMPILER} here, so nothing shows that program.bin is program.c");
        return Ok(());
    }
    for source in SOURCES {
        for (path, content) in files(source, &compiled(source)?)? {
            let committed = fs::read(root().join(&path)).with_context(|| path.clone())?;
            ensure!(
                committed == content,
                "{path} is not what its source compiles to: cargo xtask bpf"
            );
        }
    }
    Ok(())
}

fn compiled(Source { folder, name }: Source) -> Result<Program> {
    let object = target().join(format!("{name}.o"));
    fs::create_dir_all(target())?;
    let (source, object_name) = (format!("{folder}/{name}.c"), object.display().to_string());
    let words = [&[COMPILER], FLAGS, &["-c", &source, "-o", &object_name]].concat();
    run(command(&words)).with_context(|| format!("{COMPILER} is a Debian package"))?;
    extract(&fs::read(object)?).context("an object file of an unknown form")
}

/// Returns the paths and contents of both files.
fn files(Source { folder, name }: Source, program: &Program) -> Result<[(String, Vec<u8>); 2]> {
    let mut text = format!(
        "//! Indexes of the instructions of `{name}.bin` that load the address of a map. Made by `cargo xtask bpf`.\n\n\
         use super::maps::MapName::{{self, ",
    );
    let mut indexes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, map) in &program.relocations {
        indexes.entry(variant(map)).or_default().push(index.to_string());
    }
    text += &indexes.keys().cloned().collect::<Vec<_>>().join(", ");
    text += "};\n\n#[rustfmt::skip]\npub(super) const RELOCATIONS: &[(MapName, &[usize])] = &[\n";
    for (map, indexes) in indexes {
        writeln!(text, "    ({map}, &[")?;
        for line in indexes.chunks(16) {
            writeln!(text, "        {},", line.join(", "))?;
        }
        text += "    ]),\n";
    }
    text += "];\n";
    let path = |ending| format!("{folder}/{name}.{ending}");
    Ok([(path("bin"), program.instructions.clone()), (path("rs"), text.into_bytes())])
}

/// Returns the name of a map in Rust.
fn variant(map: &str) -> String {
    let (first, rest) = map.split_at(1);
    first.to_uppercase() + rest
}

/// Reads the program and its relocations from an object file.
fn extract(bytes: &[u8]) -> Result<Program> {
    let object = object::File::parse(bytes)?;
    let program = object.section_by_name(SECTION).context("no section with the program")?;
    let mut relocations = Vec::new();
    for (offset, relocation) in program.relocations() {
        let is_address = relocation.flags() == ADDRESS_OF_MAP;
        ensure!(is_address, "expected the address of a map, found {relocation:?}");
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            bail!("expected a relocation to a symbol, found {relocation:?}");
        };
        let map = object.symbol_by_index(symbol)?.name()?.to_owned();
        relocations.push((usize::try_from(offset)? / 8, map));
    }
    Ok(Program { instructions: program.data()?.to_vec(), relocations })
}
