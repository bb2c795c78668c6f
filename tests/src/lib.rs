//! Black-box tests over the built binaries.
