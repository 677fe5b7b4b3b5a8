//! Activations, gates, arithmetic, and the greedy token.

use crate::ops::activation::Activation;
use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, Run, assert_close, bytes, noise};

const SIZE: usize = 300;

pub(super) fn check(rig: &Rig) {
    let activations = [
        (
            Activation::Sigmoid,
            (|x| 1.0 / (1.0 + (-x).exp())) as fn(f64) -> f64,
        ),
        (Activation::Silu, |x| x / (1.0 + (-x).exp())),
        (Activation::GeluErf, |x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
        (Activation::GeluTanh, |x| {
            0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh())
        }),
        (Activation::QuickGelu, |x| x / (1.0 + (-1.702 * x).exp())),
        (Activation::Tanh, f64::tanh),
        (Activation::Relu, |x| x.max(0.0)),
    ];
    for (activation, reference) in activations {
        check_activation(rig, activation, reference);
    }
    check_binary(rig);
    check_argmax(rig);
}

/// erf by its Maclaurin series, exact enough in doubles up to the sizes used here.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn check_activation(rig: &Rig, activation: Activation, reference: fn(f64) -> f64) {
    // From far below to far above zero, where naive formulas overflow.
    let x: Vec<f32> = noise(1, SIZE)
        .iter()
        .zip(0..)
        .map(|(x, i)| x * if i % 10 == 0 { 80.0 } else { 4.0 })
        .collect();
    let up = noise(2, SIZE + 1);
    let constants = [("ACTIVATION", activation as u32), ("WORKGROUP", 64)];
    let size = SIZE as u32;
    let groups = [size.div_ceil(64), 1, 1];
    let alone = rig.run(&Run {
        spec: &KernelSpec::new(Shader::Unary, constants),
        params: &[size, 0],
        state: [0; 3],
        reads: &[bytes(&x)],
        writes: &[&[0.0; SIZE]],
        grid: groups,
    });
    let gated = rig.run(&Run {
        spec: &KernelSpec::new(Shader::Gated, constants),
        params: &[size, 0, 1],
        state: [0; 3],
        reads: &[bytes(&x), bytes(&up)],
        writes: &[&[0.0; SIZE]],
        grid: groups,
    });
    let want: Vec<f64> = x.iter().map(|&x| reference(x.into())).collect();
    assert_close(&alone[0], &want, 1e-6, &format!("{activation:?}"));
    let want: Vec<f64> = want
        .iter()
        .zip(&up[1..])
        .map(|(y, &up)| y * f64::from(up))
        .collect();
    assert_close(&gated[0], &want, 1e-6, &format!("gated {activation:?}"));
}

fn check_binary(rig: &Rig) {
    let operations = [
        (|a, b| a + b) as fn(f64, f64) -> f64,
        |a, b| a - b,
        |a, b| a * b,
        |a, b| a / b,
    ];
    for (code, reference) in operations.into_iter().enumerate() {
        for (a_size, b_size) in [(SIZE, SIZE), (SIZE, 1), (1, SIZE), (SIZE, 60)] {
            let (a, b) = (noise(1, a_size + 2), noise(2, b_size + 3));
            let b: Vec<f32> = b.iter().map(|b| b + 2.0).collect();
            let at =
                |values: &[f32], offset: usize, len: usize, i: usize| f64::from(values[offset + i % len]);
            let want: Vec<f64> = (0..SIZE)
                .map(|i| reference(at(&a, 2, a_size, i), at(&b, 3, b_size, i)))
                .collect();
            let out = rig.run(&Run {
                spec: &KernelSpec::new(Shader::Binary, [("OPERATION", code as u32), ("WORKGROUP", 64)]),
                params: &[SIZE as u32, 2, a_size as u32, 3, b_size as u32],
                state: [0; 3],
                reads: &[bytes(&a), bytes(&b)],
                writes: &[&[0.0; SIZE]],
                grid: [(SIZE as u32).div_ceil(64), 1, 1],
            });
            assert_close(
                &out[0],
                &want,
                1e-6,
                &format!("operation {code} on {a_size} and {b_size}"),
            );
        }
    }
}

fn check_argmax(rig: &Rig) {
    let greedy = |logits: &[f32], offset: usize| {
        let out = rig.run(&Run {
            spec: &KernelSpec::new(Shader::Argmax, [("WORKGROUP", 256)]),
            params: &[(logits.len() - offset) as u32, offset as u32],
            state: [0; 3],
            reads: &[bytes(logits)],
            writes: &[&[0.0; 2]],
            grid: [1, 1, 1],
        });
        (out[0][0].to_bits() as usize, out[0][1])
    };
    for (at, size) in [(0, 1), (0, 2000), (1999, 2000), (1023, 2000), (77, 100)] {
        let mut logits = noise(1, size);
        logits[at] = 3.0;
        assert_eq!(greedy(&logits, 0), (at, 3.0));
    }
    let mut ties = noise(2, 1000);
    for at in [900, 300, 301, 556] {
        ties[at] = 2.0;
    }
    assert_eq!(greedy(&ties, 0), (300, 2.0), "the lowest index among equals");
    assert_eq!(greedy(&ties, 301), (0, 2.0), "indices count from the offset");
    assert_eq!(greedy(&[-5.0, -4.0, -6.0], 0), (1, -4.0), "all below zero");
}
