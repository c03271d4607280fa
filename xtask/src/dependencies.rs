//! Licences and sources of all dependencies are those of `deny.toml`. cargo-deny, which also reads advisories, takes minutes
//! to build; `make deny` runs it.

use crate::Tree;
use crate::tree::read;

/// Every dependency of this platform with another licence, or from elsewhere than crates.io.
pub fn check(tree: &Tree) -> Vec<String> {
    let rules = read(&tree.root.join("deny.toml"));
    let Some(allowed) = list(&rules, "licenses", "allow") else {
        return vec!["deny.toml: [licenses] has no list `allow`".into()];
    };
    let arguments = ["--workspace", "--edges=normal,build,dev", "--prefix=none", "--format={p}|{l}"];
    let output = match tree.cargo().arg("tree").args(arguments).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            return vec![format!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim())];
        }
        Err(e) => return vec![format!("cargo tree cannot be run: {e}")],
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // A package that is there twice has `(*)` the second time.
    let mut lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    lines.sort_unstable();
    lines.dedup();
    let root = tree.root.display().to_string();
    let mut faults = Vec::new();
    for (package, licence) in lines.iter().filter_map(|line| line.split_once('|')) {
        // `name v1.0.0`, and in brackets where it is from, unless from crates.io.
        let from = package.split_once(" (").map(|(_, from)| from.trim_end_matches(')'));
        if let Some(from) = from.filter(|from| *from != "proc-macro" && !from.contains(&root)) {
            faults.push(format!("{package}: is from {from}, and deny.toml allows crates.io alone"));
        }
        if !permitted(licence, &allowed) {
            faults.push(format!(
                "{package}: has the licence \"{licence}\", which [licenses] of deny.toml does not allow"
            ));
        }
    }
    faults
}

/// The strings of a list in a table of a TOML file: `key = [` and one string a line.
fn list<'t>(toml: &'t str, table: &str, key: &str) -> Option<Vec<&'t str>> {
    let (_, table) = toml.split_once(&format!("\n[{table}]\n"))?;
    let table = table.split_once("\n[").map_or(table, |(table, _)| table);
    let (_, list) = table.split_once(&format!("{key} = ["))?;
    let (list, _) = list.split_once(']')?;
    Some(list.split(',').map(|item| item.trim().trim_matches('"')).filter(|item| !item.is_empty()).collect())
}

/// Whether an SPDX expression can be fulfilled with the allowed licences. `/` is crates.io's former `OR`.
fn permitted(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.trim();
    if let Some(parts) = split(expression, " OR ").or_else(|| split(expression, "/")) {
        return parts.into_iter().any(|part| permitted(part, allowed));
    }
    if let Some(parts) = split(expression, " AND ") {
        return parts.into_iter().all(|part| permitted(part, allowed));
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => permitted(inner, allowed),
        None => allowed.contains(&expression),
    }
}

/// The parts of an expression between operators outside of brackets; `None` where there is no operator.
fn split<'e>(expression: &'e str, operator: &str) -> Option<Vec<&'e str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0usize);
    for (at, c) in expression.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && at >= begin && expression[at..].starts_with(operator) => {
                parts.push(&expression[begin..at]);
                begin = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[begin..]);
    (parts.len() > 1).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_is_permitted_only_by_allowed_licences() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
        for expression in [
            "MIT",
            "GPL-3.0-only OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR GPL-2.0-only",
        ] {
            assert!(permitted(expression, &allowed), "{expression}");
        }
        for expression in
            ["GPL-3.0-only", "MIT AND GPL-3.0-only", "(GPL-3.0-only OR Apache-2.0) AND MIT", "", "MITX"]
        {
            assert!(!permitted(expression, &allowed), "{expression}");
        }
    }
}
