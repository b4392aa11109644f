//! A page for people (`/`), and what it shows (`/status.json`): the group as this node sees it.

use std::time::Duration;

use quorate_core::{Amount, GroupId};
use quorate_node::frontend::SlowRequest;
use quorate_node::monitor::{Health, Report};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use crate::resp::KeyGroups;
use crate::status;

/// Markup, style and script in one file.
const PAGE: &str = include_str!("page.html");

/// What stands in it for the nonce.
const NONCE: &str = "{{nonce}}";

/// The page, and its Content-Security-Policy: its own script and style by a nonce, requests to this node, and nothing
/// else. `None` if the system gives no random number.
pub(super) fn page() -> Option<(String, String)> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).ok()?;
    let nonce = format!("{:032x}", u128::from_le_bytes(random));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Some((PAGE.replace(NONCE, &nonce), policy))
}

/// One JSON object: what `QUORATE STATUS` answers, and beside it whether the node serves, who is in the group, how long
/// things take and which requests were slow. Of those neither keys nor clients: nobody is authenticated here.
pub(super) fn describe(report: Report, health: &Health, groups: Option<&KeyGroups>) -> Value {
    let Report { samples, status, facts, groups: statuses, members, contacts, slow } = report;
    let samples = samples.iter().chain(&status.samples);
    let times = samples.filter_map(|sample| {
        let Amount::Times(times) = &sample.value else { return None };
        let buckets = times.buckets().map(|(bound, count)| json!([bound.as_secs_f64(), count]));
        Some(json!({
            "name": sample.name,
            "label": sample.label.as_ref().map(|(_, value)| value),
            "count": times.count(),
            "buckets": buckets.collect::<Vec<_>>(),
        }))
    });
    let times = times.collect::<Vec<_>>();
    let members = members.nodes.iter().map(
        |(node, member)| json!({ "node": node.get(), "address": member.address, "voter": member.voter }),
    );
    let groups = groups.map(|groups| (groups, &statuses[..]));
    let mut text = status::describe(&status, facts, &contacts, groups);
    text["serves"] = health.is_ok().into();
    text["trouble"] = health.as_ref().err().cloned().into();
    text["members"] = members.collect();
    text["times"] = times.into();
    text["slow"] = slow.iter().map(slow_request).collect();
    text
}

fn slow_request(request: &SlowRequest) -> Value {
    let millis = |took: Duration| took.as_secs_f64() * 1000.0;
    let stages = request.stages.iter().map(|(stage, took)| json!([stage, millis(*took)]));
    json!({
        "ended_ms": request.ended.millis(),
        "command": request.asked.command,
        "took_ms": millis(request.took),
        "group": request.group.map(GroupId::get),
        "slot": request.slot,
        "stages": stages.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_script_or_style_but_those_of_its_policy() {
        let (page, policy) = page().unwrap();
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        assert_eq!(nonce.len(), 32);
        for element in ["script", "style"] {
            let start = format!("<{element} nonce=\"{nonce}\">");
            assert_eq!((page.matches(&start).count(), page.matches(&format!("<{element}")).count()), (1, 1));
        }
        assert!(!page.contains(NONCE));
        // Nothing comes from elsewhere, and texts of nodes are never read as markup.
        for word in ["http://", "https://", "src=", "style=", "onclick", "innerHTML", "eval("] {
            assert!(!page.contains(word), "{word}");
        }
        assert_ne!(super::page().unwrap().1, policy);
    }
}
