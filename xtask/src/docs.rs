//! The invariant "documents name paths that exist". A reader opens the file that a document names, so a link or a path
//! that leads to no file is a fault.

use crate::Tree;
use crate::tree::read;
use std::path::{Component, Path, PathBuf};

/// Endings of names that are files of this tree, if the name has a folder too.
const ENDINGS: &[&str] = &[".md", ".py", ".rs", ".sh", ".toml", ".txt"];

/// Every path that a Markdown file names and the tree does not have.
///
/// Two forms count: the target of a link, relative to its file, with the heading after `#`; and a name in backticks,
/// relative to the root, if it begins with a folder of the root or has a folder and an ending of [`ENDINGS`].
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tree.files("", markdown) {
        let text = read(&file);
        let shown = tree.show(&file).to_string();
        for (line, part) in parts(&text) {
            let fault = match part {
                Part::Link(target) => link_fault(&file, target),
                Part::Code(name) => name_fault(tree, name),
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
            let pieces = line.split('`').skip(1).step_by(2);
            found.extend(pieces.map(|name| (at + 1, Part::Code(name))));
        }
    }
    found
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
    fn headings_are_as_links_name_them() {
        let text = "# One, two\n```\n# not one\n```\n### `fib.on-stop`: a_b – c\n#no\n";
        assert_eq!(headings(text).collect::<Vec<_>>(), ["one-two", "fibon-stop-a_b--c"]);
    }
}
