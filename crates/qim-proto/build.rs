//! Generates the gRPC code with a compiler written in Rust, so that a fresh machine needs no `protoc`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["qim/v1/history.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    tonic_prost_build::configure()
        .bytes(".")
        .file_descriptor_set_path(out.join("qim.v1.bin"))
        .compile_fds(descriptors.clone())?;
    // Once more, for a server that writes its pages by itself.
    let server = out.join("server");
    std::fs::create_dir_all(&server)?;
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".qim.v1", "crate::v1")
        .extern_path(".qim.v1.PullResponse", "crate::EncodedPullResponse")
        .out_dir(server)
        .compile_fds(descriptors.clone())?;
    std::fs::write(out.join("qim.v1.bin"), prost::Message::encode_to_vec(&descriptors))?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}
