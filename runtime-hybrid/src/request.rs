//! A request and its answer, as the caller sees them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::{Stream, StreamExt};

use crate::error::{Error, Result};
use crate::sampler::Sampling;
use crate::text::Message;

/// What to generate.
///
/// ```
/// use runtime_hybrid::{Request, Sampling};
/// let request = Request::chat("What is gravity?").max_tokens(64).sampling(Sampling::greedy());
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) prompt: Prompt,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    Chat(Vec<Message>),
    Text(String),
    Tokens(Vec<u32>),
}

/// What ends an answer besides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    EndOfSequence,
    LengthOnly,
}

impl Request {
    /// One message of a user, through the model's chat template.
    pub fn chat(message: impl Into<String>) -> Self {
        Self::messages(vec![Message::user(message)])
    }

    /// A chat so far, through the model's chat template.
    pub fn messages(messages: Vec<Message>) -> Self {
        Self::new(Prompt::Chat(messages))
    }

    /// A text to go on with, without the chat template.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Prompt::Text(text.into()))
    }

    /// Tokens to go on with, as they are.
    pub fn tokens(tokens: Vec<u32>) -> Self {
        Self::new(Prompt::Tokens(tokens))
    }

    fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            max_tokens: None,
            sampling: None,
            end: End::EndOfSequence,
        }
    }

    /// At most this many tokens. Without it, up to what the model's context and its `max_length` leave.
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = Some(max_tokens);
        self
    }

    /// How tokens are chosen. Without it, as the model's `genai_config.json` says.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// Does not stop at an end-of-sequence token, as a measurement of a fixed number of tokens wants it.
    pub fn past_end_of_sequence(mut self) -> Self {
        self.end = End::LengthOnly;
        self
    }
}

/// What a running request says.
#[derive(Clone, Debug)]
pub enum Event {
    /// The prompt has been accepted; these are its tokens.
    Prompt(Vec<u32>),
    /// The next token.
    Token(Token),
    /// The answer is complete.
    Done(Summary),
}

/// A generated token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// Text that is certain with it: whole characters, often none, and none for special tokens.
    pub text: String,
}

/// How an answer ended, and what it took.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub finish: Finish,
    /// Text still held back when it ended: half a character, as U+FFFD.
    pub rest: String,
    /// From the request to its start: behind other requests, or behind initialisation.
    pub queued: Duration,
    /// The prefill run.
    pub prefill: Duration,
    /// From the request to its first token.
    pub first_token: Duration,
    /// From the start of decoding to the last token.
    pub decode: Duration,
    /// Tokens decoded after the first.
    pub n_decoded: usize,
}

impl Summary {
    /// Tokens per second after the first, `None` if there was only one.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        let seconds = self.decode.as_secs_f64();
        (self.n_decoded > 0 && seconds > 0.0).then(|| self.n_decoded as f64 / seconds)
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model said an end-of-sequence token, which is the answer's last.
    EndOfSequence,
    /// The number of tokens asked for was reached, or the context is full.
    Length,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The tokens of the prompt.
    pub prompt_tokens: Vec<u32>,
    /// The generated tokens, with the end-of-sequence token if there was one.
    pub tokens: Vec<u32>,
    /// The text of the generated tokens, without special tokens.
    pub text: String,
    /// How it ended, and what it took.
    pub summary: Summary,
}

/// A running request: a stream of its [`Event`]s.
///
/// # Cancel safety
///
/// Dropping it cancels the request: it leaves the queue, or stops after the token (or the prefill run) at hand.
/// No event is lost when a future over it is dropped before it is ready.
#[derive(Debug)]
pub struct Generation {
    events: UnboundedReceiver<Result<Event>>,
}

impl Generation {
    pub(crate) fn new(events: UnboundedReceiver<Result<Event>>) -> Self {
        Self { events }
    }

    /// The whole answer.
    ///
    /// # Errors
    ///
    /// The first error of the stream: initialisation failed, the prompt does not fit, an engine failed, or the runtime
    /// was closed.
    pub async fn answer(mut self) -> Result<Answer> {
        let (mut prompt_tokens, mut tokens, mut text) = (Vec::new(), Vec::new(), String::new());
        while let Some(event) = self.next().await {
            match event? {
                Event::Prompt(prompt) => prompt_tokens = prompt,
                Event::Token(token) => {
                    tokens.push(token.id);
                    text += &token.text;
                }
                Event::Done(summary) => {
                    text += &summary.rest;
                    return Ok(Answer {
                        prompt_tokens,
                        tokens,
                        text,
                        summary,
                    });
                }
            }
        }
        Err(Error::closed())
    }

    /// The whole answer, for a caller without an executor: blocks this thread.
    ///
    /// # Errors
    ///
    /// As [`answer`](Self::answer).
    pub fn wait(self) -> Result<Answer> {
        futures::executor::block_on(self.answer())
    }
}

impl Stream for Generation {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}
