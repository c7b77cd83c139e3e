//! An object file with an XDP program that passes every frame, as `ip link set IF xdpdrv obj FILE` takes it.
//! Two instructions do not need a compiler.

/// `r0 = XDP_PASS` and `exit`.
const CODE: [u8; 16] = [0xb7, 0, 0, 0, 2, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
const LICENSE: &[u8] = b"GPL\0";
/// Names of sections and of the program, by their positions.
const NAMES: &[u8] = b"\0names\0symbols\0xdp\0license\0pass\0";

const HEADER_BYTES: u64 = 64;
/// Little-endian machines only, as all that this runs on.
const IDENT: [u8; 16] = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RELOCATABLE: u16 = 1;
const BPF: u16 = 247;
const SECTIONS: u16 = 5;
/// The section of names, and that of the program.
const NAMES_SECTION: u16 = 1;
const CODE_SECTION: u16 = 2;

/// Types and flags of sections.
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;
const EXECUTE: u64 = 4;

/// Returns the file.
pub(super) fn object() -> Vec<u8> {
    // The first symbol is empty; the second is a global function of the program's section.
    let mut symbols = vec![0; 24];
    symbols.extend(name("pass").to_le_bytes());
    symbols.extend([0x12, 0]);
    symbols.extend(CODE_SECTION.to_le_bytes());
    symbols.extend([0, CODE.len() as u64].map(u64::to_le_bytes).as_flattened());

    let contents = [&CODE, LICENSE, &[0; 4], &symbols, NAMES];
    let mut at = HEADER_BYTES;
    let positions = contents.map(|content| {
        at += content.len() as u64;
        at - content.len() as u64
    });
    let [code, license, _, symbols_at, names] = positions;

    let mut file = IDENT.to_vec();
    file.extend([RELOCATABLE, BPF].map(u16::to_le_bytes).as_flattened());
    file.extend(1_u32.to_le_bytes());
    file.extend([0, 0, at].map(u64::to_le_bytes).as_flattened());
    file.extend(0_u32.to_le_bytes());
    file.extend([64, 0, 0, 64, SECTIONS, NAMES_SECTION].map(u16::to_le_bytes).as_flattened());
    contents.iter().for_each(|content| file.extend(*content));

    // The first section is empty. Those that follow: position and length, links, alignment and entry size.
    file.extend([0; 64]);
    let len = |content: &[u8]| content.len() as u64;
    for (words, flags, place, links, sizes) in [
        ([name("names"), STRTAB], 0, [names, len(NAMES)], [0, 0], [1, 0]),
        ([name("xdp"), PROGBITS], ALLOC | EXECUTE, [code, len(&CODE)], [0, 0], [8, 0]),
        ([name("license"), PROGBITS], ALLOC | WRITE, [license, len(LICENSE)], [0, 0], [1, 0]),
        // Linked are the section of its names and its first global symbol.
        ([name("symbols"), SYMTAB], 0, [symbols_at, len(&symbols)], [1, 1], [8, 24]),
    ] {
        file.extend(words.map(u32::to_le_bytes).as_flattened());
        file.extend([flags, 0].map(u64::to_le_bytes).as_flattened());
        file.extend(place.map(u64::to_le_bytes).as_flattened());
        file.extend(links.map(u32::to_le_bytes).as_flattened());
        file.extend(sizes.map(u64::to_le_bytes).as_flattened());
    }
    file
}

/// The position of a name.
fn name(name: &str) -> u32 {
    let is_here = |at: &usize| NAMES[*at..].starts_with(name.as_bytes());
    (0..NAMES.len()).find(is_here).expect("all names are in the list") as u32
}
