// Quantized weights in MatMulNBits' layout, read as 32-bit words.
//
//   weights  [rows, blocks, BLOCK * BITS / 8] bytes; 4-bit values lie low nibble first
//   scales   [rows, blocks]            SCALE_TYPE: float32, float16 or bfloat16
//   zeros    [rows, ceil(blocks * BITS / 8)] bytes packed like the weights, or [rows, blocks] floats
//
// value = (quantized - zero) * scale. Without zero points the zero is 2^(BITS-1).
//
// Constants: BITS, BLOCK, SCALE_TYPE, ZERO_TYPE. Bindings `weights`, `scales`, `zeros`: array<u32>.

const VALUES_PER_WORD: u32 = 32u / BITS;
const WORDS_PER_BLOCK: u32 = BLOCK / VALUES_PER_WORD;
const VALUE_MASK: u32 = (1u << BITS) - 1u;

const ZERO_NONE: u32 = 0u;
const ZERO_PACKED: u32 = 1u;
const ZERO_FLOAT: u32 = 2u;

fn scale_at(row: u32, block: u32, blocks: u32) -> f32 {
    let index = row * blocks + block;
    if (SCALE_TYPE == FLOAT32) {
        return decode_float(scales[index], SCALE_TYPE, 0u);
    }
    return decode_float(scales[index / 2u], SCALE_TYPE, index % 2u);
}

fn zero_at(row: u32, block: u32, blocks: u32) -> f32 {
    if (ZERO_TYPE == ZERO_NONE) {
        return f32(1u << (BITS - 1u));
    }
    if (ZERO_TYPE == ZERO_FLOAT) {
        let index = row * blocks + block;
        if (SCALE_TYPE == FLOAT32) {
            return decode_float(zeros[index], SCALE_TYPE, 0u);
        }
        return decode_float(zeros[index / 2u], SCALE_TYPE, index % 2u);
    }
    let row_bytes = (blocks * BITS + 7u) / 8u;
    let byte = row * row_bytes + block * BITS / 8u;
    let shift = (byte % 4u) * 8u + (block * BITS) % 8u;
    return f32((zeros[byte / 4u] >> shift) & VALUE_MASK);
}
