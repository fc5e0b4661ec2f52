//! Network links, addresses and routes over rtnetlink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::cidr::{Cidr, octets};
use crate::socket::{
    ACK, CREATE, DUMP, EXCLUSIVE, Error, Protocol, REPLACE, Reply, Request, Socket, attributes, read_ip, read_u32,
};

const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const GETLINK: u16 = 18;
const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
const GETADDR: u16 = 22;
const NEWROUTE: u16 = 24;
const DELROUTE: u16 = 25;
const GETROUTE: u16 = 26;
const NEWNEIGH: u16 = 28;

const LINK_HEADER_LEN: usize = 16;
const ADDRESS_HEADER_LEN: usize = 8;
const ROUTE_HEADER_LEN: usize = 12;
const FLAG_UP: u32 = 1;
/// MTU if no default route determines it.
const MTU_DEFAULT: u32 = 1500;
const TABLE_MAIN: u8 = 254;
/// Route protocol number of our routes: identifies them, so that no other routes are touched.
const ROUTE_PROTOCOL: u8 = 107;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Whether the administrative state is up.
    pub up: bool,
    pub mtu: u32,
    /// MAC address.
    pub hardware: Vec<u8>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    pub ip: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub to: Cidr,
    pub hop: Hop,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Directly connected to a link.
    Link {
        index: u32,
        /// Preferred source address.
        source: Option<IpAddr>,
    },
    /// A gateway on a link, assumed to be on-link whatever its address.
    Via {
        index: u32,
        /// Address of the gateway.
        neighbour: IpAddr,
    },
    /// Unreachable: senders get an ICMP error.
    Unreachable,
}

/// The end of a veth pair that is created in another namespace.
pub struct Peer<'a> {
    pub name: &'a str,
    /// MAC address.
    pub hardware: [u8; 6],
    pub netns: BorrowedFd<'a>,
}

/// An rtnetlink socket of one network namespace.
pub struct Links(Socket);

