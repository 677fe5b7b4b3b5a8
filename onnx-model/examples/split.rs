//! Writes each operator of a model folder as an ONNX model of its own, to look at with any ONNX tool:
//! `cargo run -p onnx-model --example split -- DIR OUT`. File names sort in topological order.

use std::path::PathBuf;

use onnx_model::ModelFolder;
use onnx_model::write::{SubmodelOptions, WeightPlacement, submodel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, out] = args.as_slice() else {
        return Err("usage: split DIR OUT".into());
    };
    let folder = ModelFolder::open(dir)?;
    std::fs::create_dir_all(out)?;
    let options = SubmodelOptions {
        weights: WeightPlacement::Inline,
        ..Default::default()
    };
    for operator in folder.operators()? {
        let name = format!("{:04}-{}.onnx", operator.id.index(), operator.name);
        let path = PathBuf::from(out).join(name);
        std::fs::write(&path, submodel(&folder.read(operator)?, &options).bytes)?;
        println!("{}", path.display());
    }
    Ok(())
}
