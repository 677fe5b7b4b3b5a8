//! Two kinds of mutation: of bytes, and of the structure.

use onnx_model::proto::*;

/// A small generator, so that a seed means the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, things: &'a mut [T]) -> Option<&'a mut T> {
        let i = self.below(things.len());
        things.get_mut(i)
    }
}

/// Changes 1 to 4 things: bits, bytes, extreme numbers, runs cut, repeated, moved or overwritten, the end cut off.
pub fn bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    const EXTREME: [u8; 8] = [0x00, 0x01, 0x7f, 0x80, 0xff, b'/', b'.', b'0'];
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        let run = 1 + random.below(24).min(bytes.len() - at - 1);
        match random.below(9) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => bytes[at] = EXTREME[random.below(EXTREME.len())],
            4 => {
                bytes.drain(at..at + run);
            }
            5 => {
                let copy = bytes[at..at + run].to_vec();
                bytes.splice(at..at, copy);
            }
            6 => {
                let from = random.below(bytes.len() - run);
                let to = at.min(bytes.len() - run);
                bytes.copy_within(from..from + run, to);
            }
            7 => bytes[at..at + run].fill(0xff),
            _ => {
                if random.below(8) == 0 {
                    bytes.truncate(at.max(1));
                }
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

/// Changes 1 to 3 things that keep the file a valid message: other inputs, outputs, types, numbers, shapes, ranges,
/// nodes gone, doubled or elsewhere.
pub fn structure(model: &mut ModelProto, random: &mut Random) {
    let graph = model.graph.as_mut().expect("a model has a graph");
    for _ in 0..1 + random.below(3) {
        let (a, b) = (random.below(graph.node.len()), random.below(graph.node.len()));
        let other = graph.node[b].clone();
        match random.below(14) {
            0 => {
                let some = other.output.first().or(other.input.first()).cloned();
                if let (Some(input), Some(value)) = (random.pick(&mut graph.node[a].input), some) {
                    *input = value;
                }
            }
            1 => graph.node[a].input.reverse(),
            2 => {
                if let Some(input) = random.pick(&mut graph.node[a].input) {
                    input.clear();
                }
            }
            3 => {
                graph.node[a].input.pop();
            }
            4 => {
                graph.node[a].output.pop();
            }
            5 => (graph.node[a].op_type, graph.node[a].domain) = (other.op_type, other.domain),
            6 => graph.node[a].attribute = other.attribute,
            7 => {
                graph.node.remove(a);
                if graph.node.is_empty() {
                    return;
                }
            }
            8 => graph.node.swap(a, b),
            9 => {
                let value = extreme(random);
                if let Some(attribute) = random.pick(&mut graph.node[a].attribute) {
                    attribute.i = attribute.i.map(|_| value);
                    attribute.f = attribute.f.map(|_| f32::from_bits(value as u32));
                }
            }
            10 => {
                let value = extreme(random);
                if let Some(dim) = random
                    .pick(&mut graph.initializer)
                    .and_then(|t| t.dims.first_mut())
                {
                    *dim = value;
                }
            }
            11 => {
                let value = extreme(random);
                let tensor = random.pick(&mut graph.initializer);
                if let Some(entry) = tensor.and_then(|t| random.pick(&mut t.external_data)) {
                    entry.value = Some(value.to_string());
                }
            }
            12 => {
                let code = random.below(28) as i32;
                if let Some(tensor) = random.pick(&mut graph.initializer) {
                    tensor.data_type = Some(code);
                }
            }
            _ => {
                let i = random.below(graph.value_info.len());
                if i < graph.value_info.len() {
                    graph.value_info.remove(i);
                }
            }
        }
    }
}

fn extreme(random: &mut Random) -> i64 {
    const VALUES: [i64; 12] = [0, 1, -1, 2, 7, 8, 16, 64, 1 << 20, 1 << 40, i64::MAX, i64::MIN];
    VALUES[random.below(VALUES.len())]
}
