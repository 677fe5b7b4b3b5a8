//! The threads of the request path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use futures::channel::mpsc::unbounded;

use super::job::{Job, Limits, Sequence, Text};
use crate::error::{Error, Result};
use crate::request::{Generation, Request};

/// The engine that reads a prompt.
pub(crate) trait Prefill {
    /// What it knows of a sequence, to be handed to the decoding side.
    type Cache: Send + 'static;

    /// Reads a prompt into a cache that has room for `capacity` positions. Gives the last position's logits.
    fn prefill(&mut self, prompt: &[u32], capacity: usize) -> Result<(Self::Cache, Vec<f32>)>;
}

/// The engine that makes one token after the other, for one sequence at a time.
pub(crate) trait Decode<Cache> {
    /// Goes on with the sequence that `cache` knows; the one before is done with.
    fn begin(&mut self, cache: Cache) -> Result<()>;

    /// The logits after one more token.
    fn step(&mut self, token: u32) -> Result<Vec<f32>>;
}

/// How to get at the engines. Each function is called on the thread that then serves, and waits for its barrier there.
pub(crate) enum Sides<P, D> {
    /// Prefill and decode on engines of their own, at the same time.
    Split(Opening<(P, Arc<Text>)>, Opening<D>),
    /// One engine does both, in turn.
    Single(Opening<(P, D, Arc<Text>)>),
}

type Opening<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// The running threads. Dropping it ends every request with an error and joins them.
pub(crate) struct Server {
    queue: Mutex<Option<Sender<Job>>>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    limits: Limits,
    closed: AtomicBool,
    first_token: Arc<OnceLock<Instant>>,
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Server {
    pub(crate) fn start<P, D>(limits: Limits, sides: Sides<P, D>) -> Result<Self>
    where
        P: Prefill + 'static,
        D: Decode<P::Cache> + 'static,
    {
        let shared = Arc::new(Shared {
            limits,
            closed: AtomicBool::new(false),
            first_token: Arc::default(),
        });
        let (queue, jobs) = channel();
        let mut server = Self {
            queue: Mutex::new(Some(queue)),
            shared: shared.clone(),
            threads: Vec::new(),
        };
        match sides {
            Sides::Single(open) => {
                server.spawn("hostlane-serve", move || serve_both(&jobs, open, &shared))?
            }
            Sides::Split(open_prefill, open_decode) => {
                let (hand_over, sequences) = sync_channel(1);
                let prefill_shared = shared.clone();
                server.spawn("hostlane-prefill", move || {
                    serve_prefill(&jobs, open_prefill, &hand_over, &prefill_shared)
                })?;
                server.spawn("hostlane-decode", move || {
                    serve_decode(&sequences, open_decode, &shared)
                })?;
            }
        }
        Ok(server)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        self.threads
            .push(thread.map_err(|e| Error::setting(format!("cannot start a thread: {e}")))?);
        Ok(())
    }

    /// Puts a request at the end of the queue.
    pub(crate) fn submit(&self, request: Request) -> Generation {
        let (events, receiver) = unbounded();
        let job = Job {
            request,
            events,
            submitted: Instant::now(),
        };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &*queue {
            Some(queue) => {
                if let Err(returned) = queue.send(job) {
                    returned.0.fail(Error::closed());
                }
            }
            None => job.fail(Error::closed()),
        }
        Generation::new(receiver)
    }

    /// When the first token of all requests was out.
    pub(crate) fn first_token(&self) -> Option<Instant> {
        self.shared.first_token.get().copied()
    }

    /// Lets every request end with an error, and takes no more.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            // Panics inside a request are caught; one outside is a bug that the panic hook has shown.
            let _ = thread.join();
        }
    }
}

fn serve_both<P: Prefill, D: Decode<P::Cache>>(
    jobs: &Receiver<Job>,
    open: Opening<(P, D, Arc<Text>)>,
    shared: &Shared,
) {
    match guarded("NPU", open) {
        Ok((mut prefill, mut decode, text)) => {
            for job in jobs {
                if let Some((cache, sequence)) = prefill_one(job, &mut prefill, &text, shared) {
                    decode_one(cache, sequence, &mut decode, shared);
                }
            }
        }
        Err(error) => jobs.iter().for_each(|job| job.fail(error.clone())),
    }
}

fn serve_prefill<P: Prefill>(
    jobs: &Receiver<Job>,
    open: Opening<(P, Arc<Text>)>,
    hand_over: &SyncSender<(P::Cache, Sequence)>,
    shared: &Shared,
) {
    match guarded("NPU", open) {
        Ok((mut prefill, text)) => {
            for job in jobs {
                if let Some(ready) = prefill_one(job, &mut prefill, &text, shared)
                    && let Err(returned) = hand_over.send(ready)
                {
                    returned.0.1.fail(Error::closed());
                }
            }
        }
        Err(error) => jobs.iter().for_each(|job| job.fail(error.clone())),
    }
}

fn serve_decode<Cache, D: Decode<Cache>>(
    sequences: &Receiver<(Cache, Sequence)>,
    open: Opening<D>,
    shared: &Shared,
) {
    match guarded("iGPU", open) {
        Ok(mut decode) => {
            for (cache, sequence) in sequences {
                decode_one(cache, sequence, &mut decode, shared);
            }
        }
        Err(error) => sequences
            .iter()
            .for_each(|(_, sequence)| sequence.fail(error.clone())),
    }
}

/// From a request to the cache and the first token. `None` where the request is over.
fn prefill_one<P: Prefill>(
    job: Job,
    prefill: &mut P,
    text: &Text,
    shared: &Shared,
) -> Option<(P::Cache, Sequence)> {
    if shared.is_closed() {
        job.fail(Error::closed());
        return None;
    }
    if job.is_abandoned() {
        return None;
    }
    let mut sequence = job.prepare(text, &shared.limits, &shared.first_token)?;
    let start = Instant::now();
    match guarded("NPU", || prefill.prefill(sequence.prompt(), sequence.capacity())) {
        Ok((cache, logits)) => {
            sequence.prefilled(start.elapsed());
            sequence.advance(logits).map(|sequence| (cache, sequence))
        }
        Err(error) => {
            sequence.fail(error);
            None
        }
    }
}

/// From the first token to the last.
fn decode_one<Cache, D: Decode<Cache>>(
    cache: Cache,
    mut sequence: Sequence,
    decode: &mut D,
    shared: &Shared,
) {
    if sequence.is_abandoned() {
        return;
    }
    sequence.decoding();
    if let Err(error) = guarded("decode", || decode.begin(cache)) {
        return sequence.fail(error);
    }
    loop {
        if sequence.is_abandoned() {
            return;
        }
        if shared.is_closed() {
            return sequence.fail(Error::closed());
        }
        match guarded("decode", || decode.step(sequence.last())) {
            Err(error) => return sequence.fail(error),
            Ok(logits) => match sequence.advance(logits) {
                Some(more) => sequence = more,
                None => return,
            },
        }
    }
}

/// A panic inside an engine is that request's error, not the end of the thread that all others wait for.
fn guarded<T>(engine: &'static str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::engine(
            engine,
            format!("panicked: {}", text.as_deref().unwrap_or("no message")),
        ))
    })
}
