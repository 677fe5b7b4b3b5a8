//! Stock ONNX Runtime on a whole model: the reference for every engine.

use anyhow::{Context, Result};
use onnx_model::proto::{AttributeProto, ModelProto};
use onnx_model::{DataType, ModelFolder, layer_name};
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor};
use prost::Message;

/// One session over the whole graph of a folder, with its KV cache.
#[derive(Debug)]
pub struct Stock {
    session: Session,
    folder: ModelFolder,
    past: Vec<(String, DynValue)>,
    n_past: usize,
}

/// A token that stock ONNX Runtime chose, and by how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The token with the largest logit.
    pub token: u32,
    /// That logit minus the second largest.
    pub margin: f32,
}

impl Stock {
    /// Creates a session. With `accuracy_level`, every `MatMulNBits` has that level instead of its own.
    pub fn load(
        environment: &Environment,
        folder: &ModelFolder,
        accuracy_level: Option<i64>,
    ) -> Result<Self> {
        let bytes = std::fs::read(folder.graph_path())?;
        let mut model = ModelProto::decode(bytes.as_slice())?;
        if let Some(level) = accuracy_level {
            let nodes = &mut model.graph.as_mut().context("the model has no graph")?.node;
            for node in nodes
                .iter_mut()
                .filter(|node| node.op_type.as_deref() == Some("MatMulNBits"))
            {
                node.attribute
                    .retain(|attribute| attribute.name.as_deref() != Some("accuracy_level"));
                node.attribute.push(AttributeProto {
                    name: Some("accuracy_level".into()),
                    r#type: Some(2),
                    i: Some(level),
                    ..AttributeProto::default()
                });
            }
        }
        let session = create(environment, folder, &model.encode_to_vec())?;
        Ok(Self {
            session,
            folder: folder.clone(),
            past: Vec::new(),
            n_past: 0,
        })
    }

    /// Greedy tokens after a prompt, without stopping at an end of sequence.
    pub fn greedy(&mut self, prompt: &[u32], n: usize) -> Result<Vec<Choice>> {
        self.reset()?;
        let (mut next, mut choices) = (prompt.to_vec(), Vec::new());
        while choices.len() < n {
            let choice = largest(&self.step(&next)?);
            choices.push(choice);
            next = vec![choice.token];
        }
        Ok(choices)
    }

    /// Forgets every token.
    pub fn reset(&mut self) -> Result<()> {
        let geometry = self.folder.geometry();
        anyhow::ensure!(
            geometry.kv_dtype == DataType::Float32,
            "only float32 KV caches are compared"
        );
        let names = &self.folder.config().model.decoder.inputs;
        let shape = [1, geometry.kv_heads as i64, 0, geometry.head_dim as i64];
        self.past.clear();
        for layer in 0..geometry.layers {
            for pattern in [&names.past_key_names, &names.past_value_names] {
                let empty = Tensor::<f32>::new(self.session.allocator(), shape)?;
                self.past.push((layer_name(pattern, layer), empty.into_dyn()));
            }
        }
        self.n_past = 0;
        Ok(())
    }

    /// The last position's logits after more tokens.
    pub fn step(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let (n, total) = (tokens.len(), self.n_past + tokens.len());
        let names = self.folder.config().model.decoder.clone();
        let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let mut inputs: Vec<(String, SessionInputValue<'_>)> = vec![
            (names.inputs.input_ids, Tensor::from_array(([1, n], ids))?.into()),
            (
                names.inputs.attention_mask,
                Tensor::from_array(([1, total], vec![1_i64; total]))?.into(),
            ),
        ];
        if let Some(positions) = names.inputs.position_ids {
            let values: Vec<i64> = (self.n_past as i64..total as i64).collect();
            inputs.push((positions, Tensor::from_array(([1, n], values))?.into()));
        }
        for (name, value) in std::mem::take(&mut self.past) {
            inputs.push((name, value.into()));
        }
        // A graph may leave a declared input unused and drop it.
        let known: Vec<&str> = self.session.inputs().iter().map(|input| input.name()).collect();
        inputs.retain(|(name, _)| known.contains(&name.as_str()));

        let mut outputs = self.session.run(inputs)?;
        let logits = outputs.get(&names.outputs.logits).context("no logits")?;
        let (shape, values) = logits.try_extract_tensor::<f32>()?;
        let width = *shape.last().context("logits are a scalar")? as usize;
        let last = values[values.len() - width..].to_vec();
        for layer in 0..self.folder.geometry().layers {
            for (present, past) in [
                (&names.outputs.present_key_names, &names.inputs.past_key_names),
                (&names.outputs.present_value_names, &names.inputs.past_value_names),
            ] {
                let value = outputs
                    .remove(layer_name(present, layer))
                    .context("no present value")?;
                self.past.push((layer_name(past, layer), value));
            }
        }
        self.n_past = total;
        Ok(last)
    }
}

fn create(environment: &Environment, folder: &ModelFolder, model: &[u8]) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_config_entry(
            "session.model_external_initializers_file_folder_path",
            folder.dir().display().to_string(),
        )?
        .commit_from_memory(model)
}

/// The largest logit, the lowest token of equals, and its margin.
fn largest(logits: &[f32]) -> Choice {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    Choice {
        token: order[0] as u32,
        margin: logits[order[0]] - logits[order[1]],
    }
}

/// Checks generated tokens against stock ONNX Runtime's. Where they part, stock's margin there must be below `tolerance`
/// (then either token is right, and what follows is another text). Gives how many tokens were compared.
///
/// # Panics
///
/// The tokens part where the margin is larger.
#[track_caller]
pub fn check_tokens(what: &str, tokens: &[u32], stock: &[Choice], tolerance: f32) -> usize {
    assert_eq!(tokens.len(), stock.len(), "{what}: number of tokens");
    match tokens
        .iter()
        .zip(stock)
        .position(|(token, choice)| *token != choice.token)
    {
        None => tokens.len(),
        Some(at) => {
            let Choice { token, margin } = stock[at];
            assert!(
                margin < tolerance,
                "{what}: token {at} is {}, stock has {token} by {margin}",
                tokens[at]
            );
            at
        }
    }
}
