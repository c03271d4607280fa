//! A parser for the regular form of SAI's headers: enumerations, structures, unions, numeric macros, and the tags in
//! the comment before each.

use std::collections::BTreeMap;

/// Everything of the headers that the table needs.
#[derive(Default)]
pub(super) struct Headers {
    pub(super) enums: BTreeMap<String, Enumeration>,
    /// Structures and unions.
    pub(super) structs: BTreeMap<String, Vec<Member>>,
    /// Numeric macros, in the order of the headers.
    pub(super) macros: Vec<(String, i64)>,
    raw_macros: Vec<(String, String)>,
    numbers: BTreeMap<String, i64>,
    /// Enumerations in the order of the headers.
    order: Vec<String>,
}

/// `typedef enum _sai_x_t { … } sai_x_t;`
pub(super) struct Enumeration {
    pub(super) values: Vec<Enumerator>,
    pub(super) tags: Tags,
}

/// An enumerator.
pub(super) struct Enumerator {
    pub(super) name: String,
    pub(super) number: i64,
    initializer: Vec<Token>,
    pub(super) tags: Tags,
}

/// A member of a structure, a union or a method table.
pub(super) struct Member {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) tags: Tags,
}

/// The tags of a comment, such as `@flags`, with their text. A tag may come twice.
#[derive(Default, Clone)]
pub(super) struct Tags(Vec<(String, String)>);

impl Tags {
    pub(super) fn get(&self, tag: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == tag).map(|(_, text)| text.as_str())
    }

    fn of(comment: &str) -> Tags {
        let mut tags: Vec<(String, String)> = Vec::new();
        let mut open = false;
        for line in comment.lines() {
            let line = line.trim().trim_start_matches('*').trim();
            if let Some(tag) = line.strip_prefix('@') {
                let end = tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len());
                tags.push((tag[..end].to_owned(), tag[end..].trim().to_owned()));
                open = true;
            } else if line.is_empty() {
                open = false;
            } else if let (true, Some((_, text))) = (open, tags.last_mut()) {
                text.push(' ');
                text.push_str(line);
            }
        }
        Tags(tags)
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Number(i64),
    Mark(char),
    /// A comment that belongs to what follows.
    Comment(String),
}

impl Headers {
    /// Takes in one header.
    ///
    /// # Errors
    /// A sentence for a form that SAI's headers do not have.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        let tokens = self.tokens(text)?;
        let mut at = 0;
        while at < tokens.len() {
            let (Some(Token::Word(typedef)), Some(Token::Word(kind))) = (tokens.get(at), tokens.get(at + 1))
            else {
                at += 1;
                continue;
            };
            if typedef != "typedef" || !matches!(kind.as_str(), "enum" | "struct" | "union") {
                at += 1;
                continue;
            }
            let Some(open) = tokens[at..].iter().position(|t| *t == Token::Mark('{')) else { break };
            let end = tokens[at..].iter().position(|t| *t == Token::Mark(';')).unwrap_or(usize::MAX);
            if end < open {
                at += end;
                continue;
            }
            let open = at + open;
            let close = open + tokens[open..].iter().position(|t| *t == Token::Mark('}')).ok_or("no }")?;
            let Some(Token::Word(name)) = tokens.get(close + 1) else {
                return Err("a type has no name".into());
            };
            let body = &tokens[open + 1..close];
            if kind == "enum" {
                let comment = at.checked_sub(1).and_then(|before| tokens.get(before));
                let tags = comment.map(tags).unwrap_or_default();
                self.enums.insert(name.clone(), Enumeration { values: enumerators(body, name)?, tags });
                self.order.push(name.clone());
            } else {
                self.structs.insert(name.clone(), members(body));
            }
            at = close + 1;
        }
        Ok(())
    }

    fn tokens(&mut self, text: &str) -> Result<Vec<Token>, String> {
        let bytes = text.as_bytes();
        let (mut tokens, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let rest = &text[at..];
            let c = bytes[at] as char;
            if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or("a comment does not end")? + 2;
                if rest.starts_with("/**") && !rest.starts_with("/**<") {
                    tokens.push(Token::Comment(rest[3..end.max(5) - 2].to_owned()));
                }
                at += end;
            } else if c == '#' {
                // A macro may go on in the next line.
                let mut end = 0;
                loop {
                    let line = rest[end..].find('\n').map_or(rest.len(), |n| end + n);
                    if !rest[..line].ends_with('\\') {
                        end = line;
                        break;
                    }
                    end = line + 1;
                }
                if let Some(text) = rest[..end].strip_prefix("#define ") {
                    let (name, value) =
                        text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
                    self.raw_macros.push((name.to_owned(), value.trim().to_owned()));
                }
                at += end;
            } else if c.is_ascii_alphabetic() || c == '_' {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                at += end;
            } else if c.is_ascii_digit() {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                tokens.push(Token::Number(
                    number(&rest[..end]).ok_or_else(|| format!("{} is no number", &rest[..end]))?,
                ));
                at += end;
            } else if c.is_whitespace() {
                at += 1;
            } else if c == '"' {
                at += rest[1..].find('"').ok_or("a text does not end")? + 2;
            } else {
                tokens.push(Token::Mark(c));
                at += 1;
            }
        }
        Ok(tokens)
    }

    /// Gives every constant its number. Call it after the last header.
    ///
    /// # Errors
    /// A sentence for an initializer that cannot be evaluated.
    pub(super) fn evaluate(&mut self) -> Result<(), String> {
        for (name, value) in std::mem::take(&mut self.raw_macros) {
            let code = value.strip_prefix("SAI_STATUS_CODE(").and_then(|value| value.strip_suffix(')'));
            let number = match code {
                Some(code) => number(code).map(|n| -n),
                None => number(&value),
            };
            if let Some(number) = number.filter(|_| name.starts_with("SAI_")) {
                self.numbers.insert(name.clone(), number);
                self.macros.push((name, number));
            }
        }
        for order in self.order.clone() {
            let mut next = 0;
            let Some(of) = self.enums.get_mut(&order) else { continue };
            for value in &mut of.values {
                if !value.initializer.is_empty() {
                    next = evaluate(&value.initializer, &self.numbers)
                        .ok_or_else(|| format!("the initializer of {} has an unknown form", value.name))?;
                }
                value.number = next;
                self.numbers.insert(value.name.clone(), next);
                next += 1;
            }
        }
        Ok(())
    }

    /// The number of a constant or macro.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }
}

