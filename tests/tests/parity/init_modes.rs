//! Every init mode gives the same kernels, bit for bit.

use scheduler::InitMode;

use tests::FIXTURES;
use tests::npu::{cases, folder, generate, load, options};

#[test]
fn all_modes_equal_inline_bit_for_bit() {
    for model in FIXTURES {
        let folder = folder(model);
        let prompt = &cases(model)[1].prompt;
        let run = |mode| {
            let engine = load(&folder, options(), mode).unwrap_or_else(|e| panic!("{model} {mode}: {e}"));
            let logits = generate(
                &engine,
                &mut engine.new_cache(prompt.len() + 8).unwrap(),
                prompt,
                8,
            );
            logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let inline = run(InitMode::Inline);
        for mode in [InitMode::Serial, InitMode::TwoPhase, InitMode::Overlapped] {
            assert!(run(mode) == inline, "{model}: {mode} differs from inline");
        }
    }
}

#[test]
fn every_operator_is_warm_and_says_where_it_runs() {
    for model in FIXTURES {
        let folder = folder(model);
        let engine = load(&folder, options(), InitMode::Overlapped).unwrap();
        assert_eq!(engine.placements().count(), folder.operators().unwrap().len());
        for (operator, provider, warmth) in engine.placements() {
            assert_eq!(provider, "CPUExecutionProvider", "{model} {}", operator.name);
            assert_eq!(warmth, runtime_npu::Warmth::Warm, "{model} {}", operator.name);
        }
    }
}
