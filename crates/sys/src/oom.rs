//! OOM score adjustment of this process.

use std::fs;
use std::io;

const FILE: &str = "/proc/self/oom_score_adj";

/// Sets the `oom_score_adj` of this process, which its children inherit, and returns the resulting value. A process
/// that is not permitted to lower its score keeps the current one.
pub fn set_oom_score_adj(score: i32) -> io::Result<i32> {
    match fs::write(FILE, score.to_string()) {
        Ok(()) => Ok(score),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::read_to_string(FILE)?.trim().parse().map_err(io::Error::other)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_can_be_raised_and_is_lowered_only_with_permission() {
        let before: i32 = fs::read_to_string(FILE).unwrap().trim().parse().unwrap();
        let raised = (before + 7).min(1000);
        assert_eq!(set_oom_score_adj(raised).unwrap(), raised);
        let lowered = set_oom_score_adj(-999).unwrap();
        assert!(lowered == -999 || lowered == raised, "{lowered}");
        assert_eq!(fs::read_to_string(FILE).unwrap().trim().parse::<i32>().unwrap(), lowered);
        set_oom_score_adj(before).unwrap();
        assert!(set_oom_score_adj(1001).is_err());
    }
}
