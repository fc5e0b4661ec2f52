//! Fault injection.

use crate::host::{Host, TICK_MS};
use crate::random::Random;
use crate::simulation::{Event, FAULTS_UNTIL_MS, Simulation};

impl Simulation {
    /// Injects one random fault. Returns the time until the next one.
    pub(crate) fn harm(&mut self) -> u64 {
        let count = self.hosts.len();
        let victim = self.any_host();
        match self.random.between(0, 16) {
            0 => self.network.island = island(&mut self.random, &self.hosts),
            1 => self.network.island.clear(),
            2 => {
                self.network.loss = self.random.between(0, 30);
                self.network.doubled = self.random.between(0, 20);
                self.network.delay_ms_max = [5, 50, 400][self.random.index(3)];
            }
            3 | 4 => self.crash(victim),
            5 => {
                let operations = self.random.between(0, 60);
                self.hosts[victim].disk.fail_after(operations);
            }
            6 => (0..count).for_each(|host| self.crash(host)),
            7 => self.hosts[victim].sync_ms = [1, 30, 300, 1500][self.random.index(4)],
            8 => self.hosts[victim].paused_until = self.now_ms + self.random.between(100, 2500),
            9 => self.burst(victim),
            10 => self.transfer(victim),
            11 | 12 => self.hosts[victim].disk.set_full(true),
            13 => (0..count).for_each(|host| self.hosts[host].disk.set_full(false)),
            14 => self.hang_up(victim),
            _ => self.network.delay_ms_max = self.random.between(1, 100),
        }
        self.random.between(50, 900)
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.network = crate::network::Network { delay_ms_max: 3, ..Default::default() };
        for host in 0..self.hosts.len() {
            self.hosts[host].sync_ms = 1;
            self.hosts[host].paused_until = 0;
            self.hosts[host].disk.set_full(false);
            if self.hosts[host].disk.is_dead() {
                self.crash(host);
            }
        }
    }

    /// Simulates a clock jump: as many ticks as an election timeout.
    fn burst(&mut self, victim: usize) {
        let now = self.now_ms;
        let host = &mut self.hosts[victim];
        let clock = now + host.clock_offset_ms;
        if let Some(live) = &mut host.live {
            (0..FAULTS_UNTIL_MS / TICK_MS / 4).for_each(|_| live.replica.tick(clock));
        }
        self.run_pending(victim);
    }

    /// Breaks the connections of a member, with or without ending its process.
    pub(crate) fn hang_up(&mut self, victim: usize) {
        let peer = self.hosts[victim].id;
        for host in (0..self.hosts.len()).filter(|host| *host != victim) {
            let wait = self.random.between(1, 30);
            self.after(wait, Event::PeerDisconnected { host, peer });
        }
    }

    fn transfer(&mut self, to: usize) {
        let id = self.hosts[to].id;
        for host in 0..self.hosts.len() {
            if let Some(live) = &mut self.hosts[host].live {
                live.replica.transfer(id);
            }
            self.run_pending(host);
        }
    }
}

fn island(random: &mut Random, hosts: &[Host]) -> std::collections::BTreeSet<u64> {
    hosts.iter().map(|host| host.id).filter(|_| random.percent(50)).collect()
}
