//! Opening a model folder.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::check;
use crate::config::GenaiConfig;
use crate::data::OperatorData;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::graph::{ExternalRange, Graph, Initializer, InitializerData};
use crate::mapping::{Guarded, Mapping, read_file};
use crate::operators::{Operator, OperatorId, group};
use crate::tensor::{Tensor, TensorBytes};
use crate::types::InferredTypes;

/// Protobuf's own limit on a message.
const MAX_GRAPH_BYTES: u64 = i32::MAX as u64;

/// An opened model folder: graph and configuration parsed and checked, weights mapped but not touched.
///
/// Cloning is one atomic increment; clones share everything. Opening reads only `genai_config.json` and the graph
/// file, so it takes milliseconds whatever the size of the weights.
#[derive(Clone)]
pub struct ModelFolder(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    graph_path: PathBuf,
    options: FolderOptions,
    config: GenaiConfig,
    geometry: Geometry,
    graph: Graph,
    /// Invariant: every external range of `graph` lies inside its file here.
    files: HashMap<Arc<str>, Arc<Mapping>>,
    types: OnceLock<InferredTypes>,
    operators: OnceLock<Result<Vec<Operator>>>,
}

/// How to open a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderOptions {
    /// How weights are taken from their file.
    pub weights: WeightAccess,
    /// Where links inside the folder may lead.
    pub links: LinkPolicy,
}

/// How weights are taken from their file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightAccess {
    /// Mapped: no copy. On Linux a handler for SIGBUS stands guard, so that a file that shrinks meanwhile is an error
    /// of [`ModelFolder::check_weights`] instead of the end of the process; see [`Mapping`].
    #[default]
    Map,
    /// Mapped without the guard, for processes that must not have their SIGBUS handler changed.
    MapUnguarded,
    /// Read into memory when a tensor is taken: one copy, but nothing that happens to the file later matters.
    Read,
}

/// Where links inside the folder may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPolicy {
    /// A link that leads out of the folder is an error: a model must not name other files of this machine.
    #[default]
    InsideFolder,
    /// Links may lead anywhere, as in a Hugging Face cache, whose files are links to a store of blobs.
    Anywhere,
}

