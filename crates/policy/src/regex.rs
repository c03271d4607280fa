//! Regular expressions over AS numbers.
//!
//! An AS number is one symbol and not a row of digits: `174` never matches AS 1174. An expression
//! compiles to instructions, and all paths through them advance together (Thompson's simulation).
//! So no expression takes more time than its length times the length of the path.

use crate::as_path::Hop;
use crate::numbers::{NumberSet, Numbers};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A regular expression over AS numbers. It may match anywhere in the path unless it begins with `^` or ends in `$`.
///
/// | | |
/// | --- | --- |
/// | `65001` | that AS |
/// | `.` | any one AS |
/// | `[174 64512-65534]` | one of these; `[^ …]`: any but these |
/// | `a b`, `a_b` | one after the other: spaces and `_` only separate, so that `_174_` is what it is elsewhere |
/// | `a|b`, `( … )` | one or the other; a group |
/// | `*`, `+`, `?`, `{2}`, `{2,}`, `{2,5}` | how often what stands before it may come |
/// | `^`, `$` | begin, where the neighbour is; end, where the originator is |
///
/// An AS_SET is one place that matches as any of its members does.
#[derive(Clone, Debug)]
pub struct Regex {
    text: String,
    program: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Continues after an AS that is in the set, or not in it.
    One { of: NumberSet, unlike: bool },
    /// Continues at both places.
    Fork(usize, usize),
    /// Continues there.
    Jump(usize),
    /// Continues at the beginning of the path only.
    Begin,
    /// Continues at its end only.
    End,
    /// Matches.
    Done,
}

impl Regex {
    /// Steps of an expression, at most.
    const MAX_STEPS: usize = 10_000;
    /// Nested groups, at most.
    const MAX_DEPTH: usize = 50;

