//! DNS messages: decodes a query, computes the answer, and encodes what fits.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use crate::answer::{Answer, answer};
use crate::zone::Zone;

/// UDP message size that every client accepts without EDNS.
const UDP_BYTES_MIN: usize = 512;
/// Maximum message size: its length has 16 bits.
const BYTES_MAX: usize = 65_535;
/// EDNS payload size that we advertise: avoids fragmentation on all networks.
pub const PAYLOAD: u16 = 1232;

/// Maximum CNAMEs followed, because CNAMEs may form a loop.
const ALIASES_MAX: usize = 8;

/// Transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Next step for a received message.
#[derive(Debug)]
pub enum Next {
    /// Send this reply.
    Reply(Vec<u8>),
    /// Forward the query to other resolvers.
    Forward(Box<Message>),
    /// Complete a CNAME chain that leads outside the cluster.
    Complete(Box<PartialAnswer>),
    /// Not a query: send no reply.
    Ignore,
}

/// An answer that leads to an external name. Stub resolvers do not resolve it themselves.
#[derive(Debug)]
pub struct PartialAnswer {
    /// The original query.
    pub request: Message,
    /// The answer so far.
    pub reply: Message,
    /// The query to forward.
    pub question: Message,
}

/// Decides the next step for a received message. `turn` is any number that rotates the order of records, so that not
/// all clients use the first.
pub fn respond(zone: &Zone, bytes: &[u8], transport: Transport, turn: usize) -> Next {
    let Ok(request) = Message::from_vec(bytes) else { return reject_unreadable(bytes) };
    if request.metadata.message_type != MessageType::Query {
        return Next::Ignore;
    }
    let fail = |code| Next::Reply(encode(&reply(&request, code), &request, transport));
    if request.metadata.op_code != OpCode::Query {
        return fail(ResponseCode::NotImp);
    }
    let [query] = request.queries.as_slice() else { return fail(ResponseCode::FormErr) };
    if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return fail(ResponseCode::BADVERS);
    }
    if !matches!(query.query_class(), DNSClass::IN | DNSClass::ANY) {
        return fail(ResponseCode::Refused);
    }
    match answer(zone, query.name(), query.query_type()) {
        Answer::OutsideZone => Next::Forward(Box::new(request)),
        Answer::NotReady => fail(ResponseCode::ServFail),
        decided => {
            let mut reply = decided_reply(&request, decided, turn);
            match follow(zone, &mut reply, query.query_type()) {
                None => Next::Reply(encode(&reply, &request, transport)),
                Some(elsewhere) => {
                    let mut question = Message::query();
                    question.metadata.recursion_desired = true;
                    question.add_query(Query::query(elsewhere, query.query_type()));
                    Next::Complete(Box::new(PartialAnswer { request, reply, question }))
                }
            }
        }
    }
}

/// Follows CNAMEs within the zone; returns the external name at which to continue, if any.
fn follow(zone: &Zone, reply: &mut Message, kind: RecordType) -> Option<Name> {
    if !matches!(kind, RecordType::A | RecordType::AAAA) {
        return None;
    }
    for _ in 0..ALIASES_MAX {
        let Some(RData::CNAME(alias)) = reply.answers.last().map(|record| &record.data) else { return None };
        let name = alias.0.clone();
        match answer(zone, &name, kind) {
            Answer::Records { answers, .. } => reply.answers.extend(answers),
            Answer::OutsideZone => return Some(name),
            Answer::NoData(_) | Answer::NxDomain(_) | Answer::NotReady => return None,
        }
    }
    None
}

/// Creates a reply without records.
pub fn reply(request: &Message, code: ResponseCode) -> Message {
    let mut reply = Message::response(request.metadata.id, request.metadata.op_code);
    reply.metadata.recursion_desired = request.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.checking_disabled = request.metadata.checking_disabled;
    reply.metadata.response_code = code;
    reply.queries = request.queries.clone();
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        edns.set_rcode_high(code.high());
        reply.set_edns(edns);
    }
    reply
}

