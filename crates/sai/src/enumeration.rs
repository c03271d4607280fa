//! Enumerations.

use crate::table::{EnumRow, Named, TABLE, ValueRow, named};
use std::fmt;

/// An enumeration of SAI's headers, such as `sai_packet_action_t`, with what the headers in `experimental` add to it.
/// Attributes are not in it: [`crate::ObjectType::attributes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Enum(pub(crate) u16);

impl Enum {
    /// `sai_status_t`, the statuses of `saistatus.h`.
    pub const STATUS: Enum = Enum(crate::table::STATUS);

    /// Every enumeration, in the order of names.
    pub fn all() -> impl Iterator<Item = Enum> {
        (0..TABLE.enums.len() as u16).map(Enum)
    }

    /// The enumeration with this name, such as `sai_packet_action_t`.
    pub fn from_name(name: &str) -> Option<Enum> {
        let place = TABLE.enums.binary_search_by_key(&name, |row| row.name.text()).ok()?;
        Some(Enum(place as u16))
    }

    /// The enumeration and the number of a value, of any enumeration; older names too.
    pub fn value(name: &str) -> Option<(Enum, i32)> {
        match named(name)? {
            Named::Value(place) => {
                let row = &TABLE.values[place as usize];
                Some((Enum(row.of), row.number))
            }
            Named::Attribute(_) => None,
        }
    }

    /// The C name.
    pub fn name(self) -> &'static str {
        self.row().name.text()
    }

    /// Whether its values are bits, of which a number may have several (`@flags strict`).
    pub fn is_flags(self) -> bool {
        self.row().flags
    }

    /// Names and numbers, in the order of numbers. Where two names have one number, the one that the headers have
    /// first comes first.
    pub fn values(self) -> impl ExactSizeIterator<Item = (&'static str, i32)> {
        self.rows().iter().map(|row| (row.name.text(), row.number))
    }

    /// The name of a number.
    pub fn name_of(self, number: i32) -> Option<&'static str> {
        let rows = self.rows();
        let place = rows.partition_point(|row| row.number < number);
        rows.get(place).filter(|row| row.number == number).map(|row| row.name.text())
    }

    /// The number of a name, older names too; `None` for a name of another enumeration.
    pub fn number_of(self, name: &str) -> Option<i32> {
        Enum::value(name).filter(|(of, _)| *of == self).map(|(_, number)| number)
    }

    fn row(self) -> &'static EnumRow {
        &TABLE.enums[self.0 as usize]
    }

    fn rows(self) -> &'static [ValueRow] {
        let row = self.row();
        &TABLE.values[row.first as usize..][..row.values as usize]
    }
}

impl fmt::Debug for Enum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
