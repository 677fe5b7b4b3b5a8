//! Decode engine: the operators of a decoder as lanes on wgpu compute.

mod adapter;
mod device;
mod error;
mod kernel;
mod options;
mod shader;
#[cfg(test)]
mod testing;

pub use adapter::IgpuAdapter;
pub use error::{IgpuError, Result};
pub use options::{AdapterChoice, IgpuOptions, MatvecShape, UploadPath};

#[cfg(test)]
mod scratch {
    use crate::shader::*;
    use crate::testing::*;
    #[test]
    fn bench() {
        let rig = Rig::open("x").unwrap();
        println!("subgroups {} min {}", rig.gpu.has_subgroups, rig.gpu.device.adapter_info().subgroup_min_size);
        let (k, n) = (2560usize, 9728usize);
        let blocks = k / 32;
        let w = noise_bytes(1, n * k / 2);
        let s = noise(2, n * blocks);
        let x = noise(3, k);
        let mut want = vec![0f64; n];
        for r in 0..n { for b in 0..blocks { let mut d = 0.0; for i in 0..32 { let byte = w[(r*blocks+b)*16 + i/2]; let q = if i%2==0 {byte&15} else {byte>>4}; d += (q as f64 - 8.0)*x[b*32+i] as f64; } want[r] += d * s[r*blocks+b] as f64; } }
        let yb = vec![0f32; n];
        let mb = (w.len() + s.len()*4) as f64 / 1e6;
        // copy
        let src = vec![1u8; w.len()+s.len()*4]; let dst = vec![0f32; src.len()/4];
        let nv = src.len()/16;
        let (_, t) = rig.timed(&KernelSpec::new(Shader::Copy, [("WORKGROUP", 64)]), &[nv as u32, 65535], [0;2], &[&src], &[&dst], [(nv as u32).div_ceil(64).min(65535), (nv as u32).div_ceil(64).div_ceil(65535), 1], 10);
        println!("copy {:?} {:.2} GB/s one way", t, mb/1e3/t.as_secs_f64());
        let list: Vec<(Shader,u32,u32)> = std::env::var("LIST").unwrap_or("i,1,64 i,1,16 i,2,16 i,4,16 i,8,16 c,1,64 c,4,64 c,8,32 c,8,8 c,16,8".into()).split(' ').map(|e| { let p: Vec<_> = e.split(',').collect(); (if p[0]=="i" {Shader::MatvecBlocks} else {Shader::MatvecWords}, p[1].parse().unwrap(), p[2].parse().unwrap()) }).collect();
        for (shader, rows, wg) in list {
            let per = rows;
            let groups = (n as u32).div_ceil(per);
            let spec = KernelSpec::new(shader, [("WORKGROUP", wg), ("ROWS", rows), ("BITS", 4), ("BLOCK", 32), ("SCALE_TYPE", 0), ("ZERO_TYPE", 0), ("RAGGED", 0)]);
            let (out, t) = rig.timed(&spec, &[n as u32, k as u32, blocks as u32, 0, 0, groups], [0;2], &[bytemuck::cast_slice(&x), &w, bytemuck::cast_slice(&s), bytemuck::cast_slice(&s)], &[&yb], [groups,1,1], 10);
            let err = out[0].iter().zip(&want).map(|(a,b)| (*a as f64-b).abs()).fold(0.0, f64::max);
            println!("{shader:?} rows {rows} wg {wg}: {t:?} {:.2} GB/s err {err:.2e}", mb/1e3/t.as_secs_f64());
        }
    }
}
