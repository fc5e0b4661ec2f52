//! Interning arena: values shared by many users, stored once with a reference count.

use std::hash::Hash;
use std::sync::Arc;

use crate::hash::Map;

/// Interned values with reference counts.
#[derive(Clone, Debug)]
pub struct Arena<T> {
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    ids: Map<Arc<T>, u32>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    value: Arc<T>,
    users: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: Map::default() }
    }
}

impl<T: Hash + Eq> Arena<T> {
    /// Returns the ID of `value` and adds a user.
    pub fn acquire(&mut self, value: &Arc<T>) -> u32 {
        if let Some(&id) = self.ids.get(value) {
            self.slots[id as usize].as_mut().expect("an interned value has a slot").users += 1;
            return id;
        }
        let slot = Some(Slot { value: value.clone(), users: 1 });
        let id = if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 values are interned")
        };
        self.ids.insert(value.clone(), id);
        id
    }

    /// Removes a user of `id`. Returns whether it was the last one; the ID may then be reused.
    pub fn release(&mut self, id: u32) -> bool {
        let slot = self.slots[id as usize].as_mut().expect("a value in use has a slot");
        slot.users -= 1;
        if slot.users > 0 {
            return false;
        }
        let value = slot.value.clone();
        self.ids.remove(&value);
        self.slots[id as usize] = None;
        self.free.push(id);
        true
    }

    /// Returns the ID of `value`, if it is in use.
    pub fn find<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        Arc<T>: std::borrow::Borrow<Q>,
    {
        self.ids.get(value).copied()
    }

    /// Returns the value of an ID; panics if it is not in use.
    pub fn value(&self, id: u32) -> &Arc<T> {
        &self.slots[id as usize].as_ref().expect("a value in use has a slot").value
    }

    /// Returns every value in use with its ID, ordered by ID.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        (0..).zip(&self.slots).filter_map(|(id, slot)| Some((id, &slot.as_ref()?.value)))
    }

    /// Returns an upper bound (exclusive) of the IDs in use.
    pub const fn end(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_stored_once_until_its_last_release() {
        let mut arena = Arena::<u8>::default();
        let (a, b) = (Arc::new(1), Arc::new(2));
        assert_eq!((arena.acquire(&a), arena.acquire(&b), arena.acquire(&a)), (0, 1, 0));
        assert!(!arena.release(0));
        assert!(arena.release(0));
        assert_eq!(arena.find(&1_u8), None);
        assert_eq!(arena.acquire(&Arc::new(3)), 0, "the slot is reused");
        assert_eq!(arena.iter().map(|(id, value)| (id, **value)).collect::<Vec<_>>(), [(0, 3), (1, 2)]);
    }
}
