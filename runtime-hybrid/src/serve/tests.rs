//! The request path over engines that are plain functions: order, company, cancelling, failures.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::executor::block_on;

use super::*;
use crate::error::{Error, Result};
use crate::request::{Event, Finish, Request};
use crate::sampler::Sampling;

const VOCABULARY: usize = 50;
const END: u32 = 49;

type Log = Arc<Mutex<Vec<String>>>;

/// Each token is a function of all before it, and nothing else.
fn logits_after(history: &[u32]) -> Vec<f32> {
    let hash = history.iter().fold(7_u64, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3)
    });
    (0..VOCABULARY as u64)
        .map(|token| ((hash >> (token % 40)) % 1000 + token) as f32)
        .collect()
}

fn expected(prompt: &[u32], n: usize) -> Vec<u32> {
    let mut history = prompt.to_vec();
    for _ in 0..n {
        let logits = logits_after(&history);
        let best = logits.iter().cloned().fold(f32::MIN, f32::max);
        history.push(logits.iter().position(|&l| l == best).unwrap() as u32);
    }
    history.split_off(prompt.len())
}

struct Engine {
    log: Log,
    history: Vec<u32>,
    /// Steps wait for a permit here, where a test holds the other end.
    permits: Option<Receiver<()>>,
}

impl Engine {
    fn new(log: &Log) -> Self {
        Self {
            log: log.clone(),
            history: Vec::new(),
            permits: None,
        }
    }
}

impl Prefill for Engine {
    type Cache = Vec<u32>;

    fn prefill(&mut self, prompt: &[u32], capacity: usize) -> Result<(Vec<u32>, Vec<f32>)> {
        assert!(capacity > prompt.len());
        self.log.lock().unwrap().push(format!("prefill {}", prompt[0]));
        match prompt[0] {
            13 => panic!("unlucky"),
            14 => Err(Error::engine("NPU", "out of memory")),
            _ => Ok((prompt.to_vec(), logits_after(prompt))),
        }
    }
}

impl Decode<Vec<u32>> for Engine {
    fn begin(&mut self, cache: Vec<u32>) -> Result<()> {
        self.log.lock().unwrap().push(format!("decode {}", cache[0]));
        self.history = cache;
        Ok(())
    }

    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        if let Some(permits) = &self.permits {
            let _ = permits.recv();
        }
        self.history.push(token);
        Ok(logits_after(&self.history))
    }
}

fn limits() -> Limits {
    Limits {
        context: 64,
        max_length: 32,
        vocabulary: VOCABULARY,
        end_of_sequence: vec![END, END + 1],
        sampling: Sampling::greedy(),
    }
}

fn no_text() -> Arc<Text> {
    Arc::new(Text {
        tokenizer: Err(Error::request("no tokenizer")),
        template: Ok(None),
    })
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Split,
    Single,
}

const KINDS: [Kind; 2] = [Kind::Split, Kind::Single];

fn start_with(
    kind: Kind,
    prefill: Engine,
    decode: Engine,
    wait: impl FnOnce() -> Result<()> + Send + 'static,
) -> Server {
    let sides = match kind {
        Kind::Split => Sides::Split(
            Box::new(|| wait().map(|()| (prefill, no_text()))),
            Box::new(|| Ok(decode)),
        ),
        Kind::Single => Sides::Single(Box::new(|| wait().map(|()| (prefill, decode, no_text())))),
    };
    Server::start(limits(), sides).unwrap()
}

fn start(kind: Kind, log: &Log) -> Server {
    start_with(kind, Engine::new(log), Engine::new(log), || Ok(()))
}

fn request(first: u32, n: usize) -> Request {
    Request::tokens(vec![first, 3])
        .max_tokens(n)
        .past_end_of_sequence()
}

