//! Words that are never right in code, comments, tests and documents, because the field has a word for what they mean.
//! `xtask/ratchet.txt` has how often the tree still has each.

use crate::Tree;
use crate::ratchet::{Counted, compare};
use crate::tree::read;
use std::path::Path;

/// The words, or names of constants, and what to write instead. A word counts inside of a name, too.
pub const WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("who asks", "the caller, the client"),
    ("whoever asks", "the caller, the client"),
    ("somebody", "a peer, a client"),
    ("nobody", "no peer, no client, nothing"),
    ("everybody", "every peer, every stage"),
    ("anybody", "a peer, a client, any stage"),
    ("someone", "another program, a peer"),
    ("whoever", "the caller, any program"),
    ("what passed", "messages, requests"),
    ("who is not", "a router that is not, a client that is not"),
    ("who comes", "the next caller, the next daemon"),
    ("of who", "of the caller, of the peer"),
    ("to who", "to the caller, to the peer"),
    ("from here on", "nothing"),
    ("in vain", "without effect, without a move"),
    ("hollow", "unresolved, empty"),
    ("outlet", "sink"),
    ("inlet", "sink, output"),
    ("emigrating", "moved"),
    ("treatment", "FIB policy result"),
    ("starves", "the table is full, leaves no turn to"),
    ("relieve", "shrink_to_fit"),
    ("relieves", "shrinks"),
    ("relieved", "shrunk"),
    ("relieving", "shrinking"),
    ("retell", "resend"),
    ("unite", "coalesce"),
    ("unites", "coalesces"),
    ("united", "coalesced"),
    ("look ahead", "prefetch"),
    ("written behind", "write-behind"),
    ("taken ahead", "prefetched"),
    ("ledger", "completion tracker"),
    ("ticket", "token of a batch"),
    ("parked", "in the retry cache"),
    ("starved", "table full"),
    ("spell", "format, encode"),
    ("spells", "formats, encodes"),
    ("spelled", "formatted, encoded"),
    ("spelling", "format, raw key"),
    ("asker", "caller, requester"),
    ("verdict", "result, selection"),
    ("gives way", "low-priority, is replaced by"),
    ("give way", "yield, be replaced by"),
    ("lets go", "shrinks, releases"),
    ("comes to rest", "becomes idle"),
    ("come to rest", "become idle"),
    ("leads to", "resolves to, forwards to"),
    ("lead to", "resolve to, forward to"),
    ("leads nowhere", "is unresolved"),
    ("leads through", "resolves through"),
    ("wiring", "combination of transports"),
    ("wirings", "combinations of transports"),
    ("patience", "a noun and timeout"),
    ("both seams", "to orchagent and to syncd"),
    ("zmq north", "zmq-redis"),
    ("PATIENCE", "a noun and _TIMEOUT"),
    ("GLANCE", "a noun and _POLL_INTERVAL"),
    ("NAP", "a noun and _POLL_INTERVAL"),
    ("AT_ONCE", "a noun and _BATCH_MAX"),
    ("ENOUGH", "a noun and _THRESHOLD"),
    ("LOOK", "a noun and _POLL_INTERVAL"),
    ("LITTLE", "a noun and _MIN or _THRESHOLD"),
    ("TOLD", "a noun and _MAX"),
    ("AHEAD", "PREFETCH_BATCH"),
];

/// Every word that the tree has more or less often than is listed.
pub fn check(tree: &Tree) -> Vec<String> {
    compare(tree, "words", count(tree))
}

/// The words of the list in the tree's texts. The list itself, its tests and the glossary have them with reason.
pub(crate) fn count(tree: &Tree) -> Counted {
    let mut found = Vec::new();
    for file in tree.files("", text) {
        let shown = tree.show(&file).to_string();
        if shown.starts_with("xtask/") || shown == "docs/glossary.md" {
            continue;
        }
        for (line, word) in in_text(&read(&file)) {
            let instead = WORDS.iter().find(|(w, _)| *w == word).map_or("", |(_, instead)| instead);
            found.push((word.to_owned(), format!("{shown}:{line}: {word}; write: {instead}")));
        }
    }
    Ok(found)
}

