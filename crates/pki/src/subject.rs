//! CAs and the contents of certificates.

/// A CA of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateAuthority {
    /// The CA of the API server and its clients.
    Cluster,
    /// The CA of the front-proxy client, used for aggregated API servers.
    FrontProxy,
    /// The CA of store members and their clients.
    Store,
}

impl CertificateAuthority {
    pub const ALL: [Self; 3] = [Self::Cluster, Self::FrontProxy, Self::Store];

    /// Returns the base name of its files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Store => "etcd-ca",
        }
    }

    /// Returns the common name of its certificate.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Cluster => "kubernetes-ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Store => "etcd-ca",
        }
    }
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Server authentication.
    Server,
    /// Client authentication.
    Client,
    /// Both, between store members.
    Peer,
}

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The base name of its files.
    pub name: String,
    /// The CA that signs it.
    pub by: CertificateAuthority,
    /// The user name, for a client.
    pub common_name: String,
    /// The group, for a client; may be empty.
    pub organization: String,
    pub usage: Usage,
    /// DNS names and IP addresses, for a server.
    pub names: Vec<String>,
}

impl Subject {
    /// Returns the subject of an API server client.
    pub fn client(name: &str, user: &str, group: &str) -> Self {
        Self {
            name: name.to_owned(),
            by: CertificateAuthority::Cluster,
            common_name: user.to_owned(),
            organization: group.to_owned(),
            usage: Usage::Client,
            names: Vec::new(),
        }
    }
}
