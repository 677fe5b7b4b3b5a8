use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scheduler::testing::check_guarantees;
use scheduler::{BoxError, InitMode, Intake, OperatorType, Trace};

use crate::{explore, pause, thread};

/// Sets up numbers; the one it is told to fails. Counts the values that are alive.
struct Numbers {
    alive: Arc<AtomicUsize>,
    fails: Option<u32>,
}

struct Counted(u32, Arc<AtomicUsize>);

impl Counted {
    fn new(value: u32, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(value, alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OperatorType for Numbers {
    type Source = u32;
    type Host = Counted;
    type Device = Counted;
    type Lane = Counted;

    fn name(&self) -> &str {
        "Numbers"
    }
    fn open(&self) -> Result<Counted, BoxError> {
        Ok(Counted::new(0, &self.alive))
    }
    fn read(&self, source: &u32) -> Result<Counted, BoxError> {
        Ok(Counted::new(*source, &self.alive))
    }
    async fn setup(&self, _: &mut Counted, host: Counted) -> Result<Counted, BoxError> {
        if host.0 % 2 == 1 {
            pause().await;
        }
        if Some(host.0) == self.fails {
            return Err("as it was told".into());
        }
        Ok(Counted::new(host.0 * 10, &self.alive))
    }
}

/// Two lanes, five operators. True if it succeeded.
fn take_five(mode: InitMode, fails: Option<u32>, disturb: impl FnOnce(&Intake)) -> bool {
    let alive = Arc::new(AtomicUsize::new(0));
    let intake = Intake::recording(mode);
    let lanes = [(); 2].map(|()| {
        intake.lane(Numbers {
            alive: alive.clone(),
            fails,
        })
    });
    disturb(&intake);
    let handles: Vec<_> = (0..5)
        .map(|i| intake.operator(&lanes[i as usize % 2], format!("op{i}"), &i))
        .collect();
    let sealed = intake.seal().unwrap();
    let outcome = sealed.wait();
    for (i, handle) in handles.iter().enumerate() {
        match (handle, &outcome) {
            (Ok(handle), Ok(())) => assert_eq!(handle.get().unwrap().0, 10 * i as u32),
            (Ok(handle), Err(_)) => assert!(handle.get().is_err()),
            (Err(_), outcome) => assert!(outcome.is_err()),
        }
    }
    let trace = Trace::new(intake.record());
    assert_eq!(check_guarantees(&trace).map_err(|v| v.to_string()), Ok(()));
    if outcome.is_err() {
        assert_eq!(alive.load(Ordering::Relaxed), 0, "everything was rolled back");
    }
    drop((intake, handles));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    outcome.is_ok()
}

#[test]
fn an_intake_that_nothing_disturbs_succeeds() {
    for mode in InitMode::ALL {
        explore(move || assert!(take_five(mode, None, |_| {})));
    }
}

#[test]
fn an_intake_with_a_failing_setup_fails_whenever_that_happens() {
    for mode in InitMode::ALL {
        for fails in [0, 3, 4] {
            explore(move || assert!(!take_five(mode, Some(fails), |_| {})));
        }
    }
}

#[test]
fn an_intake_settles_whenever_it_is_cancelled() {
    for mode in InitMode::ALL {
        explore(move || {
            let mut canceller = None;
            take_five(mode, None, |intake| {
                let intake = intake.clone();
                canceller = Some(thread::spawn(move || intake.cancel()));
            });
            canceller.unwrap().join().unwrap();
        });
    }
}
