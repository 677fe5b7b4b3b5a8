//! Embedding lookups, also where the table is split over several bindings.

use half::{bf16, f16};

use crate::ops::ScaleType;
use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, Run, assert_close, bytes, doubles, noise, noise_bytes};

const ROWS: usize = 10;
const SIZE: usize = 96;

pub(super) fn check(rig: &Rig) {
    for kind in [ScaleType::Float32, ScaleType::Float16, ScaleType::BFloat16] {
        check_float(rig, kind);
    }
    check_columns(rig);
    for (bits, block, zeros) in [(4, 32, 0), (4, 32, 1), (8, 16, 1), (8, 32, 0)] {
        check_quantized(rig, bits, block, zeros);
    }
}

fn check_float(rig: &Rig, kind: ScaleType) {
    let values = noise(1, ROWS * SIZE);
    let (table, wide): (Vec<u8>, Vec<f32>) = match kind {
        ScaleType::Float32 => (bytes(&values).to_vec(), values),
        ScaleType::Float16 => {
            let halves: Vec<_> = values.iter().map(|&x| f16::from_f32(x)).collect();
            (
                bytemuck::cast_slice(&halves).to_vec(),
                halves.iter().map(|x| x.to_f32()).collect(),
            )
        }
        ScaleType::BFloat16 => {
            let halves: Vec<_> = values.iter().map(|&x| bf16::from_f32(x)).collect();
            (
                bytemuck::cast_slice(&halves).to_vec(),
                halves.iter().map(|x| x.to_f32()).collect(),
            )
        }
    };
    let spec = KernelSpec::new(
        Shader::EmbedFloat,
        [("TABLE_TYPE", kind as u32), ("WORKGROUP", 64)],
    );
    // The bound part holds rows 100 to 109.
    let lookup = |token: u32| {
        let params = [SIZE as u32, 100, ROWS as u32];
        let writes: &[&[f32]] = &[&[7.0; SIZE]];
        rig.run(&Run {
            spec: &spec,
            params: &params,
            state: [token, 0, 0],
            reads: &[&table],
            writes,
            grid: [2, 1, 1],
        })
        .remove(0)
    };
    assert_close(
        &lookup(103),
        &doubles(&wide[3 * SIZE..4 * SIZE]),
        0.0,
        &format!("{kind:?} row"),
    );
    for elsewhere in [99, 110, 0] {
        assert_eq!(
            lookup(elsewhere),
            [7.0; SIZE],
            "a row of another part is left alone"
        );
    }
}

/// Two parts of a table `[size, tokens]`, looked up by column.
fn check_columns(rig: &Rig) {
    let (size, tokens) = (30, 7);
    let table = noise(1, size * tokens);
    let spec = KernelSpec::new(Shader::EmbedColumns, [("TABLE_TYPE", 0), ("WORKGROUP", 64)]);
    let mut y = vec![0.0; size];
    for (first, rows) in [(0, 12), (12, 18)] {
        let params = [tokens as u32, first as u32, rows as u32];
        let reads: &[&[u8]] = &[bytes(&table[first * tokens..(first + rows) * tokens])];
        y = rig
            .run(&Run {
                spec: &spec,
                params: &params,
                state: [4, 0, 0],
                reads,
                writes: &[&y],
                grid: [1, 1, 1],
            })
            .remove(0);
    }
    let want: Vec<f64> = (0..size).map(|i| f64::from(table[i * tokens + 4])).collect();
    assert_close(&y, &want, 0.0, "a column of two parts");
}

fn check_quantized(rig: &Rig, bits: usize, block: usize, zeros: u32) {
    let blocks = SIZE / block;
    let data = noise_bytes(1, ROWS * SIZE * bits / 8);
    let scales = noise(2, ROWS * blocks);
    let zero_row = (blocks * bits).div_ceil(8);
    let packed = noise_bytes(3, ROWS * zero_row);
    let value = |from: &[u8], i: usize| match bits {
        4 => f64::from(from[i / 2] >> (i % 2 * 4) & 15),
        _ => f64::from(from[i]),
    };
    let row = 4;
    let want: Vec<f64> = (0..SIZE)
        .map(|i| {
            let zero = if zeros == 0 {
                f64::from(1 << (bits - 1))
            } else {
                value(&packed[row * zero_row..], i / block)
            };
            (value(&data[row * SIZE * bits / 8..], i) - zero) * f64::from(scales[row * blocks + i / block])
        })
        .collect();
    let constants = [
        ("BITS", bits as u32),
        ("BLOCK", block as u32),
        ("SCALE_TYPE", 0),
        ("ZERO_TYPE", zeros),
        ("WORKGROUP", 64),
    ];
    let out = rig.run(&Run {
        spec: &KernelSpec::new(Shader::EmbedQuantized, constants),
        params: &[SIZE as u32, blocks as u32, 20, ROWS as u32],
        state: [20 + row as u32, 0, 0],
        reads: &[&data, bytes(&scales), &packed],
        writes: &[&[0.0; SIZE]],
        grid: [2, 1, 1],
    });
    assert_close(
        &out[0],
        &want,
        1e-6,
        &format!("{bits} bits, block {block}, zeros {zeros}"),
    );
}
