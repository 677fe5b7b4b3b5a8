use proptest::prelude::*;

use super::*;

/// The same distribution, said as plainly as possible: rank every token, sum every prefix.
fn reference(logits: &[f32], sampling: &Sampling) -> Vec<(u32, f64)> {
    let scaled: Vec<f64> = logits
        .iter()
        .map(|&l| f64::from(l) / f64::from(sampling.temperature))
        .collect();
    let larger = |token: usize| scaled.iter().filter(|&&other| other > scaled[token]).count();
    let allowed: Vec<usize> = (0..scaled.len())
        .filter(|&token| sampling.top_k == 0 || larger(token) < sampling.top_k)
        .collect();
    let total: f64 = allowed.iter().map(|&t| scaled[t].exp()).sum();
    let probability = |token: usize| scaled[token].exp() / total;
    let before = |token: usize| -> f64 {
        allowed
            .iter()
            .filter(|&&other| {
                scaled[other] > scaled[token] || (scaled[other] == scaled[token] && other < token)
            })
            .map(|&other| probability(other))
            .sum()
    };
    let mut kept: Vec<(u32, f64)> = allowed
        .iter()
        .filter(|&&token| {
            before(token) == 0.0 || sampling.top_p >= 1.0 || before(token) < f64::from(sampling.top_p)
        })
        .map(|&token| (token as u32, probability(token)))
        .collect();
    let kept_total: f64 = kept.iter().map(|k| k.1).sum();
    kept.iter_mut().for_each(|k| k.1 /= kept_total);
    kept
}

/// Logits on a coarse grid, so that equal ones are common.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec((-40_i32..40).prop_map(|l| l as f32 / 8.0), 1..40)
}

fn sampling() -> impl Strategy<Value = Sampling> {
    (0.1_f32..4.0, 0_usize..45, 0.05_f32..1.2).prop_map(|(temperature, top_k, top_p)| Sampling {
        temperature,
        top_k,
        top_p: top_p.min(1.0),
        ..Sampling::greedy()
    })
}

proptest! {
    #[test]
    fn the_distribution_is_the_reference(logits in logits(), sampling in sampling()) {
        let mut got = distribution(&logits, &sampling);
        got.sort_by_key(|c| c.0);
        let want = reference(&logits, &sampling);
        // Where a prefix sum meets top-p to the last bit, either may keep the token.
        prop_assume!(got.len() == want.len() || near_threshold(&logits, &sampling));
        if got.len() == want.len() {
            for (g, w) in got.iter().zip(&want) {
                prop_assert_eq!(g.0, w.0);
                prop_assert!((g.1 - w.1).abs() < 1e-9, "{:?} against {:?}", g, w);
            }
        }
    }

    #[test]
    fn greedy_is_the_first_largest(logits in logits()) {
        let token = Sampler::new(Sampling::greedy()).unwrap().sample(&mut logits.clone(), &[]).unwrap() as usize;
        prop_assert!(logits.iter().all(|&l| l <= logits[token]));
        prop_assert!(logits[..token].iter().all(|&l| l < logits[token]));
    }

    #[test]
    fn top_k_1_is_greedy(logits in logits(), seed: u64) {
        let one = Sampling { temperature: 1.0, top_k: 1, seed: Some(seed), ..Sampling::greedy() };
        let drawn = Sampler::new(one).unwrap().sample(&mut logits.clone(), &[]).unwrap();
        prop_assert_eq!(Some(drawn), argmax(&logits));
    }

    #[test]
    fn a_draw_is_a_candidate_and_a_seed_repeats_it(logits in logits(), sampling in sampling(), seed: u64) {
        let sampling = Sampling { seed: Some(seed), ..sampling };
        let draws = |n| {
            let mut sampler = Sampler::new(sampling.clone()).unwrap();
            (0..n).map(|_| sampler.sample(&mut logits.clone(), &[]).unwrap()).collect::<Vec<_>>()
        };
        let first = draws(8);
        prop_assert_eq!(&first, &draws(8));
        let allowed = distribution(&logits, &sampling);
        prop_assert!(first.iter().all(|token| allowed.iter().any(|c| c.0 == *token)));
    }

    #[test]
    fn the_penalty_touches_each_seen_token_once(
        logits in logits(),
        history in prop::collection::vec(0_u32..60, 0..80),
        penalty in 0.5_f32..2.0,
    ) {
        let mut got = logits.clone();
        penalise(&mut got, &history, penalty);
        for (token, (&got, &was)) in got.iter().zip(&logits).enumerate() {
            let seen = history.contains(&(token as u32));
            let want = if !seen { was } else if was < 0.0 { was * penalty } else { was / penalty };
            prop_assert_eq!(got, want);
        }
    }
}

fn near_threshold(logits: &[f32], sampling: &Sampling) -> bool {
    let nearby = |by: f32| {
        reference(
            logits,
            &Sampling {
                top_p: (sampling.top_p + by).clamp(1e-6, 1.0),
                ..sampling.clone()
            },
        )
        .len()
    };
    nearby(1e-6) != nearby(-1e-6)
}

#[test]
fn draws_follow_the_probabilities() {
    let sampling = Sampling {
        temperature: 1.0,
        seed: Some(7),
        ..Sampling::greedy()
    };
    let logits = [0.0_f32, 1.0, 2.0, f32::NEG_INFINITY, f32::NAN];
    let want = distribution(&logits, &sampling);
    let mut sampler = Sampler::new(sampling).unwrap();
    let (n, mut counts) = (20_000, [0_u32; 5]);
    for _ in 0..n {
        counts[sampler.sample(&mut logits.clone(), &[]).unwrap() as usize] += 1;
    }
    for (token, probability) in want {
        let share = f64::from(counts[token as usize]) / f64::from(n);
        assert!(
            (share - probability).abs() < 0.02,
            "token {token}: {share} of the draws for {probability}"
        );
    }
    assert_eq!(counts[3..], [0, 0]);
}

#[test]
fn the_random_sequence_is_the_published_one() {
    // First outputs for seed 1234567, as in the reference implementation's widely copied test vector.
    let mut random = SplitMix64(1_234_567);
    assert_eq!(
        [random.next(), random.next(), random.next()],
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423
        ]
    );
}

#[test]
fn values_out_of_range_are_named() {
    let check = |sampling: Sampling, part: &str| {
        let error = Sampler::new(sampling).unwrap_err();
        assert!(error.is_invalid_request());
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    };
    check(
        Sampling {
            temperature: -1.0,
            ..Sampling::greedy()
        },
        "temperature",
    );
    check(
        Sampling {
            temperature: f32::NAN,
            ..Sampling::greedy()
        },
        "temperature",
    );
    check(
        Sampling {
            top_p: 0.0,
            ..Sampling::greedy()
        },
        "top-p",
    );
    check(
        Sampling {
            top_p: 1.5,
            ..Sampling::greedy()
        },
        "top-p",
    );
    check(
        Sampling {
            repetition_penalty: 0.0,
            ..Sampling::greedy()
        },
        "repetition penalty",
    );
}

#[test]
fn without_a_finite_logit_there_is_an_error_not_a_token() {
    for sampling in [
        Sampling::greedy(),
        Sampling {
            temperature: 1.0,
            ..Sampling::greedy()
        },
    ] {
        let mut sampler = Sampler::new(sampling).unwrap();
        assert!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY], &[]).is_err());
        assert!(sampler.sample(&mut [], &[]).is_err());
    }
}
