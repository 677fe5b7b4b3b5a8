use crate::{engine, harness};
use proptest::prelude::*;
use scheduler::InitMode;

/// Fake device values also depend on what their lane did before, so this shows that lanes set up in the same order, too.
#[test]
fn g11_every_mode_gives_the_values_of_inline() {
    engine::check(harness::cases(&[]), |case| {
        let values = |mode| {
            let finished = harness::run(&harness::Case { mode, ..case.clone() });
            finished.outcome.expect("nothing goes wrong")
        };
        let reference = values(InitMode::Inline);
        for mode in InitMode::ALL {
            prop_assert_eq!(&values(mode), &reference, "{}", mode);
        }
        Ok(())
    });
}
