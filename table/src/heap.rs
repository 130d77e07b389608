//! What an allocation really takes.
//!
//! Redis allocates with jemalloc, which rounds every request up to a size class: 8 bytes, then multiples of 16 up to
//! 128, then four classes to each doubling. Blocks are cut so that they fill a class, and the table's memory
//! accounting counts classes, so that it says what `used_memory` will say.

/// The bytes jemalloc sets aside for a request of `bytes`; an empty request allocates nothing.
pub fn size_class(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
    }
}

/// The bytes behind a vector's buffer.
pub(crate) fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    size_class(vec.capacity() * size_of::<T>())
}

/// An allocation that fills its size class: `bytes`, then zeros.
pub(crate) fn boxed(bytes: &[u8]) -> Box<[u8]> {
    let mut whole = Vec::with_capacity(size_class(bytes.len()));
    whole.extend_from_slice(bytes);
    whole.resize(whole.capacity(), 0);
    whole.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        let classes = [
            8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280,
            1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384, 20480,
        ];
        let mut expected = classes.iter();
        let mut class = 0;
        for bytes in 1..=20480 {
            if bytes > class {
                class = *expected.next().unwrap();
            }
            assert_eq!(size_class(bytes), class, "for {bytes} bytes");
        }
        assert_eq!(size_class(0), 0);
    }
}
