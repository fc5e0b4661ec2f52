//! HTTP/1.1 of the ingress proxy: see `ingress::proxy::http1_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("ingress_http1", input));
