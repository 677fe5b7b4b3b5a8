//! A small random generator whose sequence never changes, so that a seed means the same folder for ever.

/// xoshiro256++ (Blackman and Vigna), seeded through SplitMix64.
pub(super) struct Random([u64; 4]);

impl Random {
    /// A generator for one purpose: equal seeds and streams give equal sequences.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        Random(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Floats, uniform from `low` to `high`.
    pub fn uniform(&mut self, low: f32, high: f32, len: usize) -> Vec<f32> {
        let step = (high - low) / (1 << 24) as f32;
        (0..len)
            .map(|_| low + (self.bits() >> 40) as f32 * step)
            .collect()
    }

    /// Bytes, filled eight at a time by `make`.
    pub fn fill(&mut self, out: &mut [u8], make: impl Fn(u64) -> u64) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = make(self.bits()).to_le_bytes();
        }
        let last = make(self.bits()).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