/// Encodes a reply. If it exceeds the client's size limit, records are omitted and the TC flag tells the client to
/// retry over TCP.
pub fn encode(message: &Message, request: &Message, transport: Transport) -> Vec<u8> {
    let advertised_size = request.edns.as_ref().map_or(UDP_BYTES_MIN, |edns| usize::from(edns.max_payload()));
    let size_limit = match transport {
        Transport::Udp => advertised_size.clamp(UDP_BYTES_MIN, BYTES_MAX),
        Transport::Tcp => BYTES_MAX,
    };
    let whole = message.to_vec().unwrap_or_default();
    if !whole.is_empty() && whole.len() <= size_limit {
        return whole;
    }
    let mut shorter = message.clone();
    // Additional records may be omitted without the TC flag.
    shorter.additionals.clear();
    loop {
        let bytes = shorter.to_vec().unwrap_or_default();
        if (!bytes.is_empty() && bytes.len() <= size_limit) || shorter.answers.is_empty() {
            return bytes;
        }
        shorter.metadata.truncation = true;
        shorter.answers.truncate(shorter.answers.len() / 2);
    }
}

fn decided_reply(request: &Message, decided: Answer, turn: usize) -> Message {
    let mut reply = reply(request, ResponseCode::NoError);
    reply.metadata.authoritative = true;
    match decided {
        Answer::Records { mut answers, additionals } => {
            let start = turn % answers.len().max(1);
            answers.rotate_left(start);
            reply.answers = answers;
            reply.additionals = additionals;
        }
        Answer::NxDomain(authority) => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.add_authority(authority);
        }
        Answer::NoData(authority) => {
            reply.add_authority(authority);
        }
        Answer::NotReady | Answer::OutsideZone => unreachable!("these results have no answer"),
    }
    reply
}

/// Answers an undecodable query with FORMERR, if its header is readable.
fn reject_unreadable(bytes: &[u8]) -> Next {
    let (Some(id), Some(flags)) = (bytes.get(..2), bytes.get(2)) else { return Next::Ignore };
    let is_reply = flags & 0x80 != 0;
    if bytes.len() < 12 || is_reply {
        return Next::Ignore;
    }
    let id = u16::from_be_bytes([id[0], id[1]]);
    let message = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
    message.to_vec().map_or(Next::Ignore, Next::Reply)
}

/// Returns the first question of a message.
pub fn question(message: &Message) -> Option<&Query> {
    message.queries.first()
}

#[cfg(test)]
mod tests {
    use apimachinery::{Key, Value, value};
    use proptest::prelude::*;

    use super::*;

    fn zone(endpoints: u8) -> Zone {
        let mut zone = Zone::new(&Name::from_ascii("cluster.local").unwrap());
        zone.complete = true;
        zone.set_service(&Key::new("a", "b"), Some(&value!({"spec": {"clusterIP": "None"}})));
        let list =
            (0..endpoints).map(|last| value!({"addresses": [(format!("10.0.0.{last}"))]})).collect::<Vec<Value>>();
        let slice = value!({"metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "b"}},
            "endpoints": list});
        zone.set_slice(&Key::new("a", "b-1"), Some(&slice));
        zone
    }

    fn request(name: &str, payload: Option<u16>) -> Message {
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        if let Some(payload) = payload {
            message.set_edns(Edns::new());
            message.edns.as_mut().unwrap().set_max_payload(payload);
        }
        message
    }

