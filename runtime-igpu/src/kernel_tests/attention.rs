//! Rotary embedding, cache append, attention.

use crate::program::STRETCH;
use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, Run, assert_close, bytes, doubles, noise};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;

pub(super) fn check(rig: &Rig) {
    for (rotary, interleaved) in [(32, false), (32, true), (16, false), (16, true), (0, false)] {
        check_append(rig, rotary, interleaved);
    }
    for (length, window, softcap) in [
        (1, 0, 0.0),
        (40, 0, 0.0),
        (128, 0, 0.0),
        (129, 0, 5.0),
        (700, 0, 0.0),
        (700, 100, 0.0),
        (700, 300, 2.0),
        (50, 100, 0.0),
    ] {
        check_attention(rig, 32, length, window, softcap);
    }
    check_attention(rig, 80, 200, 0, 0.0);
    check_attention(rig, 256, 200, 0, 0.0);
}

fn check_append(rig: &Rig, rotary: usize, interleaved: bool) {
    const DIM: usize = 32;
    let (capacity, position) = (6, 4);
    let (q_len, kv_len) = (HEADS * DIM, KV_HEADS * DIM);
    let packed = noise(1, 3 + q_len + 2 * kv_len);
    let half = (rotary / 2).max(1);
    let (cosines, sines) = (noise(2, 8 * half), noise(3, 8 * half));
    let rotate = |head: &[f32]| -> Vec<f64> {
        let x = doubles(head);
        let mut y = x.clone();
        for pair in 0..rotary / 2 {
            let (a, b) = if interleaved {
                (2 * pair, 2 * pair + 1)
            } else {
                (pair, pair + rotary / 2)
            };
            let (cos, sin) = (
                f64::from(cosines[position * half + pair]),
                f64::from(sines[position * half + pair]),
            );
            y[a] = x[a] * cos - x[b] * sin;
            y[b] = x[b] * cos + x[a] * sin;
        }
        y
    };
    let old = noise(4, KV_HEADS * capacity * DIM);
    let (q, rest) = packed[3..].split_at(q_len);
    let (k, v) = rest.split_at(kv_len);
    let want_q: Vec<f64> = q.chunks(DIM).flat_map(rotate).collect();
    let (mut want_k, mut want_v) = (doubles(&old), doubles(&old));
    for head in 0..KV_HEADS {
        let row = (head * capacity + position) * DIM;
        want_k[row..row + DIM].copy_from_slice(&rotate(&k[head * DIM..][..DIM]));
        want_v[row..row + DIM].copy_from_slice(&doubles(&v[head * DIM..][..DIM]));
    }
    let constants = [
        ("HEAD_DIM", DIM as u32),
        ("ROTARY", rotary as u32),
        ("INTERLEAVED", u32::from(interleaved)),
        ("WORKGROUP", 64),
    ];
    let out = rig.run(&Run {
        spec: &KernelSpec::new(Shader::RopeAppend, constants),
        params: &[
            HEADS as u32,
            KV_HEADS as u32,
            3,
            3 + q_len as u32,
            3 + (q_len + kv_len) as u32,
        ],
        state: [0, position as u32, capacity as u32],
        reads: &[
            bytes(&packed),
            bytes(&packed),
            bytes(&packed),
            bytes(&cosines),
            bytes(&sines),
        ],
        writes: &[&vec![0.0; q_len], &old, &old],
        grid: [((q_len + 2 * kv_len) as u32).div_ceil(64), 1, 1],
    });
    let what = format!("rotary {rotary}, interleaved {interleaved}");
    assert_close(&out[0], &want_q, 1e-6, &format!("query, {what}"));
    assert_close(&out[1], &want_k, 1e-6, &format!("keys, {what}"));
    assert_close(&out[2], &want_v, 1e-6, &format!("values, {what}"));
}

fn check_attention(rig: &Rig, dim: usize, length: usize, window: usize, softcap: f64) {
    for workgroup in [8, 64] {
        check_attention_in(rig, workgroup, dim, length, window, softcap);
    }
}

fn check_attention_in(rig: &Rig, workgroup: u32, dim: usize, length: usize, window: usize, softcap: f64) {
    let capacity = length + 5;
    let scale = 0.7 / (dim as f64).sqrt();
    let query: Vec<f32> = noise(1, HEADS * dim).iter().map(|x| x * 4.0).collect();
    let (keys, values) = (
        noise(2, KV_HEADS * capacity * dim),
        noise(3, KV_HEADS * capacity * dim),
    );
    let begin = if window == 0 {
        0
    } else {
        length.saturating_sub(window)
    };
    let mut want = Vec::new();
    for head in 0..HEADS {
        let cache = head / (HEADS / KV_HEADS) * capacity * dim;
        let row = |from: &[f32], p: usize| doubles(&from[cache + p * dim..][..dim]);
        let q = doubles(&query[head * dim..][..dim]);
        let score = |p: usize| {
            let score = q.iter().zip(row(&keys, p)).map(|(q, k)| q * k).sum::<f64>() * scale;
            if softcap == 0.0 {
                score
            } else {
                softcap * (score / softcap).tanh()
            }
        };
        let weights: Vec<f64> = (begin..length).map(|p| score(p).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for d in 0..dim {
            let value = |(p, w): (usize, &f64)| w * f64::from(values[cache + (begin + p) * dim + d]);
            want.push(weights.iter().enumerate().map(value).sum::<f64>() / sum);
        }
    }
    let max_stretches = capacity.div_ceil(STRETCH as usize);
    let stretches = (length - begin).div_ceil(STRETCH as usize) as u32;
    let head_dim = ("HEAD_DIM", dim as u32);
    let state = [0, length as u32 - 1, capacity as u32];
    let partials = rig.run(&Run {
        spec: &KernelSpec::new(
            Shader::AttentionPartial,
            [
                ("WORKGROUP", workgroup),
                head_dim,
                ("STRETCH", STRETCH),
                ("TOUCH", u32::from(workgroup == 8)),
            ],
        ),
        params: &[
            (HEADS / KV_HEADS) as u32,
            max_stretches as u32,
            window as u32,
            (scale as f32).to_bits(),
            (softcap as f32).to_bits(),
        ],
        state,
        reads: &[bytes(&query), bytes(&keys), bytes(&values)],
        writes: &[&vec![f32::NAN; HEADS * max_stretches * (dim + 4)]],
        grid: [HEADS as u32, stretches, 1],
    });
    let out = rig.run(&Run {
        spec: &KernelSpec::new(
            Shader::AttentionCombine,
            [head_dim, ("STRETCH", STRETCH), ("WORKGROUP", 64)],
        ),
        params: &[HEADS as u32, max_stretches as u32, window as u32],
        state,
        reads: &[bytes(&partials[0])],
        writes: &[&vec![0.0; HEADS * dim]],
        grid: [((HEADS * dim) as u32).div_ceil(64), 1, 1],
    });
    let what = format!(
        "workgroup {workgroup}, heads of {dim}, {length} positions, window {window}, softcap {softcap}"
    );
    assert_close(&out[0], &want, 1e-5, &what);
}
