//! OOM killer priority of this process.

use std::sync::Once;

/// Sets the `oom_score_adj` of this process. Lowering it needs CAP_SYS_RESOURCE. A failure is logged once: on an OOM
/// the kernel may then kill this process before its pods.
pub(crate) fn set_score(score: i32) {
    static WARNED: Once = Once::new();
    match sys::set_oom_score_adj(score) {
        Ok(set) if set == score => {}
        Ok(set) => WARNED.call_once(|| {
            tracing::warn!(wanted = score, set, "lowering oom_score_adj needs CAP_SYS_RESOURCE");
        }),
        Err(error) => WARNED.call_once(|| tracing::warn!(wanted = score, %error, "failed to set oom_score_adj")),
    }
}