impl Links {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        Socket::open(Protocol::Route).map(Self)
    }

    /// Returns a link by name; `None` if it does not exist.
    pub fn find(&mut self, name: &str) -> Result<Option<Link>, Error> {
        let request = Request::of(GETLINK, ACK, &[0; LINK_HEADER_LEN], |it| {
            it.put_str(IFLA_IFNAME, name);
        });
        match self.0.query("get a link", request) {
            Ok(replies) => Ok(replies.iter().filter_map(read_link).next()),
            Err(error) if is(&error, libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn list(&mut self) -> Result<Vec<Link>, Error> {
        let replies = self.0.query("list links", Request::of(GETLINK, DUMP, &[0; LINK_HEADER_LEN], |_| {}))?;
        Ok(replies.iter().filter_map(read_link).collect())
    }

    /// Creates a veth pair with one end here and the other in the pod's namespace, both down.
    ///
    /// The peer is created in its namespace with its final name: moving and renaming it would take ten times as long.
    pub fn add_veth(&mut self, name: &str, mtu: u32, peer: &Peer<'_>) -> Result<(), Error> {
        const PEER: u16 = 1;
        let request = Request::of(NEWLINK, ACK | CREATE | EXCLUSIVE, &link_header(0, false), |it| {
            it.put_str(IFLA_IFNAME, name).put_u32(IFLA_MTU, mtu);
            it.nest(IFLA_LINKINFO, |it| {
                it.put_str(INFO_KIND, "veth");
                it.nest(INFO_DATA, |it| {
                    it.nest(PEER, |it| {
                        it.raw(&link_header(0, false)).put_str(IFLA_IFNAME, peer.name).put_u32(IFLA_MTU, mtu);
                        it.put(IFLA_ADDRESS, &peer.hardware);
                        it.put_u32(IFLA_NET_NS_FD, peer.netns.as_raw_fd().cast_unsigned());
                    });
                });
            });
        });
        self.0.execute("create a veth pair", request)
    }

    /// Creates a link whose kind needs no parameters, such as `bridge` or `veth`.
    pub fn add_plain(&mut self, name: &str, kind: &str) -> Result<(), Error> {
        let make = Request::of(NEWLINK, ACK | CREATE | EXCLUSIVE, &link_header(0, false), |it| {
            it.put_str(IFLA_IFNAME, name).nest(IFLA_LINKINFO, |it| {
                it.put_str(INFO_KIND, kind);
            });
        });
        self.0.execute("create a link", make)
    }

    /// Creates a VXLAN device without remote; routes and neighbour entries determine the remote ends. Updates the MTU
    /// of an existing one.
    pub fn ensure_vxlan(&mut self, name: &str, id: u32, port: u16, mtu: u32, hardware: [u8; 6]) -> Result<Link, Error> {
        const VXLAN_ID: u16 = 1;
        const VXLAN_LEARNING: u16 = 7;
        const VXLAN_PORT: u16 = 15;
        let make = Request::of(NEWLINK, ACK | CREATE | EXCLUSIVE, &link_header(0, true), |it| {
            it.put_str(IFLA_IFNAME, name).put_u32(IFLA_MTU, mtu).put(IFLA_ADDRESS, &hardware);
            it.nest(IFLA_LINKINFO, |it| {
                it.put_str(INFO_KIND, "vxlan");
                it.nest(INFO_DATA, |it| {
                    it.put_u32(VXLAN_ID, id).put(VXLAN_LEARNING, &[0]).put(VXLAN_PORT, &port.to_be_bytes());
                });
            });
        });
        match self.0.execute("create a VXLAN link", make) {
            Err(error) if !is(&error, libc::EEXIST) => return Err(error),
            _ => {}
        }
        let link = self.find(name)?.ok_or(Error::Malformed("create a VXLAN link"))?;
        if link.mtu != mtu {
            // The MTU of the uplink has changed since the device was created.
            let change = Request::of(NEWLINK, ACK, &link_header(link.index, link.up), |it| {
                it.put_u32(IFLA_MTU, mtu);
            });
            self.0.execute("set the MTU of a VXLAN link", change)?;
        }
        Ok(Link { mtu, ..link })
    }

    /// Returns the MTU of the default route's link; the minimum of several.
    pub fn outward_mtu(&mut self) -> Result<u32, Error> {
        let all = self.list()?;
        let routes = self.routes(Routes::All)?;
        let outward = routes.iter().filter(|route| route.to.prefix() == 0).filter_map(|route| route.hop.index());
        let mtu = outward.filter_map(|index| all.iter().find(|link| link.index == index)).map(|link| link.mtu).min();
        Ok(mtu.unwrap_or(MTU_DEFAULT))
    }

    /// Creates a link that only holds addresses: a dummy, or an IFB if the kernel has no dummy.
    pub fn ensure_dummy(&mut self, name: &str) -> Result<Link, Error> {
        for kind in ["dummy", "ifb"] {
            match self.ensure_plain(name, kind) {
                Err(error) if is(&error, libc::EOPNOTSUPP) => {}
                made => return made,
            }
        }
        self.ensure_plain(name, "bridge")
    }

    /// Creates an IFB link, which can queue redirected ingress packets.
    pub fn ensure_ifb(&mut self, name: &str) -> Result<Link, Error> {
        self.ensure_plain(name, "ifb")
    }

    /// Creates a link whose kind needs no parameters, if it does not exist.
    fn ensure_plain(&mut self, name: &str, kind: &str) -> Result<Link, Error> {
        const WHAT: &str = "create a dummy or IFB link";
        let make = Request::of(NEWLINK, ACK | CREATE | EXCLUSIVE, &link_header(0, true), |it| {
            it.put_str(IFLA_IFNAME, name);
            it.nest(IFLA_LINKINFO, |it| {
                it.put_str(INFO_KIND, kind);
            });
        });
        match self.0.execute(WHAT, make) {
            Err(error) if !is(&error, libc::EEXIST) => return Err(error),
            _ => {}
        }
        self.find(name)?.ok_or(Error::Malformed(WHAT))
    }

    pub fn set_up(&mut self, index: u32) -> Result<(), Error> {
        self.0.execute("set a link up", Request::of(NEWLINK, ACK, &link_header(index, true), |_| {}))
    }

    /// Deletes a link; returns whether it existed.
    pub fn delete(&mut self, name: &str) -> Result<bool, Error> {
        let request = Request::of(DELLINK, ACK, &[0; LINK_HEADER_LEN], |it| {
            it.put_str(IFLA_IFNAME, name);
        });
        match self.0.execute("delete a link", request) {
            Ok(()) => Ok(true),
            Err(error) if is(&error, libc::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds an address; succeeds if the link has it already.
    pub fn add_address(&mut self, address: &Address) -> Result<(), Error> {
        self.0.execute("add an address", address_request(NEWADDR, ACK | CREATE | REPLACE, address, None))
    }

    /// Adds a host address with a lifetime in seconds; the kernel removes it unless it is added again. The preferred
    /// lifetime is 0, so the address is not used as default source address.
    pub fn lend_address(&mut self, index: u32, ip: IpAddr, seconds: u32) -> Result<(), Error> {
        let address = Address { index, ip, prefix: if ip.is_ipv4() { 32 } else { 128 } };
        let life = Some([0, seconds]);
        self.0
            .execute("add an address with a lifetime", address_request(NEWADDR, ACK | CREATE | REPLACE, &address, life))
    }

    /// Deletes an address; succeeds if it does not exist.
    pub fn delete_address(&mut self, address: &Address) -> Result<(), Error> {
        let result = self.0.execute("delete an address", address_request(DELADDR, ACK, address, None));
        result.or_else(|error| if is(&error, libc::EADDRNOTAVAIL) { Ok(()) } else { Err(error) })
    }

    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let request = Request::of(GETADDR, DUMP, &[0; ADDRESS_HEADER_LEN], |_| {});
        let replies = self.0.query("list addresses", request)?;
        Ok(replies.iter().filter_map(read_address).collect())
    }

    /// Adds a route, or replaces the route to the same destination.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        self.0.execute("add a route", route_request(NEWROUTE, ACK | CREATE | REPLACE, route))
    }

    /// Deletes a route; succeeds if it does not exist.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let result = self.0.execute("delete a route", route_request(DELROUTE, ACK, route));
        result.or_else(|error| if is(&error, libc::ESRCH) { Ok(()) } else { Err(error) })
    }

    /// Returns routes of the main table.
    pub fn routes(&mut self, which: Routes) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut header = [0; ROUTE_HEADER_LEN];
            header[0] = u8::try_from(family).expect("address families fit into u8");
            let replies = self.0.query("list routes", Request::of(GETROUTE, DUMP, &header, |_| {}))?;
            routes.extend(replies.iter().filter_map(|reply| read_route(reply, which)));
        }
        Ok(routes)
    }

    /// Adds a permanent neighbour entry: the MAC address of an address, or for a tunnel the remote host of a MAC
    /// address.
    pub fn add_neighbour(&mut self, index: u32, neighbour: &Neighbour) -> Result<(), Error> {
        const PERMANENT: u16 = 0x80;
        const SELF: u8 = 0x02;
        let (family, flags) = match neighbour {
            Neighbour::Address { ip, .. } => (family_of(*ip), 0),
            Neighbour::Tunnel { .. } => (u8::try_from(libc::AF_BRIDGE).expect("address families fit into u8"), SELF),
        };
        let mut header = [0; 12];
        header[0] = family;
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
        header[10] = flags;
        let (Neighbour::Address { ip, hardware } | Neighbour::Tunnel { ip, hardware }) = neighbour;
        let request = Request::of(NEWNEIGH, ACK | CREATE | REPLACE, &header, |it| {
            it.put(1, &octets(*ip)).put(2, hardware);
        });
        self.0.execute("add a neighbour entry", request)
    }
}

