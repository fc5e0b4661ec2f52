//! What a certificate is to say.

/// Who signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// For everybody who speaks to the API server, and the server itself.
    Cluster,
    /// For the API server where it speaks for others to aggregated servers.
    FrontProxy,
    /// For members of the store, and the API servers that speak to them.
    Store,
}

impl Authority {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::FrontProxy, Self::Store];

    /// What its files are called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Store => "etcd-ca",
        }
    }

    /// What its certificate calls it.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Cluster => "kubernetes-ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Store => "etcd-ca",
        }
    }
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// To be connected to.
    Server,
    /// To connect.
    Client,
    /// Both, among equals.
    Peer,
}

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What its files are called.
    pub name: String,
    /// Who signs it.
    pub by: Authority,
    /// The user, for a client.
    pub common_name: String,
    /// The group, for a client; empty if none.
    pub organization: String,
    /// What it is for.
    pub usage: Usage,
    /// Names and addresses, for a server.
    pub names: Vec<String>,
}

impl Subject {
    /// A client of the API server.
    pub fn client(name: &str, user: &str, group: &str) -> Self {
        Self {
            name: name.to_owned(),
            by: Authority::Cluster,
            common_name: user.to_owned(),
            organization: group.to_owned(),
            usage: Usage::Client,
            names: Vec::new(),
        }
    }
}
