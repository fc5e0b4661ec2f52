//! Shuffle sharding: which few of many queues belong to a flow.

/// The most queues a flow may have.
pub const HAND_SIZE_MAX: u32 = 15;
/// The bits of a hash that hands may use up.
const ENTROPY_BITS_MAX: f64 = 60.0;

/// Deals hands of `hand_size` different cards from a deck of `deck_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck_size: u32,
    hand_size: u32,
}

/// Why cards cannot be dealt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no deck or no hand.
    #[error("deckSize {deck_size} or handSize {hand_size} is not positive")]
    NotPositive {
        /// How many queues there are.
        deck_size: i64,
        /// How many of them a flow gets.
        hand_size: i64,
    },
    /// A flow would get more queues than there are.
    #[error("handSize {hand_size} is greater than deckSize {deck_size}")]
    HandTooLarge {
        /// How many queues there are.
        deck_size: i64,
        /// How many of them a flow gets.
        hand_size: i64,
    },
    /// A hash of 64 bits cannot tell so many hands apart.
    #[error("required entropy bits of deckSize {deck_size} and handSize {hand_size} is greater than 60")]
    Entropy {
        /// How many queues there are.
        deck_size: i64,
        /// How many of them a flow gets.
        hand_size: i64,
    },
}

impl Dealer {
    /// A dealer for so many queues, of which each flow gets `hand_size`.
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
        // Fifteen cards of a deck of sixteen are already 60 bits, so that checking the bits bounds the hand too.
        if hand > HAND_SIZE_MAX || entropy_bits(deck, hand) > ENTROPY_BITS_MAX {
            return Err(Error::Entropy { deck_size, hand_size });
        }
        Ok(Self { deck_size: deck, hand_size: hand })
    }

    /// The hand for a hash, in the order of the deal.
    pub fn deal(&self, mut hash: u64) -> Hand {
        let mut hand = Hand { cards: [0; HAND_SIZE_MAX as usize], len: self.hand_size as usize };
        let mut remainders = [0; HAND_SIZE_MAX as usize];
        for (at, remainder) in remainders[..hand.len].iter_mut().enumerate() {
            let left = u64::from(self.deck_size) - at as u64;
            *remainder = (hash % left) as u32;
            hash /= left;
        }
        // A remainder counts only the cards still in the deck: each card already dealt that is not above moves it up.
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
    /// The cards.
    pub fn cards(&self) -> &[u32] {
        &self.cards[..self.len]
    }
}

/// The bits of a hash that decide a hand.
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
        fn a_hand_is_as_many_different_cards_of_the_deck(hash: u64, deck in 1_i64..2000, hand in 1_i64..8) {
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
    fn what_cannot_be_dealt_is_refused() {
        assert!(matches!(Dealer::new(0, 1), Err(Error::NotPositive { .. })));
        assert!(matches!(Dealer::new(4, -1), Err(Error::NotPositive { .. })));
        assert!(matches!(Dealer::new(4, 5), Err(Error::HandTooLarge { .. })));
        assert!(matches!(Dealer::new(512, 7), Err(Error::Entropy { .. })));
        assert!(Dealer::new(128, 8).is_ok());
        assert!(Dealer::new(10_000_000, 2).is_ok());
    }
}
