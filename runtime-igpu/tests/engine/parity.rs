//! Logits and greedy tokens equal stock ONNX Runtime's at accuracy level 1.

use runtime_igpu::{IgpuOptions, MatvecShape};

use crate::common::{Case, FIXTURES, argmax, cases, engine, folder, prefill};

/// Differences allowed, relative to the logits' standard deviation.
const TOLERANCE: f64 = 1e-3;
/// Steps whose two best logits are closer than this may go either way.
const NEAR_TIE: f64 = 1e-3;

fn check_logits(logits: &[f32], case: &Case, what: &str) {
    let [mean, std, l2] = case.moments;
    let logit = |i: usize| f64::from(logits[i]);
    let expected = case
        .head8
        .iter()
        .copied()
        .enumerate()
        .chain(case.top5.iter().copied());
    for (i, want) in expected {
        assert!(
            (logit(i) - want).abs() <= TOLERANCE * std,
            "{what}: logit {i} is {}, {want} was expected",
            logits[i]
        );
    }
    let n = logits.len() as f64;
    let got_mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let got_l2 = logits.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    assert!(
        (got_mean - mean).abs() <= TOLERANCE * std,
        "{what}: mean {got_mean}, {mean} was expected"
    );
    assert!(
        (got_l2 - l2).abs() <= TOLERANCE * l2,
        "{what}: norm {got_l2}, {l2} was expected"
    );
}

/// Follows the reference's own tokens, so that one near-tie does not derail the rest; gives the near-ties that differed.
fn check_greedy(engine: &mut runtime_igpu::IgpuEngine, first: Vec<f32>, case: &Case, what: &str) -> usize {
    let mut near_ties = 0;
    let mut logits = first;
    for (step, (&want, &margin)) in case.ids.iter().zip(&case.margins).enumerate() {
        if argmax(&logits) != want {
            assert!(
                margin < NEAR_TIE,
                "{what}: step {step} gives {}, {want} was expected (margin {margin})",
                argmax(&logits)
            );
            near_ties += 1;
        }
        logits = engine.decode(want).expect("decodes");
    }
    near_ties
}

fn check_fixture(name: &str, options: &IgpuOptions, n_cases: usize) {
    let folder = folder(name);
    let Some(mut engine) = engine(&folder, options.clone(), &format!("decode parity of {name}")) else {
        return;
    };
    let mut near_ties = 0;
    for (i, case) in cases(name).iter().take(n_cases).enumerate() {
        let what = format!("{name}, case {i}");
        let logits = prefill(&mut engine, &case.prompt);
        check_logits(&logits, case, &what);
        assert_eq!(case.ids.len(), 48);
        near_ties += check_greedy(&mut engine, logits, case, &what);
    }
    println!("{name}: {near_ties} near-ties differed");
}

#[test]
fn every_fixture_decodes_as_onnx_runtime_does() {
    for name in FIXTURES {
        check_fixture(name, &IgpuOptions::default(), usize::MAX);
    }
}

#[test]
fn the_gpu_shaped_kernels_decode_alike() {
    for name in FIXTURES {
        check_fixture(
            name,
            &IgpuOptions {
                matvec: Some(MatvecShape::Gpu),
                ..IgpuOptions::default()
            },
            2,
        );
    }
}
