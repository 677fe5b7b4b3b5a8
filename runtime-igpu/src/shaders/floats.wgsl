// Float element types, as numbered by the constants that name them.

const FLOAT32: u32 = 0u;
const FLOAT16: u32 = 1u;
const BFLOAT16: u32 = 2u;

// The float held in `word`; for 16-bit types `half` picks the low (0) or the high (1) half.
fn decode_float(word: u32, kind: u32, half: u32) -> f32 {
    if (kind == FLOAT32) {
        return bitcast<f32>(word);
    }
    let bits = (word >> (16u * half)) & 0xffffu;
    if (kind == FLOAT16) {
        return unpack2x16float(bits).x;
    }
    return bitcast<f32>(bits << 16u);
}
