use super::*;

fn code(text: &str) -> String {
    Source::new(text).code
}

#[test]
fn separates_comments_and_literals_from_code() {
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
fn parts_keep_their_positions() {
    let source = Source::new("a\n// b\nc");
    assert_eq!(source.comments, " \n// b\n ");
    assert_eq!(Source::new("f(\"é\", 'x')").literals, "  \"é\"  'x' ");
}

#[test]
fn finds_whole_words_only() {
    assert_eq!(words("fn often fn_ fn", "fn"), [0, 13]);
    assert_eq!(words("old.unsafe_code unsafe{", "unsafe"), [16]);
    assert_eq!(words("eprintln!()", "println!"), [0; 0]);
}

#[test]
fn finds_inline_test_modules() {
    let source = Source::new("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
    let modules = source.test_modules();
    assert_eq!(modules.len(), 1);
    assert!(source.code[modules[0].clone()].ends_with("fn b() {}\n}"));
    assert!(!source.code_without_tests().contains("fn b"));
    assert!(source.code_without_tests().contains("fn c"));
    assert_eq!(Source::new("#[cfg(test)]\nmod tests;\nfn a() {}").test_modules(), []);
}
