//! Quantized matrix-vector products.

use half::{bf16, f16};

use crate::ops::{MatvecChoice, ScaleType};
use crate::options::MatvecShape;
use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, Run, assert_close, bytes, noise, noise_bytes};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Zeros {
    None,
    Packed,
    Float,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    k: usize,
    bits: u32,
    block: usize,
    scales: ScaleType,
    zeros: Zeros,
    x_offset: usize,
    y_offset: usize,
}

const BASE: Case = Case {
    rows: 96,
    k: 256,
    bits: 4,
    block: 32,
    scales: ScaleType::Float32,
    zeros: Zeros::None,
    x_offset: 0,
    y_offset: 0,
};

pub(super) fn check(rig: &Rig) {
    let cases = [
        BASE,
        Case {
            zeros: Zeros::Packed,
            ..BASE
        },
        Case {
            zeros: Zeros::Float,
            ..BASE
        },
        Case {
            zeros: Zeros::Float,
            scales: ScaleType::Float16,
            ..BASE
        },
        Case {
            scales: ScaleType::BFloat16,
            zeros: Zeros::Packed,
            ..BASE
        },
        // An odd number of blocks leaves half a byte of zero points at each row's end.
        Case {
            k: 160,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case {
            block: 16,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case { block: 64, ..BASE },
        Case {
            block: 128,
            zeros: Zeros::Packed,
            scales: ScaleType::Float16,
            ..BASE
        },
        Case { block: 256, ..BASE },
        Case { bits: 8, ..BASE },
        Case {
            bits: 8,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case {
            bits: 8,
            block: 16,
            zeros: Zeros::Float,
            ..BASE
        },
        Case {
            bits: 8,
            block: 128,
            ..BASE
        },
        // Rows that no workgroup divides, and fewer than one workgroup has.
        Case {
            rows: 77,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case { rows: 3, ..BASE },
        // The last block is not full.
        Case {
            k: 250,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case {
            k: 250,
            bits: 8,
            block: 64,
            ..BASE
        },
        // Views into larger values.
        Case {
            x_offset: 64,
            y_offset: 10,
            ..BASE
        },
        Case {
            x_offset: 3,
            zeros: Zeros::Packed,
            ..BASE
        },
        Case {
            k: 2560,
            rows: 33,
            zeros: Zeros::Packed,
            ..BASE
        },
        // Long rows: Mesa 22.3.6 stops an invocation's loops after 65,535 iterations in all.
        Case {
            k: 40_960,
            rows: 17,
            ..BASE
        },
        Case {
            k: 40_960,
            rows: 17,
            block: 16,
            ..BASE
        },
    ];
    for kind in [ScaleType::Float32, ScaleType::Float16, ScaleType::BFloat16] {
        check_float(rig, kind);
    }
    for case in cases {
        for shape in [MatvecShape::Gpu, MatvecShape::CpuAdapter] {
            check_case(rig, case, shape);
        }
    }
}

/// MatMul's float weights `[k, n]`, in one part and in two.
fn check_float(rig: &Rig, kind: ScaleType) {
    let (k, n, x_offset) = (50, 70, 2);
    let x = noise(1, x_offset + k);
    let (weights, weight_bytes) = floats(kind, &noise(2, k * n));
    let want: Vec<f64> = (0..n)
        .map(|column| {
            (0..k)
                .map(|row| f64::from(x[x_offset + row]) * weights[row * n + column])
                .sum()
        })
        .collect();
    let spec = KernelSpec::new(
        Shader::MatvecFloat,
        [("WEIGHT_TYPE", kind as u32), ("WORKGROUP", 64)],
    );
    let part = |first: usize, rows: usize, y: &[f32]| {
        let bytes_per_row = n * kind.bytes() as usize;
        let held = &weight_bytes[first * bytes_per_row..(first + rows) * bytes_per_row];
        let params = [n as u32, first as u32, rows as u32, x_offset as u32, 2];
        let run = Run {
            spec: &spec,
            params: &params,
            state: [0; 3],
            reads: &[bytes(&x), held],
            writes: &[y],
            grid: [2, 1, 1],
        };
        rig.run(&run).remove(0)
    };
    // What a buffer held before does not matter to the first part.
    assert_close(
        &part(0, k, &vec![9.0; n]),
        &want,
        1e-5,
        &format!("{kind:?} in one part"),
    );
    let first = part(0, 20, &vec![9.0; n]);
    assert_close(
        &part(20, k - 20, &first),
        &want,
        1e-5,
        &format!("{kind:?} in two parts"),
    );
}

fn check_case(rig: &Rig, case: Case, shape: MatvecShape) {
    let Case {
        rows,
        k,
        bits,
        block,
        x_offset,
        y_offset,
        ..
    } = case;
    let blocks = k.div_ceil(block);
    let data = noise_bytes(1, rows * blocks * block * bits as usize / 8);
    let x = noise(2, x_offset + k + 8);
    let (scales, scale_bytes) = floats(case.scales, &noise(3, rows * blocks));
    let zero_row = (blocks * bits as usize).div_ceil(8);
    let packed = noise_bytes(4, rows * zero_row);
    let (float_zeros, float_zero_bytes) = floats(case.scales, &noise(5, rows * blocks));
    let value = |packed: &[u8], i: usize| match bits {
        4 => f64::from(packed[i / 2] >> (i % 2 * 4) & 15),
        _ => f64::from(packed[i]),
    };
    let zero = |row: usize, b: usize| match case.zeros {
        Zeros::None => f64::from(1u32 << (bits - 1)),
        Zeros::Packed => value(&packed[row * zero_row..], b),
        Zeros::Float => float_zeros[row * blocks + b],
    };
    let mut want = vec![0.0; y_offset];
    for row in 0..rows {
        let weight = |i: usize| {
            let b = i / block;
            (value(&data, row * blocks * block + i) - zero(row, b)) * scales[row * blocks + b]
        };
        want.push((0..k).map(|i| weight(i) * f64::from(x[x_offset + i])).sum());
    }
    let zero_type = case.zeros as u32;
    let constants = vec![
        ("BITS", bits),
        ("BLOCK", block as u32),
        ("SCALE_TYPE", case.scales as u32),
        ("ZERO_TYPE", zero_type),
    ];
    let choice = MatvecChoice {
        k: k as u64,
        x_offset: x_offset as u32,
        bits,
        block_size: block as u32,
    };
    let (spec, rows_per_group) = choice.kernel(shape, rig.subgroup_size.max(8), constants);
    let fast = shape == MatvecShape::CpuAdapter
        && block >= 128 / bits as usize
        && k % block == 0
        && x_offset % 4 == 0;
    assert_eq!(spec.shader == Shader::MatvecBlocks, fast, "{case:?}");
    // Two workgroups wide, so that the grid's second dimension counts too.
    let groups = (rows as u32).div_ceil(rows_per_group);
    let y = vec![0.0; y_offset + rows];
    let zero_bytes = match case.zeros {
        Zeros::None => &scale_bytes,
        Zeros::Packed => &packed,
        Zeros::Float => &float_zero_bytes,
    };
    let out = rig.run(&Run {
        spec: &spec,
        params: &[
            rows as u32,
            k as u32,
            blocks as u32,
            x_offset as u32,
            y_offset as u32,
            2,
        ],
        state: [0; 3],
        reads: &[bytes(&x), &data, &scale_bytes, zero_bytes],
        writes: &[&y],
        grid: [2, groups.div_ceil(2), 1],
    });
    assert_close(
        &out[0],
        &want,
        1e-5,
        &format!("{case:?} {shape:?} {}", spec.label()),
    );
}

/// The values as the type holds them, and their bytes.
fn floats(kind: ScaleType, values: &[f32]) -> (Vec<f64>, Vec<u8>) {
    match kind {
        ScaleType::Float32 => (values.iter().map(|&x| x.into()).collect(), bytes(values).to_vec()),
        ScaleType::Float16 => {
            let halves: Vec<_> = values.iter().map(|&x| f16::from_f32(x)).collect();
            (
                halves.iter().map(|x| x.to_f64()).collect(),
                bytemuck::cast_slice(&halves).to_vec(),
            )
        }
        ScaleType::BFloat16 => {
            let halves: Vec<_> = values.iter().map(|&x| bf16::from_f32(x)).collect();
            (
                halves.iter().map(|x| x.to_f64()).collect(),
                bytemuck::cast_slice(&halves).to_vec(),
            )
        }
    }
}
