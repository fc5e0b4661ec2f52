//! Shuffle sharding: the hand of queues dealt to a flow.

/// Maximum queues of a flow.
pub const HAND_SIZE_MAX: u32 = 15;
/// Maximum bits of a hash that a hand may use.
const ENTROPY_BITS_MAX: f64 = 60.0;

/// Deals hands of `hand_size` distinct cards from a deck of `deck_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck_size: u32,
    hand_size: u32,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("deckSize {deck_size} or handSize {hand_size} is not positive")]
    NotPositive {
        /// The number of queues.
        deck_size: i64,
        /// The number of queues per flow.
        hand_size: i64,
    },
    #[error("handSize {hand_size} is greater than deckSize {deck_size}")]
    HandTooLarge {
        /// The number of queues.
        deck_size: i64,
        /// The number of queues per flow.
        hand_size: i64,
    },
    /// A hash has too few bits for the number of possible hands.
    #[error("required entropy bits of deckSize {deck_size} and handSize {hand_size} is greater than 60")]
    Entropy {
        /// The number of queues.
        deck_size: i64,
        /// The number of queues per flow.
        hand_size: i64,
    },
}

impl Dealer {
    /// Returns a dealer for `deck_size` queues with `hand_size` queues per flow.
    pub fn new(deck_size: i64, hand_size: i64) -> Result<Self, Error> {
        let (Ok(deck), Ok(hand)) = (u32::try_from(deck_size), u32::try_from(hand_size)) else {
            return Err(Error::NotPositive { deck_size, hand_size });
        };
        if deck == 0 || hand == 0 {
            return Err(Error::NotPositive { deck_size, hand_size });
        }
        if hand > deck {
            return Err(Error::HandTooLarge { deck_size, hand_size });
        }
        // Fifteen cards of a deck of sixteen already need 60 bits, so the entropy check also bounds the hand.
        if hand > HAND_SIZE_MAX || entropy_bits(deck, hand) > ENTROPY_BITS_MAX {
            return Err(Error::Entropy { deck_size, hand_size });
        }
        Ok(Self { deck_size: deck, hand_size: hand })
    }

    /// Returns the hand for a hash, in dealing order.
    pub fn deal(&self, mut hash: u64) -> Hand {
        let mut hand = Hand { cards: [0; HAND_SIZE_MAX as usize], len: self.hand_size as usize };
        let mut remainders = [0; HAND_SIZE_MAX as usize];
        for (at, remainder) in remainders[..hand.len].iter_mut().enumerate() {
            let left = u64::from(self.deck_size) - at as u64;
            *remainder = (hash % left) as u32;
            hash /= left;
        }
        // A remainder counts only the cards still in the deck. Each dealt card that is not greater shifts it up by one.
        for at in 0..hand.len {
            let shift = |card: u32, dealt: &u32| if card >= *dealt { card + 1 } else { card };
            hand.cards[at] = remainders[..at].iter().rev().fold(remainders[at], shift);
        }
        hand
    }
}

/// The cards of one hand.
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    cards: [u32; HAND_SIZE_MAX as usize],
    len: usize,
}

impl Hand {
    pub fn cards(&self) -> &[u32] {
        &self.cards[..self.len]
    }
}

/// Returns the bits of a hash that determine a hand.
pub fn entropy_bits(deck_size: u32, hand_size: u32) -> f64 {
    (0..hand_size).map(|dealt| f64::from(deck_size.saturating_sub(dealt)).log2()).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hand_has_distinct_cards_of_the_deck(hash: u64, deck in 1_i64..2000, hand in 1_i64..8) {
            let Ok(dealer) = Dealer::new(deck, hand) else { return Ok(()) };
            let hand_dealt = dealer.deal(hash);
            let cards: BTreeSet<u32> = hand_dealt.cards().iter().copied().collect();
            prop_assert_eq!(cards.len() as i64, hand);
            prop_assert!(cards.iter().all(|card| i64::from(*card) < deck));
        }
    }

    #[test]
    fn every_hand_of_a_small_deck_is_dealt_equally_often() {
        let dealer = Dealer::new(5, 3).unwrap();
        let mut seen = std::collections::BTreeMap::<Vec<u32>, u32>::new();
        for hash in 0..600 {
            *seen.entry(dealer.deal(hash).cards().to_vec()).or_default() += 1;
        }
        assert_eq!(seen.len(), 5 * 4 * 3);
        assert!(seen.values().all(|count| *count == 10));
    }

    #[test]
    fn invalid_deck_and_hand_sizes_are_rejected() {
        assert!(matches!(Dealer::new(0, 1), Err(Error::NotPositive { .. })));
        assert!(matches!(Dealer::new(4, -1), Err(Error::NotPositive { .. })));
        assert!(matches!(Dealer::new(4, 5), Err(Error::HandTooLarge { .. })));
        assert!(matches!(Dealer::new(512, 7), Err(Error::Entropy { .. })));
        assert!(Dealer::new(128, 8).is_ok());
        assert!(Dealer::new(10_000_000, 2).is_ok());
    }
}
