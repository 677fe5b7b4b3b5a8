//! The model before and after its heavy nodes are moved to the custom domain.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onnx_model::proto::{ModelProto, OperatorSetIdProto};
use onnx_model::{DataType, ModelFolder};
use ort::environment::Environment;
use ort::operator::OperatorDomain;
use ort::session::{Session, SessionInputValue};
use ort::value::Tensor;
use prost::Message;
use scheduler::{InitMode, Intake, Trace};

use super::matmul::MatMulNBits;
use super::operator::CustomMatMulNBits;

/// The domain of the custom operators.
pub const DOMAIN: &str = "dev.hostlane";

/// The model as it is.
#[derive(Debug)]
pub struct Stock {
    session: Session,
    folder: ModelFolder,
}

/// The model with every `MatMulNBits` in [`DOMAIN`].
#[derive(Debug)]
pub struct Embedded {
    session: Session,
    folder: ModelFolder,
    intake: Intake,
    /// How many nodes are custom operators.
    pub n_custom: usize,
    /// How long ONNX Runtime took to create the session, every constructor included.
    pub constructors: Duration,
    /// How long until the barrier resolved.
    pub ready: Duration,
}

impl Stock {
    /// Creates a session over the folder's graph.
    ///
    /// # Errors
    /// ONNX Runtime cannot.
    pub fn load(environment: &Environment, folder: &ModelFolder) -> Result<Self> {
        let session = Session::builder(environment)?.commit_from_file(folder.graph_path())?;
        Ok(Self {
            session,
            folder: folder.clone(),
        })
    }

    /// Logits of every position of a prompt.
    ///
    /// # Errors
    /// ONNX Runtime cannot run it.
    pub fn run(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        run(&mut self.session, &self.folder, tokens)
    }
}

impl Embedded {
    /// Creates a session whose constructors use an intake in this mode, and waits for the barrier.
    ///
    /// # Errors
    /// ONNX Runtime cannot create the session, or the device half of an operator failed.
    pub fn load(environment: &Environment, folder: &ModelFolder, mode: InitMode) -> Result<Self> {
        let start = Instant::now();
        let (model, n_custom) = with_custom_operators(folder)?;
        let intake = Intake::recording(mode);
        let lane = intake.lane(MatMulNBits {
            environment: environment.clone(),
        });
        let domain = OperatorDomain::new(DOMAIN)?.add(CustomMatMulNBits {
            intake: intake.clone(),
            lane,
        })?;
        let session = create(environment, domain, folder, &model)?;
        let constructors = start.elapsed();
        intake.seal()?.wait()?;
        let ready = start.elapsed();
        Ok(Self {
            session,
            folder: folder.clone(),
            intake,
            n_custom,
            constructors,
            ready,
        })
    }

    /// Logits of every position of a prompt.
    ///
    /// # Errors
    /// ONNX Runtime cannot run it.
    pub fn run(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        run(&mut self.session, &self.folder, tokens)
    }

    /// What happened during initialisation.
    pub fn trace(&self) -> Trace {
        Trace::new(self.intake.record())
    }
}

/// A session over a graph whose weights stay in their folder.
fn create(
    environment: &Environment,
    domain: OperatorDomain,
    folder: &ModelFolder,
    model: &[u8],
) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_operators(domain)?
        .with_config_entry(
            "session.model_external_initializers_file_folder_path",
            folder.dir().display().to_string(),
        )?
        .commit_from_memory(model)
}

/// The graph with its `MatMulNBits` nodes in the custom domain, and how many there are.
fn with_custom_operators(folder: &ModelFolder) -> Result<(Vec<u8>, usize)> {
    let mut model = ModelProto::decode(std::fs::read(folder.graph_path())?.as_slice())?;
    let nodes = &mut model.graph.as_mut().context("the model has no graph")?.node;
    let mut n_custom = 0;
    for node in nodes
        .iter_mut()
        .filter(|node| node.op_type.as_deref() == Some("MatMulNBits"))
    {
        node.domain = Some(DOMAIN.to_owned());
        n_custom += 1;
    }
    ensure!(
        n_custom > 0,
        "{} has no MatMulNBits",
        folder.graph_path().display()
    );
    model.opset_import.push(OperatorSetIdProto {
        domain: Some(DOMAIN.to_owned()),
        version: Some(1),
    });
    Ok((model.encode_to_vec(), n_custom))
}

/// Runs a prompt with an empty past.
fn run(session: &mut Session, folder: &ModelFolder, tokens: &[u32]) -> Result<Vec<f32>> {
    let geometry = folder.geometry();
    ensure!(
        geometry.kv_dtype == DataType::Float32,
        "the example feeds a float32 KV cache"
    );
    let names = &folder.config().model.decoder;
    let n = tokens.len();
    let past = [1, geometry.kv_heads as i64, 0, geometry.head_dim as i64];
    let mut inputs: Vec<(String, SessionInputValue<'_>)> = Vec::new();
    for input in session.inputs() {
        let name = input.name();
        let value: SessionInputValue<'_> = if name == names.inputs.input_ids {
            let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
            Tensor::from_array(([1, n], ids))?.into()
        } else if name == names.inputs.attention_mask {
            Tensor::from_array(([1, n], vec![1_i64; n]))?.into()
        } else if Some(name) == names.inputs.position_ids.as_deref() {
            Tensor::from_array(([1, n], (0..n as i64).collect::<Vec<_>>()))?.into()
        } else {
            Tensor::<f32>::new(session.allocator(), past)?.into()
        };
        inputs.push((name.to_owned(), value));
    }
    let outputs = session.run(inputs)?;
    let logits = outputs.get(&names.outputs.logits).context("no logits")?;
    Ok(logits.try_extract_tensor::<f32>()?.1.to_vec())
}
