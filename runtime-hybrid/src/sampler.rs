//! From a row of logits to a token.

use crate::error::{Error, Result};

/// How the next token is chosen from the logits.
///
/// The steps, in this order, as Hugging Face transformers applies them: repetition penalty, temperature,
/// top-k, top-p, then a draw. With temperature 0 the draw is the largest logit (the lowest token of equals).
///
/// ```
/// use runtime_hybrid::Sampling;
/// let warm = Sampling { temperature: 0.7, top_p: 0.9, seed: Some(1), ..Sampling::greedy() };
/// assert!(warm.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw. 0 means greedy.
    pub temperature: f32,
    /// Only the `top_k` largest logits (and those equal to the last of them) may be drawn. 0 means all.
    pub top_k: usize,
    /// Only the smallest set of most likely tokens whose probabilities reach `top_p` may be drawn. 1 means all.
    pub top_p: f32,
    /// Positive logits of tokens seen before, prompt included, are divided by this, negative ones multiplied. 1 means none.
    pub repetition_penalty: f32,
    /// Seed of the draw. The same seed gives the same tokens, on any machine. `None` takes one at random.
    pub seed: Option<u64>,
}

impl Sampling {
    /// The largest logit, without a penalty.
    pub const fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            repetition_penalty: 1.0,
            seed: None,
        }
    }

    /// Whether the largest logit is taken, so that the seed does not matter.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Whether every value is in its range.
    ///
    /// # Errors
    ///
    /// Names the value that is not.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str, value: f32, range: &str| {
            Err(Error::request(format!("{what} is {value}, but must be {range}")))
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong(
                "the temperature",
                self.temperature,
                "0 (greedy) or a positive number",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top-p", self.top_p, "above 0 and at most 1");
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return wrong(
                "the repetition penalty",
                self.repetition_penalty,
                "a positive number",
            );
        }
        Ok(())
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::greedy()
    }
}

/// Draws tokens for one request.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix64,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    ///
    /// # Errors
    ///
    /// A value of `sampling` is out of its range.
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.check()?;
        let seed = sampling.seed.unwrap_or_else(rand::random);
        Ok(Self {
            sampling,
            random: SplitMix64(seed),
        })
    }

    /// Chooses the next token. `history` is every token so far, prompt included; `logits` are changed in place.
    ///
    /// # Errors
    ///
    /// No logit is a number that can be chosen (all NaN or minus infinity).
    pub fn sample(&mut self, logits: &mut [f32], history: &[u32]) -> Result<u32> {
        penalise(logits, history, self.sampling.repetition_penalty);
        if self.sampling.is_greedy() {
            return argmax(logits).ok_or_else(no_finite_logit);
        }
        let candidates = distribution(logits, &self.sampling);
        if candidates.is_empty() {
            return Err(no_finite_logit());
        }
        Ok(draw(&candidates, self.random.next_unit()))
    }
}

fn no_finite_logit() -> Error {
    Error::engine("sampling", "no logit is a finite number")
}

fn penalise(logits: &mut [f32], history: &[u32], penalty: f32) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = vec![false; logits.len()];
    for &token in history {
        let token = token as usize;
        if token < logits.len() && !std::mem::replace(&mut seen[token], true) {
            let logit = &mut logits[token];
            *logit = if *logit < 0.0 {
                *logit * penalty
            } else {
                *logit / penalty
            };
        }
    }
}

/// The index of the largest number, the lowest of equals; NaN never wins.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(usize, f32)> = None;
    for (token, &logit) in logits.iter().enumerate() {
        if logit > best.map_or(f32::NEG_INFINITY, |(_, logit)| logit) {
            best = Some((token, logit));
        }
    }
    best.map(|(token, _)| token as u32)
}

/// The tokens that may be drawn with their probabilities, most likely first, the lower token first among equals.
fn distribution(logits: &[f32], sampling: &Sampling) -> Vec<(u32, f64)> {
    let likelier = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let mut candidates: Vec<(u32, f32)> = logits
        .iter()
        .enumerate()
        .filter(|(_, logit)| !logit.is_nan() && **logit > f32::NEG_INFINITY)
        .map(|(token, &logit)| (token as u32, logit))
        .collect();
    if sampling.top_k > 0 && sampling.top_k < candidates.len() {
        let (_, last, _) = candidates.select_nth_unstable_by(sampling.top_k - 1, likelier);
        let least = last.1;
        candidates.retain(|&(_, logit)| logit >= least);
    }
    candidates.sort_unstable_by(likelier);

    let Some(&(_, largest)) = candidates.first() else {
        return Vec::new();
    };
    let weight = |logit: f32| {
        // Equal to the largest gives 1 even when both are infinite.
        if logit == largest {
            1.0
        } else {
            ((f64::from(logit) - f64::from(largest)) / f64::from(sampling.temperature)).exp()
        }
    };
    let weights: Vec<f64> = candidates.iter().map(|&(_, logit)| weight(logit)).collect();
    let total: f64 = weights.iter().sum();

    let (mut kept, mut kept_weight) = (0, 0.0);
    while kept < weights.len()
        && (kept == 0 || sampling.top_p >= 1.0 || kept_weight < f64::from(sampling.top_p) * total)
    {
        kept_weight += weights[kept];
        kept += 1;
    }
    candidates
        .iter()
        .zip(weights)
        .take(kept)
        .map(|(&(token, _), weight)| (token, weight / kept_weight))
        .collect()
}

/// The token at `at` (0 to 1) of the cumulative probabilities.
fn draw(candidates: &[(u32, f64)], at: f64) -> u32 {
    let mut below = 0.0;
    for &(token, probability) in candidates {
        below += probability;
        if at < below {
            return token;
        }
    }
    candidates[candidates.len() - 1].0
}

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): eight lines that
/// give the same sequence on every machine and in every version, which `rand` does not promise of its default.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`, of 53 random bits.
    fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
