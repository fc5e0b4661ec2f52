//! The audit flags of kube-apiserver, and the audit configuration made from them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::audit::Policy;
use ::audit::batch::{self, Throttle};
use ::audit::log::Format;
use ::audit::log::rotation::Rotation;
use ::audit::options::{Mode, check_batch, check_limits, check_rotation};
use ::audit::truncate::Limits;
use ::kube_apiserver::audit::{Config, LogConfig, Webhook, WebhookConfig};
use anyhow::{Context, Result, ensure};
use clap::{ArgAction, Args};

use super::flags::duration;

/// Audit policy, log file and webhook.
#[derive(Args, Debug, Clone)]
#[group(id = "Audit")]
pub(super) struct Flags {
    /// Path to the file that defines the audit policy.
    #[arg(long)]
    audit_policy_file: Option<PathBuf>,
    /// Path of the audit log file; `-` is standard output.
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Format of the audit log: json or legacy.
    #[arg(long, default_value = "json")]
    audit_log_format: String,
    /// API group and version of the events in the audit log.
    #[arg(long, default_value = "audit.k8s.io/v1")]
    audit_log_version: String,
    /// Maximum number of days to retain old audit log files; 0 keeps them forever.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    audit_log_maxage: i64,
    /// Maximum number of old audit log files to retain; 0 keeps all.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    audit_log_maxbackup: i64,
    /// Maximum size of the audit log file in megabytes before it is rotated; 0 means 100.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    audit_log_maxsize: i64,
    /// Compress rotated log files with gzip.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    audit_log_compress: bool,
    /// Strategy for sending audit events to the log: batch, blocking or blocking-strict.
    #[arg(long, default_value = "blocking")]
    audit_log_mode: String,
    #[arg(long, default_value_t = 10_000, hide = true)]
    audit_log_batch_buffer_size: usize,
    #[arg(long, default_value_t = 1, hide = true)]
    audit_log_batch_max_size: usize,
    #[arg(long, default_value = "0s", value_parser = duration, hide = true)]
    audit_log_batch_max_wait: Duration,
    #[arg(long, default_value_t = false, action = ArgAction::Set, hide = true)]
    audit_log_batch_throttle_enable: bool,
    #[arg(long, default_value_t = 0.0, hide = true)]
    audit_log_batch_throttle_qps: f64,
    #[arg(long, default_value_t = 0, hide = true)]
    audit_log_batch_throttle_burst: u32,
    #[arg(long, default_value_t = false, action = ArgAction::Set, hide = true)]
    audit_log_truncate_enabled: bool,
    #[arg(long, default_value_t = 10_485_760, hide = true)]
    audit_log_truncate_max_batch_size: usize,
    #[arg(long, default_value_t = 102_400, hide = true)]
    audit_log_truncate_max_event_size: usize,
    /// Path to a kubeconfig file that defines the audit webhook.
    #[arg(long)]
    audit_webhook_config_file: Option<PathBuf>,
    /// API group and version of the events sent to the audit webhook.
    #[arg(long, default_value = "audit.k8s.io/v1")]
    audit_webhook_version: String,
    /// Strategy for sending audit events to the webhook: batch, blocking or blocking-strict.
    #[arg(long, default_value = "batch")]
    audit_webhook_mode: String,
    #[arg(long, default_value = "10s", value_parser = duration, hide = true)]
    audit_webhook_initial_backoff: Duration,
    #[arg(long, default_value_t = 10_000, hide = true)]
    audit_webhook_batch_buffer_size: usize,
    #[arg(long, default_value_t = 400, hide = true)]
    audit_webhook_batch_max_size: usize,
    #[arg(long, default_value = "30s", value_parser = duration, hide = true)]
    audit_webhook_batch_max_wait: Duration,
    #[arg(long, default_value_t = true, action = ArgAction::Set, hide = true)]
    audit_webhook_batch_throttle_enable: bool,
    #[arg(long, default_value_t = 10.0, hide = true)]
    audit_webhook_batch_throttle_qps: f64,
    #[arg(long, default_value_t = 15, hide = true)]
    audit_webhook_batch_throttle_burst: u32,
    #[arg(long, default_value_t = false, action = ArgAction::Set, hide = true)]
    audit_webhook_truncate_enabled: bool,
    #[arg(long, default_value_t = 10_485_760, hide = true)]
    audit_webhook_truncate_max_batch_size: usize,
    #[arg(long, default_value_t = 102_400, hide = true)]
    audit_webhook_truncate_max_event_size: usize,
}

