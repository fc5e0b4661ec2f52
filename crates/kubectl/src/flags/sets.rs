//! Flags that several commands share.

use crate::command::{Flag, FlagKind};

/// The flags of every command.
pub const GLOBAL: &[Flag] = &[
    Flag::text(
        "as",
        "",
        "Username to impersonate for the operation. User could be a regular user or a service account in a namespace.",
    ),
    Flag::array(
        "as-group",
        "Group to impersonate for the operation, this flag can be repeated to specify multiple groups.",
    ),
    Flag::text("as-uid", "", "UID to impersonate for the operation."),
    Flag::array(
        "as-user-extra",
        "User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key.",
    ),
    Flag::text("cache-dir", "", "Default cache directory"),
    Flag::text("certificate-authority", "", "Path to a cert file for the certificate authority"),
    Flag::text("client-certificate", "", "Path to a client certificate file for TLS"),
    Flag::text("client-key", "", "Path to a client key file for TLS"),
    Flag::text("cluster", "", "The name of the kubeconfig cluster to use"),
    Flag::text("context", "", "The name of the kubeconfig context to use"),
    Flag::bool("disable-compression", "If true, opt-out of response compression for all requests to the server"),
    Flag::bool(
        "insecure-skip-tls-verify",
        "If true, the server's certificate will not be checked for validity. This will make your HTTPS connections insecure",
    ),
    Flag::text("kubeconfig", "", "Path to the kubeconfig file to use for CLI requests."),
    Flag::text(
        "kuberc",
        "",
        "Path to the kuberc file to use for preferences. This can be disabled by exporting KUBECTL_KUBERC=false feature gate or turning off the feature KUBERC=off.",
    ),
    Flag::duration("log-flush-frequency", "5s", "Maximum number of seconds between log flushes"),
    Flag::bool("match-server-version", "Require server version to match client version"),
    Flag::text("namespace", "", "If present, the namespace scope for this CLI request").short('n'),
    Flag::text("password", "", "Password for basic authentication to the API server"),
    Flag::text(
        "profile",
        "none",
        "Name of profile to capture. One of (none|cpu|heap|goroutine|threadcreate|block|mutex|trace)",
    ),
    Flag::text("profile-output", "profile.pprof", "Name of the file to write the profile to"),
    Flag::text(
        "request-timeout",
        "0",
        "The length of time to wait before giving up on a single server request. Non-zero values should contain a corresponding time unit (e.g. 1s, 2m, 3h). A value of zero means don't timeout requests.",
    ),
    Flag::text("server", "", "The address and port of the Kubernetes API server").short('s'),
    Flag::text(
        "tls-server-name",
        "",
        "Server name to use for server certificate validation. If it is not provided, the hostname used to contact the server is used",
    ),
    Flag::text("token", "", "Bearer token for authentication to the API server"),
    Flag::text("user", "", "The name of the kubeconfig user to use"),
    Flag::text("username", "", "Username for basic authentication to the API server"),
    Flag::int("v", "0", "number for the log level verbosity").short('v'),
    Flag {
        kind: FlagKind::Array,
        default: "",
        ..Flag::text(
            "vmodule",
            "",
            "comma-separated list of pattern=N settings for file-filtered logging (only works for the default text log format)",
        )
    },
    Flag::bool(
        "warnings-as-errors",
        "Treat warnings received from the server as errors and exit with a non-zero exit code",
    ),
];

/// The output format of commands that print objects.
pub const OUTPUT: &[Flag] = &[
    Flag::text("output", "", "Output format. One of: (json, yaml, kyaml, name, go-template, go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).").short('o'),
    Flag::text("template", "", "Template string or path to template file to use when -o=go-template, -o=go-template-file. The template format is golang templates [http://golang.org/pkg/text/template/#pkg-overview]."),
    Flag::bool("allow-missing-template-keys", "If true, ignore any errors in templates when a field or map key is missing in the template. Only applies to golang and jsonpath output formats.").default("true"),
    Flag::bool("show-managed-fields", "If true, keep the managedFields when printing objects in JSON or YAML format."),
];

/// Whether to send or store the object.
pub const DRY_RUN: &[Flag] = &[
    Flag::text("dry-run", "none", r#"Must be "none", "server", or "client". If client strategy, only print the object that would be sent, without sending it. If server strategy, submit server-side request without persisting the resource."#).without_value("unchanged"),
];

/// The handling of unknown fields.
pub const VALIDATE: &[Flag] = &[
    Flag::text("validate", "strict", r#"Must be one of: strict (or true), warn, ignore (or false). "true" or "strict" will use a schema to validate the input and fail the request if invalid. It will perform server side validation if ServerSideFieldValidation is enabled on the api-server, but will fall back to less reliable client-side validation if not. "warn" will warn about unknown or duplicate fields without blocking the request if server-side field validation is enabled on the API server, and behave as "ignore" otherwise. "false" or "ignore" will not perform any schema validation, silently dropping any unknown or duplicate fields."#).without_value("strict"),
];

/// The label selector.
pub const SELECTOR: &[Flag] = &[
    Flag::text("selector", "", "Selector (label query) to filter on, supports '=', '==', '!=', 'in', 'notin'.(e.g. -l key1=value1,key2=value2,key3 in (value3)). Matching objects must satisfy all of the specified label constraints.").short('l'),
];

/// The field selector.
pub const FIELD_SELECTOR: &[Flag] = &[Flag::text(
    "field-selector",
    "",
    "Selector (field query) to filter on, supports '=', '==', and '!='.(e.g. --field-selector key1=value1,key2=value2). The server only supports a limited number of field queries per type.",
)];

/// The page size of lists.
pub const CHUNK_SIZE: &[Flag] =
    &[Flag::int("chunk-size", "500", "Return large lists in chunks rather than all at once. Pass 0 to disable.")];

/// The handling of directories, beside [`filename`].
pub const DIRECTORY: &[Flag] = &[
    Flag::text("kustomize", "", "Process the kustomization directory. This flag can't be used together with -f or -R.").short('k'),
    Flag::bool("recursive", "Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized within the same directory.").short('R'),
];

/// All namespaces instead of one.
pub const ALL_NAMESPACES: &[Flag] = &[
    Flag::bool("all-namespaces", "If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified with --namespace.").short('A'),
];

/// Whether to set the last-applied annotation.
pub const SAVE_CONFIG: &[Flag] = &[Flag::bool(
    "save-config",
    "If true, the configuration of current object will be saved in its annotation. Otherwise, the annotation will be unchanged. This flag is useful when you want to perform kubectl apply on this object in the future.",
)];

/// The files of a command, with the text that names their purpose.
pub const fn filename(help: &'static str) -> Flag {
    Flag::list("filename", help).short('f')
}

/// The manager of written fields, with the command's default.
pub const fn field_manager(default: &'static str) -> Flag {
    Flag::text("field-manager", default, "Name of the manager used to track field ownership.")
}