    fn resolve(zone: &Zone, message: &Message, transport: Transport, turn: usize) -> Message {
        match respond(zone, &message.to_vec().unwrap(), transport, turn) {
            Next::Reply(bytes) => Message::from_vec(&bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn oversized_reply_is_truncated_with_tc_flag() {
        let zone = zone(100);
        let name = "b.a.svc.cluster.local.";
        let small = resolve(&zone, &request(name, None), Transport::Udp, 0);
        assert!(small.metadata.truncation && !small.answers.is_empty() && small.to_vec().unwrap().len() <= 512);
        let large = resolve(&zone, &request(name, Some(4096)), Transport::Udp, 0);
        assert!(!large.metadata.truncation && large.edns.is_some());
        assert_eq!(large.answers.len(), 100);
        assert_eq!(resolve(&zone, &request(name, None), Transport::Tcp, 0).answers.len(), 100);
    }

    #[test]
    fn answers_rotate_and_are_authoritative() {
        let zone = zone(3);
        let message = request("B.a.svc.cluster.local.", None);
        let first = |turn| resolve(&zone, &message, Transport::Udp, turn).answers[0].data.to_string();
        assert_eq!([first(0), first(1), first(5)], ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
        let reply = resolve(&zone, &message, Transport::Udp, 0);
        assert!(reply.metadata.authoritative && reply.metadata.recursion_desired);
        assert_eq!(reply.queries, message.queries, "in the case of the query");
        assert_eq!(reply.metadata.id, message.metadata.id);
    }

    #[test]
    fn cname_chains_are_followed_and_loops_terminate() {
        let mut zone = zone(1);
        let mut external = |name: &str, target: &str| {
            let service = value!({"spec": {"type": "ExternalName", "externalName": target}});
            zone.set_service(&Key::new("a", name), Some(&service));
        };
        external("inside", "b.a.svc.cluster.local");
        external("outside", "example.org");
        external("round", "round.a.svc.cluster.local");
        let internal = resolve(&zone, &request("inside.a.svc.cluster.local.", None), Transport::Udp, 0);
        let records: Vec<String> = internal.answers.iter().map(|record| record.data.to_string()).collect();
        assert_eq!(records, ["b.a.svc.cluster.local.", "10.0.0.0"]);
        let query_bytes = request("outside.a.svc.cluster.local.", None).to_vec().unwrap();
        let Next::Complete(unfinished) = respond(&zone, &query_bytes, Transport::Udp, 0) else {
            panic!("the name continues elsewhere")
        };
        assert_eq!(unfinished.question.queries[0].name().to_string(), "example.org.");
        assert_eq!(unfinished.reply.answers.len(), 1);
        let round = resolve(&zone, &request("round.a.svc.cluster.local.", None), Transport::Tcp, 0);
        assert_eq!(round.answers.len(), ALIASES_MAX + 1);
    }

    #[test]
    fn negative_answers_have_an_soa_record() {
        let reply = resolve(&zone(1), &request("c.a.svc.cluster.local.", None), Transport::Udp, 0);
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!((reply.authorities.len(), reply.authorities[0].ttl), (1, 5));
    }

    #[test]
    fn messages_other_than_queries_are_rejected_or_ignored() {
        let zone = zone(1);
        let mut message = request("b.a.svc.cluster.local.", None);
        message.metadata.op_code = OpCode::Notify;
        assert_eq!(resolve(&zone, &message, Transport::Udp, 0).metadata.response_code, ResponseCode::NotImp);
        message = request("b.a.svc.cluster.local.", Some(512));
        message.edns.as_mut().unwrap().set_version(1);
        // Code 16 is BADVERS or, for signatures, BADSIG.
        let code = resolve(&zone, &message, Transport::Udp, 0).metadata.response_code;
        assert_eq!(u16::from(code), u16::from(ResponseCode::BADVERS));
        message.metadata.message_type = MessageType::Response;
        assert!(matches!(respond(&zone, &message.to_vec().unwrap(), Transport::Udp, 0), Next::Ignore));
        assert!(matches!(respond(&zone, b"", Transport::Udp, 0), Next::Ignore));
        assert!(matches!(respond(&zone, b"123456789012345", Transport::Udp, 0), Next::Reply(_)));
        assert!(matches!(
            respond(&zone, &request("example.org.", None).to_vec().unwrap(), Transport::Udp, 0),
            Next::Forward(_)
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            respond(&zone(2), &bytes, Transport::Udp, 0);
        }

        #[test]
        fn no_damaged_query_causes_a_panic(at in 0usize..60, byte in any::<u8>(), cut in 0usize..60) {
            let mut bytes = request("b.a.svc.cluster.local.", Some(1232)).to_vec().unwrap();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            bytes.truncate(bytes.len() - cut.min(last));
            respond(&zone(2), &bytes, Transport::Udp, 0);
        }
    }
}