/// Receives link and address changes of one network namespace.
pub struct Changes(Socket);

impl Changes {
    /// Subscribes in the calling thread's namespace.
    pub fn open() -> Result<Self, Error> {
        const LINKS: u32 = 1;
        const ADDRESSES: [u32; 2] = [5, 9];
        let mut socket = Socket::open(Protocol::Route)?;
        socket.join(&[LINKS, ADDRESSES[0], ADDRESSES[1]])?;
        Ok(Self(socket))
    }

    /// Waits for a change and returns the indexes of the changed links; `None` if messages were lost. Host addresses
    /// (`/32`, `/128`) are ignored, because pods and services change them constantly.
    pub fn wait(&mut self) -> Result<Option<Vec<u32>>, Error> {
        let alone = |reply: &Reply| {
            let address = [NEWADDR, DELADDR].contains(&reply.kind);
            address && matches!(reply.payload.get(1), Some(32 | 128))
        };
        match self.0.receive_events() {
            // Link and address messages have the index at the same offset.
            Ok(received) => {
                let changed = received.iter().filter(|reply| !alone(reply));
                Ok(Some(changed.filter_map(|reply| read_u32(reply.payload.get(4..)?)).collect()))
            }
            Err(error) if is(&error, libc::ENOBUFS) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Selection of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    /// Routes with our protocol number.
    Managed,
    All,
}

/// A neighbour entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Maps an address to a MAC address.
    Address {
        ip: IpAddr,
        /// MAC address.
        hardware: [u8; 6],
    },
    /// Maps a MAC address to the host at the other end of a tunnel.
    Tunnel {
        /// Address of the remote host.
        ip: IpAddr,
        hardware: [u8; 6],
    },
}

impl Hop {
    /// Returns the index of the outgoing link.
    pub const fn index(&self) -> Option<u32> {
        match self {
            Self::Link { index, .. } | Self::Via { index, .. } => Some(*index),
            Self::Unreachable => None,
        }
    }
}

/// Derives a MAC address from an address, so that a reused address has the same MAC and no neighbour cache is stale.
pub fn hardware_of(ip: IpAddr) -> [u8; 6] {
    let octets = octets(ip);
    let mut hardware = [0x0a, 0x58, 0, 0, 0, 0];
    hardware[2..].copy_from_slice(&octets[octets.len() - 4..]);
    hardware
}

fn is(error: &Error, errno: i32) -> bool {
    error.errno() == Some(errno)
}

fn link_header(index: u32, up: bool) -> [u8; LINK_HEADER_LEN] {
    let mut header = [0; LINK_HEADER_LEN];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    let flags = if up { FLAG_UP } else { 0 };
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

fn read_link(reply: &Reply) -> Option<Link> {
    let mut link = Link {
        index: read_u32(reply.payload.get(4..)?)?,
        up: read_u32(reply.payload.get(8..)?)? & FLAG_UP != 0,
        ..Link::default()
    };
    for (kind, value) in reply.attributes(LINK_HEADER_LEN) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = read_u32(value)?,
            IFLA_ADDRESS => link.hardware = value.to_vec(),
            _ => {}
        }
    }
    Some(link)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

fn family_of(ip: IpAddr) -> u8 {
    u8::try_from(if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }).expect("address families fit into u8")
}

