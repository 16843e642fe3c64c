//! Random UIDs, and random suffixes for generated names.

/// A SplitMix64 generator. It is good enough, because UIDs and generated names in a test need not be secret.
#[derive(Debug)]
pub struct Random {
    state: u64,
}

/// The characters of a random suffix, which are the same as in kube-apiserver. Vowels are left out, so that a suffix
/// never forms a word. The characters 0, 1 and 3 are left out too, because they look like letters.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns a version 4 UUID.
    pub fn uid(&mut self) -> String {
        let high = self.next() & 0xFFFF_FFFF_FFFF_0FFF | 0x4000;
        let low = self.next() & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000;
        let (high, low) = (format!("{high:016x}"), format!("{low:016x}"));
        format!("{}-{}-{}-{}-{}", &high[..8], &high[8..12], &high[12..], &low[..4], &low[4..])
    }

    /// Returns the random suffix that the API server appends to the `generateName` of an object to make its name.
    pub fn suffix(&mut self) -> String {
        (0..SUFFIX_LENGTH)
            .map(|_| char::from(ALPHABET[self.next() as usize % ALPHABET.len()]))
            .collect()
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
