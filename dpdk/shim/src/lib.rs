//! Nothing: the build of this crate makes `libpostern_dpdk.so`, which `dpdk` loads.
