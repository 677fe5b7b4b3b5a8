//! One request on its way: checked, then a sequence that grows token by token.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::channel::mpsc::UnboundedSender;

use crate::error::{Error, Result};
use crate::request::{End, Event, Finish, Prompt, Request, Summary, Token};
use crate::sampler::{Sampler, Sampling};
use crate::text::{ChatTemplate, TokenStream, Tokenizer};

/// What turns text into tokens. A model folder without a tokenizer serves requests that are tokens, so what is missing or broken is
/// kept here until a request needs it.
pub(crate) struct Text {
    pub(crate) tokenizer: Result<Tokenizer>,
    pub(crate) template: Result<Option<ChatTemplate>>,
}

impl Text {
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens.clone()),
            Prompt::Text(text) => self.tokenizer.clone()?.encode(text),
            Prompt::Chat(messages) => {
                let tokenizer = self.tokenizer.clone()?;
                let template = self.template.as_ref().map_err(Error::clone)?.as_ref().ok_or_else(|| {
                    Error::request(
                        "the model has no chat template (neither chat_template.jinja nor one in tokenizer_config.json): send a \
                         plain text instead",
                    )
                })?;
                tokenizer.encode_rendered(&template.render(messages)?)
            }
        }
    }
}

/// What a model allows and defaults to.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Tokens of prompt and answer together.
    pub(crate) context: usize,
    /// Default limit of the same, from `genai_config.json`.
    pub(crate) max_length: usize,
    pub(crate) vocabulary: usize,
    pub(crate) end_of_sequence: Vec<u32>,
    pub(crate) sampling: Sampling,
}

/// A request in the queue.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) events: UnboundedSender<Result<Event>>,
    pub(crate) submitted: Instant,
}

impl Job {
    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    pub(crate) fn fail(self, error: Error) {
        // A closed channel is an abandoned request.
        let _ = self.events.unbounded_send(Err(error));
    }

    /// Checks the request against the model and makes it a sequence. No engine has worked for it yet.
    pub(crate) fn prepare(
        self,
        text: &Text,
        limits: &Limits,
        first_token: &Arc<OnceLock<Instant>>,
    ) -> Option<Sequence> {
        let queued = self.submitted.elapsed();
        match check(&self.request, text, limits) {
            Ok((prompt, max_tokens, sampler)) => {
                let _ = self.events.unbounded_send(Ok(Event::Prompt(prompt.clone())));
                let end_of_sequence = match self.request.end {
                    End::EndOfSequence => limits.end_of_sequence.clone(),
                    End::LengthOnly => Vec::new(),
                };
                Some(Sequence {
                    n_prompt: prompt.len(),
                    tokens: prompt,
                    max_tokens,
                    end_of_sequence,
                    sampler,
                    text: text.tokenizer.as_ref().ok().map(Tokenizer::stream),
                    events: self.events,
                    submitted: self.submitted,
                    queued,
                    prefill: Duration::ZERO,
                    first_token: Duration::ZERO,
                    decode_started: None,
                    first_of_all: first_token.clone(),
                })
            }
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }
}

fn check(request: &Request, text: &Text, limits: &Limits) -> Result<(Vec<u32>, usize, Sampler)> {
    let sampler = Sampler::new(
        request
            .sampling
            .clone()
            .unwrap_or_else(|| limits.sampling.clone()),
    )?;
    let prompt = text.tokens(&request.prompt)?;
    if prompt.is_empty() {
        return Err(Error::request("the prompt has no tokens"));
    }
    if let Some(token) = prompt.iter().find(|&&token| token as usize >= limits.vocabulary) {
        let n = limits.vocabulary;
        return Err(Error::request(format!(
            "the prompt has token {token}, but the model's vocabulary has only {n}"
        )));
    }
    let left = |limit: usize| limit.saturating_sub(prompt.len());
    let max_tokens = request
        .max_tokens
        .unwrap_or_else(|| left(limits.max_length).min(left(limits.context)).max(1));
    if max_tokens == 0 {
        return Err(Error::request("at least one token must be asked for"));
    }
    if max_tokens > left(limits.context) {
        return Err(Error::context(prompt.len(), max_tokens, limits.context));
    }
    Ok((prompt, max_tokens, sampler))
}

/// A checked request: its tokens so far, and everything that makes the next.
pub(crate) struct Sequence {
    /// Prompt and answer so far.
    tokens: Vec<u32>,
    n_prompt: usize,
    max_tokens: usize,
    end_of_sequence: Vec<u32>,
    sampler: Sampler,
    text: Option<TokenStream>,
    events: UnboundedSender<Result<Event>>,
    submitted: Instant,
    queued: Duration,
    prefill: Duration,
    first_token: Duration,
    decode_started: Option<Instant>,
    /// When this runtime's first token was out.
    first_of_all: Arc<OnceLock<Instant>>,
}

impl Sequence {
    pub(crate) fn prompt(&self) -> &[u32] {
        &self.tokens[..self.n_prompt]
    }

    /// Positions that prompt and answer may need together.
    pub(crate) fn capacity(&self) -> usize {
        self.n_prompt + self.max_tokens
    }

    /// The last token, which the next decode step takes.
    pub(crate) fn last(&self) -> u32 {
        self.tokens[self.tokens.len() - 1]
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    pub(crate) fn prefilled(&mut self, took: Duration) {
        self.prefill = took;
    }

    pub(crate) fn decoding(&mut self) {
        self.decode_started = Some(Instant::now());
    }

    pub(crate) fn fail(self, error: Error) {
        let _ = self.events.unbounded_send(Err(error));
    }

    /// Chooses the next token from the logits and says it. Gives the sequence back if it goes on.
    pub(crate) fn advance(mut self, mut logits: Vec<f32>) -> Option<Self> {
        match self.choose(&mut logits) {
            Err(error) => {
                self.fail(error);
                None
            }
            Ok(None) => Some(self),
            Ok(Some(finish)) => {
                self.finish(finish);
                None
            }
        }
    }

    fn choose(&mut self, logits: &mut [f32]) -> Result<Option<Finish>> {
        let id = self.sampler.sample(logits, &self.tokens)?;
        self.tokens.push(id);
        let n_generated = self.tokens.len() - self.n_prompt;
        if n_generated == 1 {
            self.first_token = self.submitted.elapsed();
            self.first_of_all.get_or_init(Instant::now);
        }
        let text = match &mut self.text {
            Some(stream) => stream.push(id)?,
            None => String::new(),
        };
        let _ = self.events.unbounded_send(Ok(Event::Token(Token { id, text })));
        if self.end_of_sequence.contains(&id) {
            return Ok(Some(Finish::EndOfSequence));
        }
        Ok((n_generated == self.max_tokens).then_some(Finish::Length))
    }

    fn finish(self, finish: Finish) {
        let rest = self.text.map_or(Ok(String::new()), TokenStream::finish);
        let done = rest.map(|rest| {
            Event::Done(Summary {
                finish,
                rest,
                queued: self.queued,
                prefill: self.prefill,
                first_token: self.first_token,
                decode: self
                    .decode_started
                    .map_or(Duration::ZERO, |start| start.elapsed()),
                n_decoded: self.tokens.len() - self.n_prompt - 1,
            })
        });
        let _ = self.events.unbounded_send(done);
    }
}
