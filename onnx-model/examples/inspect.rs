//! Prints what a model folder holds: `cargo run -p onnx-model --example inspect -- DIR [--operators]`.

use onnx_model::ModelFolder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: inspect DIR [--operators]")?;
    let folder = ModelFolder::open(dir)?;
    print!("{}", folder.summary()?);
    if args.next().as_deref() == Some("--operators") {
        println!();
        for operator in folder.operators()? {
            println!(
                "{:<38} {:<20} {:>3} nodes {:>12} bytes",
                operator.name,
                operator.kind,
                operator.nodes.len(),
                operator.weight_bytes
            );
        }
    }
    Ok(())
}
