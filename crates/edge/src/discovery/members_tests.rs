//! The membership's rules, with the time as an argument.

use k8s_openapi::api::discovery::v1::EndpointConditions;
use kube::api::ObjectMeta;

use super::*;

const GRACE: Duration = Duration::from_secs(60);

/// Address, serving, terminating.
type Pod<'a> = (&'a str, Option<bool>, Option<bool>);

fn slice(name: &str, pods: &[Pod<'_>]) -> EndpointSlice {
    let endpoint = |&(ip, serving, terminating): &Pod<'_>| Endpoint {
        addresses: vec![ip.to_owned()],
        conditions: Some(EndpointConditions { ready: None, serving, terminating }),
        ..Endpoint::default()
    };
    EndpointSlice {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        endpoints: Some(pods.iter().map(endpoint).collect()),
        ..EndpointSlice::default()
    }
}

fn up(name: &str, ips: &[&str]) -> EndpointSlice {
    let pods: Vec<Pod<'_>> = ips.iter().map(|ip| (*ip, Some(true), Some(false))).collect();
    slice(name, &pods)
}

fn shown(members: &Members) -> Vec<String> {
    members.trusted().iter().map(ToString::to_string).collect()
}

fn listed(slices: &[EndpointSlice], now: Instant) -> Members {
    let mut members = Members::new(GRACE);
    relist(&mut members, slices, now);
    members
}

fn relist(members: &mut Members, slices: &[EndpointSlice], now: Instant) {
    assert_eq!(members.apply(Event::Init, now), Effect::None);
    for slice in slices {
        assert_eq!(members.apply(Event::InitApply(slice.clone()), now), Effect::None);
    }
    assert_eq!(members.apply(Event::InitDone, now), Effect::Current);
}

#[test]
fn both_families_and_all_slices_are_united() {
    let members = listed(&[up("v4", &["10.0.0.1", "10.0.0.2"]), up("v6", &["fd00::1"])], Instant::now());
    assert_eq!(shown(&members), ["10.0.0.1", "10.0.0.2", "fd00::1"]);
}

#[test]
fn serving_and_draining_pods_count_and_others_do_not() {
    let pods = [
        ("10.0.0.1", Some(true), Some(false)),
        ("10.0.0.2", None, None),
        ("10.0.0.3", Some(true), Some(true)),
        ("10.0.0.4", Some(false), Some(true)),
        ("10.0.0.5", Some(false), Some(false)),
        ("10.0.0.6", Some(false), None),
        ("proxy.example", Some(true), None),
    ];
    let mut list = slice("a", &pods);
    list.endpoints
        .as_mut()
        .unwrap()
        .push(Endpoint { addresses: vec!["10.0.0.7".to_owned()], ..Endpoint::default() });
    let members = listed(&[list], Instant::now());
    assert_eq!(shown(&members), ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.7"]);
}

#[test]
fn a_removed_address_stays_for_the_grace_and_no_longer() {
    let start = Instant::now();
    let mut members = listed(&[up("a", &["10.0.0.1", "10.0.0.2"])], start);
    assert_eq!(members.next_expiry(), None);
    members.apply(Event::Apply(up("a", &["10.0.0.2"])), start);
    assert_eq!(shown(&members), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(members.next_expiry(), Some(start + GRACE));
    assert!(!members.expire(start + GRACE - Duration::from_millis(1)));
    assert_eq!(shown(&members), ["10.0.0.1", "10.0.0.2"]);
    assert!(members.expire(start + GRACE));
    assert_eq!(shown(&members), ["10.0.0.2"]);
}

#[test]
fn an_address_that_returns_is_not_forgotten_later() {
    let start = Instant::now();
    let mut members = listed(&[up("a", &["10.0.0.1"])], start);
    members.apply(Event::Delete(up("a", &[])), start);
    members.apply(Event::Apply(up("b", &["10.0.0.1"])), start);
    assert_eq!(members.next_expiry(), None);
    members.expire(start + GRACE * 2);
    assert_eq!(shown(&members), ["10.0.0.1"]);
}

#[test]
fn an_address_moved_between_slices_never_leaves() {
    let start = Instant::now();
    let mut members = listed(&[up("a", &["10.0.0.1"]), up("b", &["10.0.0.1"])], start);
    members.apply(Event::Delete(up("a", &[])), start);
    assert_eq!(members.next_expiry(), None);
}

#[test]
fn a_later_event_does_not_prolong_the_grace() {
    let start = Instant::now();
    let later = start + Duration::from_secs(30);
    let mut members = listed(&[up("a", &["10.0.0.1", "10.0.0.2"])], start);
    members.apply(Event::Apply(up("a", &["10.0.0.2"])), start);
    members.apply(Event::Apply(up("a", &["10.0.0.2", "10.0.0.3"])), later);
    relist(&mut members, &[up("a", &["10.0.0.2", "10.0.0.3"])], later);
    assert_eq!(members.next_expiry(), Some(start + GRACE));
}

#[test]
fn a_list_that_breaks_off_changes_nothing() {
    let start = Instant::now();
    let mut members = listed(&[up("a", &["10.0.0.1"])], start);
    members.apply(Event::Init, start);
    members.apply(Event::InitApply(up("b", &["10.0.0.9"])), start);
    assert_eq!(shown(&members), ["10.0.0.1"]);
    relist(&mut members, &[up("c", &["10.0.0.2"])], start);
    members.expire(start + GRACE);
    assert_eq!(shown(&members), ["10.0.0.2"]);
}

#[test]
fn an_empty_list_empties_the_set_after_the_grace() {
    let start = Instant::now();
    let mut members = listed(&[up("a", &["10.0.0.1"])], start);
    relist(&mut members, &[], start);
    assert_eq!(shown(&members), ["10.0.0.1"]);
    members.expire(start + GRACE);
    assert!(shown(&members).is_empty());
}