impl ModelFolder {
    /// Opens a folder with default options.
    ///
    /// # Errors
    /// A file is missing, unreadable or malformed, or the graph fails a check; the message says file, node and tensor.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, FolderOptions::default())
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// As [`ModelFolder::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: FolderOptions) -> Result<Self> {
        Self::open_files(dir.as_ref(), options, |path| read_file(path, MAX_GRAPH_BYTES))
    }

    /// Opens a folder with these bytes in place of its graph file, which need not exist: for graphs that were changed,
    /// generated, or come from elsewhere.
    ///
    /// # Errors
    /// As [`ModelFolder::open`].
    pub fn open_with_graph(dir: impl AsRef<Path>, graph: &[u8], options: FolderOptions) -> Result<Self> {
        Self::open_files(dir.as_ref(), options, |_| Ok(graph.to_vec()))
    }

    fn open_files(
        dir: &Path,
        options: FolderOptions,
        read: impl FnOnce(&Path) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let root = dir
            .canonicalize()
            .map_err(|e| Error::io(dir, "open the model folder", e))?;
        let config_path = inside(&root, Path::new("genai_config.json"), options.links)?;
        let config = GenaiConfig::read(&config_path)?;
        let filename = config.model.decoder.filename.as_str();
        check::location(filename).map_err(|e| e.in_file(&config_path))?;
        let graph_path = root.join(filename);
        if let Ok(metadata) = graph_path.symlink_metadata()
            && metadata.is_symlink()
        {
            inside(&root, Path::new(filename), options.links)?;
        }
        let opened = read(&graph_path).and_then(|bytes| {
            let graph = Graph::parse(bytes)?;
            let geometry = Geometry::new(&config, &graph)?;
            // External data are relative to the graph file as it was asked for, not to where a link leads.
            let base = Path::new(filename).parent().unwrap_or(Path::new(""));
            let files = map_files(&graph, &root, base, options)?;
            Ok((graph, geometry, files))
        });
        let (graph, geometry, files) = opened.map_err(|e| e.in_file(&graph_path))?;
        Ok(ModelFolder(Arc::new(Inner {
            dir: root,
            graph_path,
            options,
            config,
            geometry,
            graph,
            files,
            types: OnceLock::new(),
            operators: OnceLock::new(),
        })))
    }

    /// The folder, as an absolute path without links.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// The graph file.
    pub fn graph_path(&self) -> &Path {
        &self.0.graph_path
    }

    /// `genai_config.json`.
    pub fn config(&self) -> &GenaiConfig {
        &self.0.config
    }

    /// The decoder's dimensions.
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// Files that hold weights, mapped.
    pub fn weight_files(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.0.files.values()
    }

    /// Whether all weights are still there: no file has shrunk, and no mapped page was missing when it was used.
    ///
    /// Call it after weights were used (a device was set up, a session created): if it is fine, what was used were the
    /// weights. It costs a system call per file.
    ///
    /// # Errors
    /// Names the file that shrank.
    pub fn check_weights(&self) -> Result<()> {
        self.0.files.values().try_for_each(|file| file.check(file.len()))
    }

    /// A constant: an initializer, or the value of a `Constant` node. Weights are shared, not copied, unless the
    /// folder was opened with [`WeightAccess::Read`] or the file holds them unaligned.
    ///
    /// # Errors
    /// No constant has this name, or its file shrank since it was opened.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.0.graph.initializer(name) {
            Some(initializer) => self.read_initializer(initializer),
            None => self.0.graph.constant(name).cloned().ok_or_else(|| {
                Error::not_found("the graph has no constant of this name")
                    .at_tensor(name)
                    .in_file(&self.0.graph_path)
            }),
        }
    }

    fn read_initializer(&self, initializer: &Initializer) -> Result<Tensor> {
        let Initializer {
            name,
            dtype,
            shape,
            data,
        } = initializer;
        let bytes = match data {
            InitializerData::Inline(bytes) => bytes.clone(),
            InitializerData::External(range) => {
                self.read_range(range, *dtype).map_err(|e| e.at_tensor(name))?
            }
        };
        Ok(Tensor {
            name: name.clone(),
            dtype: *dtype,
            shape: shape.clone(),
            bytes,
        })
    }

    fn read_range(&self, range: &ExternalRange, dtype: DataType) -> Result<TensorBytes> {
        let file = &self.0.files[&range.location];
        file.check(range.offset + range.len)?;
        let aligned = range
            .offset
            .is_multiple_of(dtype.bits().map_or(1, |bits| bits.div_ceil(8)));
        match self.0.options.weights {
            WeightAccess::Map | WeightAccess::MapUnguarded if aligned => {
                TensorBytes::mapped(file, range.offset, range.len)
            }
            _ => TensorBytes::read(file, range.offset, range.len),
        }
    }

    /// The element type of a value: declared, or inferred by one rule per operator; `None` if it cannot be told.
    pub fn value_type(&self, name: &str) -> Option<DataType> {
        self.0
            .types
            .get_or_init(|| InferredTypes::of(&self.0.graph))
            .get(&self.0.graph, name)
    }

    /// The graph as operators, in topological order. Computed once.
    ///
    /// Every node but `Constant` ones belongs to exactly one operator, and no two operators need each other's results.
    ///
    /// # Errors
    /// The graph cannot be taken apart into operators.
    pub fn operators(&self) -> Result<&[Operator]> {
        let operators = self
            .0
            .operators
            .get_or_init(|| group(&self.0.graph).map_err(|e| e.in_file(&self.0.graph_path)));
        operators.as_deref().map_err(Error::clone)
    }

    /// The operator with this id.
    ///
    /// # Errors
    /// There is none, or [`ModelFolder::operators`] fails.
    pub fn operator(&self, id: OperatorId) -> Result<&Operator> {
        self.operators()?
            .get(id.index())
            .ok_or_else(|| Error::not_found(format!("no operator has id {}", id.index())))
    }

    /// Everything an engine needs to set an operator up, as owned data: attributes, constants, types. No weight is
    /// copied or touched.
    ///
    /// # Errors
    /// A weight file shrank, or the type of an operator's input cannot be told.
    pub fn read(&self, operator: &Operator) -> Result<OperatorData> {
        OperatorData::read(self, operator)
    }
}

impl fmt::Debug for ModelFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFolder")
            .field("dir", &self.0.dir)
            .field("geometry", &self.0.geometry)
            .finish_non_exhaustive()
    }
}

/// `relative` in the folder, links resolved; an error if it is not there or, unless allowed, leads out.
fn inside(root: &Path, relative: &Path, links: LinkPolicy) -> Result<PathBuf> {
    let path = root.join(relative);
    let real = path.canonicalize().map_err(|e| Error::io(&path, "open", e))?;
    if links == LinkPolicy::InsideFolder && !real.starts_with(root) {
        return Err(Error::unsafe_path(format!(
            "a link leads out of the model folder, to {}; if you trust it, open the folder with LinkPolicy::Anywhere",
            real.display()
        ))
        .in_file(&path));
    }
    Ok(real)
}

/// Maps each file that the graph's initializers name, and checks each range against it.
fn map_files(
    graph: &Graph,
    root: &Path,
    base: &Path,
    options: FolderOptions,
) -> Result<HashMap<Arc<str>, Arc<Mapping>>> {
    let guarded = if options.weights == WeightAccess::Map {
        Guarded::Yes
    } else {
        Guarded::No
    };
    let mut files = HashMap::new();
    for initializer in &graph.initializers {
        let InitializerData::External(range) = &initializer.data else {
            continue;
        };
        let tensor = initializer.name.as_str();
        let file = match files.get(&range.location) {
            Some(file) => file,
            None => {
                let path = inside(root, &base.join(&*range.location), options.links)
                    .map_err(|e| e.at_tensor(tensor))?;
                files
                    .entry(range.location.clone())
                    .or_insert(Arc::new(Mapping::open(&path, guarded)?))
            }
        };
        if range.offset + range.len > file.len() {
            let ExternalRange { offset, len, .. } = range;
            return Err(Error::range(format!(
                "{len} bytes at {offset} lie behind the end of the file, which has {} bytes; it is truncated, or the graph belongs to other weights",
                file.len()
            ))
            .at_tensor(tensor)
            .in_file(file.path()));
        }
    }
    Ok(files)
}
