//! What operators write.

use quorate_core::{Group, NodeId, Protocol, Settings};
use quorate_node::{Durability, parse_cluster};
use quorate_protocols::registry::{self, Visitor};

/// Settings and members are taken or refused with a message; members are read back from what they are written as.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(members) = parse_cluster(&text) {
        let words: Vec<_> = members.iter().map(|(id, address)| format!("{id}={address}")).collect();
        assert_eq!(parse_cluster(&words.join(",")).ok(), Some(members));
    }
    let _ = text.parse::<Durability>();
    let _ = quorate_core::settings::parse_duration(&text);
    let Ok(settings) = Settings::parse(text.lines()) else { return };
    for info in registry::all() {
        registry::with(info.name, Configure(settings.clone()));
    }
}

struct Configure(Settings);

impl Visitor for Configure {
    type Out = ();
    fn visit<P: Protocol>(mut self) {
        let members = (1..4).filter_map(NodeId::new).collect();
        if P::configure(&Group::of(members), &mut self.0).is_ok() && self.0.finish().is_ok() {
            // What is in force is accepted again, and is the same for the peers.
            let words: Vec<_> =
                self.0.effective().iter().map(|(key, value)| format!("{key}={value}")).collect();
            let mut again = Settings::parse(&words).expect("settings in force are settings");
            assert!(P::configure(&Group::of(members), &mut again).is_ok(), "{words:?}");
            assert_eq!(again.digest(), self.0.digest());
        }
    }
}

pub fn settings_seeds() -> Vec<Vec<u8>> {
    struct Effective;
    impl Visitor for Effective {
        type Out = Vec<u8>;
        fn visit<P: Protocol>(self) -> Vec<u8> {
            let (group, mut settings) =
                (Group::of((1..4).filter_map(NodeId::new).collect()), Settings::default());
            P::configure(&group, &mut settings).expect("the defaults are valid");
            let words = settings.effective().iter().map(|(key, value)| format!("{key}={value}\n"));
            words.collect::<String>().into_bytes()
        }
    }
    let texts = ["1=127.0.0.1:7201,2=db2:7201,3=[::1]:7201", "fsync", "250ms", "a=1\nb=2s\nc=4KiB"];
    let protocols = registry::all().into_iter().filter_map(|info| registry::with(info.name, Effective));
    texts.map(|text| text.as_bytes().to_vec()).into_iter().chain(protocols).collect()
}