/// A number as C writes it.
fn number(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches(['L', 'U', 'l', 'u']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `a`, `a + b`, `a - b`, `a << b`, `a | b`, from left to right.
fn evaluate(tokens: &[Token], numbers: &BTreeMap<String, i64>) -> Option<i64> {
    let operand = |token: &Token| match token {
        Token::Number(number) => Some(*number),
        Token::Word(name) => numbers.get(name).copied(),
        _ => None,
    };
    let tokens: Vec<&Token> = tokens.iter().filter(|t| !matches!(t, Token::Comment(_))).collect();
    let (first, mut rest) = tokens.split_first()?;
    let mut result = operand(first)?;
    while !rest.is_empty() {
        let (value, left) = match rest {
            [Token::Mark('<'), Token::Mark('<'), by, left @ ..] => (result << operand(by)?, left),
            [Token::Mark('+'), by, left @ ..] => (result + operand(by)?, left),
            [Token::Mark('-'), by, left @ ..] => (result - operand(by)?, left),
            [Token::Mark('|'), by, left @ ..] => (result | operand(by)?, left),
            _ => return None,
        };
        (result, rest) = (value, left);
    }
    Some(result)
}

fn enumerators(body: &[Token], of: &str) -> Result<Vec<Enumerator>, String> {
    let mut all = Vec::new();
    for tokens in body.split(|t| *t == Token::Mark(',')) {
        let comments = tokens.iter().take_while(|t| matches!(t, Token::Comment(_)));
        let tags = comments.last().map(tags).unwrap_or_default();
        let mut rest = tokens.iter().skip_while(|t| matches!(t, Token::Comment(_)));
        match rest.next() {
            None => {}
            Some(Token::Word(name)) => {
                let initializer: Vec<Token> = match rest.next() {
                    Some(Token::Mark('=')) => rest.cloned().collect(),
                    _ => Vec::new(),
                };
                all.push(Enumerator { name: name.clone(), number: 0, initializer, tags });
            }
            Some(other) => return Err(format!("{of} has an enumerator that begins with {other:?}")),
        }
    }
    Ok(all)
}

fn members(body: &[Token]) -> Vec<Member> {
    let mut all = Vec::new();
    for tokens in body.split(|t| *t == Token::Mark(';')) {
        let tags = tokens.iter().rfind(|t| matches!(t, Token::Comment(_))).map(tags).unwrap_or_default();
        let mut words = Vec::new();
        let mut marks = String::new();
        for token in tokens {
            match token {
                Token::Word(word) if !marks.ends_with('[') => words.push(word.as_str()),
                Token::Mark(mark @ ('*' | '[')) => marks.push(*mark),
                _ => {}
            }
        }
        if let [kind @ .., name] = &words[..]
            && !kind.is_empty()
        {
            all.push(Member { kind: format!("{}{marks}", kind.join(" ")), name: (*name).to_owned(), tags });
        }
    }
    all
}

fn tags(token: &Token) -> Tags {
    match token {
        Token::Comment(text) => Tags::of(text),
        _ => Tags::default(),
    }
}
