//! The list of protocols: names and settings.

use quorate_core::Setting;
use quorate_protocols::registry::{all, find};

#[test]
fn every_protocol_is_found_by_its_own_name_only() {
    let all = all();
    for (index, entry) in all.iter().enumerate() {
        assert_eq!(find(entry.name).unwrap().protocol.name(), entry.name);
        assert!(all[..index].iter().all(|other| other.name != entry.name), "{} twice", entry.name);
    }
    assert!(find("no-such-protocol").is_err());
}

#[test]
fn every_setting_is_described() {
    for entry in all() {
        for (name, setting) in entry.settings() {
            let Setting { expected, meaning, .. } = setting;
            assert!(!expected.is_empty() && !meaning.is_empty(), "{}: {name}", entry.name);
            assert!(!meaning.contains('|'), "{}: {name} breaks the table of its page", entry.name);
        }
    }
}