/// Builds an address request. `life` is the preferred and valid lifetime in seconds; `None` is infinite.
fn address_request(kind: u16, flags: u16, address: &Address, life: Option<[u32; 2]>) -> Request {
    const LIFE: u16 = 6;
    const LOCAL: u16 = 2;
    const SAME: u16 = 1;
    /// IFA_F_NODAD: skips duplicate address detection, because the address is unique.
    const NO_DETECTION: u8 = 0x02;
    let mut header = [0; ADDRESS_HEADER_LEN];
    header[0] = family_of(address.ip);
    header[1] = address.prefix;
    header[2] = if address.ip.is_ipv6() { NO_DETECTION } else { 0 };
    header[4..8].copy_from_slice(&address.index.to_ne_bytes());
    Request::of(kind, flags, &header, |it| {
        it.put(LOCAL, &octets(address.ip)).put(SAME, &octets(address.ip));
        if let Some([preferred, valid]) = life {
            // The last two fields are timestamps, which the kernel sets.
            it.put(LIFE, &[preferred, valid, 0, 0].map(u32::to_ne_bytes).concat());
        }
    })
}

fn read_address(reply: &Reply) -> Option<Address> {
    let (prefix, index) = (*reply.payload.get(1)?, read_u32(reply.payload.get(4..)?)?);
    let rest = reply.payload.get(ADDRESS_HEADER_LEN..)?;
    // On point-to-point links IFA_LOCAL (2) is the own address and IFA_ADDRESS (1) the peer's; otherwise both are equal
    // or only one exists.
    let value = attributes(rest).find(|(kind, _)| *kind == 2).or_else(|| attributes(rest).find(|(kind, _)| *kind == 1));
    Some(Address { index, ip: read_ip(value?.1)?, prefix })
}