#[test]
fn requests_at_once_give_what_each_gives_alone_in_their_order() {
    for kind in KINDS {
        let log = Log::default();
        let server = start(kind, &log);
        let running: Vec<_> = (20..28).map(|first| server.submit(request(first, 12))).collect();
        for (first, generation) in (20..28).zip(running) {
            let answer = generation.wait().unwrap();
            assert_eq!(answer.tokens, expected(&[first, 3], 12), "{kind:?}");
            assert_eq!(
                (answer.summary.finish, answer.summary.n_decoded),
                (Finish::Length, 11)
            );
        }
        for stage in ["prefill", "decode"] {
            let log = log.lock().unwrap();
            let order: Vec<_> = log
                .iter()
                .filter(|entry| entry.starts_with(stage))
                .cloned()
                .collect();
            assert_eq!(
                order,
                (20..28)
                    .map(|first| format!("{stage} {first}"))
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn any_end_of_sequence_token_ends_the_answer_and_is_its_last() {
    let server = start(Kind::Split, &Log::default());
    for first in 0..40 {
        if first == 13 || first == 14 {
            continue;
        }
        let all = expected(&[first, 3], 30);
        let answer = server
            .submit(Request::tokens(vec![first, 3]).max_tokens(30))
            .wait()
            .unwrap();
        match all.iter().position(|token| [END, END + 1].contains(token)) {
            Some(end) => {
                assert_eq!(answer.tokens, all[..=end]);
                assert_eq!(answer.summary.finish, Finish::EndOfSequence);
            }
            None => assert_eq!((answer.tokens, answer.summary.finish), (all, Finish::Length)),
        }
    }
}

#[test]
fn what_cannot_be_served_is_refused_before_any_work() {
    let log = Log::default();
    let server = start(Kind::Split, &log);
    let refuse = |request: Request, part: &str| {
        let error = server.submit(request).wait().unwrap_err();
        assert!(
            error.is_invalid_request() && error.to_string().contains(part),
            "{error}"
        );
    };
    refuse(Request::tokens(vec![]), "no tokens");
    refuse(Request::tokens(vec![1, 50]), "token 50");
    refuse(Request::tokens(vec![1]).max_tokens(0), "at least one token");
    refuse(Request::tokens(vec![1; 60]).max_tokens(5), "at most 4 tokens");
    refuse(Request::tokens(vec![1; 64]), "context holds 64");
    refuse(
        Request::tokens(vec![1]).sampling(Sampling {
            top_p: 2.0,
            ..Sampling::greedy()
        }),
        "top-p",
    );
    refuse(Request::text("hello"), "no tokenizer");
    refuse(Request::chat("hello"), "no tokenizer");
    assert!(
        server
            .submit(Request::tokens(vec![1; 60]).max_tokens(5))
            .wait()
            .unwrap_err()
            .is_context_overflow()
    );
    assert!(log.lock().unwrap().is_empty());
    assert_eq!(
        server.submit(request(1, 4)).wait().unwrap().tokens,
        expected(&[1, 3], 4)
    );
}

#[test]
fn without_a_number_of_tokens_the_models_own_length_is_the_limit() {
    let server = start(Kind::Split, &Log::default());
    let answer = server
        .submit(Request::tokens(vec![5, 3]).past_end_of_sequence())
        .wait()
        .unwrap();
    assert_eq!(answer.tokens.len(), 30);
}

#[test]
fn the_first_token_is_out_before_the_decode_engine_is_ready() {
    let log = Log::default();
    let (open, opened) = channel::<()>();
    let (prefill, decode) = (Engine::new(&log), Engine::new(&log));
    let sides = Sides::Split(
        Box::new(|| Ok((prefill, no_text()))),
        Box::new(move || {
            opened.recv().unwrap();
            Ok(decode)
        }),
    );
    let server = Server::start(limits(), sides).unwrap();
    let mut generation = server.submit(request(20, 5));
    let (prompt, first) = block_on(async { (generation.next().await, generation.next().await) });
    assert!(matches!(prompt, Some(Ok(Event::Prompt(tokens))) if tokens == [20, 3]));
    let Some(Ok(Event::Token(first))) = first else {
        panic!("no first token")
    };
    assert_eq!(first.id, expected(&[20, 3], 1)[0]);
    assert!(server.first_token().is_some());
    open.send(()).unwrap();
    assert_eq!(generation.wait().unwrap().tokens, expected(&[20, 3], 5)[1..]);
}

#[test]
fn dropping_a_request_stops_it_and_no_other() {
    for kind in KINDS {
        let log = Log::default();
        let (permit, permits) = channel();
        let decode = Engine {
            permits: Some(permits),
            ..Engine::new(&log)
        };
        let server = start_with(kind, Engine::new(&log), decode, || Ok(()));
        let mut running = server.submit(request(20, 60));
        let waiting = server.submit(request(21, 60));
        let last = server.submit(request(22, 6));
        block_on(async { (running.next().await, running.next().await) });
        drop((running, waiting));
        // The dropped one takes at most the step at hand; the last takes five.
        for _ in 0..6 {
            permit.send(()).unwrap();
        }
        drop(permit);
        assert_eq!(last.wait().unwrap().tokens, expected(&[22, 3], 6), "{kind:?}");
        assert!(!log.lock().unwrap().contains(&"decode 21".to_owned()));
    }
}

#[test]
fn a_failed_start_is_the_error_of_every_request_before_and_after() {
    for kind in KINDS {
        let log = Log::default();
        let (go, wait): (Sender<()>, _) = channel();
        let server = start_with(kind, Engine::new(&log), Engine::new(&log), move || {
            wait.recv().unwrap();
            Err(Error::model("layers.0 is broken"))
        });
        let before: Vec<_> = (0..3).map(|first| server.submit(request(first, 4))).collect();
        go.send(()).unwrap();
        for generation in before.into_iter().chain([server.submit(request(9, 4))]) {
            assert_eq!(generation.wait().unwrap_err().to_string(), "layers.0 is broken");
        }
    }
}

#[test]
fn a_failing_or_panicking_engine_fails_that_request_only() {
    for kind in KINDS {
        let log = Log::default();
        let server = start(kind, &log);
        let (unlucky, failing, good) = (
            server.submit(request(13, 4)),
            server.submit(request(14, 4)),
            server.submit(request(15, 4)),
        );
        assert!(
            unlucky
                .wait()
                .unwrap_err()
                .to_string()
                .contains("panicked: unlucky")
        );
        assert!(
            failing
                .wait()
                .unwrap_err()
                .to_string()
                .contains("NPU engine failed: out of memory")
        );
        assert_eq!(good.wait().unwrap().tokens, expected(&[15, 3], 4));
    }
}

#[test]
fn dropping_the_server_ends_requests_and_frees_the_engines() {
    for kind in KINDS {
        let log = Log::default();
        let (permit, permits) = channel();
        let decode = Engine {
            permits: Some(permits),
            ..Engine::new(&log)
        };
        let server = start_with(kind, Engine::new(&log), decode, || Ok(()));
        let mut running = server.submit(request(20, 60));
        let waiting = server.submit(request(21, 60));
        block_on(async { (running.next().await, running.next().await) });
        server.close();
        drop(permit);
        let after = server.submit(request(22, 4));
        drop(server);
        for generation in [running, waiting, after] {
            assert!(generation.wait().unwrap_err().is_cancelled(), "{kind:?}");
        }
        assert_eq!(Arc::strong_count(&log), 1, "an engine is still alive");
    }
}

#[test]
fn requests_and_answers_cross_threads() {
    fn check<T: Send + Sync + 'static>() {}
    fn check_send<T: Send + 'static>() {}
    check::<Server>();
    check::<Request>();
    check_send::<crate::request::Generation>();
}
