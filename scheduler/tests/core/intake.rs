use crate::support::{Deed, Diary, kind, source};
use scheduler::testing::check_guarantees;
use scheduler::{InitMode, Intake, Phase};

const NAMES: [&str; 5] = ["a0", "b0", "a1", "b1", "a2"];

#[test]
fn constructors_read_on_the_spot_and_lanes_do_the_rest() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let intake = Intake::recording(mode);
        let (a, b) = (intake.lane(kind("A", &diary)), intake.lane(kind("B", &diary)));
        let mut handles = Vec::new();
        for name in NAMES {
            let lane = if name.starts_with('a') { &a } else { &b };
            // The source lives only for the call.
            let source = source(name, if name == "a1" { Deed::Await } else { Deed::Work });
            handles.push(intake.operator(lane, name, &source).unwrap());
            assert_eq!(
                diary.lines_with("read").last().unwrap(),
                &format!("read {name}"),
                "{mode}"
            );
            if mode == InitMode::Inline {
                assert_eq!(diary.lines_with("done").len(), handles.len());
            } else if mode != InitMode::Overlapped {
                assert!(diary.lines_with("setup").is_empty(), "{mode}");
            }
            let error = handles[0].get().unwrap_err();
            assert!(
                error.is_misuse() && error.to_string().contains("a0: used before its barrier"),
                "{error}"
            );
        }
        let sealed = intake.seal().unwrap();
        futures::executor::block_on(sealed.clone()).unwrap();
        sealed.wait().unwrap();
        for (name, handle) in NAMES.iter().zip(&handles) {
            assert_eq!(handle.get().unwrap().name, format!("device {name}"));
        }
        assert_eq!(
            diary.lines_with("setup a"),
            ["setup a0", "setup a1", "setup a2"],
            "{mode}"
        );
        let late = intake
            .operator(&a, "late", &source("late", Deed::Work))
            .unwrap_err();
        assert!(
            late.is_misuse() && late.to_string().contains("after the intake was sealed"),
            "{late}"
        );
        let trace = scheduler::Trace::new(intake.record());
        assert_eq!(
            check_guarantees(&trace).map_err(|v| v.to_string()),
            Ok(()),
            "{mode}"
        );
        assert_eq!(trace.record().nodes.len(), 2 * NAMES.len());
        assert_eq!(diary.lines_with("close").len(), 2, "{mode}");
        drop(intake);
        assert!(diary.lines_with("drop device").is_empty());
        assert_eq!(handles[4].get().unwrap().name, "device a2");
        drop(handles);
        assert_eq!(diary.lines_with("drop device").len(), NAMES.len());
    }
}

#[test]
fn a_failed_read_is_returned_to_the_constructor_and_fails_the_rest() {
    for mode in InitMode::ALL {
        for deed in [Deed::FailRead, Deed::PanicRead] {
            let diary = Diary::default();
            let intake = Intake::recording(mode);
            let a = intake.lane(kind("A", &diary));
            let good = intake.operator(&a, "good", &source("good", Deed::Work)).unwrap();
            let error = intake.operator(&a, "bad", &source("bad", deed)).unwrap_err();
            assert_eq!(
                (error.node(), error.phase(), error.lane()),
                (Some("bad"), Some(Phase::Host), Some("host"))
            );
            assert_eq!(error.operator_type(), Some("A"));
            assert_eq!(error.is_panic(), deed == Deed::PanicRead);
            let later = intake
                .operator(&a, "later", &source("later", Deed::Work))
                .unwrap_err();
            assert_eq!(later.node(), Some("bad"));
            assert_eq!(
                intake.seal().unwrap().wait().unwrap_err().node(),
                Some("bad"),
                "{mode}"
            );
            assert_eq!(good.get().unwrap_err().node(), Some("bad"));
            let trace = scheduler::Trace::new(intake.record());
            assert_eq!(
                check_guarantees(&trace).map_err(|v| v.to_string()),
                Ok(()),
                "{mode}"
            );
            nothing_is_left(&diary, mode);
        }
    }
}

