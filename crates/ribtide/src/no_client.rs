//! In place of the client, where ribtide is built for SONiC's daemons alone: no router can be asked.

use crate::show::Output;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::ControlFlow;

/// A client that asks nothing.
#[derive(Clone, Debug)]
pub(crate) struct Client;

impl Client {
    /// No client of any router.
    pub(crate) fn of(_output: &Output) -> Result<Client, String> {
        Ok(Client)
    }

    /// Whether a router listens there: none that can be asked.
    pub(crate) fn is_there(&self) -> bool {
        false
    }

    /// Refuses.
    pub(crate) fn get<T: DeserializeOwned>(&self, _path: &str) -> Result<T, String> {
        Err(refusal())
    }

    /// Refuses.
    pub(crate) fn bytes_of(&self, _path: &str) -> Result<Vec<u8>, String> {
        Err(refusal())
    }

    /// Refuses.
    pub(crate) fn follow(
        &self,
        _path: &str,
        _take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), String> {
        Err(refusal())
    }

    /// Refuses.
    pub(crate) fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        _path: &str,
        _body: &B,
    ) -> Result<T, String> {
        Err(refusal())
    }
}

fn refusal() -> String {
    "this ribtide is built without the router, and cannot ask one; write --sonic to ask SONiC's daemons, or use a ribtide \
     that is built with its default features"
        .into()
}
