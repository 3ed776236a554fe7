//! Just enough of Rust's grammar to look at code without its comments, strings and tests. Knows no wall.

/// A source file, taken apart.
pub struct Source {
    /// The code of each line; comments and the insides of strings are blanks.
    pub code: Vec<String>,
    /// The comment text of each line, `//` included.
    pub comment: Vec<String>,
    /// Whether the line lies within `#[cfg(test)] mod ... { }`, or the file says `#![cfg(test)]` of itself.
    pub test: Vec<bool>,
}

/// A path as it stands in the code, `use` trees spelled out: `use a::{b, c::d};` is `a::b` and `a::c::d`.
#[derive(Debug, PartialEq, Eq)]
pub struct PathUse {
    /// Counted from 0.
    pub line: usize,
    pub parts: Vec<String>,
}

/// A function with a body, outside tests.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Counted from 0.
    pub line: usize,
    pub name: String,
    /// From `fn` to the closing brace.
    pub lines: usize,
    /// `self` counts.
    pub parameters: usize,
}

/// A type that the file defines outside tests: a struct, enum, union or trait, or an alias that is not a trait's.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// Counted from 0.
    pub line: usize,
    pub name: String,
}

impl Source {
    pub fn new(text: &str) -> Source {
        let (code, comment) = split(text);
        let test = test_lines(&code);
        Source { code, comment, test }
    }

    /// Modules that are declared for tests only and lie in files of their own.
    pub fn test_modules(&self) -> Vec<String> {
        let lines = self.code.iter().zip(&self.test).filter(|(_, test)| **test);
        let tokens: Vec<String> = lines.flat_map(|(code, _)| tokens(code)).collect();
        let declared = tokens.windows(3).filter(|w| w[0] == "mod" && w[2] == ";");
        declared.map(|w| w[1].clone()).collect()
    }

    /// Line numbers (from 0) and code of everything outside tests.
    pub fn live(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.iter().zip(&self.test).enumerate();
        lines.filter(|(_, (_, test))| !**test).map(|(n, (code, _))| (n, code.as_str()))
    }

    /// Every token outside tests, with its line.
    fn tokens(&self) -> Vec<(usize, String)> {
        self.live().flat_map(|(n, code)| tokens(code).into_iter().map(move |t| (n, t))).collect()
    }

    /// Every function with a body outside tests; what stands in a function's body is a function of its own as well.
    pub fn functions(&self) -> Vec<Function> {
        let tokens = self.tokens();
        let is = |at: usize, word: &str| tokens.get(at).is_some_and(|t| t.1 == word);
        let mut found = Vec::new();
        for (at, (line, word)) in tokens.iter().enumerate() {
            let Some((_, name)) = tokens.get(at + 1).filter(|t| word == "fn" && is_word(&t.1)) else {
                continue;
            };
            let mut head = at + 2;
            if is(head, "<") {
                head = closing(&tokens, head).0 + 1;
            }
            let (end, parameters) = closing(&tokens, head);
            // What comes back may have brackets of its own: `[u8; 4]` does not end a declaration.
            let mut body = end + 1;
            while body < tokens.len() && !is(body, "{") && !is(body, ";") {
                body = if is(body, "[") || is(body, "(") { closing(&tokens, body).0 } else { body } + 1;
            }
            if is(body, "{") {
                let last = tokens.get(closing(&tokens, body).0).map_or(*line, |t| t.0);
                found.push(Function { line: *line, name: name.clone(), lines: last - line + 1, parameters });
            }
        }
        found
    }

    /// Every type that is defined outside tests.
    pub fn types(&self) -> Vec<Type> {
        let tokens = self.tokens();
        let mut depth = 0_usize;
        let mut found = Vec::new();
        for (at, (_, word)) in tokens.iter().enumerate() {
            let defines = match word.as_str() {
                "{" => {
                    depth += 1;
                    false
                }
                "}" => {
                    depth = depth.saturating_sub(1);
                    false
                }
                "struct" | "enum" | "union" | "trait" => true,
                // A deeper one belongs to a trait.
                "type" => depth == 0,
                _ => false,
            };
            if let Some((line, name)) = tokens.get(at + 1).filter(|t| defines && is_word(&t.1)) {
                found.push(Type { line: *line, name: name.clone() });
            }
        }
        found
    }

