//! Norms, with and without the residual sum.

use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, Run, assert_close, bytes, noise};

const EPSILON: f32 = 1e-5;

pub(super) fn check(rig: &Rig) {
    // Shorter than a workgroup, a multiple of it, and neither; one row and several.
    for (rows, size) in [(1, 32), (8, 32), (1, 256), (3, 100), (2, 1000)] {
        check_plain(rig, rows, size);
    }
    for size in [32, 256, 999] {
        check_skip(rig, size);
    }
}

fn reference(x: &[f64], weight: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let inverse = 1.0 / (mean + f64::from(EPSILON)).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, &w)| x * inverse * f64::from(w))
        .collect()
}

fn check_plain(rig: &Rig, rows: usize, size: usize) {
    let offset = 5;
    let (x, weight) = (noise(1, offset + rows * size), noise(2, size));
    let wide: Vec<f64> = x[offset..].iter().map(|&x| x.into()).collect();
    let want: Vec<f64> = wide
        .chunks(size)
        .flat_map(|row| reference(row, &weight))
        .collect();
    let out = rig.run(&Run {
        spec: &KernelSpec::new(Shader::RmsNorm, [("WORKGROUP", 64)]),
        params: &[size as u32, EPSILON.to_bits(), offset as u32, 0],
        state: [0; 3],
        reads: &[bytes(&x), bytes(&weight)],
        writes: &[&vec![0.0; rows * size]],
        grid: [rows as u32, 1, 1],
    });
    assert_close(&out[0], &want, 1e-5, &format!("norm of {rows} rows of {size}"));
}

fn check_skip(rig: &Rig, size: usize) {
    let (x, skip, weight) = (noise(1, size + 3), noise(2, size + 7), noise(3, size));
    let sum: Vec<f64> = (0..size)
        .map(|i| f64::from(x[3 + i]) + f64::from(skip[7 + i]))
        .collect();
    let out = rig.run(&Run {
        spec: &KernelSpec::new(Shader::SkipRmsNorm, [("WORKGROUP", 64)]),
        params: &[size as u32, EPSILON.to_bits(), 3, 7],
        state: [0; 3],
        reads: &[bytes(&x), bytes(&skip), bytes(&weight)],
        writes: &[&vec![0.0; size], &vec![0.0; size]],
        grid: [1, 1, 1],
    });
    assert_close(
        &out[0],
        &reference(&sum, &weight),
        1e-5,
        &format!("skip norm of {size}"),
    );
    assert_close(&out[1], &sum, 1e-6, &format!("residual sum of {size}"));
}
