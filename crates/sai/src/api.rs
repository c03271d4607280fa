//! APIs and their method tables.

use crate::table::{ApiRow, TABLE};
use std::fmt;

/// An API (`sai_api_t`), which `sai_api_query` gives as a table of pointers to functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Api(pub(crate) u16);

impl Api {
    /// Every API, in the order of numbers.
    pub fn all() -> impl Iterator<Item = Api> {
        (0..TABLE.apis.len() as u16).map(Api)
    }

    /// The name, such as `SAI_API_ROUTE`.
    pub fn name(self) -> &'static str {
        self.row().name.text()
    }

    /// The number (`sai_api_t`).
    pub fn number(self) -> u32 {
        self.row().number
    }

    /// The functions of the method table, such as `create_route_entry`, in the order of its pointers.
    pub fn functions(self) -> impl ExactSizeIterator<Item = &'static str> {
        let row = self.row();
        TABLE.functions[row.first as usize..][..row.functions as usize].iter().map(|name| name.text())
    }

    fn row(self) -> &'static ApiRow {
        &TABLE.apis[self.0 as usize]
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
