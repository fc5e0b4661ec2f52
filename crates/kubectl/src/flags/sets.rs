//! Flags that several commands share.

use crate::command::{Flag, FlagKind};

/// The flags of every command.
pub const GLOBAL: &[Flag] = &[
    Flag::text("as", "", "Act as this user, which may be a service account of a namespace."),
    Flag::array("as-group", "Act as a member of this group; repeat the flag for further groups."),
    Flag::text("as-uid", "", "Act as the user with this UID."),
    Flag::array(
        "as-user-extra",
        "Extra attribute of the impersonated user; repeat the flag for further attributes or values of \
            one attribute.",
    ),
    Flag::text("cache-dir", "", "Directory for cached data, such as the API types of servers."),
    Flag::text(
        "certificate-authority",
        "",
        "File with the CA certificates that the server's certificate is verified with.",
    ),
    Flag::text("client-certificate", "", "File with the TLS certificate that identifies the client."),
    Flag::text("client-key", "", "File with the private key of the client certificate."),
    Flag::text("cluster", "", "Cluster entry of the kubeconfig to connect to."),
    Flag::text("context", "", "Context entry of the kubeconfig to use instead of the current one."),
    Flag::bool("disable-compression", "Ask the server not to compress its responses."),
    Flag::bool(
        "insecure-skip-tls-verify",
        "Accept any server certificate without verification, which leaves the connection open to \
            attack.",
    ),
    Flag::text("kubeconfig", "", "Kubeconfig file to read instead of the default ones."),
    Flag::text(
        "kuberc",
        "",
        "File with user preferences, which KUBECTL_KUBERC=false or KUBERC=off in the environment disables.",
    ),
    Flag::duration("log-flush-frequency", "5s", "Longest time that log messages stay buffered."),
    Flag::bool("match-server-version", "Fail unless client and server have the same version."),
    Flag::text("namespace", "", "Namespace to work in, instead of that of the context.").short('n'),
    Flag::text("password", "", "Password to log in to the API server with basic authentication."),
    // DEVIATION: `kubectl --profile`, `--profile-output` and `--vmodule` have no effect.
    Flag::text("profile", "none", "Accepted for compatibility; no profile is recorded."),
    Flag::text("profile-output", "profile.pprof", "Accepted for compatibility; no profile is recorded."),
    Flag::text(
        "request-timeout",
        "0",
        "Time limit of each request to the server, with a unit such as 1s, 2m, or 3h; 0 means no limit.",
    ),
    Flag::text("server", "", "Host and port, or URL, of the Kubernetes API server.").short('s'),
    Flag::text(
        "tls-server-name",
        "",
        "Name that the server's certificate must be valid for; by default the host name of the server's \
            address.",
    ),
    Flag::text("token", "", "Bearer token that authenticates the client to the API server."),
    Flag::text("user", "", "User entry of the kubeconfig to authenticate as."),
    Flag::text("username", "", "User name to log in to the API server with basic authentication."),
    Flag::int("v", "0", "Verbosity of the log; higher numbers log more.").short('v'),
    Flag {
        kind: FlagKind::Array,
        default: "",
        ..Flag::text("vmodule", "", "Accepted for compatibility; -v sets the log verbosity of all source files.")
    },
    Flag::bool("warnings-as-errors", "Exit with a non-zero code if the server sends a warning."),
];

/// The output format of commands that print objects.
pub const OUTPUT: &[Flag] = &[
    Flag::text(
        "output",
        "",
        "Print the result in another format. One of: (json, yaml, kyaml, name, go-template, \
            go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).",
    )
    .short('o'),
    Flag::text(
        "template",
        "",
        "Go template, or the file that holds it, for -o=go-template and -o=go-template-file; the syntax \
            is described at http://golang.org/pkg/text/template/#pkg-overview.",
    ),
    Flag::bool(
        "allow-missing-template-keys",
        "Treat fields and keys that a Go template or JSONPath expression does not find as empty instead \
            of failing.",
    )
    .default("true"),
    Flag::bool("show-managed-fields", "Include metadata.managedFields in JSON and YAML output."),
];

/// Whether to send or store the object.
pub const DRY_RUN: &[Flag] = &[Flag::text(
    "dry-run",
    "none",
    "Must be \"none\", \"server\", or \"client\": \"client\" only prints the object, \"server\" \
        sends it for processing without storing it, and \"none\" makes the change.",
)
.without_value("unchanged")];

/// The handling of unknown fields.
pub const VALIDATE: &[Flag] = &[Flag::text(
    "validate",
    "strict",
    "Handling of unknown and duplicate fields: \"strict\" (or \"true\") rejects the object, \
            \"warn\" prints a warning, and \"ignore\" (or \"false\") drops the fields silently.",
)
.without_value("strict")];

/// The label selector.
pub const SELECTOR: &[Flag] = &[Flag::text(
    "selector",
    "",
    "Select objects by label with the operators =, ==, !=, in, and notin, such as -l 'app=web,tier \
            in (front,back)'; objects must meet all conditions.",
)
.short('l')];

/// The field selector.
pub const FIELD_SELECTOR: &[Flag] = &[Flag::text(
    "field-selector",
    "",
    "Select objects by field with the operators =, ==, and !=, such as --field-selector \
            metadata.name=web; each type supports a few fields only.",
)];

/// The page size of lists.
pub const CHUNK_SIZE: &[Flag] = &[Flag::int(
    "chunk-size",
    "500",
    "Number of objects to request at a time when reading long lists; 0 reads a list in one piece.",
)];

/// The handling of directories, beside [`filename`].
pub const DIRECTORY: &[Flag] = &[
    Flag::text("kustomize", "", "Directory with a kustomization to build and use as input, which excludes -f and -R.")
        .short('k'),
    Flag::bool("recursive", "Descend into the subdirectories of directories that are named with -f.").short('R'),
];

/// All namespaces instead of one.
pub const ALL_NAMESPACES: &[Flag] = &[Flag::bool(
    "all-namespaces",
    "Use the objects of all namespaces, whatever namespace the context or --namespace selects.",
)
.short('A')];

/// Whether to set the last-applied annotation.
pub const SAVE_CONFIG: &[Flag] = &[Flag::bool(
    "save-config",
    "Store the object's configuration in its last-applied annotation, for a later kubectl apply.",
)];

/// The files of a command, with the text that names their purpose.
pub const fn filename(help: &'static str) -> Flag {
    Flag::list("filename", help).short('f')
}

/// The manager of written fields, with the command's default.
pub const fn field_manager(default: &'static str) -> Flag {
    Flag::text("field-manager", default, "Field manager that becomes the owner of the written fields.")
}
