//! Formats numbers, addresses and prefixes without `core::fmt`. A route is formatted for each table and queue that it
//! passes, and `core::fmt` costs more than the rest of its row.

use ribtide_prefix::AnyPrefix;
use std::fmt::Write;
use std::net::IpAddr;

/// Appends a number.
pub(crate) fn decimal(n: u64, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(n));
}

/// Appends a number in hexadecimal digits, without leading zeros.
pub(crate) fn hex(n: u64, out: &mut String) {
    // All 16 digits, so that the compiler needs no loop.
    let mut text = [0; 16];
    for (at, digit) in text.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(n >> (60 - 4 * at) & 15) as usize];
    }
    let zeros = (n | 1).leading_zeros() / 4;
    out.push_str(std::str::from_utf8(&text[zeros as usize..]).unwrap_or_default());
}

/// Appends an address.
pub(crate) fn addr(addr: IpAddr, out: &mut String) {
    match addr {
        IpAddr::V4(addr) => {
            for (n, byte) in addr.octets().into_iter().enumerate() {
                if n > 0 {
                    out.push('.');
                }
                decimal(byte.into(), out);
            }
        }
        // Writing to a String cannot fail.
        IpAddr::V6(addr) => drop(write!(out, "{addr}")),
    }
}

/// Appends a prefix: address, slash, length.
pub(crate) fn prefix(prefix: AnyPrefix, out: &mut String) {
    addr(prefix.addr(), out);
    out.push('/');
    decimal(prefix.len().into(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_is_that_of_the_standard_formatter(n: u64, shift in 0u32..64, address: IpAddr, len in 0u8..=128) {
            let n = n >> shift;
            let len = len.min(if address.is_ipv4() { 32 } else { 128 });
            let of = AnyPrefix::from_addr(address, len).unwrap();
            let mut text = String::new();
            decimal(n, &mut text);
            text.push(' ');
            hex(n, &mut text);
            text.push(' ');
            addr(address, &mut text);
            text.push(' ');
            prefix(of, &mut text);
            prop_assert_eq!(text, format!("{n} {n:x} {address} {of}"));
        }
    }
}