const UNREACHABLE: u8 = 7;

fn route_request(kind: u16, flags: u16, route: &Route) -> Request {
    const ONLINK: u32 = 4;
    const SCOPE_LINK: u8 = 253;
    const UNICAST: u8 = 1;
    let mut header = [0; ROUTE_HEADER_LEN];
    header[0] = family_of(route.to.base());
    header[1] = route.to.prefix();
    header[4] = TABLE_MAIN;
    header[5] = ROUTE_PROTOCOL;
    header[7] = UNICAST;
    match route.hop {
        Hop::Link { .. } if route.to.is_ipv4() => header[6] = SCOPE_LINK,
        Hop::Link { .. } => {}
        Hop::Via { .. } => header[8..12].copy_from_slice(&ONLINK.to_ne_bytes()),
        Hop::Unreachable => header[7] = UNREACHABLE,
    }
    Request::of(kind, flags, &header, |it| {
        if route.to.prefix() > 0 {
            it.put(RTA_DST, &octets(route.to.base()));
        }
        if let Some(index) = route.hop.index() {
            it.put_u32(RTA_OIF, index);
        }
        match route.hop {
            Hop::Link { source: Some(source), .. } => {
                it.put(RTA_PREFSRC, &octets(source));
            }
            Hop::Via { neighbour, .. } => {
                it.put(RTA_GATEWAY, &octets(neighbour));
            }
            Hop::Link { source: None, .. } | Hop::Unreachable => {}
        }
    })
}

fn read_route(reply: &Reply, which: Routes) -> Option<Route> {
    let header = reply.payload.get(..ROUTE_HEADER_LEN)?;
    if header[4] != TABLE_MAIN || (which == Routes::Managed && header[5] != ROUTE_PROTOCOL) {
        return None;
    }
    let mut to: IpAddr = if header[0] == 2 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let (mut neighbour, mut source, mut index) = (None, None, 0);
    for (kind, value) in reply.attributes(ROUTE_HEADER_LEN) {
        match kind {
            RTA_DST => to = read_ip(value)?,
            RTA_OIF => index = read_u32(value)?,
            RTA_GATEWAY => neighbour = read_ip(value),
            RTA_PREFSRC => source = read_ip(value),
            _ => {}
        }
    }
    let hop = match neighbour {
        _ if header[7] == UNREACHABLE => Hop::Unreachable,
        Some(neighbour) => Hop::Via { index, neighbour },
        None => Hop::Link { index, source },
    };
    Some(Route { to: Cidr::around(to, header[1]), hop })
}
