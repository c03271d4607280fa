//! A configuration: it is taken, or every problem has a sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problems) = ribtide_config::parse(text) {
        assert!(!problems.is_empty());
    }
});
