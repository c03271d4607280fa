//! Routing policy.
//!
//! Two policies are built in: `accept` and `reject`. A peer's list of policies is tried in order and the first
//! that decides wins; both built-in ones always decide. An external peer without policy accepts and sends
//! nothing (RFC 8212); an internal one without policy accepts and sends all.
#![forbid(unsafe_code)]

use std::fmt;

/// What a policy says of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Use it, or send it.
    Accept,
    /// Do not.
    Reject,
}

/// A compiled policy: the verdicts of a peer's list, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    name: String,
    verdict: Verdict,
}

impl Policy {
    /// The policy of a peer for which none is configured.
    pub fn default_for(external: bool) -> Policy {
        if external {
            Policy { name: "none (RFC 8212)".into(), verdict: Verdict::Reject }
        } else {
            Policy { name: "none".into(), verdict: Verdict::Accept }
        }
    }

    /// Compiles a list of names.
    ///
    /// # Errors
    /// A name that is no policy, or an empty list, with what could have been meant.
    pub fn compile<S: AsRef<str>>(names: &[S]) -> Result<Policy, PolicyError> {
        let mut decided = None;
        for name in names {
            let verdict = match name.as_ref() {
                "accept" => Verdict::Accept,
                "reject" => Verdict::Reject,
                other => return Err(PolicyError::Unknown(other.into())),
            };
            decided.get_or_insert(verdict);
        }
        let verdict = decided.ok_or(PolicyError::Empty)?;
        let name = names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        Ok(Policy { name, verdict })
    }

    /// The names it was compiled from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of a route, when that is the same for all.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

/// Why a list of names is no policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// There is no policy of this name.
    Unknown(String),
    /// The list is empty.
    Empty,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Unknown(name) => {
                write!(f, "there is no policy \"{name}\"; the built-in ones are \"accept\" and \"reject\"")
            }
            PolicyError::Empty => write!(
                f,
                "the list of policies is empty; write [\"accept\"] or [\"reject\"], or leave it out"
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_decides_wins() {
        assert_eq!(Policy::compile(&["accept", "reject"]).unwrap().verdict(), Verdict::Accept);
        assert_eq!(Policy::compile(&["reject"]).unwrap().verdict(), Verdict::Reject);
        assert_eq!(Policy::default_for(true).verdict(), Verdict::Reject);
        assert_eq!(Policy::default_for(false).verdict(), Verdict::Accept);
    }

    #[test]
    fn an_unknown_name_says_what_there_is() {
        let says = Policy::compile(&["acept"]).unwrap_err().to_string();
        assert_eq!(says, "there is no policy \"acept\"; the built-in ones are \"accept\" and \"reject\"");
        assert_eq!(Policy::compile::<&str>(&[]).unwrap_err(), PolicyError::Empty);
    }
}
