//! Bytes from outside are refused or they are a sound table.

#![no_main]

use card_table::{Decoder, Table};
use card_table_fuzz::{format, judge, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if input.starts_with(b"CARDTABLE") {
        whole_table(input);
    } else if let Some((schema, blocks)) = parse(input) {
        let mut decoder = Decoder::new(&format::header(&schema, 0, 0)).expect("a sound header");
        let taken: Vec<_> = blocks.into_iter().filter(|(class, block)| decoder.block(*class, block).is_ok()).collect();
        judge::assert_is_a_table(&schema, &taken, |bytes| Table::read_from(&mut &bytes[..]));
    }
});

fn whole_table(mut bytes: &[u8]) {
    let Ok(table) = Table::read_from(&mut bytes) else { return };
    table.check().unwrap();
    let mut written = Vec::new();
    table.write_to(&mut written).unwrap();
    let again = Table::read_from(&mut written.as_slice()).unwrap();
    assert_eq!(again.digest(), table.digest());
    assert!(again.iter().eq(table.iter()));
}
