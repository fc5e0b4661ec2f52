//! The place of this process in the order in which the kernel kills processes when the machine has no memory left.

use std::sync::Once;

/// Sets the `oom_score_adj` of this process. Without CAP_SYS_RESOURCE it cannot be lowered, which is logged once: a machine that runs
/// out of memory may then lose this process before its pods.
pub fn set_score(score: i32) {
    static WARNED: Once = Once::new();
    match sys::set_oom_score_adj(score) {
        Ok(set) if set == score => {}
        Ok(set) => WARNED.call_once(|| {
            tracing::warn!(wanted = score, set, "oom_score_adj cannot be lowered without CAP_SYS_RESOURCE");
        }),
        Err(error) => WARNED.call_once(|| tracing::warn!(wanted = score, %error, "oom_score_adj cannot be set")),
    }
}