    /// Every path with at least two parts outside tests.
    pub fn paths(&self) -> Vec<PathUse> {
        let tokens = self.tokens();
        let mut found = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let (line, word) = &tokens[at];
            // `use<'a>` in a type says what the type borrows.
            if word == "use" && tokens.get(at + 1).is_none_or(|t| t.1 != "<") {
                at = use_tree(&tokens, at + 1, &[], &mut found);
            } else if is_word(word) {
                let mut parts = vec![word.clone()];
                while tokens.get(at + 1).is_some_and(|t| t.1 == "::")
                    && tokens.get(at + 2).is_some_and(|t| is_word(&t.1))
                {
                    parts.push(tokens[at + 2].1.clone());
                    at += 2;
                }
                if parts.len() > 1 {
                    found.push(PathUse { line: *line, parts });
                }
                at += 1;
            } else {
                at += 1;
            }
        }
        found
    }
}

/// Whether `word` stands in `code` as a whole identifier.
pub fn has_word(code: &str, word: &str) -> bool {
    // Taking apart is what costs, and most lines do not have the word.
    code.contains(word) && tokens(code).iter().any(|t| t == word)
}

/// Whether `code` calls a macro of that name.
pub fn has_macro(code: &str, name: &str) -> bool {
    if !code.contains(name) {
        return false;
    }
    let tokens = tokens(code);
    tokens.windows(2).any(|w| w[0] == name && w[1] == "!")
}

/// Whether `code` calls a method of that name.
pub fn has_method(code: &str, name: &str) -> bool {
    if !code.contains(name) {
        return false;
    }
    let tokens = tokens(code);
    tokens.windows(3).any(|w| (w[0] == "." || w[0] == "::") && w[1] == name && w[2] == "(")
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Identifiers, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            let mut word = String::from(c);
            while let Some(&next) = chars.peek() {
                if !(next.is_alphanumeric() || next == '_') {
                    break;
                }
                word.push(next);
                chars.next();
            }
            out.push(word);
        } else if c == ':' && chars.peek() == Some(&':') {
            chars.next();
            out.push("::".to_owned());
        } else if !c.is_whitespace() {
            out.push(c.to_string());
        }
    }
    out
}

/// Where the bracket at `open` is closed, and how many things stand in it between commas. Of angle brackets the arrow's
/// head (`->`) is none.
fn closing(tokens: &[(usize, String)], open: usize) -> (usize, usize) {
    let mut inside: Vec<&str> = Vec::new();
    let (mut things, mut fresh) = (0, true);
    // In code, unlike in a function's head, `<` may be a comparison.
    let angles = tokens.get(open).is_some_and(|t| t.1 != "{");
    for (at, (_, token)) in tokens.iter().enumerate().skip(open) {
        let arrow = at > 0 && matches!(tokens[at - 1].1.as_str(), "-" | "=");
        match token.as_str() {
            "(" | "[" | "{" => inside.push(token),
            "<" if angles => inside.push(token),
            ")" | "]" | "}" => {
                // What was taken for an opening angle and was none.
                while inside.pop().is_some_and(|top| top == "<") {}
            }
            ">" if angles && !arrow && inside.last() == Some(&"<") => drop(inside.pop()),
            "," if inside.len() == 1 => fresh = true,
            _ if fresh => {
                things += 1;
                fresh = false;
            }
            _ => {}
        }
        if inside.is_empty() {
            return (at, things);
        }
    }
    (tokens.len(), things)
}

