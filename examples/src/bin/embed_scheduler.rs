//! The scheduler inside a runtime that is not ours: its own executor, its own engines, no tokio runtime anywhere.
//!
//!     cargo run -p examples --bin embed_scheduler
//!
//! `mini` is that runtime: it has a model format, a request loop and an executor of forty lines. What it gains is that a
//! request for the first engine is answered while the second engine is still being set up.

use mini::{Executor, Layer, Model};
use scheduler::{BoxError, InitGraph, InitMode, OperatorType, RunOptions};
use std::sync::Arc;
use std::time::Duration;

/// The runtime's layers as operators of one type per engine. `Source` borrows nothing: the model is reference-counted.
struct LayerType {
    engine: &'static str,
    setup_takes: Duration,
}

impl OperatorType for LayerType {
    type Source = (Arc<Model>, usize);
    type Host = Layer;
    type Device = mini::Kernel;
    type Lane = ();

    fn name(&self) -> &str {
        self.engine
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, (model, index): &Self::Source) -> Result<Layer, BoxError> {
        Ok(model.layers[*index].clone())
    }

    async fn setup(&self, _: &mut (), layer: Layer) -> Result<mini::Kernel, BoxError> {
        std::thread::sleep(self.setup_takes);
        Ok(mini::Kernel::new(&layer))
    }
}

fn main() -> Result<(), scheduler::InitError> {
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "no tokio runtime is present"
    );
    let model = Arc::new(Model::example());

    let mut graph = InitGraph::new();
    let prefill_lane = graph.lane(LayerType {
        engine: "Prefill",
        setup_takes: Duration::from_millis(2),
    });
    let decode_lane = graph.lane(LayerType {
        engine: "Decode",
        setup_takes: Duration::from_millis(10),
    });
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for index in 0..model.layers.len() {
        let name = format!("layers.{index}");
        let operator = graph.operator(&prefill_lane, name.clone(), (model.clone(), index));
        // The other engine sets up the same layer from the same read.
        decode.push(graph.operator_from(&decode_lane, name, operator.host()));
        prefill.push(operator);
    }
    let prefill_ready = graph.barrier("prefill", prefill.iter().copied());

    let run = graph.start_with(InitMode::Overlapped, RunOptions::new().record())?;
    println!("constructor returned");

    // Two tasks on the runtime's own executor. Barriers are plain futures: any executor can poll them.
    let mut executor = Executor::default();
    let (first, all) = (run.barrier(prefill_ready), run.ready());
    executor.spawn(async move {
        let mut ready = first.await.expect("the layers are sound");
        let kernels: Vec<mini::Kernel> = prefill.into_iter().map(|operator| ready.take(operator)).collect();
        println!("prefill answers {:.1}", mini::forward(&kernels, 1.0));
    });
    executor.spawn(async move {
        let mut ready = all.await.expect("the layers are sound");
        let kernels: Vec<mini::Kernel> = decode.into_iter().map(|operator| ready.take(operator)).collect();
        println!("decode answers {:.1}", mini::forward(&kernels, 1.0));
    });
    executor.run();
    println!("{}", run.trace().timeline(80));
    Ok(())
}

/// A small inference runtime that knows nothing of the scheduler.
mod mini {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::{self, Thread};

    pub struct Model {
        pub layers: Vec<Layer>,
    }

    #[derive(Clone)]
    pub struct Layer {
        scale: Arc<[f32]>,
    }

    pub struct Kernel {
        gain: f32,
    }

    impl Model {
        pub fn example() -> Model {
            let layer = |index: u8| Layer {
                scale: vec![1.0 + f32::from(index); 8].into(),
            };
            Model {
                layers: (0..4).map(layer).collect(),
            }
        }
    }

    impl Kernel {
        pub fn new(layer: &Layer) -> Kernel {
            Kernel {
                gain: layer.scale.iter().sum::<f32>() / layer.scale.len() as f32,
            }
        }
    }

    pub fn forward(kernels: &[Kernel], input: f32) -> f32 {
        kernels.iter().fold(input, |value, kernel| value * kernel.gain)
    }

    /// Polls its tasks on the calling thread until all are done, and sleeps in between.
    #[derive(Default)]
    pub struct Executor {
        tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    }

    impl Executor {
        pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
            self.tasks.push(Box::pin(task));
        }

        pub fn run(&mut self) {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut context = Context::from_waker(&waker);
            while !self.tasks.is_empty() {
                let n_before = self.tasks.len();
                self.tasks
                    .retain_mut(|task| task.as_mut().poll(&mut context) == Poll::Pending);
                if self.tasks.len() == n_before {
                    thread::park();
                }
            }
        }
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
}
