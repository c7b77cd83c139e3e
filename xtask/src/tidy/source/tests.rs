use super::*;

fn code(text: &str) -> String {
    Source::new(text).code
}

#[test]
fn comments_and_literals_are_no_code() {
    assert_eq!(code("a // b"), "a     ");
    assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
    assert_eq!(code(r#"f("x\"{", '{', '\'', b"}")"#).replace(' ', ""), "f(,,,b)");
    assert_eq!(code("r#\"{ \" }\"# x").trim(), "x");
    assert_eq!(code("br#\"{\"# x").replace(' ', ""), "bx");
    assert_eq!(code("\"unclosed { \\"), " ".repeat(13));
}

#[test]
fn lifetimes_and_raw_names_are_code() {
    assert_eq!(code("fn f<'a>(x: &'a str) -> char { 'a' }").matches("'a").count(), 2);
    assert_eq!(code("r#type + for_r"), "r#type + for_r");
    assert_eq!(code("'ä' x").trim(), "x");
}

#[test]
fn comments_keep_their_place() {
    let source = Source::new("a\n// b\nc");
    assert_eq!(source.comments, " \n// b\n ");
}

#[test]
fn words_are_whole() {
    assert_eq!(words("fn often fn_ fn", "fn"), [0, 13]);
    assert_eq!(words("old.unsafe_code unsafe{", "unsafe"), [16]);
    assert_eq!(words("eprintln!()", "println!"), [0; 0]);
}

#[test]
fn functions_are_measured() {
    let text = "fn one() {\n}\n\npub fn two<F: Fn(u8) -> u8>(&self, f: F, (a, b): (u8, u8),) -> [u8; 2] {\n    {\n    }\n}\n";
    let functions = Source::new(text);
    let functions = functions.functions();
    assert_eq!(functions[0], Function { name: "one", line: 1, lines: 2, parameters: 0 });
    assert_eq!(functions[1], Function { name: "two", line: 4, lines: 4, parameters: 2 });
}

#[test]
fn declarations_and_pointers_have_no_body() {
    let source = Source::new("trait T { fn a(self); fn b() -> [u8; 2]; } type P = fn(u8) -> u8;");
    assert_eq!(source.functions(), []);
}

#[test]
fn parameters_are_counted_without_self() {
    for (list, count) in [
        ("", 0),
        ("&self", 0),
        ("&'a mut self, x: u8", 1),
        ("self: Arc<Self>, x: u8", 1),
        ("a: HashMap<u8, u8>, b: impl Fn(u8, u8) -> u8, c: [u8; 2],", 3),
    ] {
        assert_eq!(parameters(list), count, "{list}");
    }
}

#[test]
fn inline_test_modules_are_found() {
    let source = Source::new("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
    let modules = source.test_modules();
    assert_eq!(modules.len(), 1);
    assert!(source.code[modules[0].clone()].ends_with("fn b() {}\n}"));
    assert!(!source.code_without_tests().contains("fn b"));
    assert!(source.code_without_tests().contains("fn c"));
    assert_eq!(Source::new("#[cfg(test)]\nmod tests;\nfn a() {}").test_modules(), []);
}