/// Reads one tree after `use` (or inside braces) and returns where it ended.
fn use_tree(tokens: &[(usize, String)], mut at: usize, prefix: &[String], found: &mut Vec<PathUse>) -> usize {
    let mut parts = prefix.to_vec();
    let mut renamed = false;
    let mut line = tokens.get(at).map_or(0, |t| t.0);
    while let Some((n, token)) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                // A `;` cannot stand in an import: what looked like one was none, and is left here.
                while tokens.get(at).is_some_and(|t| t.1 != "}" && t.1 != ";") {
                    at = use_tree(tokens, at, &parts, found);
                    if tokens.get(at).is_some_and(|t| t.1 == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => renamed = true,
            word if is_word(word) && !renamed => {
                line = *n;
                parts.push(word.to_owned());
            }
            _ => {}
        }
        at += 1;
    }
    if parts.len() > prefix.len() {
        found.push(PathUse { line, parts });
    }
    at
}

/// Code and comments, line by line.
fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comment) = (vec![String::new()], vec![String::new()]);
    let mut at = 0;
    // One character into code or comment, newlines into both.
    let put = |code: &mut Vec<String>, comment: &mut Vec<String>, c: char, is_code: bool| {
        if c == '\n' {
            code.push(String::new());
            comment.push(String::new());
        } else {
            let to = if is_code { code } else { comment };
            if let Some(last) = to.last_mut() {
                last.push(c);
            }
        }
    };
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied();
        if c == '/' && next == Some('/') {
            while at < chars.len() && chars[at] != '\n' {
                put(&mut code, &mut comment, chars[at], false);
                at += 1;
            }
        } else if c == '/' && next == Some('*') {
            let mut depth = 0;
            while at < chars.len() {
                let pair = (chars[at], chars.get(at + 1).copied());
                let step = if pair == ('/', Some('*')) {
                    depth += 1;
                    2
                } else if pair == ('*', Some('/')) {
                    depth -= 1;
                    2
                } else {
                    1
                };
                for &c in &chars[at..at + step] {
                    put(&mut code, &mut comment, c, false);
                }
                at += step;
                if depth == 0 {
                    break;
                }
            }
        } else if let Some(hashes) = raw_string(&chars, at) {
            let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            while chars[at] != '"' {
                at += 1;
            }
            put(&mut code, &mut comment, '"', true);
            at += 1;
            while at < chars.len() && !chars[at..].starts_with(&close) {
                if chars[at] == '\n' {
                    put(&mut code, &mut comment, '\n', true);
                }
                at += 1;
            }
            put(&mut code, &mut comment, '"', true);
            at += close.len();
        } else if c == '"' {
            put(&mut code, &mut comment, '"', true);
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                if chars[at] == '\\' {
                    at += 1;
                }
                if chars.get(at) == Some(&'\n') {
                    put(&mut code, &mut comment, '\n', true);
                }
                at += 1;
            }
            put(&mut code, &mut comment, '"', true);
            at += 1;
        } else if c == '\'' && (next == Some('\\') || chars.get(at + 2) == Some(&'\'')) {
            // A character; a lifetime has no quote two places on.
            at += if next == Some('\\') { 3 } else { 2 };
            while at < chars.len() && chars[at] != '\'' {
                at += 1;
            }
            put(&mut code, &mut comment, ' ', true);
            at += 1;
        } else {
            put(&mut code, &mut comment, c, true);
            at += 1;
        }
    }
    (code, comment)
}

/// The number of hashes when a raw string begins here.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|i| chars[i]);
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let mut rest = chars[at..].iter().peekable();
    rest.next_if(|c| matches!(c, 'b' | 'c'));
    rest.next_if_eq(&&'r')?;
    let mut hashes = 0;
    while rest.next_if_eq(&&'#').is_some() {
        hashes += 1;
    }
    (rest.next() == Some(&'"')).then_some(hashes)
}

