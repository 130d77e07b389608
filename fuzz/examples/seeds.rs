//! Writes a corpus to begin with, into `fuzz/corpus/`: the golden files, their blocks, and blocks that leave every choice
//! to chance, which no mutation would find soon.

use std::fs;
use std::path::{Path, PathBuf};

use card_table::{Id, Schema, Table};
use card_table_fuzz::format::Record;
use card_table_fuzz::{input, schemas, wild};

/// How many blocks are made by chance, for each schema.
const WILD: usize = 60;

fn main() -> std::io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = fuzz.join("corpus/decoder");
    fs::create_dir_all(&corpus)?;
    let schemas = schemas::schemas();
    for golden in golden_files(&fuzz.join("../table/tests/golden"))? {
        let bytes = fs::read(&golden)?;
        let table = Table::read_from(&mut bytes.as_slice()).expect("golden files are sound");
        let name = golden.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let schema = schemas.iter().position(|schema| schema == table.schema()).expect("one of the tests' schemas");
        let blocks: Vec<_> = table.block_bytes().map(|(class, block)| (class, block.to_vec())).collect();
        fs::write(corpus.join(&name), &bytes)?;
        fs::write(corpus.join(format!("{name}-blocks")), input(schema, &blocks))?;
        for (at, block) in blocks.into_iter().enumerate() {
            fs::write(corpus.join(format!("{name}-block-{at}")), input(schema, &[block]))?;
        }
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for (at, schema) in schemas.iter().enumerate() {
        for seed in 0..WILD {
            let block = wild::block(schema, &some_records(schema, &mut rng), &mut rng);
            fs::write(corpus.join(format!("wild-{at}-{seed}")), input(at, &[block]))?;
        }
    }
    Ok(())
}

fn golden_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// A few records of one class.
fn some_records(schema: &Schema, rng: &mut fastrand::Rng) -> Vec<Record> {
    let kind = rng.u8(..5);
    let step = 1u128 << rng.u32(..60);
    let spell = |number: u128| match kind {
        0 => format!("{:020}", number % 10u128.pow(20)),
        1 => format!("f{number:031x}"),
        2 => format!("F{number:031X}"),
        3 => format!("a{:07x}-0000-0000-0000-{:012x}", number >> 48 & 0xfff_ffff, number & 0xffff_ffff_ffff),
        _ => format!("text {number}"),
    };
    let mut ids: Vec<Id> = (0..rng.u128(1..40))
        .map(|at| Id::parse(spell(at * step + rng.u128(..3)).as_bytes()).expect("a valid id").into_owned())
        .collect();
    ids.sort();
    ids.dedup();
    ids.into_iter().map(|id| (id, rng.u128(..schema.symbols()))).collect()
}
