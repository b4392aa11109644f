//! One key's entry as bytes, and back: for protocols that send values in place of commands.
//!
//! The image has the whole entry: kind and value, when it expires, and its versions. Equal entries have equal images.

use bytes::Bytes;
use quorate_core::{Wall, Wire, WireError, wire_enum, wire_struct};

use crate::command::Key;
use crate::entry::{Entry, Value, detach};
use crate::hash::Hash;
use crate::store::Store;

struct KeyImage {
    created: u64,
    version: u64,
    deadline: Option<Wall>,
    value: ValueImage,
}
wire_struct!(KeyImage { created, version, deadline, value });

enum ValueImage {
    String(Bytes),
    /// Fields with their values, at least one.
    Hash(Vec<(Bytes, Bytes)>),
}
wire_enum!(ValueImage {
    0 => String(value),
    1 => Hash(fields),
});

impl Store {
    /// The entry at a key, `None` if there is none. One whose time is up, and that is not removed yet, is there.
    pub fn image(&self, key: &Key) -> Option<Bytes> {
        let Entry { value, created, version, deadline } = self.keys.get(&key[..])?;
        let value = match value {
            Value::String(string) => ValueImage::String(string.clone()),
            Value::Hash(hash) => ValueImage::Hash(
                hash.iter().map(|(field, value)| (field.bytes().to_bytes(), value.clone())).collect(),
            ),
        };
        let (created, version, deadline) = (*created, *version, *deadline);
        Some(KeyImage { created, version, deadline, value }.to_bytes())
    }

    /// Makes a key's entry the one of this image; `None` removes the key. Neither time nor revision moves. An image
    /// that cannot be read changes nothing.
    pub fn put_image(&mut self, key: &Key, image: Option<&Bytes>) -> Result<(), WireError> {
        match image.map(entry).transpose()? {
            Some(entry) => self.put_entry(key, entry),
            None => drop(self.remove(key)),
        }
        Ok(())
    }
}

fn entry(image: &Bytes) -> Result<Entry, WireError> {
    let KeyImage { created, version, deadline, value } = KeyImage::from_bytes(image.clone())?;
    let value = match value {
        ValueImage::String(string) => Value::String(detach(&string)),
        ValueImage::Hash(fields) => {
            let mut hash = Hash::default();
            for (field, value) in &fields {
                hash.insert(field, detach(value));
            }
            // A key goes with its last field, and no field is named twice.
            if hash.is_empty() || hash.len() < fields.len() {
                return Err(WireError::Value { what: "fields of a hash", found: fields.len() as u64 });
            }
            Value::Hash(hash)
        }
    };
    Ok(Entry { value, created, version, deadline })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Condition, Expiry};

    fn key(text: &'static str) -> Key {
        Bytes::from_static(text.as_bytes())
    }

    fn put(text: &'static str, expiry: Expiry) -> Command {
        let (key, value) = (key(text), Bytes::from_static(b"value"));
        Command::Put { key, value, condition: Condition::Always, expiry, old: false }
    }

    fn filled() -> Store {
        let mut store = Store::new();
        let fields =
            (0..100_u8).map(|field| (Bytes::from(vec![field]), Bytes::from(vec![field; 3]))).collect();
        let commands = [
            put("string", Expiry::Never),
            put("short-lived", Expiry::In(1000)),
            Command::HashPut { key: key("hash"), fields, if_absent: false },
            Command::Append { key: key("string"), value: Bytes::from_static(b"more") },
        ];
        for (revision, command) in (1..).zip(&commands) {
            store.apply(command, revision, Wall::from_millis(5));
        }
        store
    }

    #[test]
    fn an_image_has_all_of_an_entry_and_leaves_the_others_alone() {
        let from = filled();
        let mut to = Store::new();
        to.apply(&put("hash", Expiry::In(7)), 1, Wall::from_millis(3));
        to.apply(&put("other", Expiry::Never), 2, Wall::from_millis(3));
        for text in ["string", "short-lived", "hash"] {
            let image = from.image(&key(text)).expect("it is there");
            to.put_image(&key(text), Some(&image)).expect("an image that was made is read");
            assert_eq!(to.image(&key(text)), Some(image), "{text}");
        }
        assert_eq!((to.len(), to.expiring(), to.revision()), (4, 1, 2));
        to.put_image(&key("other"), None).expect("nothing is read");
        assert_eq!(to.bytes(), from.bytes());
        assert_eq!(to.next_expiry(), from.next_expiry());
        assert!(to.image(&key("other")).is_none() && from.image(&key("other")).is_none());
    }

    #[test]
    fn what_is_no_image_changes_nothing() {
        let mut store = filled();
        let (before, hash) = (store.digest(), key("hash"));
        let twice = vec![(key("f"), key("1")), (key("f"), key("2"))];
        let image = |fields| {
            let value = ValueImage::Hash(fields);
            KeyImage { created: 1, version: 1, deadline: None, value }.to_bytes()
        };
        for image in [image(Vec::new()), image(twice), key("short")] {
            assert!(store.put_image(&hash, Some(&image)).is_err());
        }
        assert_eq!(store.digest(), before);
    }
}