/// Marks the lines of `#[cfg(test)]` items by matching braces.
fn test_lines(code: &[String]) -> Vec<bool> {
    let of_itself = |line: &String| line.split_whitespace().collect::<String>() == "#![cfg(test)]";
    if code.iter().any(of_itself) {
        return vec![true; code.len()];
    }
    let mut test = vec![false; code.len()];
    let mut at = 0;
    while at < code.len() {
        let dense: String = code[at].split_whitespace().collect();
        if !(dense.contains("#[cfg(test)]") || dense.contains("#[cfg(all(test,")) {
            at += 1;
            continue;
        }
        let mut depth = 0_i32;
        let mut ended = false;
        while at < code.len() && !ended {
            test[at] = true;
            for c in code[at].chars() {
                match c {
                    '{' => depth += 1,
                    '}' => {
                        depth -= 1;
                        ended |= depth == 0;
                    }
                    ';' if depth == 0 => ended = true,
                    _ => {}
                }
            }
            at += 1;
        }
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        Source::new(text).paths().into_iter().map(|p| p.parts.join("::")).collect()
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "let a = \"unsafe { }\"; // unsafe\n/* unsafe\n unsafe */ let b = r#\"unsafe \"quoted\"\"#; 'x'\n";
        let source = Source::new(text);
        assert!(source.code.iter().all(|l| !has_word(l, "unsafe")), "{:?}", source.code);
        assert_eq!(source.code.len(), source.comment.len());
        assert!(source.comment[0].contains("// unsafe"));
    }

    #[test]
    fn a_quote_character_or_a_lifetime_does_not_open_a_string() {
        let source = Source::new("let q = '\"'; fn f<'a>(x: &'a str) {}\nlet e = '\\''; unsafe {}\n");
        assert!(has_word(&source.code[0], "str"));
        assert!(has_word(&source.code[1], "unsafe"));
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_line_numbers() {
        let source = Source::new("let a = \"one\ntwo \\\" still\";\nunsafe {}\n");
        assert!(has_word(&source.code[2], "unsafe"));
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let got = parts("use crate::{receiver::{plan, land as l}, sender};\nfn f() { std::env::args(); }\n");
        assert_eq!(
            got,
            ["crate::receiver::plan", "crate::receiver::land", "crate::sender", "std::env::args"]
        );
        let got = parts("fn f() -> impl Fn() + use<> { a::b(); c(d); }\nuse { a; }\nuse std::fs;\n");
        assert_eq!(got, ["a::b", "a", "std::fs"]);
    }

    #[test]
    fn functions_have_their_length_and_their_parameters() {
        let text = "fn one() {}\ntrait T {\n  fn none(&self);\n}\nimpl A {\n  fn two<F: Fn(u8) -> u8>(&self, map: &Map<K, V>,) \
            -> [u8; 4]\n  where F: Send {\n    if a < b { c } else { d }\n    fn inner((a, b): (u8, u8), f: fn(u8, u8)) {}\n  }\n}\n\
            #[cfg(test)]\nmod tests { fn test() {} }\n";
        let found = Source::new(text).functions();
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines, f.parameters)).collect();
        assert_eq!(found, [("one", 0, 1, 0), ("two", 5, 5, 2), ("inner", 8, 1, 2)]);
    }

    #[test]
    fn types_are_told_from_what_belongs_to_a_trait() {
        let text = "pub struct A<T>(T);\nenum B {}\ntrait C { type Item; }\nimpl C for A { type Item = u8; }\ntype D = u8;\n\
            fn f() { struct E; }\n#[cfg(test)]\nmod tests { struct F; }\n";
        let names: Vec<String> = Source::new(text).types().into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["A", "B", "C", "D", "E"]);
    }

    #[test]
    fn test_modules_are_not_live() {
        let source =
            Source::new("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { println!(); }\n}\nfn c() {}\n");
        assert_eq!(source.test, [false, true, true, true, true, false, false]);
        let source = Source::new("mod a;\n#[cfg(test)]\npub(crate) mod model;\nmod b;\n");
        assert_eq!(source.test_modules(), ["model"]);
        let source = Source::new("//! Head.\n#![cfg(test)]\nuse std::fs::write;\n");
        assert_eq!(source.live().count(), 0);
        let source = Source::new("//! #![cfg(test)]\nuse std::fs::write;\n");
        assert!(source.live().count() > 0);
    }

    #[test]
    fn calls_are_told_from_names() {
        assert!(has_method("dir.rename(a, b)", "rename"));
        assert!(has_method("Dir::rename(d, a)", "rename"));
        assert!(!has_method("let rename = 1;", "rename"));
        assert!(has_macro("println!(\"\")", "println") && !has_macro("println", "println"));
    }
}