impl Flags {
    /// Returns the audit configuration. Fails on unsupported versions, modes and formats.
    pub(super) fn config(&self) -> Result<Config> {
        for version in [&self.audit_log_version, &self.audit_webhook_version] {
            ensure!(version == "audit.k8s.io/v1", "invalid audit version {version}, allowed is audit.k8s.io/v1");
        }
        let policy = self.audit_policy_file.as_ref().map(|file| {
            let text = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
            let parsed =
                Policy::parse(&text).with_context(|| format!("{} is not a valid audit policy", file.display()))?;
            if let Some(warning) = parsed.warning {
                tracing::warn!("{warning}");
            }
            anyhow::Ok(parsed.policy)
        });
        let log = self.audit_log_path.as_ref().map(|path| self.log(path.clone())).transpose()?;
        let webhook = self.audit_webhook_config_file.as_ref().map(|file| self.webhook(file)).transpose()?;
        Ok(Config { policy: policy.transpose()?, log, webhook })
    }

    fn log(&self, path: PathBuf) -> Result<LogConfig> {
        let throttle =
            Throttle { per_second: self.audit_log_batch_throttle_qps, burst: self.audit_log_batch_throttle_burst };
        let batch = batch::Config {
            buffer_size: self.audit_log_batch_buffer_size,
            batch_size_max: self.audit_log_batch_max_size,
            wait_max: self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable.then_some(throttle),
        };
        let limits = Limits {
            event_bytes_max: self.audit_log_truncate_max_event_size,
            batch_bytes_max: self.audit_log_truncate_max_batch_size,
        };
        let mode = Mode::parse("log", &self.audit_log_mode)?;
        if mode == Mode::Batch {
            check_batch("log", &batch)?;
        }
        let limits = self.audit_log_truncate_enabled.then_some(limits);
        limits.map_or(Ok(()), |limits| check_limits("log", &limits))?;
        Ok(LogConfig {
            path,
            format: Format::parse(&self.audit_log_format)?,
            rotation: Rotation {
                megabytes_max: check_rotation("maxsize", self.audit_log_maxsize)?.into(),
                days_max: check_rotation("maxage", self.audit_log_maxage)?,
                backups_max: check_rotation("maxbackup", self.audit_log_maxbackup)? as usize,
                compress: self.audit_log_compress,
            },
            mode,
            batch,
            limits,
        })
    }

    fn webhook(&self, file: &Path) -> Result<WebhookConfig> {
        let throttle = Throttle {
            per_second: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        };
        let batch = batch::Config {
            buffer_size: self.audit_webhook_batch_buffer_size,
            batch_size_max: self.audit_webhook_batch_max_size,
            wait_max: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
        };
        check_batch("webhook", &batch)?;
        let limits = self.audit_webhook_truncate_enabled.then_some(Limits {
            event_bytes_max: self.audit_webhook_truncate_max_event_size,
            batch_bytes_max: self.audit_webhook_truncate_max_batch_size,
        });
        limits.map_or(Ok(()), |limits| check_limits("webhook", &limits))?;
        Ok(WebhookConfig {
            webhook: Webhook::from_file(file).with_context(|| format!("{}", file.display()))?,
            mode: Mode::parse("webhook", &self.audit_webhook_mode)?,
            batch,
            limits,
            initial_backoff: self.audit_webhook_initial_backoff,
        })
    }
}
