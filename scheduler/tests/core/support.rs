//! An operator type whose every step is written down, and graphs over it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use scheduler::{BoxError, OperatorType};

/// What happened, in order, as the user's own code saw it.
#[derive(Clone, Debug, Default)]
pub struct Diary(Arc<Mutex<Vec<(String, ThreadId)>>>);

impl Diary {
    pub fn note(&self, what: impl Into<String>) {
        self.0
            .lock()
            .unwrap()
            .push((what.into(), std::thread::current().id()));
    }

    pub fn lines(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(what, _)| what.clone())
            .collect()
    }

    pub fn lines_with(&self, part: &str) -> Vec<String> {
        self.lines()
            .into_iter()
            .filter(|line| line.contains(part))
            .collect()
    }

    pub fn threads_of(&self, part: &str) -> Vec<ThreadId> {
        let lines = self.0.lock().unwrap();
        let mut threads: Vec<_> = lines
            .iter()
            .filter(|(line, _)| line.contains(part))
            .map(|(_, thread)| *thread)
            .collect();
        threads.dedup();
        threads
    }
}

/// A value that says when it is dropped, unless it was taken.
#[derive(Debug)]
pub struct Tracked {
    pub name: String,
    diary: Diary,
}

impl Tracked {
    pub fn new(name: impl Into<String>, diary: &Diary) -> Self {
        Tracked {
            name: name.into(),
            diary: diary.clone(),
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.diary.note(format!("drop {}", self.name));
    }
}

/// What an operator of the type under test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Work,
    /// Awaits once and is woken from another thread.
    Await,
    FailRead,
    PanicRead,
    FailSetup,
    PanicSetup,
    Never,
}

pub struct Source {
    pub name: &'static str,
    pub deed: Deed,
}

pub fn source(name: &'static str, deed: Deed) -> Source {
    Source { name, deed }
}

/// The type under test. Its lane state is an `Rc`, so it could not leave its thread.
pub struct Kind {
    pub name: &'static str,
    pub diary: Diary,
}

pub struct State {
    pub name: &'static str,
    diary: Diary,
    n: Rc<Cell<u32>>,
    not_send: PhantomData<*const ()>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.diary.note(format!("close {}", self.name));
    }
}

pub fn kind(name: &'static str, diary: &Diary) -> Kind {
    Kind {
        name,
        diary: diary.clone(),
    }
}

impl OperatorType for Kind {
    type Source = Source;
    type Host = (Tracked, Deed);
    type Device = Tracked;
    type Lane = State;

    fn name(&self) -> &str {
        self.name
    }

    fn open(&self) -> Result<State, BoxError> {
        self.diary.note(format!("open {}", self.name));
        if self.name == "closed" {
            return Err("no such device".into());
        }
        Ok(State {
            name: self.name,
            diary: self.diary.clone(),
            n: Rc::default(),
            not_send: PhantomData,
        })
    }

    fn read(&self, source: &Source) -> Result<(Tracked, Deed), BoxError> {
        self.diary.note(format!("read {}", source.name));
        match source.deed {
            Deed::FailRead => return Err("bad weights".into()),
            Deed::PanicRead => panic!("read of {} exploded", source.name),
            _ => {}
        }
        Ok((
            Tracked::new(format!("host {}", source.name), &self.diary),
            source.deed,
        ))
    }

    async fn setup(&self, lane: &mut State, (host, deed): (Tracked, Deed)) -> Result<Tracked, BoxError> {
        let name = host.name.replace("host ", "");
        self.diary.note(format!("setup {name}"));
        match deed {
            Deed::FailSetup => return Err("no memory".into()),
            Deed::PanicSetup => panic!("setup of {name} exploded"),
            Deed::Never => std::future::pending().await,
            Deed::Await => woken_from_elsewhere().await,
            _ => {}
        }
        lane.n.set(lane.n.get() + 1);
        self.diary.note(format!("done {name} {}", lane.n.get()));
        Ok(Tracked::new(format!("device {name}"), &self.diary))
    }
}

/// Resolves once another thread has woken it.
pub async fn woken_from_elsewhere() {
    let mut started = false;
    std::future::poll_fn(move |cx| {
        if started {
            return std::task::Poll::Ready(());
        }
        started = true;
        let waker = cx.waker().clone();
        std::thread::spawn(move || waker.wake());
        std::task::Poll::Pending
    })
    .await
}