/// Whether a file is code or prose of this project.
fn text(path: &Path) -> bool {
    match path.extension().and_then(|e| e.to_str()) {
        Some(extension) => {
            matches!(extension, "rs" | "md" | "py" | "toml" | "sh" | "js" | "html" | "css" | "yml" | "yaml")
        }
        None => {
            let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            path.ends_with("Makefile") || matches!(folder, Some("scripts" | ".ci"))
        }
    }
}

/// The listed words in a text, with their lines. Words of a phrase may stand on two lines, with a comment's marks
/// between them.
fn in_text(text: &str) -> Vec<(usize, &'static str)> {
    // A name is its parts, too: `relieve_all` has the word; a constant is one name.
    let names = text.lines().enumerate().flat_map(|(at, line)| {
        let names = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        names.map(move |name| (at + 1, name))
    });
    let mut found = Vec::new();
    let mut words: Vec<(usize, String)> = Vec::new();
    for (line, name) in names {
        found.extend(
            WORDS.iter().filter(|(word, _)| *word == name && is_constant(word)).map(|(w, _)| (line, *w)),
        );
        words.extend(name.split('_').filter(|part| !part.is_empty()).map(|part| (line, part.to_lowercase())));
    }
    for (word, _) in WORDS.iter().filter(|(word, _)| !is_constant(word)) {
        let parts: Vec<_> = word.split(' ').collect();
        let places =
            words.windows(parts.len()).filter(|window| window.iter().map(|(_, w)| w).eq(parts.iter()));
        found.extend(places.map(|window| (window[0].0, *word)));
    }
    found
}

fn is_constant(word: &str) -> bool {
    word.chars().all(|c| c.is_uppercase() || c == '_')
}

/// The words of Rust code with their lines, without what stands in comments and in strings.
pub(crate) fn code(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let (mut words, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if rest.starts_with('"') {
            string(rest)
        } else if rest.starts_with('\'') {
            // A character, or else a lifetime: then its name is a word, which does no harm.
            let mut chars = rest.char_indices().skip(1);
            match (chars.next(), chars.next()) {
                (Some((_, '\\')), Some((escaped, _))) => {
                    rest[escaped + 1..].find('\'').map_or(rest.len(), |end| escaped + 1 + end + 1)
                }
                (Some(_), Some((end, '\''))) => end + 1,
                _ => 1,
            }
        } else if is_word(bytes[at]) {
            let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
            let word = &rest[..end];
            match raw_string(word, &rest[end..]) {
                Some(length) => end + length,
                None => {
                    words.push((line, word));
                    end
                }
            }
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    words
}

/// The length of a block comment, in which others may lie.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a string with its quotes.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of what follows the `r`, `br` or `cr` of a raw string, or `None` if none follows.
fn raw_string(prefix: &str, text: &str) -> Option<usize> {
    if !matches!(prefix, "r" | "br" | "cr") {
        return None;
    }
    let hashes = text.bytes().take_while(|b| *b == b'#').count();
    let inside = text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inside.find(&end).map_or(text.len(), |found| hashes + 1 + found + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_skips_comments_and_strings() {
        let text = "a // async\n/* async /* async */ async */ b 'x' '\\'' \"async \\\" async\" r#\"async \" \"# c\n&'d e r\"f\" g";
        let words: Vec<_> = code(text).into_iter().filter(|(_, word)| *word != "d").collect();
        assert_eq!(words, [(1, "a"), (2, "b"), (2, "c"), (3, "e"), (3, "g")]);
    }

    #[test]
    fn code_has_the_keyword_with_its_line() {
        assert_eq!(code("fn f() {\n    async move {}\n}")[2], (2, "async"));
    }

    #[test]
    fn words_count_inside_of_names_and_across_lines() {
        let text = "/// Tells who\n/// asks.\nfn relieve_all() { Nap(NAP, MY_NAP) }\n";
        assert_eq!(in_text(text), [(3, "NAP"), (1, "who asks"), (3, "relieve")]);
    }
}
