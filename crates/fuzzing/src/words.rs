//! What operators write.

use quorate_api::resp::parse_users;
use quorate_core::{Group, NodeId, Settings};
use quorate_node::{Durability, parse_cluster};
use quorate_protocols::registry;
use quorate_runtime::AnyProtocol;
use quorate_store::User;

/// Settings, users and members are taken or refused with a message; members are read back from what they are written
/// as.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(members) = parse_cluster(&text) {
        let words: Vec<_> = members.iter().map(|(id, address)| format!("{id}={address}")).collect();
        assert_eq!(parse_cluster(&words.join(",")).ok(), Some(members));
    }
    let _ = text.parse::<Durability>();
    let _ = quorate_core::settings::parse_duration(&text);
    if let Ok(users) = parse_users(&text) {
        // Whatever is accepted is carried out.
        for (_, rules) in users {
            let mut user = User::new(1);
            assert!(rules.iter().all(|rule| user.change(rule).is_ok()));
        }
    }
    let Ok(settings) = Settings::parse(text.lines()) else { return };
    for entry in registry::all() {
        configure(entry.protocol, settings.clone());
    }
}

fn configure(protocol: &dyn AnyProtocol, mut settings: Settings) {
    let group = Group::of((1..4).filter_map(NodeId::new).collect());
    if protocol.configure(&group, &mut settings).is_ok() && settings.finish().is_ok() {
        // What is in force is accepted again, and is the same for the peers.
        let words: Vec<_> =
            settings.effective().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut again = Settings::parse(&words).expect("settings in force are settings");
        assert!(protocol.configure(&group, &mut again).is_ok(), "{words:?}");
        assert_eq!(again.digest(), settings.digest());
    }
}

pub fn settings_seeds() -> Vec<Vec<u8>> {
    let effective = |protocol: &'static dyn AnyProtocol| {
        let words: String =
            protocol.defaults(3).iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        words.into_bytes()
    };
    let users = "user default off\nuser ann on >p #00 ~a* %R~b +@read -client|id reset nopass \
                 (~a +get) (%W~b +@all -get) clearselectors ()";
    let texts = [users, "1=127.0.0.1:7201,2=db2:7201,3=[::1]:7201", "fsync", "250ms", "a=1\nb=2s\nc=4KiB"];
    let protocols = registry::all().into_iter().map(|entry| effective(entry.protocol));
    texts.map(|text| text.as_bytes().to_vec()).into_iter().chain(protocols).collect()
}
