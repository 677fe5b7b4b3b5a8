//! The command line.

use crate::report::Format;

pub struct Options {
    pub format: Format,
    shapes: Vec<String>,
    peers: Vec<String>,
    max_nodes: usize,
}

impl Options {
    pub fn from_args() -> Options {
        let mut options = Options {
            format: Format::Table,
            shapes: Vec::new(),
            peers: Vec::new(),
            max_nodes: usize::MAX,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.format = Format::Json,
                "--quick" => options.max_nodes = 200_000,
                "--shape" => options.shapes.push(value(&arg, args.next())),
                "--peer" => options.peers.push(value(&arg, args.next())),
                // Cargo passes these to every bench target.
                "--bench" | "--test" => {}
                other => usage(&format!("unknown argument {other:?}")),
            }
        }
        options
    }

    pub fn wants_shape(&self, name: &str, n_nodes: usize) -> bool {
        n_nodes <= self.max_nodes && is_chosen(&self.shapes, name)
    }

    pub fn wants_peer(&self, name: &str) -> bool {
        is_chosen(&self.peers, name)
    }
}

/// No choice means everything.
fn is_chosen(parts: &[String], name: &str) -> bool {
    parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
}

fn value(name: &str, value: Option<String>) -> String {
    value.unwrap_or_else(|| usage(&format!("{name} needs a value")))
}

fn usage(problem: &str) -> ! {
    eprintln!("{problem}\nusage: overhead [--json] [--quick] [--shape PART]... [--peer PART]...");
    std::process::exit(2)
}
