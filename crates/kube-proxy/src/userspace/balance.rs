//! Endpoint selection of the userspace proxy: round robin, with session affinity.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::endpoints::EndpointAddr;

/// Maximum number of clients with session affinity; further clients are served without affinity.
const CLIENTS_MAX: usize = 10_000;
/// Minimum interval between removals of expired clients when the maximum is reached.
const SWEEP: Duration = Duration::from_secs(1);

/// Round robin state and session affinity of one frontend.
#[derive(Debug, Default)]
pub(super) struct Balance {
    turn: usize,
    stuck: BTreeMap<IpAddr, (EndpointAddr, Instant)>,
    /// Time of the last removal of expired clients.
    swept: Option<Instant>,
}

impl Balance {
    /// Selects an endpoint for a client; `None` if there are no endpoints.
    pub(super) fn pick(
        &mut self,
        places: &[EndpointAddr],
        affinity_seconds: Option<u32>,
        client: IpAddr,
        now: Instant,
    ) -> Option<EndpointAddr> {
        let affinity_timeout = affinity_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        if let (Some(affinity_timeout), Some((endpoint, seen))) = (affinity_timeout, self.stuck.get_mut(&client))
            && now.saturating_duration_since(*seen) < affinity_timeout
            && places.contains(endpoint)
        {
            *seen = now;
            return Some(*endpoint);
        }
        let endpoint = *places.get(self.turn.checked_rem(places.len())?)?;
        self.turn = self.turn.wrapping_add(1);
        if let Some(affinity_timeout) = affinity_timeout {
            let swept = self.swept.is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP);
            if self.stuck.len() >= CLIENTS_MAX && !swept {
                self.swept = Some(now);
                self.stuck.retain(|_, (_, seen)| now.saturating_duration_since(*seen) < affinity_timeout);
            }
            if self.stuck.len() < CLIENTS_MAX {
                self.stuck.insert(client, (endpoint, now));
            }
        }
        Some(endpoint)
    }

    /// Removes the affinity of a client whose endpoint did not respond.
    pub(super) fn remove_affinity(&mut self, client: IpAddr) {
        self.stuck.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8) -> EndpointAddr {
        (IpAddr::from([10, 0, 0, last]), 80)
    }

    #[test]
    fn endpoints_rotate_and_session_affinity_expires() {
        let (all, now) = ([endpoint(1), endpoint(2), endpoint(3)], Instant::now());
        let [one, two] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut balance = Balance::default();
        let turns: Vec<EndpointAddr> = (0..4).filter_map(|_| balance.pick(&all, None, one, now)).collect();
        assert_eq!(turns, [endpoint(1), endpoint(2), endpoint(3), endpoint(1)]);
        assert_eq!(balance.pick(&[], None, one, now), None);
        let mut sticky = Balance::default();
        let mut pick = |places: &[EndpointAddr], client, after| {
            sticky.pick(places, Some(60), client, now + Duration::from_secs(after)).unwrap()
        };
        assert_eq!(
            [pick(&all, one, 0), pick(&all, two, 0), pick(&all, one, 50)],
            [endpoint(1), endpoint(2), endpoint(1)]
        );
        assert_eq!(pick(&all, one, 100), endpoint(1), "each connection is balanced again");
        assert_eq!(pick(&all, two, 100), endpoint(3), "the affinity has expired");
        assert_eq!(pick(&[endpoint(2)], one, 101), endpoint(2), "the endpoint does not exist any more");
        sticky.remove_affinity(one);
        assert_eq!(sticky.pick(&all, Some(60), one, now), Some(endpoint(2)));
    }

    #[test]
    fn affinity_table_is_bounded() {
        let mut balance = Balance::default();
        let now = Instant::now();
        for client in 0..2 * u32::try_from(CLIENTS_MAX).unwrap() {
            balance.pick(&[endpoint(1)], Some(60), IpAddr::V4(client.into()), now);
        }
        assert_eq!(balance.stuck.len(), CLIENTS_MAX);
    }
}