#[test]
fn a_failed_setup_settles_the_barrier_and_rolls_back_newest_first() {
    for mode in InitMode::ALL {
        for deed in [Deed::FailSetup, Deed::PanicSetup] {
            let diary = Diary::default();
            let intake = Intake::recording(mode);
            let a = intake.lane(kind("A", &diary));
            let mut failed_at = None;
            for name in ["x", "y", "bad", "z"] {
                let deed = if name == "bad" { deed } else { Deed::Work };
                if let Err(error) = intake.operator(&a, name, &source(name, deed)) {
                    failed_at.get_or_insert((name, error));
                }
            }
            if mode == InitMode::Inline {
                assert_eq!(failed_at.as_ref().unwrap().0, "bad");
            }
            let error = intake.seal().unwrap().wait().unwrap_err();
            assert_eq!(
                (error.node(), error.phase(), error.lane()),
                (Some("bad"), Some(Phase::Device), Some("A"))
            );
            let trace = scheduler::Trace::new(intake.record());
            assert_eq!(
                check_guarantees(&trace).map_err(|v| v.to_string()),
                Ok(()),
                "{mode}"
            );
            let drops: Vec<_> = diary
                .lines()
                .into_iter()
                .filter(|line| line.starts_with("drop device") || line.starts_with("close"))
                .collect();
            assert_eq!(drops, ["drop device y", "drop device x", "close A"], "{mode}");
            nothing_is_left(&diary, mode);
        }
    }
}

fn nothing_is_left(diary: &Diary, mode: InitMode) {
    let reads = diary.lines_with("read").len() - diary.lines_with("read bad").len();
    let bad_host = diary.lines_with("setup bad").len();
    assert_eq!(
        diary.lines_with("drop host").len(),
        reads + bad_host,
        "{mode}: {:?}",
        diary.lines()
    );
    assert_eq!(
        diary.lines_with("drop device").len(),
        diary.lines_with("done").len(),
        "{mode}"
    );
    assert_eq!(
        diary.lines_with("close").len(),
        diary.lines_with("open").len(),
        "{mode}"
    );
}

#[test]
fn a_constructor_on_a_second_thread_is_an_error_that_says_so() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let intake = Intake::new(mode);
        let a = intake.lane(kind("A", &diary));
        intake
            .operator(&a, "first", &source("first", Deed::Work))
            .unwrap();
        let error = std::thread::scope(|s| {
            s.spawn(|| {
                intake
                    .operator(&a, "second", &source("second", Deed::Work))
                    .unwrap_err()
            })
            .join()
            .unwrap()
        });
        assert!(error.is_misuse(), "{mode}");
        assert!(
            error.to_string().contains("call all constructors on one thread"),
            "{error}"
        );
        intake.seal().unwrap().wait().unwrap();
    }
}

#[test]
fn cancelling_and_dropping_an_intake_leave_nothing_behind() {
    for mode in [InitMode::TwoPhase, InitMode::Overlapped] {
        let diary = Diary::default();
        let intake = Intake::new(mode);
        let a = intake.lane(kind("A", &diary));
        let handle = intake.operator(&a, "x", &source("x", Deed::Work)).unwrap();
        intake
            .operator(&a, "never", &source("never", Deed::Never))
            .unwrap();
        intake
            .operator(&a, "later", &source("later", Deed::Work))
            .unwrap();
        let sealed = intake.seal().unwrap();
        while diary.lines_with("setup never").is_empty() {
            std::thread::yield_now();
        }
        assert!(sealed.wait_timeout(std::time::Duration::from_millis(1)).is_none());
        drop(intake);
        assert!(sealed.wait().unwrap_err().is_cancelled());
        assert!(handle.get().unwrap_err().is_cancelled());
        nothing_is_left(&diary, mode);
    }
}

#[test]
fn an_inline_intake_whose_thread_ends_closes_its_lanes_there() {
    let diary = Diary::default();
    let intake = Intake::new(InitMode::Inline);
    let a = intake.lane(kind("A", &diary));
    std::thread::scope(|s| {
        s.spawn(|| intake.operator(&a, "x", &source("x", Deed::Work)).unwrap())
            .join()
            .unwrap();
    });
    assert!(intake.seal().unwrap_err().is_misuse());
    drop(intake);
    assert_eq!(diary.threads_of("open"), diary.threads_of("close"));
    nothing_is_left(&diary, InitMode::Inline);
}

#[test]
fn an_empty_intake_is_ready_when_sealed() {
    for mode in InitMode::ALL {
        Intake::new(mode).seal().unwrap().wait().unwrap();
    }
}

#[test]
fn what_custom_operators_keep_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Intake>();
    check::<scheduler::IntakeLane<crate::support::Kind>>();
    check::<scheduler::Handle<String>>();
    check::<scheduler::SealedIntake>();
}
