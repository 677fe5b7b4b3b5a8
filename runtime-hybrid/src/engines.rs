//! The engines as the request path sees them.

use std::sync::Arc;

use runtime_igpu::{IgpuEngine, KvSlices};
use runtime_npu::{KvCache, NpuEngine};

use crate::error::{Error, Result};
use crate::serve::{Decode, Prefill};

pub(crate) struct NpuPrefill {
    pub(crate) engine: Arc<NpuEngine>,
    /// Whether the decoding side goes on in the same cache, which then has room for the whole answer.
    pub(crate) cache: CacheUse,
}

/// What a prefill's cache is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// Decoding appends to it.
    Decoding,
    /// It is handed over to another engine, and needs room for the prompt only.
    HandOver,
}

impl Prefill for NpuPrefill {
    type Cache = KvCache;

    fn prefill(&mut self, prompt: &[u32], capacity: usize) -> Result<(KvCache, Vec<f32>)> {
        let capacity = match self.cache {
            CacheUse::Decoding => capacity,
            CacheUse::HandOver => prompt.len(),
        };
        let failed = |e| Error::engine("NPU", e);
        let mut cache = self.engine.new_cache(capacity).map_err(failed)?;
        let logits = self.engine.prefill(&mut cache, prompt).map_err(failed)?;
        Ok((cache, logits))
    }
}

/// Decoding on the NPU engine, in the cache that prefill filled.
pub(crate) struct NpuDecode {
    pub(crate) engine: Arc<NpuEngine>,
    pub(crate) cache: Option<KvCache>,
}

impl Decode<KvCache> for NpuDecode {
    fn begin(&mut self, cache: KvCache) -> Result<()> {
        self.cache = Some(cache);
        Ok(())
    }

    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        let cache = self.cache.as_mut().expect("a sequence has begun");
        self.engine
            .decode(cache, token)
            .map_err(|e| Error::engine("NPU", e))
    }
}

/// Decoding on the iGPU engine, which takes the cache over.
pub(crate) struct IgpuDecode {
    pub(crate) engine: IgpuEngine,
    pub(crate) n_layers: usize,
}

impl Decode<KvCache> for IgpuDecode {
    fn begin(&mut self, cache: KvCache) -> Result<()> {
        let layers: Vec<_> = (0..self.n_layers).map(|layer| cache.layer(layer)).collect();
        let slices = layers.iter().map(|(keys, values)| KvSlices { keys, values });
        self.engine
            .import_kv(cache.len(), slices)
            .map_err(|e| Error::engine("iGPU", e))
    }

    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        self.engine.decode(token).map_err(|e| Error::engine("iGPU", e))
    }
}