    /// Whether it matches a path of these places.
    pub(crate) fn matches(&self, hops: &[Hop<'_>]) -> bool {
        let mut now = ThreadList::new(self.program.len());
        let mut next = ThreadList::new(self.program.len());
        for at in 0..=hops.len() {
            // A match may begin at every place.
            if now.follow(&self.program, 0, at == 0, at == hops.len()) {
                return true;
            }
            let Some(hop) = hops.get(at) else { break };
            next.clear();
            for step in &now.list {
                if let Step::One { of, unlike } = &self.program[*step]
                    && hop.is(|asn| of.has(asn) != *unlike)
                    && next.follow(&self.program, step + 1, false, at + 1 == hops.len())
                {
                    return true;
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        false
    }
}

impl Hop<'_> {
    fn is(&self, what: impl Fn(u32) -> bool) -> bool {
        match self {
            Hop::One(asn) => what(*asn),
            Hop::Set(segment) => segment.asns().any(what),
        }
    }
}

/// The steps that the next AS may match, each once.
struct ThreadList {
    list: Vec<usize>,
    seen: Vec<bool>,
    /// Scratch.
    open: Vec<usize>,
}

impl ThreadList {
    fn new(steps: usize) -> ThreadList {
        ThreadList { list: Vec::new(), seen: vec![false; steps], open: Vec::new() }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.seen.fill(false);
    }

    /// Adds the steps that `step` reaches without an AS; returns whether they include the end of
    /// the expression.
    fn follow(&mut self, program: &[Step], step: usize, begin: bool, end: bool) -> bool {
        self.open.push(step);
        while let Some(step) = self.open.pop() {
            if std::mem::replace(&mut self.seen[step], true) {
                continue;
            }
            match &program[step] {
                Step::One { .. } => self.list.push(step),
                Step::Fork(a, b) => self.open.extend([*b, *a]),
                Step::Jump(to) => self.open.push(*to),
                Step::Begin if begin => self.open.push(step + 1),
                Step::End if end => self.open.push(step + 1),
                Step::Begin | Step::End => {}
                Step::Done => {
                    self.open.clear();
                    return true;
                }
            }
        }
        false
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Regex {}

impl Hash for Regex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Regex {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let whole = parser.choice().and_then(|node| match parser.peek() {
            None => Ok(node),
            Some(_) => Err("there is no ( for this )".into()),
        });
        let in_text = |message: String, at: usize| {
            format!(
                "\"{text}\" is no AS path expression: {message} (after {} characters)",
                text[..at].chars().count()
            )
        };
        let node = whole.map_err(|message| in_text(message, parser.at))?;
        let mut program = Vec::new();
        let fits = node.compile(&mut program);
        program.push(Step::Done);
        if !fits {
            return Err(in_text(
                format!("it has more than {} steps; repeat less", Regex::MAX_STEPS),
                text.len(),
            ));
        }
        Ok(Regex { text: text.into(), program })
    }
}

/// An expression as it is written.
enum Node {
    One { of: NumberSet, unlike: bool },
    Begin,
    End,
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat { what: Box<Node>, least: u32, most: Option<u32> },
}

impl Node {
    /// Appends its steps; false when there are too many.
    fn compile(&self, out: &mut Vec<Step>) -> bool {
        if out.len() > Regex::MAX_STEPS {
            return false;
        }
        match self {
            Node::One { of, unlike } => out.push(Step::One { of: of.clone(), unlike: *unlike }),
            Node::Begin => out.push(Step::Begin),
            Node::End => out.push(Step::End),
            // An empty sequence takes a step too, so repetition of it is bounded.
            Node::Sequence(parts) if parts.is_empty() => out.push(Step::Jump(out.len() + 1)),
            Node::Sequence(parts) => return parts.iter().all(|part| part.compile(out)),
            Node::Choice(alternatives) => {
                let mut jumps = Vec::new();
                for (i, alternative) in alternatives.iter().enumerate() {
                    let last = i + 1 == alternatives.len();
                    let fork = out.len();
                    if !last {
                        out.push(Step::Fork(fork + 1, 0));
                    }
                    if !alternative.compile(out) {
                        return false;
                    }
                    if !last {
                        jumps.push(out.len());
                        out.push(Step::Jump(0));
                        out[fork] = Step::Fork(fork + 1, out.len());
                    }
                }
                let end = out.len();
                jumps.into_iter().for_each(|jump| out[jump] = Step::Jump(end));
            }
            Node::Repeat { what, least, most } => {
                if !(0..*least).all(|_| what.compile(out)) {
                    return false;
                }
                match most {
                    // A loop: Fork(body, exit), body, Jump(back).
                    None => {
                        let fork = out.len();
                        out.push(Step::Fork(fork + 1, 0));
                        if !what.compile(out) {
                            return false;
                        }
                        out.push(Step::Jump(fork));
                        out[fork] = Step::Fork(fork + 1, out.len());
                    }
                    Some(most) => {
                        let mut forks = Vec::new();
                        for _ in *least..*most {
                            forks.push(out.len());
                            out.push(Step::Fork(out.len() + 1, 0));
                            if !what.compile(out) {
                                return false;
                            }
                        }
                        let end = out.len();
                        forks.into_iter().for_each(|fork| out[fork] = Step::Fork(fork + 1, end));
                    }
                }
            }
        }
        out.len() <= Regex::MAX_STEPS
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.peek() == Some(c);
        if there {
            self.at += c.len_utf8();
        }
        there
    }

    fn skip(&mut self) {
        while self.peek().is_some_and(|c| c == '_' || c.is_whitespace()) {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
    }

    fn choice(&mut self) -> Result<Node, String> {
        let mut alternatives = vec![self.sequence()?];
        while self.take('|') {
            alternatives.push(self.sequence()?);
        }
        Ok(if alternatives.len() == 1 { alternatives.remove(0) } else { Node::Choice(alternatives) })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                None | Some('|' | ')') => return Ok(Node::Sequence(parts)),
                Some(_) => {
                    let one = self.one()?;
                    parts.push(self.repeated(one)?);
                }
            }
        }
    }

    fn one(&mut self) -> Result<Node, String> {
        if self.take('^') {
            return Ok(Node::Begin);
        }
        if self.take('$') {
            return Ok(Node::End);
        }
        if self.take('.') {
            return Ok(Node::One { of: NumberSet::default(), unlike: true });
        }
        if self.take('(') {
            self.depth += 1;
            if self.depth > Regex::MAX_DEPTH {
                return Err(format!("more than {} groups lie inside each other", Regex::MAX_DEPTH));
            }
            let node = self.choice()?;
            self.depth -= 1;
            return if self.take(')') { Ok(node) } else { Err("a ) is missing".into()) };
        }
        if self.take('[') {
            return self.class();
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {
                let of = [self.numbers()?].into_iter().collect();
                Ok(Node::One { of, unlike: false })
            }
            Some(c @ ('*' | '+' | '?' | '{')) => {
                Err(format!("there is nothing before {c} that it could repeat"))
            }
            Some(c) => Err(format!("{c} means nothing here")),
            None => Err("it ends too early".into()),
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        let unlike = self.take('^');
        let mut of = Vec::new();
        loop {
            while self.take(',') || self.peek().is_some_and(char::is_whitespace) {
                self.skip();
            }
            if self.take(']') {
                break;
            }
            if self.peek().is_none() {
                return Err("a ] is missing".into());
            }
            of.push(self.numbers()?);
        }
        // A class of digits elsewhere would here be a class of ten small AS numbers.
        if of == [(Numbers { first: 0, last: 9 })] {
            return Err(
                "[0-9] would be the ASes 0 to 9, since an AS is one symbol here; write . for any AS".into()
            );
        }
        if of.is_empty() {
            return Err("[] holds no AS; write some, or . for any".into());
        }
        Ok(Node::One { of: of.into_iter().collect(), unlike })
    }

    /// `65001` or `64512-65534`.
    fn numbers(&mut self) -> Result<Numbers, String> {
        let rest = &self.text[self.at..];
        let len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'-').count();
        let numbers = rest[..len].parse().map_err(|_| {
            let found: String = rest.chars().take(len.max(1)).collect();
            format!("{found} is no AS; write one such as 65001, or a range such as 64512-65534")
        })?;
        self.at += len;
        Ok(numbers)
    }

    fn repeated(&mut self, what: Node) -> Result<Node, String> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let rest = &self.text[self.at + 1..];
                let inside = rest.split_once('}').map_or(rest, |(inside, _)| inside);
                let count = |text: &str| crate::numbers::decimal(text.trim());
                let counts = match inside.split_once(',') {
                    None => count(inside).map(|n| (n, Some(n))),
                    Some((least, "")) => count(least).map(|n| (n, None)),
                    Some((least, most)) => count(least).zip(count(most)).map(|(a, b)| (a, Some(b))),
                };
                let counts = counts.filter(|(least, most)| most.is_none_or(|most| *least <= most));
                let Some((least, most)) = counts.filter(|_| rest.len() > inside.len()) else {
                    return Err("write how often in the form {2}, {2,} or {2,5}".into());
                };
                self.at += inside.len() + 1;
                (least, most)
            }
            _ => return Ok(what),
        };
        self.at += 1;
        if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
            return Err("only one of * + ? { can follow; use ( ) for more".into());
        }
        if least > 1000 || most.is_some_and(|most| most > 1000) {
            return Err("nothing can be repeated more than 1000 times".into());
        }
        Ok(Node::Repeat { what: Box::new(what), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(regex: &str, path: &[u32]) -> bool {
        let hops: Vec<Hop<'_>> = path.iter().map(|asn| Hop::One(*asn)).collect();
        regex.parse::<Regex>().unwrap().matches(&hops)
    }

    #[test]
    fn what_operators_write() {
        let yes: &[(&str, &[u32])] = &[
            ("^$", &[]),
            ("", &[1, 2]),
            (".*", &[]),
            ("_174_", &[1, 174, 2]),
            ("^174_", &[174, 2]),
            ("_174$", &[2, 174]),
            ("^(65001_)+$", &[65001, 65001]),
            ("^65001 .* 174$", &[65001, 174]),
            ("^65001 .* 174$", &[65001, 9, 9, 174]),
            ("^.{2,3}$", &[1, 2]),
            ("^.{2,}$", &[1, 2, 3, 4]),
            ("^.{0}$", &[]),
            ("(174|3356) 65001", &[1, 3356, 65001, 4]),
            ("^[64512-65534 4200000000-4294967294]+$", &[65000, 4200000001]),
            ("^[^174]*$", &[1, 2]),
            ("64512-65534$", &[1, 64600]),
            ("^1 2?3$", &[1, 3]),
            ("^()*$", &[]),
            ("(^174|3356$)", &[9, 3356]),
            ("^(1*)*2$", &[1, 1, 2]),
            ("[1, 2,3]", &[3]),
        ];
        for (regex, path) in yes {
            assert!(matches(regex, path), "{regex} {path:?}");
        }
        let no: &[(&str, &[u32])] = &[
            ("^$", &[1]),
            ("174", &[1174, 1740]),
            ("^174", &[1, 174]),
            ("174$", &[174, 1]),
            ("^.{2,3}$", &[1, 2, 3, 4]),
            ("^.{2}$", &[1]),
            ("^[^174]*$", &[1, 174]),
            ("1 2", &[1, 3, 2]),
            ("^(65001 )+$", &[65001, 2]),
            ("2^1", &[2, 1]),
            ("1$2", &[1, 2]),
        ];
        for (regex, path) in no {
            assert!(!matches(regex, path), "{regex} {path:?}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused_with_a_reason() {
        for (text, message) in [
            ("(174", "a ) is missing (after 4 characters)"),
            ("174)", "there is no ( for this ) (after 3 characters)"),
            ("*174", "there is nothing before * that it could repeat (after 0 characters)"),
            ("174**", "only one of * + ? { can follow"),
            ("174{3", "write how often in the form {2}, {2,} or {2,5}"),
            ("174{3,2}", "write how often"),
            ("1{2000}", "more than 1000 times"),
            ("((1{999}){999})", "it has more than 10000 steps"),
            ("((((){999}){999}){999})", "it has more than 10000 steps"),
            ("[0-9]+", "write . for any AS"),
            ("[]", "[] holds no AS"),
            ("[174", "a ] is missing"),
            ("4294967296", "4294967296 is no AS"),
            ("AS174", "A means nothing here"),
            ("ä", "ä means nothing here"),
            ("[ä]", "ä is no AS"),
            ("5-4", "5-4 is no AS"),
        ] {
            let error = text.parse::<Regex>().unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!("(".repeat(100_000).parse::<Regex>().unwrap_err().contains("inside each other"));
    }

    /// A random expression of three symbols, its text, and naive matching: all ends of a match from
    /// one place.
    #[derive(Clone, Debug)]
    enum Tree {
        As(u32),
        Any,
        Then(Box<Tree>, Box<Tree>),
        Or(Box<Tree>, Box<Tree>),
        Times(Box<Tree>, u32, Option<u32>),
    }

    impl Tree {
        fn text(&self) -> String {
            match self {
                Tree::As(n) => n.to_string(),
                Tree::Any => ".".into(),
                Tree::Then(a, b) => format!("{} {}", a.text(), b.text()),
                Tree::Or(a, b) => format!("({}|{})", a.text(), b.text()),
                Tree::Times(a, least, None) => format!("({}){{{least},}}", a.text()),
                Tree::Times(a, least, Some(most)) => format!("({}){{{least},{most}}}", a.text()),
            }
        }

        fn ends(&self, path: &[u32], from: usize) -> Vec<usize> {
            let mut ends = match self {
                Tree::As(n) if path.get(from) == Some(n) => vec![from + 1],
                Tree::Any if from < path.len() => vec![from + 1],
                Tree::As(_) | Tree::Any => vec![],
                Tree::Then(a, b) => a.ends(path, from).into_iter().flat_map(|at| b.ends(path, at)).collect(),
                Tree::Or(a, b) => [a.ends(path, from), b.ends(path, from)].concat(),
                Tree::Times(a, least, most) => {
                    let mut all = Vec::new();
                    let mut at = vec![from];
                    for n in 0..=most.unwrap_or(least + path.len() as u32) {
                        if n >= *least {
                            all.extend_from_slice(&at);
                        }
                        at = at.into_iter().flat_map(|at| a.ends(path, at)).collect();
                        at.sort_unstable();
                        at.dedup();
                    }
                    all
                }
            };
            ends.sort_unstable();
            ends.dedup();
            ends
        }
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![(1..4u32).prop_map(Tree::As), Just(Tree::Any)];
        leaf.prop_recursive(4, 12, 2, |inner| {
            let boxed = || inner.clone().prop_map(Box::new);
            prop_oneof![
                (boxed(), boxed()).prop_map(|(a, b)| Tree::Then(a, b)),
                (boxed(), boxed()).prop_map(|(a, b)| Tree::Or(a, b)),
                (boxed(), 0..3u32, prop::option::of(0..2u32)).prop_map(|(a, least, more)| Tree::Times(
                    a,
                    least,
                    more.map(|more| least + more)
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_matches_as_written(tree in tree(), path in prop::collection::vec(1..4u32, 0..6), begin: bool, end: bool) {
            let text = format!("{}({}){}", if begin { "^" } else { "" }, tree.text(), if end { "$" } else { "" });
            let from = if begin { 0..=0 } else { 0..=path.len() };
            let naive = from.into_iter().any(|from| tree.ends(&path, from).iter().any(|at| !end || *at == path.len()));
            prop_assert_eq!(matches(&text, &path), naive, "{} {:?}", text, path);
        }

        #[test]
        fn no_text_panics(text in "[0-9\\[\\](){}|*+?.,^$_ a-\u{e4}-]{0,20}") {
            if let Ok(regex) = text.parse::<Regex>() {
                regex.matches(&[Hop::One(1), Hop::One(2)]);
            }
        }
    }
}
