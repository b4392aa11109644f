//! The key patterns of a user or a selector (`~pattern` in Redis's ACL), found without comparing all.

use std::collections::BTreeMap;
use std::ops::Deref;

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Wire, WireError, wire_struct};

/// Which keys may be used, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// What is read of them may be told.
    pub read: bool,
    /// They may be changed.
    pub write: bool,
    /// Keys that match it are meant: a pattern with `*`, `?` and `[…]`, as Redis has them.
    pub pattern: Bytes,
}
wire_struct!(KeyRule { read, write, pattern });

impl KeyRule {
    pub(super) fn detached(&self) -> KeyRule {
        KeyRule { pattern: Bytes::copy_from_slice(&self.pattern), ..*self }
    }
}

/// Rules in the order in which they were added. One command may add tens of thousands, and every replica executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    rules: Vec<KeyRule>,
    /// Where the first rule with this pattern is.
    places: BTreeMap<Bytes, usize>,
}

impl KeyRules {
    /// One more. If there is one with its pattern, that allows as much as both.
    pub fn add(&mut self, rule: &KeyRule) {
        match self.places.get(&rule.pattern).map(|place| &mut self.rules[*place]) {
            Some(known) => {
                known.read |= rule.read;
                known.write |= rule.write;
            }
            None => {
                self.places.insert(rule.pattern.clone(), self.rules.len());
                self.rules.push(rule.clone());
            }
        }
    }

    /// None is left.
    pub fn clear(&mut self) {
        *self = KeyRules::default();
    }

    pub(super) fn detached(&self) -> KeyRules {
        self.iter().map(KeyRule::detached).collect()
    }
}

impl Deref for KeyRules {
    type Target = [KeyRule];

    fn deref(&self) -> &[KeyRule] {
        &self.rules
    }
}

/// They stay as they come, also two of one pattern: what was decoded is encoded alike.
impl FromIterator<KeyRule> for KeyRules {
    fn from_iter<I: IntoIterator<Item = KeyRule>>(rules: I) -> KeyRules {
        let mut all = KeyRules::default();
        for rule in rules {
            all.places.entry(rule.pattern.clone()).or_insert(all.rules.len());
            all.rules.push(rule);
        }
        all
    }
}

impl Wire for KeyRules {
    fn encode(&self, out: &mut Encoder) {
        self.rules.encode(out);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Vec::decode(input)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rwa`: keys that match `a` may be read and written.
    fn rules(words: &str) -> Vec<KeyRule> {
        let rule = |word: &str| KeyRule {
            read: word.contains('r'),
            write: word.contains('w'),
            pattern: Bytes::copy_from_slice(word.trim_start_matches(['r', 'w']).as_bytes()),
        };
        words.split_whitespace().map(rule).collect()
    }

    #[test]
    fn a_pattern_is_named_once_and_those_of_an_image_are_as_they_were() {
        let mut all: KeyRules = rules("rb wa rb").into_iter().collect();
        let copy = KeyRules::from_bytes(all.to_bytes()).expect("it was encoded");
        assert_eq!((&copy, copy.to_vec()), (&all, rules("rb wa rb")));
        for (added, expected) in
            [("ra", "rb rwa rb"), ("wb", "rwb rwa rb"), ("wc", "rwb rwa rb wc"), ("wc", "rwb rwa rb wc")]
        {
            rules(added).iter().for_each(|rule| all.add(rule));
            assert_eq!(all.to_vec(), rules(expected), "{added}");
        }
        all.clear();
        all.add(&rules("wa")[0]);
        assert_eq!(all.detached().to_vec(), rules("wa"));
    }
}
