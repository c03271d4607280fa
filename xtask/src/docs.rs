//! The invariant "documents name paths that exist". A reader opens the file that a document names, so a link or a path
//! that leads to no file is a fault.

use crate::Tree;
use crate::tree::read;
use std::path::{Component, Path, PathBuf};

/// Endings of names that are files of this tree, if the name has a folder too.
const ENDINGS: &[&str] = &[".md", ".py", ".rs", ".sh", ".toml", ".txt"];

/// Every path that a Markdown file names and the tree does not have.
///
/// Three forms count: the target of a link, relative to its file, with the heading after `#`; a name in backticks,
/// relative to the root, if it begins with a folder of the root or has a folder and an ending of [`ENDINGS`]; and names
/// in backticks and parentheses after the path of a file, which must have them.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tree.files("", markdown) {
        let text = read(&file);
        let shown = tree.show(&file).to_string();
        for (line, part) in parts(&text) {
            let fault = match part {
                Part::Link(target) => link_fault(&file, target),
                Part::Code(name) => name_fault(tree, name),
                Part::Item(path, name) => item_fault(tree, path, name),
            };
            faults.extend(fault.map(|fault| format!("{shown}:{line}: {fault}")));
        }
    }
    faults
}

fn markdown(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "md")
}

/// A part of a text that may name a path.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// The target of a link.
    Link(&'a str),
    /// What stands between two backticks.
    Code(&'a str),
    /// What stands so in parentheses after another, as in `path` (`name`, `name`).
    Item(&'a str, &'a str),
}

/// The links and the names in backticks of a Markdown text, with their lines. Fenced code has none.
fn parts(text: &str) -> Vec<(usize, Part<'_>)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| (at + 1, Part::Link(target))));
            let mut of = None;
            let pieces: Vec<&str> = line.split('`').collect();
            // A piece of text, and one between backticks.
            for pair in pieces.chunks_exact(2) {
                let part = match (of, pair[0]) {
                    (Some((path, _)), " (") | (Some((path, true)), ", ") => Part::Item(path, pair[1]),
                    _ => Part::Code(pair[1]),
                };
                of = Some(match part {
                    Part::Item(path, _) => (path, true),
                    _ => (pair[1], false),
                });
                found.push((at + 1, part));
            }
        }
    }
    found
}

/// The targets of a text's links, without headings.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    parts(text).into_iter().filter_map(|(_, part)| match part {
        Part::Link(target) => Some(target.split_once('#').map_or(target, |(path, _)| path)),
        _ => None,
    })
}

/// What is wrong with the target of a link in `file`.
fn link_fault(file: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let to = if path.is_empty() { file.to_path_buf() } else { normal(&file.parent()?.join(path)) };
    if !to.exists() {
        return Some(format!("the link to {target} leads to no file"));
    }
    let heading = heading.filter(|_| markdown(&to))?;
    let text = read(&to);
    let has = headings(&text).any(|found| found == heading);
    (!has).then(|| format!("the link to {target} leads to no heading"))
}

/// What is wrong with a name in backticks, if it is a path.
fn name_fault(tree: &Tree, name: &str) -> Option<String> {
    let path = name.split_whitespace().next().filter(|path| *path == name)?;
    let (folder, _) = path.split_once('/')?;
    let ours = !folder.is_empty() && !folder.starts_with('.') && tree.root.join(folder).is_dir();
    let named = !folder.is_empty()
        && !path.contains([':', '$', '*', '<'])
        && ENDINGS.iter().any(|e| path.ends_with(e));
    ((ours || named) && !tree.root.join(path).exists()).then(|| format!("there is no {path}"))
}

/// What is wrong with a name of an item of a file, if the path is one of a file.
fn item_fault(tree: &Tree, path: &str, name: &str) -> Option<String> {
    let file = Some(tree.root.join(path)).filter(|file| path.contains('/') && file.is_file())?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let last = name.rsplit("::").next().unwrap_or(name);
    let has = read(&file).split(|c| !is_name(c)).any(|word| word == last);
    (name.chars().all(|c| is_name(c) || c == ':') && !has).then(|| format!("{path} has no {name}"))
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// The headings of a Markdown text as links name them: lower case, without punctuation, with `-` for a space.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        let title =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#') && !fenced)?;
        let kept = title.trim().to_lowercase();
        Some(
            kept.chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_skips_fenced_code() {
        let text = "`a` [b](c.md#d)\n```\n`e` [f](g)\n```\n`h`\n";
        let expected = [(1, Part::Link("c.md#d")), (1, Part::Code("a")), (5, Part::Code("h"))];
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn parts_has_the_items_of_a_path() {
        let text = "`a` (`b`, `c`); `d`, `e` (f), `g`";
        let expected = [
            Part::Code("a"),
            Part::Item("a", "b"),
            Part::Item("a", "c"),
            Part::Code("d"),
            Part::Code("e"),
            Part::Code("g"),
        ];
        assert_eq!(parts(text).into_iter().map(|(_, part)| part).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn headings_are_as_links_name_them() {
        let text = "# One, two\n```\n# not one\n```\n### `fib.on-stop`: a_b – c\n#no\n";
        assert_eq!(headings(text).collect::<Vec<_>>(), ["one-two", "fibon-stop-a_b--c"]);
    }
}
